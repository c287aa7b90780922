/* pool.inc.c - max and average pooling, vectors over channels; floats and integers.
 * Compiled per ISA by longtail__<isa>.c. What does not depend on the ISA is in ops/pool_plan.c. */
#include "ops/pool.h"

/* The taps of one output position that lie inside the input. */
typedef struct pool_span {
    const void *x;
    int64_t nz, ny, nx, xz, xy, xx;
    int32_t start; /* what the padding adds to a sum */
    int64_t count;
} pool_span;

/* rne(sum / count): the quotient of 32-bit integers is never within 2^-53 of a tie without being one. */
static inline vi pool_integer_average(vi sum, int64_t count) {
    int32_t lanes[VF_WIDTH];
    vi_store(lanes, sum);
    for (int i = 0; i < VF_WIDTH; i++)
        lanes[i] = count > 0 ? (int32_t)nearbyint((double)lanes[i] / (double)count) : 0;
    return vi_load(lanes);
}

#define VECTOR vf
#define SET1(v) vf_set1((float)(v))
#define ADD vf_add
#define MAXIMUM(x, best) vf_max(x, best)
#define AVERAGE(sum, count) vf_div(sum, vf_set1((count) > 0 ? (float)(count) : 1.0f))

#define ELEMENT float
#define WIDEN(p) vf_load(p)
#define WIDEN_PARTIAL(p, n) vf_load_partial(p, n)
#define NARROW(p, v) vf_store(p, v)
#define NARROW_PARTIAL(p, n, v) vf_store_partial(p, n, v)
#define LEAST (-INFINITY)
#define NAMED(name) pool_##name##_f32
#include "simd/pool_tile.inc.c"
#define ELEMENT uint16_t
#define WIDEN(p) vf_load_f16(p)
#define WIDEN_PARTIAL(p, n) vf_load_f16_partial(p, n)
#define NARROW(p, v) vf_store_f16(p, v)
#define NARROW_PARTIAL(p, n, v) vf_store_f16_partial(p, n, v)
#define LEAST (-INFINITY)
#define NAMED(name) pool_##name##_f16
#include "simd/pool_tile.inc.c"
#define ELEMENT uint16_t
#define WIDEN(p) vf_load_bf16(p)
#define WIDEN_PARTIAL(p, n) vf_load_bf16_partial(p, n)
#define NARROW(p, v) vf_store_bf16(p, v)
#define NARROW_PARTIAL(p, n, v) vf_store_bf16_partial(p, n, v)
#define LEAST (-INFINITY)
#define NAMED(name) pool_##name##_bf16
#include "simd/pool_tile.inc.c"

#undef VECTOR
#undef SET1
#undef ADD
#undef MAXIMUM
#undef AVERAGE

#define VECTOR vi
#define SET1(v) vi_set1((int32_t)(v))
#define ADD vi_add
#define MAXIMUM(x, best) vi_max(x, best)
#define AVERAGE(sum, count) pool_integer_average(sum, count)

#define ELEMENT int8_t
#define WIDEN(p) vi_load_i8(p)
#define WIDEN_PARTIAL(p, n) vi_load_i8_partial(p, n)
#define NARROW(p, v) vi_store_i8(p, v)
#define NARROW_PARTIAL(p, n, v) vi_store_i8_partial(p, n, v)
#define LEAST INT8_MIN
#define NAMED(name) pool_##name##_i8
#include "simd/pool_tile.inc.c"
#define ELEMENT uint8_t
#define WIDEN(p) vi_load_u8(p)
#define WIDEN_PARTIAL(p, n) vi_load_u8_partial(p, n)
#define NARROW(p, v) vi_store_u8(p, v)
#define NARROW_PARTIAL(p, n, v) vi_store_u8_partial(p, n, v)
#define LEAST 0
#define NAMED(name) pool_##name##_u8
#include "simd/pool_tile.inc.c"
#define ELEMENT int16_t
#define WIDEN(p) vi_load_i16(p)
#define WIDEN_PARTIAL(p, n) vi_load_i16_partial(p, n)
#define NARROW(p, v) vi_store_i16(p, v)
#define NARROW_PARTIAL(p, n, v) vi_store_i16_partial(p, n, v)
#define LEAST INT16_MIN
#define NAMED(name) pool_##name##_i16
#include "simd/pool_tile.inc.c"

#undef VECTOR
#undef SET1
#undef ADD
#undef MAXIMUM
#undef AVERAGE

static linnet_status pool_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase, (void)thread;
    const ln_pool_plan *p = call->state;
    const ln_window *w = &p->window;
    int dtype = call->inputs[0].dtype;
    int64_t size = (int64_t)ln_dtype_size(dtype);
    bool average = p->kind == LN_POOL_KIND_AVERAGE;
    for (int64_t item = begin; item < end; item++) {
        int64_t first = item % p->chunks * LN_POOL_CHUNK, row = item / p->chunks, low[3], high[3];
        int64_t oy = row % w->out[1], oz = row / w->out[1] % w->out[0], n = row / w->out[1] / w->out[0];
        int64_t channels = ln_min(LN_POOL_CHUNK, p->channels - first);
        ln_window_valid(w, 0, oz, &low[0], &high[0]);
        ln_window_valid(w, 1, oy, &low[1], &high[1]);
        for (int64_t ox = 0; ox < w->out[2]; ox++) {
            ln_window_valid(w, 2, ox, &low[2], &high[2]);
            pool_span s = {.nz = high[0] - low[0], .ny = high[1] - low[1], .nx = high[2] - low[2],
                           .xz = w->dilation[0] * p->x.s[0], .xy = w->dilation[1] * p->x.s[1],
                           .xx = w->dilation[2] * p->x.s[2]};
            int64_t inside = s.nz * s.ny * s.nx, o[3] = {oz, oy, ox}, at = n * p->x.n + first;
            for (int i = 0; i < 3 && inside > 0; i++)
                at += (o[i] * w->stride[i] - w->pad_begin[i] + low[i] * w->dilation[i]) * p->x.s[i];
            s.x = (const char *)b->inputs[0] + at * size;
            s.count = ln_pool_count(p, oz, oy, ox, inside);
            s.start = (int32_t)((s.count - inside) * p->zero);
            void *y = (char *)b->outputs[0] +
                      (n * p->y.n + oz * p->y.s[0] + oy * p->y.s[1] + ox * p->y.s[2] + first) * size;
            switch (dtype) {
            case LINNET_F32: pool_window_f32(&s, average, channels, y); break;
            case LINNET_F16: pool_window_f16(&s, average, channels, y); break;
            case LINNET_BF16: pool_window_bf16(&s, average, channels, y); break;
            case LINNET_I8: pool_window_i8(&s, average, channels, y); break;
            case LINNET_U8: pool_window_u8(&s, average, channels, y); break;
            default: pool_window_i16(&s, average, channels, y); break;
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_pool) = {.name = "pool_channels__" LN_SIMD_TEXT,
                                         .op = LN_OP_POOL,
                                         .isa = LN_SIMD_ISA,
                                         .flags = LN_KERNEL_VIEWS,
                                         .supports = ln_pool_supports,
                                         .configure = ln_pool_configure,
                                         .run = pool_run};
