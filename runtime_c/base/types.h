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
    32 /* inputs or outputs of one step, including those of its epilogue; only copy and map may have more */
#define LN_MOST_BYTES ((uint64_t)1 << 46) /* of one tensor; leaves kernels room to multiply counts without overflow */
#define LN_LAST_DTYPE LINNET_U4
#define LN_ALIGNMENT 64 /* of every buffer that a kernel sees, except user memory */

/* The layouts of the CPU by name (base/layout.c has the order of axes of each). The strides define a tensor's layout;
 * the name only says where they come from. */
enum ln_layout {
    LN_LAYOUT_DENSE,         /* row-major in the logical order */
    LN_LAYOUT_CHANNELS_LAST, /* rank >= 3: dimension 1 innermost, i.e. order 0, 2, 3, ..., 1 */
    LN_LAYOUTS
};

enum ln_quant_scheme { LN_QUANT_NONE = 0, LN_QUANT_TENSOR = 1, LN_QUANT_AXIS = 2, LN_QUANT_BLOCK = 3 };

/* real = (stored - zero) * scale. Both arrays have `count` entries; `zero` may be NULL (all 0). */
typedef struct ln_quant {
    uint8_t scheme;
    uint8_t bits;
    int32_t axis;
    uint32_t block;
    uint32_t count;
    const float *scale;
    const int32_t *zero;
} ln_quant;

/* A tensor as planned. Strides are in elements; in views they may be 0 (broadcast) or negative. During inference only,
 * a dimension or the rank may be -1 (unknown). `data` is the value if it is known at plan time; it is always dense. */
typedef struct ln_tensor {
    uint8_t dtype; /* linnet_dtype; LINNET_NONE: an optional operand that is absent */
    uint8_t layout;
    int8_t rank;
    bool steady;  /* a variable that the plan only reads, so kernels may keep a packed copy; set in calls */
    bool lasting; /* the same, where there is no memory for a copy. Kernels choose the same way, and pack in each run */
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
    const ln_quant *quant; /* NULL: none */
    const void *data;      /* NULL: known only at run time */
} ln_tensor;

/* Whether kernels may rearrange the tensor before a run: it is a constant, or a variable that no run of the plan
 * changes.
 */
static inline bool ln_packable(const ln_tensor *t) { return t->data != NULL || t->steady; }

/* Whether the tensor is the same in every run, or changes only between runs. Choices that change the bits of a result
 * depend on this, never on whether there is memory for a packed copy. */
static inline bool ln_lasting(const ln_tensor *t) { return ln_packable(t) || t->lasting; }

typedef struct ln_ints {
    const int64_t *v;
    int64_t n;
} ln_ints;

typedef struct ln_floats {
    const double *v;
    int64_t n;
} ln_floats;

typedef struct ln_text {
    const char *v; /* any bytes */
    int64_t n;
} ln_text;

/* Bits of one element; 0 if `dtype` is not a dtype. A half byte of the number stands for each linnet_dtype: 1 for 4
 * bits, 2 for 8, and so on. Kernels ask for every strip, so there is no call and no load. */
inline int ln_dtype_bits(int dtype) {
    return (unsigned)dtype < 16 ? (2 << (0x1125432543253340u >> 4 * (unsigned)dtype & 15)) & 0x7C : 0;
}
/* Bytes of one element, which its half byte says; 0 also if two elements share a byte. */
inline size_t ln_dtype_size(int dtype) {
    return (unsigned)dtype < 16 ? 0x0018421842182240u >> 4 * (unsigned)dtype & 15 : 0;
}
bool ln_dtype_is_float(int dtype); /* f32, f64, f16, bf16 */
static inline bool ln_is_byte(int dtype) { return dtype == LINNET_I8 || dtype == LINNET_U8; }
static inline bool ln_is_half(int dtype) { return dtype == LINNET_F16 || dtype == LINNET_BF16; }

/* Number of elements; -1 when a dimension is unknown. INT64_MAX if the count exceeds the range of i64. Shape rules may
   see such a count in a shape that comes from data, before the plan refuses it (LINNET_TOO_LARGE). */
int64_t ln_count(const ln_tensor *t);
/* The only places that compute bytes from a count of elements, because two i4 or u4 elements share a byte. Elements are
 * in the dense order, and the element with the even number is in the low half of its byte.
 * ln_bytes: the bytes of a dense tensor. Returns false above LN_MOST_BYTES, and for a negative or unknown dimension.
 * ln_known_bytes: the same; 0 where ln_bytes returns false.
 * ln_bytes_of: the bytes that `count` >= 0 consecutive elements take, if the first one begins a byte.
 * ln_offset_of_element: the offset of the byte in which the element with this number begins. */
bool ln_bytes(const ln_tensor *t, uint64_t *bytes);
uint64_t ln_known_bytes(const ln_tensor *t);
uint64_t ln_bytes_of(int dtype, int64_t count);
int64_t ln_offset_of_element(int dtype, int64_t number);
/* Whether the element with this number begins at a multiple of `bytes`. */
bool ln_element_aligned(int dtype, int64_t number, uint64_t bytes);
/* Number of blocks of the tensor, each `block` > 0 elements along `axis`; the last ones of a line may be shorter.
 * Scales are in row-major order over the shape that has the number of blocks per line at `axis`. -1: a dimension is
 * unknown. */
int64_t ln_block_count(const ln_tensor *t, int axis, int64_t block);
/* Maps an axis in [-rank, rank) to [0, rank); returns -1 outside that range. */
int ln_axis(int64_t axis, int rank);

/* Scalar access for reference kernels: the element at `index` (in elements) as double or int64, with conversion.
 * Integers saturate, floats to integers truncate, NaN becomes 0, and f16 and bf16 round to nearest even. */
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
