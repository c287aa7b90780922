/* types.h - tensors, quantization and small helpers that all parts of the runtime use.
 * Internal names begin with ln_; only names that begin with linnet_ are public. */
#ifndef LN_TYPES_H
#define LN_TYPES_H

#include "linnet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LN_MAX_RANK LINNET_MAX_RANK
#define LN_MAX_OPERANDS                                                                                                \
    32 /* most inputs or outputs of one step, including those of its epilogue; only copy and map may have more */
#define LN_MOST_BYTES                                                                                                  \
    ((uint64_t)1 << 46) /* most bytes of one tensor; kernels can then multiply counts without overflow */
#define LN_LAST_DTYPE LINNET_U4
#define LN_ALIGNMENT 64 /* alignment of every buffer that a kernel gets, except the user's memory */

/* The names of the CPU's layouts. base/layout.c has the order of the axes of each. A tensor's strides alone say where
 * its elements lie; the name only says from which layout the strides were computed. */
enum ln_layout {
    LN_LAYOUT_DENSE,         /* row-major in the logical order */
    LN_LAYOUT_CHANNELS_LAST, /* rank >= 3: dimension 1 innermost, i.e. order 0, 2, 3, ..., 1 */
    LN_LAYOUTS
};

enum ln_quant_scheme { LN_QUANT_NONE = 0, LN_QUANT_TENSOR = 1, LN_QUANT_AXIS = 2, LN_QUANT_BLOCK = 3 };

/* real = (stored - zero) * scale. Both arrays have `count` entries; `zero` may be NULL (all 0). */
typedef struct ln_quant {
    uint8_t scheme; /* enum ln_quant_scheme */
    uint8_t bits;
    int32_t axis;   /* AXIS and BLOCK: the axis along which the scales differ */
    uint32_t block; /* BLOCK: number of elements along `axis` that share a scale */
    uint32_t count;
    const float *scale;
    const int32_t *zero;
} ln_quant;

/* A tensor as the planner and the kernels see it. Strides are in elements; in views they may be 0 (broadcast) or
 * negative. Only while shapes are inferred, a dimension or the rank may be -1 (unknown). */
typedef struct ln_tensor {
    uint8_t dtype; /* linnet_dtype; LINNET_NONE: an optional operand that is absent */
    uint8_t layout;
    int8_t rank;
    bool read_only; /* a variable that the plan only reads, so kernels may keep a packed copy; set in kernel calls */
    bool lasting;   /* a variable that the plan only reads, but there is no memory for a packed copy; kernels choose the
                       same methods as for `read_only`, and pack in each run */
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
    const ln_quant *quant; /* NULL: none */
    const void *data;      /* the value, always dense; NULL: the value is known only at run time */
} ln_tensor;

/* Tells whether kernels may pack the tensor before a run: it is a constant, or a variable that no run of the plan
 * changes. */
static inline bool ln_packable(const ln_tensor *t) { return t->data != NULL || t->read_only; }

/* Tells whether the tensor never changes during a run. Choices that change the bits of a result depend on this
 * function, and never on whether there is memory for a packed copy. */
static inline bool ln_lasting(const ln_tensor *t) { return ln_packable(t) || t->lasting; }

/* Lists in the attributes of ops: `n` items at `v`. `v` may be NULL if `n` is 0. */
typedef struct ln_ints {
    const int64_t *v;
    int64_t n;
} ln_ints;

typedef struct ln_floats {
    const double *v;
    int64_t n;
} ln_floats;

typedef struct ln_text {
    const char *v; /* any bytes, not always followed by a NUL */
    int64_t n;
} ln_text;

/* Returns the bits of one element; 0 if `dtype` is not a dtype. Each half byte of the constant stands for one
 * linnet_dtype: 1 for 4 bits, 2 for 8, and so on. Kernels call this function often, so it is inline and loads no table.
 */
inline int ln_dtype_bits(int dtype) {
    return (unsigned)dtype < 16 ? (2 << (0x1125432543253340u >> 4 * (unsigned)dtype & 15)) & 0x7C : 0;
}
/* Returns the bytes of one element, from the half byte of its dtype; 0 also if two elements share a byte. */
inline size_t ln_dtype_size(int dtype) {
    return (unsigned)dtype < 16 ? 0x0018421842182240u >> 4 * (unsigned)dtype & 15 : 0;
}
bool ln_dtype_is_float(int dtype); /* f32, f64, f16, bf16 */
static inline bool ln_is_byte(int dtype) { return dtype == LINNET_I8 || dtype == LINNET_U8; }
static inline bool ln_is_half(int dtype) { return dtype == LINNET_F16 || dtype == LINNET_BF16; }

/* Returns the number of elements; -1 if a dimension is unknown; INT64_MAX if the number exceeds the range of i64. A
 * shape rule may see such a number in a shape that is computed from data, before the plan refuses it
 * (LINNET_TOO_LARGE). */
int64_t ln_count(const ln_tensor *t);
/* Two i4 or u4 elements share a byte, so only these functions compute bytes from a number of elements. Elements are in
 * the dense order, and the element with the even number is in the low half of its byte.
 * ln_bytes computes the bytes of a dense tensor. It returns false if they exceed LN_MOST_BYTES or if a dimension is
 * negative or unknown.
 * ln_known_bytes returns the same bytes, or 0 where ln_bytes returns false.
 * ln_bytes_of returns the bytes of `count` >= 0 consecutive elements, of which the first one begins a byte.
 * ln_offset_of_element returns the offset of the byte in which the element with this number begins. */
bool ln_bytes(const ln_tensor *t, uint64_t *bytes);
uint64_t ln_known_bytes(const ln_tensor *t);
uint64_t ln_bytes_of(int dtype, int64_t count);
int64_t ln_offset_of_element(int dtype, int64_t number);
/* Tells whether the offset of the element with this number is a multiple of `bytes`. */
bool ln_element_aligned(int dtype, int64_t number, uint64_t bytes);
/* Returns the number of blocks of a tensor that is quantized per block; -1 if a dimension is unknown. A block is
 * `block` > 0 elements along `axis`; the last block along the axis may be shorter. The scales are in row-major order
 * over the tensor's shape in which dimension `axis` is replaced by its number of blocks. */
int64_t ln_block_count(const ln_tensor *t, int axis, int64_t block);
/* Maps an axis in [-rank, rank) to [0, rank); returns -1 outside that range. */
int ln_axis(int64_t axis, int rank);

/* Scalar access for reference kernels. They load or store the element with number `index` and convert it from or to
 * double or int64. A number outside the range of an integer dtype saturates, a float becomes an integer by truncation,
 * NaN becomes the integer 0, and f16 and bf16 round to nearest even. */
double ln_load_f64(const void *data, int dtype, int64_t index);
int64_t ln_load_i64(const void *data, int dtype, int64_t index);
void ln_store_f64(void *data, int dtype, int64_t index, double value);
void ln_store_i64(void *data, int dtype, int64_t index, int64_t value);
/* Stores the low 4 bits of `value`. Keeps the other element in the byte, so two threads must not share a byte. */
void ln_store_half_byte(void *data, int64_t index, int64_t value);
float ln_f16_to_f32(uint16_t h);
uint16_t ln_f32_to_f16(float f);
float ln_bf16_to_f32(uint16_t h);
uint16_t ln_f32_to_bf16(float f);

static inline int64_t ln_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ln_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ln_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t ln_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

#endif
