/* gemm_bf16__bf16.c - matmul and conv with factors rounded to bf16, for plans that permit it (precision). bfmmla
 * multiplies four elements of two rows by those of two columns, and sums in f32. Tiles have up to 8 x 8 elements: 16
 * sums, 4 vectors of A and one of B. */
#include "fast/gemm/gemm_kernels.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <arm_neon.h>
#include <string.h>

enum { ROWS = 8, LANES = 4, VECTORS = 2, DEPTH = 4 };
#include "kernels_arm/gemm/gemm_strip.inc"

/* A is packed as [k / 4][row][4], B as [k / 4][column][4]. A single row is multiplied as a pair with zeros. */
static LN_ALWAYS_INLINE void tiles(const int rows, const int vectors, const ln_gemm_tile *t, int64_t count,
                                   const float *packed, const float *init, int64_t init_step, const float *residual,
                                   float *c, int64_t ldc) {
    const int pairs = (rows + 1) / 2, columns = 2 * vectors;
    const int64_t steps = t->taps * ln_ceil_div(t->kc, DEPTH);
    const float32x4_t low = vdupq_n_f32(t->low), high = vdupq_n_f32(t->high);
    for (; count > 0; count--, packed += rows * t->taps * t->kc, init += rows * init_step, c += rows * ldc) {
        const bfloat16_t *a = (const bfloat16_t *)(const void *)packed, *b = t->b;
        float32x4_t sum[ROWS / 2][2 * VECTORS]; /* of a pair of rows and two columns each */
        LN_UNROLL
        for (int i = 0; i < pairs; i++) LN_UNROLL
        for (int j = 0; j < columns; j++) sum[i][j] = vdupq_n_f32(0);
        for (int64_t k = 0; k < steps; k++, a += DEPTH * rows, b += DEPTH * LANES * vectors) {
            bfloat16x8_t x[ROWS / 2];
            if (rows == 1) x[0] = vcombine_bf16(vld1_bf16(a), vcreate_bf16(0));
            LN_UNROLL
            for (int i = 0; i < pairs; i++)
                if (rows > 1) x[i] = vld1q_bf16(a + 2 * DEPTH * i);
            LN_UNROLL
            for (int j = 0; j < columns; j++) {
                const bfloat16x8_t y = vld1q_bf16(b + 2 * DEPTH * j);
                LN_UNROLL
                for (int i = 0; i < pairs; i++) sum[i][j] = vbfmmlaq_f32(sum[i][j], x[i], y);
            }
        }
        LN_UNROLL
        for (int i = 0; i < rows; i++) {
            LN_UNROLL
            for (int j = 0; j < vectors; j++) {
                const float64x2_t left = vreinterpretq_f64_f32(sum[i / 2][2 * j]),
                                  right = vreinterpretq_f64_f32(sum[i / 2][2 * j + 1]);
                const float64x2_t row = i % 2 == 0 ? vzip1q_f64(left, right) : vzip2q_f64(left, right);
                float32x4_t v = vaddq_f32(vreinterpretq_f32_f64(row), vld1q_f32(init + i * init_step + LANES * j));
                if (residual != NULL) v = vaddq_f32(v, vld1q_f32(residual + i * ldc + LANES * j));
                vst1q_f32(c + i * ldc + LANES * j, vminq_f32(high, vmaxq_f32(low, v)));
            }
        }
        if (residual != NULL) residual += rows * ldc;
    }
}

#define TILES(R, V)                                                                                                    \
    static void tiles_##R##x##V(const ln_gemm_tile *t, int64_t count, const float *a, const float *init,               \
                                int64_t init_step, const float *residual, float *c, int64_t ldc) {                     \
        tiles(R, V, t, count, a, init, init_step, residual, c, ldc);                                                   \
    }
TILES(8, 2)
TILES(8, 1)
TILES(4, 2)
TILES(4, 1)
TILES(2, 2)
TILES(2, 1)
TILES(1, 2)
TILES(1, 1)
static const tiles_function all[][VECTORS] = {
    {tiles_1x1, tiles_1x2}, {tiles_2x1, tiles_2x2}, {tiles_4x1, tiles_4x2}, {tiles_8x1, tiles_8x2}};

static void strip(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of(t, rows, width, all); }

/* Converts 4 elements of each row. */
static LN_ALWAYS_INLINE bfloat16_t *pack_four(const int rows, const float *const *row, int64_t k, bfloat16_t *out) {
    if (rows == 1) {
        vst1_bf16(out, vcvt_bf16_f32(vld1q_f32(row[0] + k)));
        return out + DEPTH;
    }
    LN_UNROLL
    for (int i = 0; i < rows; i += 2) {
        const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(row[i] + k));
        vst1q_bf16(out + DEPTH * i, vcvtq_high_bf16_f32(low, vld1q_f32(row[i + 1] + k)));
    }
    return out + DEPTH * rows;
}

static LN_ALWAYS_INLINE bfloat16_t *pack_tap(const int rows, const void *const *a, int64_t kc, bfloat16_t *out) {
    const float *row[ROWS], *padded[ROWS];
    float last[ROWS][DEPTH] = {{0}};
    LN_UNROLL
    for (int i = 0; i < rows; i++) row[i] = a[i];
    int64_t k = 0;
    for (; k + DEPTH <= kc; k += DEPTH) out = pack_four(rows, row, k, out);
    if (k == kc) return out;
    for (int i = 0; i < rows; i++) {
        memcpy(last[i], row[i] + k, (size_t)(kc - k) * sizeof(float));
        padded[i] = last[i];
    }
    return pack_four(rows, padded, 0, out);
}

/* The driver reserves the bytes of f32 for each tile. Taps are padded with zeros to a multiple of 4 elements, which
 * takes no more, because a tap has at least 2 elements (permitted). */
static void pack_rows(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed) {
    bfloat16_t *out = packed;
    for (; taps > 0; taps--, a += rows)
        out = rows == 8   ? pack_tap(8, a, kc, out)
              : rows == 4 ? pack_tap(4, a, kc, out)
              : rows == 2 ? pack_tap(2, a, kc, out)
                          : pack_tap(1, a, kc, out);
}

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_f32__neon.convert(dst, src, stride, n, src_dtype);
}

static const ln_gemm_set set = {.a_dtype = LINNET_F32,
                                .b_dtype = LINNET_BF16,
                                .c_dtype = LINNET_F32,
                                .rows = ROWS,
                                .width = VECTORS * LANES,
                                .unit = LANES,
                                .depth = DEPTH,
                                .takes = 1u << LINNET_F32 | 1u << LINNET_BF16,
                                .takes_b = 1u << LINNET_F32 | 1u << LINNET_BF16,
                                .pack_rows = pack_rows,
                                .strip = strip,
                                .convert = convert};
static const ln_gemm_set *const sets[] = {&set};

/* Filters of one channel, and products of one element, are left to f32. */
static bool permitted(const ln_call *call) {
    const ln_tensor *w = &call->inputs[1];
    if (call->precision != LINNET_PRECISION_BF16 || !ln_packable(w) || w->rank < 2) return false;
    return call->op->id != LN_OP_MATMUL ? w->dims[1] > 1 : w->dims[w->rank - 1] > 1 && w->dims[w->rank - 2] > 1;
}

/* The instructions of MobileNetV2's products, divided by those in f32: a quarter as many products, but as much packing.
 */
LN_GEMM_KERNELS_FASTER(permitted(call), 0.4, bf16__bf16, sets)
