/* gemm_words__neon.h - stores of 16-bit results and operands, and the rounding that all stores with a residual share.
 */
#ifndef LN_ARM_GEMM_GEMM_WORDS__NEON_H
#define LN_ARM_GEMM_GEMM_WORDS__NEON_H

#include "fast/gemm/gemm.h"

#include <arm_neon.h>

/* Clamps and quantizes four numbers, without the zero point. The quotient equals that of a division, because the
 * product with the inverse is corrected (map/map_strip.inc.c). NaN becomes the minimum. */
static inline __attribute__((always_inline)) int32x4_t ln_gemm_quantized(const ln_quantized_sum *s, float32x4_t v) {
    const float32x4_t inverse = vdupq_n_f32(s->y_inverse), divisor = vdupq_n_f32(s->y_scale);
    v = vminnmq_f32(vmaxnmq_f32(v, vdupq_n_f32(s->low)), vdupq_n_f32(s->high));
    const float32x4_t q = vmulq_f32(v, inverse);
    return vcvtnq_s32_f32(vfmaq_f32(q, vfmsq_f32(v, q, divisor), inverse));
}

/* Stores a tile of 16-bit results as ln_gemm_store_tile does; false: it has other results. */
bool ln_gemm_store_words_neon(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                              int64_t n, void *y, int64_t y_stride);
/* Does what ln_gemm_store_sum does, for sums with `words`. */
void ln_gemm_sum_words_neon(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                            int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride);
/* Stores rows of 64-bit sums to t->c, as they are or, with t->rounded, as f32. `width` is a multiple of 8. */
void ln_gemm_store_wide_neon(const ln_gemm_tile *t, const int64_t *sum, int64_t rows, int64_t width);

#endif
