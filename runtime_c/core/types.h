/* types.h - tensors, quantization and small helpers that everything inside the runtime speaks of.
 * Internal names begin with ln_; only linnet_ names are public. */
#ifndef LN_TYPES_H
#define LN_TYPES_H

#include "linnet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LN_MAX_RANK LINNET_MAX_RANK
#define LN_MAX_OPERANDS                                                                                                \
    32 /* inputs, or outputs, of one step including those of its epilogue; more only in copy and map */
#define LN_MOST_BYTES ((uint64_t)1 << 46) /* of one tensor: leaves kernels room to multiply counts without overflow */
#define LN_ALIGNMENT 64                   /* of every buffer that a kernel sees, except user memory */

/* Physical layout: which order the dimensions lie in memory. Strides carry the truth; this is its name. */
enum ln_layout {
    LN_LAYOUT_DENSE = 0,        /* row-major in the logical order */
    LN_LAYOUT_CHANNELS_LAST = 1 /* rank >= 3: dimension 1 innermost, i.e. order 0, 2, 3, ..., 1 */
};

enum ln_quant_scheme { LN_QUANT_NONE = 0, LN_QUANT_TENSOR = 1, LN_QUANT_AXIS = 2, LN_QUANT_BLOCK = 3 };

/* real = (stored - zero) * scale. count entries; zero may be NULL (all 0). */
typedef struct ln_quant {
    uint8_t scheme;
    uint8_t bits;
    int32_t axis;
    uint32_t block;
    uint32_t count;
    const float *scale;
    const int32_t *zero;
} ln_quant;

/* A tensor as planned. Strides are in elements and may be 0 (broadcast) or negative in views; dims may be -1 (unknown)
 * only during inference, rank -1 likewise. `data` is the value when it is known at plan time (always dense). */
typedef struct ln_tensor {
    uint8_t dtype; /* linnet_dtype; LINNET_NONE: absent optional operand */
    uint8_t layout;
    int8_t rank;
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
    const ln_quant *quant; /* NULL: none */
    const void *data;      /* NULL: known only while running */
} ln_tensor;

typedef struct ln_ints {
    const int64_t *v;
    int64_t n;
} ln_ints;

typedef struct ln_floats {
    const double *v;
    int64_t n;
} ln_floats;

size_t ln_dtype_size(int dtype);
bool ln_dtype_is_float(int dtype); /* f32, f64, f16, bf16 */

/* Number of elements; -1 when a dimension is unknown. Shape rules may meet more than an i64 holds, in shapes that data
 * gives, before the plan refuses them (LINNET_TOO_LARGE): then INT64_MAX. */
int64_t ln_count(const ln_tensor *t);
/* count * element size; false above LN_MOST_BYTES, or with a negative or unknown dimension. */
bool ln_bytes(const ln_tensor *t, uint64_t *bytes);
/* Sets layout and strides for the tensor's dims. Channels-last needs rank >= 3. */
void ln_set_layout(ln_tensor *t, int layout);
/* True when strides are those of the dense row-major order (dimensions of size 1 do not matter). */
bool ln_is_dense(const ln_tensor *t);
/* True when strides are those of channels-last (dimensions of size 1 do not matter). */
bool ln_is_channels_last(const ln_tensor *t);
/* axis in [-rank, rank) to [0, rank); -1 when outside. */
int ln_axis(int64_t axis, int rank);

/* Scalar access, for reference kernels: element at `index` (in elements) as double or int64, with conversion. Integers
 * saturate, floats to integers truncate, NaN gives 0; f16 and bf16 round to nearest even. */
double ln_load_f64(const void *data, int dtype, int64_t index);
int64_t ln_load_i64(const void *data, int dtype, int64_t index);
void ln_store_f64(void *data, int dtype, int64_t index, double value);
void ln_store_i64(void *data, int dtype, int64_t index, int64_t value);
float ln_f16_to_f32(uint16_t h);
uint16_t ln_f32_to_f16(float f);
float ln_bf16_to_f32(uint16_t h);
uint16_t ln_f32_to_bf16(float f);

static inline int64_t ln_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ln_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ln_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t ln_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

#endif
