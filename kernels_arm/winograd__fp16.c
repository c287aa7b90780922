/* winograd__fp16.c - 3 x 3 convolutions by Winograd's method in f16, for plans that permit sums of f16 (precision).
 * Inputs and results are f32 or f16 in memory. Transforms, transformed numbers and products are f16; the bias is added
 * in the type of the results.
 * The loops around the tiles are those of f32.
 *
 * With tiles of 4 x 4, 16 to 256 channels and random inputs, with and without negative ones, the root mean square of
 * the error is 0.3 to 0.6 % of the outputs' standard deviation, and the largest error 2 to 6 %. Nearly all of it comes
 * from rounding the factors and from the sums; transforms in f32 would have the same. Sums of f16 without the method
 * have 0.1 % and 0.4 to 0.8 %. Tiles of 2 x 2 have twice that, and need 1.8 times the products. */
#include "fast/gemm/gemm.h"
#include "fast/tail/winograd_pack.h"
#include "fast/tail/winograd_plan.h"
#include "kernel/step.h"

#include <arm_neon.h>

typedef struct numbers {
    float32x4_t first, second;
} numbers;

static inline numbers numbers_at(const float *p) { return (numbers){vld1q_f32(p), vld1q_f32(p + 4)}; }
static inline numbers numbers_of(float x) { return (numbers){vdupq_n_f32(x), vdupq_n_f32(x)}; }
static inline float16x8_t rounded(numbers v) { return vcvt_high_f16_f32(vcvt_f16_f32(v.first), v.second); }

static LN_ALWAYS_INLINE float16x8_t read_inputs(const bool halves, const void *x, int64_t at) {
    return halves ? vld1q_f16((const float16_t *)x + at) : rounded(numbers_at((const float *)x + at));
}

static LN_ALWAYS_INLINE void write_results(const bool halves, void *y, int64_t at, float16x8_t v, numbers add,
                                           numbers low, numbers high) {
    if (halves) {
        vst1q_f16((float16_t *)y + at, vminq_f16(rounded(high), vmaxq_f16(rounded(low), vaddq_f16(v, rounded(add)))));
        return;
    }
    const float32x4_t first = vaddq_f32(vcvt_f32_f16(vget_low_f16(v)), add.first),
                      second = vaddq_f32(vcvt_high_f32_f16(v), add.second);
    vst1q_f32((float *)y + at, vminq_f32(high.first, vmaxq_f32(low.first, first)));
    vst1q_f32((float *)y + at + 4, vminq_f32(high.second, vmaxq_f32(low.second, second)));
}

#define WG_VECTOR float16x8_t
#define WG_LANES 8
#define WG_ADD vaddq_f16
#define WG_SUB vsubq_f16
#define WG_MUL(a, factor) vmulq_n_f16(a, (float16_t)(factor))
#define WG_FMA(a, factor, c) vfmaq_n_f16(c, a, (float16_t)(factor))
#define WG_READ read_inputs
#define WG_LOAD(from, c) vld1q_f16((const float16_t *)(const void *)(from) + (c))
#define WG_STORE(to, c, v) vst1q_f16((float16_t *)(void *)(to) + (c), v)
#define WG_F32 numbers
#define WG_F32_ALL numbers_of
#define WG_F32_LOAD numbers_at
#define WG_WRITE write_results
#include "fast/tail/winograd_tile.inc.c"

static LN_NEVER_INLINE void in_tile_of_halves(const ln_winograd *p, const void *x, int64_t line, int64_t pixel,
                                              float *out) {
    if (p->tile == 2)
        wg_in_tile_of(2, true, x, line, pixel, p->in, out, p->in_step);
    else
        wg_in_tile_of(4, true, x, line, pixel, p->in, out, p->in_step);
}

static LN_NEVER_INLINE void out_tile_of_halves(const ln_winograd *p, const float *m, const float *bias,
                                               int64_t channels, void *y, int64_t line, int64_t pixel) {
    if (p->tile == 2)
        wg_out_tile_of(2, true, p, m, bias, channels, y, line, pixel);
    else
        wg_out_tile_of(4, true, p, m, bias, channels, y, line, pixel);
}

static const ln_winograd_f16 transforms = {{wg_in_tile, in_tile_of_halves}, {wg_out_tile, out_tile_of_halves}};

static bool can(const ln_call *call) {
    return call->precision == LINNET_PRECISION_F16 && ln_packable(&call->inputs[1]) && ln_winograd_can(call);
}

static linnet_status configure(ln_call *call) {
    const linnet_status status = ln_winograd_configure(call, &ln_gemm_f16_halves__fp16);
    if (status == LINNET_OK) ((ln_winograd *)call->state)->f16 = &transforms;
    return status;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    return ln_winograd__neon.run(call, b, phase, begin, end, thread);
}

const ln_kernel_code ln_winograd_f16__fp16 = {
    .can = can, .cost = ln_winograd_cost, .configure = configure, .pack = ln_winograd_pack, .run = run};
