/* pool__fp16.c - maxima of f16 in lanes of f16. The loops around the channels of a pixel are those of other types. */
#include "kernel/common/inline.h"
#include "ops/pool.h"
#include "kernel/kernel.h"
#include "ops/pool_plan.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

enum { LANES = 8, BLOCKS = 8 };

/* Computes the maxima of `blocks` vectors of channels from channel c on, or of `n` channels, which are fewer than a
 * vector. A tap that is NaN is ignored. */
static LN_ALWAYS_INLINE void maxima(const int blocks, const ln_pool_span *s, ptrdiff_t c, int64_t n, float16_t *out) {
    float16_t part[LANES] = {0};
    float16x8_t v[BLOCKS];
    LN_UNROLL
    for (int i = 0; i < blocks; i++) v[i] = vdupq_n_f16(-(float16_t)INFINITY);
    for (ptrdiff_t kz = 0; kz < s->nz; kz++)
        for (ptrdiff_t ky = 0; ky < s->ny; ky++) {
            const float16_t *x = (const float16_t *)s->x + kz * s->xz + ky * s->xy + c;
            for (ptrdiff_t kx = s->nx; kx > 0; kx--, x += s->xx) {
                if (n < LANES) memcpy(part, x, (size_t)n * sizeof *x);
                LN_UNROLL
                for (int i = 0; i < blocks; i++) v[i] = vmaxnmq_f16(vld1q_f16(n < LANES ? part : x + i * LANES), v[i]);
            }
        }
    LN_UNROLL
    for (int i = 0; i < blocks; i++) vst1q_f16(n < LANES ? part : out + c + i * LANES, v[i]);
    if (n < LANES) memcpy(out + c, part, (size_t)n * sizeof *out);
}

/* The last vector begins early and computes some channels again. */
static void maximum(const ln_pool_span *s, int64_t channels, void *out) {
    ptrdiff_t c = 0;
    for (; c + BLOCKS * LANES <= channels; c += BLOCKS * LANES) maxima(BLOCKS, s, c, LANES, out);
    for (; c < channels; c += LANES)
        if (channels >= LANES)
            maxima(1, s, ln_min(c, channels - LANES), LANES, out);
        else
            maxima(1, s, 0, channels, out);
}

static bool can(const ln_call *call) {
    const ln_pool_attributes *a = call->attributes;
    return a->kind == LN_POOL_KIND_MAX && ln_pool_can(call);
}

static linnet_status configure(ln_call *call) {
    const linnet_status status = ln_pool_configure(call);
    if (status == LINNET_OK) ((ln_pool_plan *)call->state)->maximum = maximum;
    return status;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    return ln_pool__neon.run(call, b, phase, begin, end, thread);
}

const ln_kernel_code ln_pool_f16__fp16 = {.can = can, .cost = ln_pool_cost, .configure = configure, .run = run};
