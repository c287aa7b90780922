/* conv_transpose.inc.c - transposed convolution as a gather. Output pixels of one phase (position modulo stride) share
 * their taps, so each phase is a small matrix product. Compiled per ISA; planning is in
 * fast/tail/conv_transpose_plan.c. */
#include "kernel/cost.h"
#include "fast/tail/conv_transpose_plan.h"
#include "fast/tail/any_lines.inc.c"
#include "fast/tail/requant.inc.c"

#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_NEON)
#define LN_TRANSPOSE_PIXELS 8
#else
#define LN_TRANSPOSE_PIXELS 4
#endif

/* One tap: the offsets of its input pixel and its weights. */
typedef struct transpose_tap {
    int64_t x, w;
} transpose_tap;

typedef struct transpose_span {
    const void *x, *w, *bias;
    int64_t n_taps, in, out, padded, pixel, out_pixel;
    const transpose_tap *taps;
} transpose_span;

#define NUMBER float
#define VECTOR vf
#define SET1 vf_set1
#define LOAD vf_load
#define STORE vf_store
#define STORE_PARTIAL vf_store_partial
#define MULTIPLY_ADD(x, w, sum) vf_fma(x, w, sum)
#define NAMED(name) transpose_##name##_float
#include "fast/tail/conv_transpose_tile.inc.c"

#define NUMBER int32_t
#define VECTOR vi
#define SET1 vi_set1
#define LOAD vi_load
#define STORE vi_store
#define STORE_PARTIAL vi_store_partial
#define MULTIPLY_ADD(x, w, sum) vi_add(sum, vi_mul(x, w))
#define NAMED(name) transpose_##name##_integer
#include "fast/tail/conv_transpose_tile.inc.c"

/* Computes the sums of one output channel, with vectors over the input channels. */
static void transpose_dots(const transpose_span *s, int64_t count, int32_t *out) {
    for (int64_t i = 0; i < count; i++, out += s->out_pixel) {
        vi sum = vi_zero();
        for (int64_t t = 0; t < s->n_taps; t++) {
            const int32_t *x = (const int32_t *)s->x + s->taps[t].x + i * s->pixel;
            const int32_t *w = (const int32_t *)s->w + s->taps[t].w;
            int64_t c = 0;
            for (; c + VF_WIDTH <= s->in; c += VF_WIDTH) sum = vi_add(sum, vi_mul(vi_load(x + c), vi_load(w + c)));
            const int left = (int)(s->in - c);
            if (left > 0) sum = vi_add(sum, vi_mul(vi_load_partial(x + c, left), vi_load_partial(w + c, left)));
        }
        *out = (int32_t)((uint32_t)vi_reduce_add(sum) + (uint32_t)*(const int32_t *)s->bias);
    }
}

/* Computes the sums of VF_WIDTH channels from c on, for P pixels of a depthwise call. */
static LN_ALWAYS_INLINE void transpose_each_of(const int P, const transpose_span *s, int64_t c, const int32_t *x,
                                               int32_t *out) {
    const int n = (int)ln_min(VF_WIDTH, s->out - c);
    vi sum[LN_TRANSPOSE_PIXELS];
    LN_UNROLL
    for (int p = 0; p < P; p++) sum[p] = vi_load((const int32_t *)s->bias + c);
    for (int64_t t = 0; t < s->n_taps; t++) {
        const vi w = vi_load((const int32_t *)s->w + s->taps[t].w + c);
        LN_UNROLL
        for (int p = 0; p < P; p++) sum[p] = vi_add(sum[p], vi_mul(vi_load(x + s->taps[t].x + p * s->pixel + c), w));
    }
    for (int p = 0; p < P; p++) vi_store_partial(out + p * s->out_pixel + c, n, sum[p]);
}

/* Computes the sums of a depthwise call, whose output channels have one input channel each. */
static LN_NEVER_INLINE void transpose_each(const transpose_span *s, int64_t count, int32_t *out) {
    for (int64_t c = 0; c < s->out; c += VF_WIDTH) {
        int64_t i = 0;
        for (; i + 4 <= count; i += 4)
            transpose_each_of(4, s, c, (const int32_t *)s->x + i * s->pixel, out + i * s->out_pixel);
        for (; i < count; i++) transpose_each_of(1, s, c, (const int32_t *)s->x + i * s->pixel, out + i * s->out_pixel);
    }
}

/* Converts row `row` of x to f32, or to i32 minus its zero point. */
static void transpose_widen(const ln_call *call, const ln_transpose_plan *p, const ln_buffers *b, int64_t row) {
    const ln_window *w = &p->window;
    int dtype = call->inputs[0].dtype;
    int64_t iy = row % w->in[1], iz = row / w->in[1] % w->in[0], n = row / w->in[1] / w->in[0];
    int64_t from = n * p->x_stored.n + iz * p->x_stored.s[0] + iy * p->x_stored.s[1];
    float *to = (float *)(uintptr_t)ln_transpose_input(call, b) + row * p->x.s[1];
    bool whole = p->x_stored.s[2] == w->in_channels;
    int64_t count = whole ? w->in[2] * w->in_channels : w->in_channels;
    for (int64_t ix = 0; ix < (whole ? 1 : w->in[2]); ix++, from += p->x_stored.s[2], to += w->in_channels) {
        if (p->integer)
            any_widen_integer(dtype, b->inputs[0], from, count, p->requant.x_zero, (int32_t *)(void *)to);
        else
            any_widen(dtype, b->inputs[0], from, count, to);
    }
}

/* Finds the input coordinate that contributes to output o through tap k. Returns false if there is none. */
static inline bool transpose_source(const ln_window *w, int axis, int64_t o, int64_t k, int64_t *at) {
    int64_t v = o + w->pad_begin[axis] - k * w->dilation[axis];
    *at = v / w->stride[axis];
    return v >= 0 && v % w->stride[axis] == 0 && *at < w->in[axis];
}

/* Lists the taps of output pixel (oz, oy, ox). *run is the number of further pixels of this phase (at most `limit`)
   that have the same list. */
static int64_t transpose_taps(const ln_transpose_plan *p, int64_t oz, int64_t oy, int64_t ox, transpose_tap *taps,
                              int64_t limit, int64_t *run) {
    const ln_window *w = &p->window;
    int64_t n = 0, z, y, x;
    *run = limit;
    for (int64_t kx = 0; kx < w->kernel[2]; kx++) {
        if (!transpose_source(w, 2, ox, kx, &x)) {
            /* A tap that is left of the input enters it after this many steps. */
            int64_t v = ox + w->pad_begin[2] - kx * w->dilation[2];
            if (v < 0 && v % w->stride[2] == 0) *run = ln_min(*run, -v / w->stride[2]);
            continue;
        }
        *run = ln_min(*run, w->in[2] - x);
        for (int64_t kz = 0; kz < w->kernel[0]; kz++)
            for (int64_t ky = 0; ky < w->kernel[1]; ky++)
                if (transpose_source(w, 0, oz, kz, &z) && transpose_source(w, 1, oy, ky, &y))
                    taps[n++] =
                        (transpose_tap){z * p->x.s[0] + y * p->x.s[1] + x * p->x.s[2],
                                        ((kz * w->kernel[1] + ky) * w->kernel[2] + kx) * p->in_group * p->padded};
    }
    return n;
}

/* Computes one output row: f32 directly into y, or sums into scratch. */
static void transpose_row(const ln_transpose_plan *p, const void *x, const void *weights, int64_t oz, int64_t oy,
                          void *out, int64_t out_pixel, transpose_tap *taps) {
    const ln_window *w = &p->window;
    int64_t stride = w->stride[2];
    for (int64_t phase = 0; phase < ln_min(stride, w->out[2]); phase++)
        for (int64_t ox = phase, run; ox < w->out[2]; ox += run * stride) {
            int64_t n = transpose_taps(p, oz, oy, ox, taps, (w->out[2] - ox + stride - 1) / stride, &run);
            for (int64_t group = 0; group < p->groups; group++) {
                transpose_span s = {.x = (const float *)x + group * p->in_group,
                                    .w = (const float *)weights + group * ln_window_taps(w) * p->in_group * p->padded,
                                    .bias = (const float *)weights + p->weights_bytes / 4 + (size_t)(group * p->padded),
                                    .n_taps = n,
                                    .taps = taps,
                                    .in = p->in_group,
                                    .out = p->out_group,
                                    .padded = p->padded,
                                    .pixel = p->x.s[2],
                                    .out_pixel = out_pixel * stride};
                void *to = (float *)out + ox * out_pixel + group * p->out_group;
                if (p->each)
                    transpose_each(&s, run, to);
                else if (p->padded == 1)
                    transpose_dots(&s, run, to);
                else if (p->integer)
                    transpose_run_integer(&s, run, to);
                else
                    transpose_run_float(&s, run, to);
            }
        }
}

static linnet_status transpose_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    const ln_transpose_plan *p = call->state;
    const ln_window *w = &p->window;
    if (phase == 0 && call->phases == 2) {
        for (int64_t item = begin; item < end; item++) {
            if (item == 0)
                ln_transpose_pack_run(call, b);
            else
                transpose_widen(call, p, b, item - 1);
        }
        return LINNET_OK;
    }
    int64_t size = (int64_t)ln_dtype_size(call->outputs[0].dtype), channels = w->out_channels;
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    transpose_tap taps[LN_TRANSPOSE_TAPS];
    for (int64_t item = begin; item < end; item++) {
        int64_t oy = item % w->out[1], oz = item / w->out[1] % w->out[0], n = item / w->out[1] / w->out[0];
        const float *x = (const float *)ln_transpose_input(call, b) + n * p->x.n;
        char *y = (char *)b->outputs[0] + (n * p->y.n + oz * p->y.s[0] + oy * p->y.s[1]) * size;
        void *out = p->direct ? (void *)y : (void *)scratch;
        const int64_t sums = w->out[2] * channels;
        for (int part = 0; part < p->parts; part++)
            transpose_row(
                p, x, (const char *)ln_transpose_weights(call, b) + (size_t)part * (p->weights_bytes + p->bias_bytes),
                oz, oy, (float *)out + part * sums, p->direct ? p->y.s[2] : channels, taps);
        const int32_t *from = (int32_t *)(void *)scratch;
        if (p->integer)
            requant_pixels(&p->requant, from, p->parts == 1 ? NULL : from + sums, w->out[2], y, p->y.s[2] * size);
        if (!p->integer && !p->direct)
            any_narrow_rows(call->outputs[0].dtype, (float *)(void *)scratch, w->out[2], channels, y, p->y.s[2]);
    }
    return LINNET_OK;
}

static LN_PLANNING void LN_SIMD_NAME(transpose_cost)(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
#if defined(LN_SIMD_SSE2) /* with four lanes, the matrix product is always faster */
    ln_scale_products(counts, LN_TRANSPOSE_SLOW);
#endif
    ln_transpose_cost(kernel, call, counts);
}

const ln_kernel_code LN_SIMD_NAME(ln_conv_transpose) = {.can = ln_transpose_can,
                                                        .cost = LN_SIMD_NAME(transpose_cost),
                                                        .configure = ln_transpose_configure,
                                                        .pack = ln_transpose_pack,
                                                        .run = transpose_run};
