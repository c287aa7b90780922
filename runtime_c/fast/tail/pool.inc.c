/* pool.inc.c - max and average pooling, with vectors over channels; f32, maxima of integers and averages of i8 and u8
 * inline, other types converted to f32, which holds them exactly. Compiled per ISA by longtail__<isa>.c. Code that does
 * not depend on the ISA is in ops/pool_plan.c. */
#include "ops/pool.h"
#include "fast/tail/any.inc.c"
#include "ops/pool_plan.h"

/* Returns the larger of a tap and v; if the tap is NaN, v. */
#ifdef LN_SIMD_NEON64
#define POOL_MAX(tap, v) vmaxnmq_f32(tap, v)
#else
#define POOL_MAX(tap, v) vf_max(tap, v)
#endif
#if defined(LN_SIMD_NEON) && !defined(LN_SIMD_NEON64)
#define POOL_BLOCKS 4 /* 16 registers: sums, taps and masks */
#else
#define POOL_BLOCKS 8
#endif

/* Computes `blocks` vectors of channels at once, so that each tap reads a long run of memory. n: number of elements in
 * a single, last vector. dtype is a compile-time constant; LINNET_NONE stands for all dtypes without code of their
 * own. */
static LN_ALWAYS_INLINE void pool_vectors(const int dtype, const bool average, const int blocks, const ln_pool_span *s,
                                          ptrdiff_t c, int n, void *out) {
    const bool single = dtype == LINNET_F32, half = dtype == LINNET_F16 && n == VF_WIDTH;
    vf v[POOL_BLOCKS], divisor = vf_set1(s->count);
    LN_UNROLL
    for (int i = 0; i < blocks; i++) v[i] = vf_set1(s->start);
    for (ptrdiff_t kz = 0; kz < s->nz; kz++)
        for (ptrdiff_t ky = 0; ky < s->ny; ky++) {
            ptrdiff_t at = kz * s->xz + ky * s->xy + c;
            for (ptrdiff_t kx = s->nx; kx > 0; kx--, at += s->xx) {
                LN_UNROLL
                for (int i = 0; i < blocks; i++) {
                    vf tap = half ? vf_load_f16((const uint16_t *)s->x + at + i * VF_WIDTH)
                                  : any_load(single, s->dtype, s->x, at + i * VF_WIDTH, n);
                    v[i] = average ? vf_add(v[i], tap) : POOL_MAX(tap, v[i]);
                }
            }
        }
    LN_UNROLL
    for (int i = 0; i < blocks; i++)
        any_store(single, s->dtype, out, c + i * VF_WIDTH, n, average ? vf_div(v[i], divisor) : v[i]);
}

static LN_ALWAYS_INLINE void pool_window(const int dtype, const bool average, const ln_pool_span *s, int64_t channels,
                                         void *out) {
    const int64_t four = 4 * VF_WIDTH, wide = POOL_BLOCKS * VF_WIDTH;
    int64_t c = 0;
    for (; dtype == LINNET_F32 && c + wide <= channels; c += wide)
        pool_vectors(dtype, average, POOL_BLOCKS, s, c, VF_WIDTH, out);
    /* The last vectors begin early and compute some channels again. */
    for (; channels >= four && c + VF_WIDTH < channels; c += four)
        pool_vectors(dtype, average, 4, s, ln_min(c, channels - four), VF_WIDTH, out);
    for (; c < channels; c += VF_WIDTH) {
        if (channels >= VF_WIDTH)
            pool_vectors(dtype, average, 1, s, ln_min(c, channels - VF_WIDTH), VF_WIDTH, out);
        else
            pool_vectors(dtype, average, 1, s, 0, (int)channels, out);
    }
}

/* Computes maxima of integers of one dtype, which is a compile-time constant. Lanes have the size of the dtype. There
 * are `blocks` vectors from channel c on. If blocks is 1, there may be fewer channels than lanes; n is their number. */
static LN_ALWAYS_INLINE void pool_maxima(const int dtype, const int blocks, const ln_pool_span *s, int64_t c, int n,
                                         void *out) {
    const int64_t size = dtype == LINNET_I16 ? 2 : 1;
    const int lanes = (int)(VF_WIDTH * 4 / size);
    int32_t part[VF_WIDTH] = {0};
    vi v[4];
    LN_UNROLL
    for (int i = 0; i < blocks; i++)
        v[i] = vi_set1(dtype == LINNET_I8 ? (int32_t)0x80808080u : dtype == LINNET_I16 ? (int32_t)0x80008000u : 0);
    for (int64_t kz = 0; kz < s->nz; kz++)
        for (int64_t ky = 0; ky < s->ny; ky++) {
            const char *tap = (const char *)s->x + (kz * s->xz + ky * s->xy + c) * size;
            for (int64_t kx = 0; kx < s->nx; kx++, tap += s->xx * size) {
                if (n < lanes) memcpy(part, tap, (size_t)(n * size));
                LN_UNROLL
                for (int i = 0; i < blocks; i++) {
                    vi x = vi_load(n < lanes ? part : (const int32_t *)(const void *)tap + i * VF_WIDTH);
                    v[i] = dtype == LINNET_I8   ? vi_max_i8(v[i], x)
                           : dtype == LINNET_U8 ? vi_max_u8(v[i], x)
                                                : vi_max_i16(v[i], x);
                }
            }
        }
    char *to = (char *)out + c * size;
    LN_UNROLL
    for (int i = 0; i < blocks; i++) vi_store(n < lanes ? part : (int32_t *)(void *)to + i * VF_WIDTH, v[i]);
    if (n < lanes) memcpy(to, part, (size_t)(n * size));
}

static LN_ALWAYS_INLINE void pool_maximum(const int dtype, const ln_pool_span *s, int64_t channels, void *out) {
    const int64_t lanes = VF_WIDTH * 4 / (dtype == LINNET_I16 ? 2 : 1);
    int64_t c = 0;
    for (; c + 4 * lanes <= channels; c += 4 * lanes) pool_maxima(dtype, 4, s, c, (int)lanes, out);
    for (; c < channels; c += lanes) {
        if (channels >= lanes)
            pool_maxima(dtype, 1, s, ln_min(c, channels - lanes), (int)lanes,
                        out); /* the last vector computes some channels again */
        else
            pool_maxima(dtype, 1, s, 0, (int)channels, out);
    }
}

static LN_NEVER_INLINE void pool_maximum_i8(const ln_pool_span *s, int64_t n, void *y) {
    pool_maximum(LINNET_I8, s, n, y);
}
static LN_NEVER_INLINE void pool_maximum_u8(const ln_pool_span *s, int64_t n, void *y) {
    pool_maximum(LINNET_U8, s, n, y);
}
static LN_NEVER_INLINE void pool_maximum_i16(const ln_pool_span *s, int64_t n, void *y) {
    pool_maximum(LINNET_I16, s, n, y);
}

/* Computes averages of i8 or u8 from sums of 32 bits, which are divided as in pool_vectors. */
static LN_ALWAYS_INLINE void pool_sums(const int blocks, const ln_pool_span *s, int64_t c, void *out) {
    const bool u8 = s->dtype == LINNET_U8;
    vi v[4];
    LN_UNROLL
    for (int i = 0; i < blocks; i++) v[i] = vi_set1((int32_t)s->start);
    for (int64_t kz = 0; kz < s->nz; kz++)
        for (int64_t ky = 0; ky < s->ny; ky++) {
            const int8_t *tap = (const int8_t *)s->x + kz * s->xz + ky * s->xy + c;
            for (int64_t kx = 0; kx < s->nx; kx++, tap += s->xx) {
                LN_UNROLL
                for (int i = 0; i < blocks; i++)
                    v[i] = vi_add(v[i], u8 ? vi_load_u8((const uint8_t *)tap + i * VF_WIDTH)
                                           : vi_load_i8(tap + i * VF_WIDTH));
            }
        }
    LN_UNROLL
    for (int i = 0; i < blocks; i++) {
        vi q = vi_from_vf(vf_div(vf_from_vi(v[i]), vf_set1(s->count)));
        if (u8)
            vi_store_u8((uint8_t *)out + c + i * VF_WIDTH, q);
        else
            vi_store_i8((int8_t *)out + c + i * VF_WIDTH, q);
    }
}

static void pool_average(const ln_pool_span *s, int64_t channels, void *out) {
    int64_t c = 0;
    for (; channels >= 4 * VF_WIDTH && c + VF_WIDTH < channels; c += 4 * VF_WIDTH)
        pool_sums(4, s, ln_min(c, channels - 4 * VF_WIDTH), out);
    for (; c < channels; c += VF_WIDTH) pool_sums(1, s, ln_min(c, channels - VF_WIDTH), out);
}

static linnet_status pool_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                              int thread) {
    (void)phase, (void)thread;
    const ln_pool_plan *p = call->state;
    const ln_window *w = &p->window;
    int dtype = call->inputs[0].dtype;
    int64_t size = (int64_t)ln_dtype_size(dtype);
    bool average = p->kind == LN_POOL_KIND_AVERAGE;
    const int64_t beyond = w->in[2] - 1 - (w->kernel[2] - 1) * w->dilation[2] + w->pad_begin[2],
                  reach =
                      beyond < 0 ? -1 : beyond / w->stride[2]; /* the last pixel whose window ends before the padding */
    for (int64_t item = begin; item < end; item++) {
        int64_t first = item % p->chunks * LN_POOL_CHUNK, row = item / p->chunks, low[3], high[3];
        int64_t oy = row % w->out[1], oz = row / w->out[1] % w->out[0], n = row / w->out[1] / w->out[0];
        int64_t channels = ln_min(LN_POOL_CHUNK, p->channels - first);
        ln_window_valid(w, 0, oz, &low[0], &high[0]);
        ln_window_valid(w, 1, oy, &low[1], &high[1]);
        ln_pool_span s = {.nz = high[0] - low[0],
                          .ny = high[1] - low[1],
                          .nx = -1,
                          .xz = w->dilation[0] * p->x.s[0],
                          .xy = w->dilation[1] * p->x.s[1],
                          .xx = w->dilation[2] * p->x.s[2],
                          .dtype = dtype};
        char *y = (char *)b->outputs[0] + (n * p->y.n + oz * p->y.s[0] + oy * p->y.s[1] + first) * size;
        for (int64_t ox = 0; ox < w->out[2]; ox++, y += p->y.s[2] * size) {
            if (s.nx == w->kernel[2] && ox <= reach) { /* the window has no padding, so its taps are those of the
                                                          previous pixel, moved by the stride */
                s.x = (const char *)s.x + w->stride[2] * p->x.s[2] * size;
            } else {
                ln_window_valid(w, 2, ox, &low[2], &high[2]);
                s.nx = high[2] - low[2];
                int64_t inside = s.nz * s.ny * s.nx, o[3] = {oz, oy, ox}, at = n * p->x.n + first;
                for (int i = 0; i < 3 && inside > 0; i++)
                    at += (o[i] * w->stride[i] - w->pad_begin[i] + low[i] * w->dilation[i]) * p->x.s[i];
                int64_t count = ln_pool_count(p, oz, oy, ox, inside);
                s.x = (const char *)b->inputs[0] + at * size;
                s.count = (float)ln_max(1, count);
                s.start = average ? (float)((count - inside) * p->zero) : p->least;
            }
            if (dtype == LINNET_F32 && average)
                pool_window(LINNET_F32, true, &s, channels, y);
            else if (dtype == LINNET_F32)
                pool_window(LINNET_F32, false, &s, channels, y);
#ifdef LN_SIMD_NEON64
            else if (p->maximum != NULL)
                p->maximum(&s, channels, y);
#endif
#ifdef LN_SIMD_NEON
            else if (dtype == LINNET_F16 && !average)
                pool_window(LINNET_F16, false, &s, channels, y);
#endif
            else if (average && (dtype == LINNET_I8 || dtype == LINNET_U8) && channels >= VF_WIDTH)
                pool_average(&s, channels, y);
            else if (average)
                pool_window(LINNET_NONE, true, &s, channels, y);
            else if (dtype == LINNET_I8)
                pool_maximum_i8(&s, channels, y);
            else if (dtype == LINNET_U8)
                pool_maximum_u8(&s, channels, y);
            else if (dtype == LINNET_I16)
                pool_maximum_i16(&s, channels, y);
            else
                pool_window(LINNET_NONE, false, &s, channels, y);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_pool) = {
    .can = ln_pool_can, .cost = ln_pool_cost, .configure = ln_pool_configure, .run = pool_run};
