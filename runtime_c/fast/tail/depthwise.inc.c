/* depthwise.inc.c - depthwise convolution, with vectors over channels and several pixels at a time, for floats and
 * integers; also transposed (the gradient of its input) for f32. Compiled per ISA by longtail__<isa>.c. Code that does
 * not depend on the ISA is in fast/tail/depthwise_plan.c. */
#include "fast/tail/depthwise.h"
#include "fast/tail/any_lines.inc.c"
#include "fast/gemm/epilogue.h"
#include "fast/tail/depthwise_plan.h"
#include "fast/tail/requant.inc.c"

#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_AVX2)
#define LN_DW_PIXELS 8
#define LN_DW_TAPS 16 /* the longest line of taps for which pixels at the borders are computed together */
#elif defined(LN_SIMD_NEON)
#define LN_DW_PIXELS 8
#ifdef LN_SIMD_NEON64
#define DW_PAIRS true /* dw4_rows computes two output rows at once */
#else
#define DW_PAIRS false
#endif
#else
#define LN_DW_PIXELS 4
#endif

/* The taps of some pixels: rows of the input, the row of weights for each, and nx taps per row. The first weight that
 * is used is w_shift elements after the start of its row. */
typedef struct dw_span {
    int n_rows;
    const void *rows[LN_DEPTHWISE_ROWS], *weights[LN_DEPTHWISE_ROWS], *bias;
    int64_t nx, x_tap, w_tap, w_shift, pixel; /* distances in elements from tap to tap and from pixel to pixel */
    float low, high;
} dw_span;

#define NUMBER float
#define VECTOR vf
#define LOAD vf_load
#define STORE vf_store
#define LOAD_PARTIAL vf_load_partial
#define STORE_PARTIAL vf_store_partial
#define MULTIPLY_ADD(x, w, sum) vf_fma(x, w, sum)
#define FINISH(v) vf_min(high, vf_max(low, v)) /* keeps NaN */
#define NAMED(name) dw_##name##_float
#include "fast/tail/depthwise_tile.inc.c"

#ifdef LN_SIMD_NEON
#define NUMBER int32_t
#define VECTOR vi
#define LOAD vi_load
#define STORE vi_store
#define LOAD_PARTIAL vi_load_partial
#define STORE_PARTIAL vi_store_partial
#define MULTIPLY_ADD(x, w, sum) vi_add(sum, vi_mul(x, w))
#define FINISH(v) (v)
#define NAMED(name) dw_##name##_integer
#include "fast/tail/depthwise_tile.inc.c"
#else
#include "fast/tail/depthwise_lanes.inc.c"
#endif

/* The input rows that a thread keeps between output rows, widened to f32, or to i32 minus the zero point. */
typedef struct dw_cache {
    float *rows;
    int64_t held[LN_DEPTHWISE_ROWS + 1];
} dw_cache;

#include "fast/tail/depthwise_int8.inc.c"

/* Writes each of `count` elements of x `times` times. x is the end of the memory of y. */
static void dw_repeat(const float *x, int64_t count, int64_t times, float *y) {
    for (int64_t i = 0; i < count; i++) {
        const float v = x[i];
        for (int64_t k = 0; k < times; k++) *y++ = v;
    }
}

/* Returns row (n, z, y) of x, which the kernel's row of taps number `tap` reads. An f32 row is used in place. Rows of
 * other types are widened once for several output rows. */
static const void *dw_input_row(const ln_depthwise *d, int dtype, const void *x, int64_t n, int64_t z, int64_t y,
                                int64_t tap, dw_cache *cache) {
    const ln_window *w = &d->window;
    int64_t at = n * d->x.n + z * d->x.s[0] + y * d->x.s[1], id = (n * w->in[0] + z) * w->in[1] + y;
    if (!d->widen) return (const float *)x + at;
    int64_t kz = tap / w->kernel[1], ky = tap % w->kernel[1];
    /* Without dilation, neighbouring rows have different numbers modulo the kernel size, so they stay cached for the
     * next output row. */
    int64_t slot =
        (w->dilation[0] == 1 ? z % w->kernel[0] : kz) * w->kernel[1] + (w->dilation[1] == 1 ? y % w->kernel[1] : ky);
    float *row = cache->rows + slot * w->in[2] * d->channels;
    if (cache->held[slot] == id) return row;
    const int64_t elements = w->in[2] * w->in_channels;
    float *to = row + w->in[2] * d->channels - elements;
    bool whole = d->x.s[2] == w->in_channels;
    for (int64_t ix = 0; ix < (whole ? 1 : w->in[2]); ix++) {
        int64_t count = whole ? elements : w->in_channels, from = at + ix * d->x.s[2];
#ifdef LN_SIMD_NEON
        if (d->integer)
            any_widen_integer(dtype, x, from, count, d->quantized.requant.x_zero,
                              (int32_t *)(void *)to + ix * w->in_channels);
        else
#endif
            any_widen(dtype, x, from, count, to + ix * w->in_channels);
    }
    if (d->multiplier > 1) dw_repeat(to, elements, d->multiplier, row);
    cache->held[slot] = id;
    return row;
}

#include "fast/tail/depthwise_f32.inc.c"

#ifdef LN_DW_TAPS
/* Computes one output line. Pixels [begin, end) have all taps. */
static void dw_line(const ln_depthwise *d, dw_span *s, int64_t begin, int64_t end, int64_t x_pixel, float *out,
                    int64_t out_pixel) {
    const ln_window *w = &d->window;
    s->nx = w->kernel[2], s->w_shift = 0;
    for (int64_t ox = 0, count; ox < w->out[2]; ox += count) {
        const int64_t shift = (ox * w->stride[2] - w->pad_begin[2]) * x_pixel, left = w->out[2] - ox;
        if (ox >= begin && end - ox >= LN_DW_PIXELS) {
            count = (end - ox) / LN_DW_PIXELS * LN_DW_PIXELS;
            dw_pixels_float(s, count, shift, d->channels, out + ox * out_pixel, out_pixel);
            continue;
        }
        uint8_t taps[LN_DW_TAPS] = {0};
        count = left <= LN_DW_PIXELS ? left : left >= 2 * LN_DW_PIXELS ? LN_DW_PIXELS : (left + 1) / 2;
        for (int64_t p = 0; p < count; p++) {
            int64_t kx, last;
            ln_window_valid(w, 2, ox + p, &kx, &last);
            for (; kx < last; kx++) taps[kx] = (uint8_t)(taps[kx] | 1u << p);
        }
        dw_border_float(s, (int)count, shift, taps, d->channels, out + ox * out_pixel, out_pixel);
    }
}
#endif

/* Computes one output row into `out` (f32, or i32 sums); pixels are out_pixel elements apart. */
static void dw_row(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *parts, const void *x,
                   const int64_t *position, dw_cache *cache, void *out, int64_t out_pixel) {
    const ln_window *w = &d->window;
    int64_t begin[3], end[3], x_pixel = d->widen ? d->channels : d->x.s[2];
    ln_window_valid(w, 0, position[1], &begin[0], &end[0]);
    ln_window_valid(w, 1, position[2], &begin[1], &end[1]);
    dw_span s = {.bias = parts->bias,
                 .x_tap = w->dilation[2] * x_pixel,
                 .w_tap = d->padded,
                 .pixel = w->stride[2] * x_pixel,
                 .low = d->floats.low,
                 .high = d->floats.high};
    for (int64_t kz = begin[0]; kz < end[0]; kz++)
        for (int64_t ky = begin[1]; ky < end[1]; ky++) {
            int64_t z = position[1] * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0],
                    tap = kz * w->kernel[1] + ky;
            int64_t y = position[2] * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
            s.weights[s.n_rows] = (const float *)parts->taps + tap * w->kernel[2] * d->padded;
            s.rows[s.n_rows++] = dw_input_row(d, call->inputs[0].dtype, x, position[0], z, y, tap, cache);
        }
    int64_t reach = w->in[2] - 1 - (w->kernel[2] - 1) * w->dilation[2] + w->pad_begin[2];
    int64_t inner_begin = ln_min(ln_ceil_div(w->pad_begin[2], w->stride[2]), w->out[2]);
    int64_t inner_end = reach < 0 ? inner_begin : ln_max(inner_begin, ln_min(w->out[2], reach / w->stride[2] + 1));
#ifdef LN_DW_TAPS
    if (d->channels >= VF_WIDTH && w->kernel[2] <= LN_DW_TAPS) {
        dw_line(d, &s, inner_begin, inner_end, x_pixel, out, out_pixel);
        return;
    }
#endif
    for (int64_t ox = 0, count; ox < w->out[2]; ox += count) {
        count = ox >= inner_begin && ox < inner_end ? inner_end - ox : 1;
        ln_window_valid(w, 2, ox, &begin[2], &end[2]);
        s.nx = end[2] - begin[2];
        s.w_shift = begin[2] * d->padded;
        int64_t shift = (s.nx == 0 ? 0 : ox * w->stride[2] - w->pad_begin[2] + begin[2] * w->dilation[2]) * x_pixel;
#ifdef LN_SIMD_NEON
        if (d->integer)
            dw_pixels_integer(&s, count, shift, d->channels, (int32_t *)out + ox * out_pixel, out_pixel);
        else
#endif
            dw_pixels_float(&s, count, shift, d->channels, (float *)out + ox * out_pixel, out_pixel);
    }
}

/* Computes one output row of a transposed depthwise convolution. Output pixels that are `stride` apart share their
 * taps, which read neighbouring input pixels. Each such phase is therefore a row of a convolution with the taps
 * reversed. */
static void dwt_row(const ln_depthwise *d, const ln_depthwise_weights *parts, const float *x, int64_t oz, int64_t oy,
                    float *out, int64_t out_pixel) {
    const ln_window *w = &d->window;
    const int64_t stride = w->stride[2], step = stride > 1 ? stride : 1, move = stride > 1 ? 1 : w->dilation[2];
    dw_span s = {.bias = parts->bias,
                 .x_tap = -move * d->x.s[2],
                 .w_tap = step * d->padded,
                 .pixel = d->x.s[2],
                 .low = d->floats.low,
                 .high = d->floats.high};
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
            const int64_t z = oz + w->pad_begin[0] - kz * w->dilation[0],
                          y = oy + w->pad_begin[1] - ky * w->dilation[1];
            if (z < 0 || y < 0 || z % w->stride[0] != 0 || y % w->stride[1] != 0 || z / w->stride[0] >= w->in[0] ||
                y / w->stride[1] >= w->in[1])
                continue;
            s.rows[s.n_rows] = x + z / w->stride[0] * d->x.s[0] + y / w->stride[1] * d->x.s[1];
            s.weights[s.n_rows++] = (const float *)parts->taps + (kz * w->kernel[1] + ky) * w->kernel[2] * d->padded;
        }
    for (int64_t phase = 0; phase < ln_min(stride, w->out[2]); phase++) {
        const int64_t kx = stride > 1 ? (phase + w->pad_begin[2]) % stride : 0;
        const int64_t base = (phase + w->pad_begin[2] - kx) / stride, pixels = ln_ceil_div(w->out[2] - phase, stride);
        const int64_t taps = kx < w->kernel[2] ? ln_ceil_div(w->kernel[2] - kx, step) : 0;
        /* Pixel i reads input base + i - j * move through tap j. */
        const int64_t inner = ln_min(ln_max(0, (taps - 1) * move - base), pixels),
                      outer = ln_min(ln_max(inner, w->in[2] - base), pixels);
        for (int64_t i = 0, count; i < pixels; i += count) {
            count = i >= inner && i < outer ? outer - i : 1;
            const int64_t begin = ln_max(0, ln_ceil_div(base + i - w->in[2] + 1, move)),
                          end = ln_min(taps, (base + i) / move + 1);
            s.nx = ln_max(0, end - begin);
            s.w_shift = (kx + begin * step) * d->padded;
            dw_pixels_float(&s, count, s.nx == 0 ? 0 : (base + i - begin * move) * d->x.s[2], d->channels,
                            out + (phase + i * stride) * out_pixel, stride * out_pixel);
        }
    }
}

#ifdef LN_SIMD_NEON
/* Converts the sums of a row to output values (or to f32 in place, for the epilogue). */
static void dw_requant(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *parts, int32_t *sums,
                       void *y) {
    const ln_requant *r = &d->quantized.requant;
    const bool in_place = call->epilogue != NULL;
    const int64_t pixels = d->window.out[2], size = (int64_t)ln_dtype_size(r->output_dtype);
    const int64_t pixel = in_place ? d->channels * 4 : d->y.s[2] * size;
    const int32_t *low = d->quantized.parts == 1 ? NULL : sums + pixels * d->channels;
    char *to = in_place ? (char *)sums : y;
    if (d->quantized.sums_fit)
        requant_pixels(r, sums, low, pixels, to, pixel);
    else
        requant_wide(r, sums, low, parts->wide_bias, pixels, to, pixel);
}
#endif

static void dw_single(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *parts, const void *x,
                      const int64_t *position, dw_cache *cache, void *out, int64_t out_pixel, void *y) {
    if (d->transposed)
        dwt_row(d, parts, (const float *)x + position[0] * d->x.n, position[1], position[2], out, out_pixel);
    else
        dw_row(call, d, parts, x, position, cache, out, out_pixel);
#ifdef LN_SIMD_NEON
    if (d->quantized.parts == 2) {
        const ln_depthwise_weights low = {.taps = (const int32_t *)parts->taps +
                                                  d->taps.rows * d->window.kernel[2] * d->padded,
                                          .bias = (const int32_t *)parts->bias + d->padded};
        dw_row(call, d, &low, x, position, cache, (int32_t *)out + d->window.out[2] * out_pixel, out_pixel);
    }
    if (d->integer) dw_requant(call, d, parts, out, y);
#else
    (void)y;
#endif
}

static linnet_status dw_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                            int thread) {
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    if (phase == 0 && !d->constant) {
        ln_depthwise_pack_run(call, b);
        return LINNET_OK;
    }
    ln_depthwise_weights parts = ln_depthwise_weights_of(call, b);
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    dw_cache cache = {.rows = (float *)(void *)(scratch + d->row_bytes)};
    for (int i = 0; i <= LN_DEPTHWISE_ROWS; i++) cache.held[i] = -1;
    int64_t y_size = (int64_t)ln_dtype_size(call->outputs[0].dtype);
    for (int64_t item = begin, rows; item < end; item += rows) {
        int64_t position[3] = {item / w->out[1] / w->out[0], item / w->out[1] % w->out[0], item % w->out[1]};
        int64_t at = position[0] * d->y.n + position[1] * d->y.s[0] + position[2] * d->y.s[1];
        char *y = (char *)b->outputs[0] + at * y_size;
        void *out = d->floats.direct ? (void *)y : scratch;
        int64_t out_pixel = d->floats.direct ? d->y.s[2] : d->channels;
        rows = 1;
#ifdef LN_SIMD_NEON
        if (d->narrow.stores != LN_NARROW_NONE) {
            const bool sums = d->narrow.stores == LN_NARROW_SUMS;
            dw8_row(d, &parts, b->inputs[0], position, &cache, sums ? scratch : y,
                    (sums ? d->channels : d->y.s[2]) * dw8_stored(d));
            if (sums) dw_requant(call, d, &parts, out, y);
        } else
#endif
#ifdef LN_SIMD_NEON
            if (!d->integer && !d->transposed) {
            const bool pair = DW_PAIRS && d->floats.direct && !d->widen && w->stride[1] == 1 && w->dilation[1] == 1 &&
                              w->stride[2] == 1 && item + 1 < end && position[2] + 1 < w->out[1];
            void *outs[2] = {out, pair ? y + d->y.s[1] * y_size : NULL};
            if (!dw4_rows(d, &parts, call->inputs[0].dtype, b->inputs[0], position, &cache, outs, out_pixel))
                dw_row(call, d, &parts, b->inputs[0], position, &cache, out, out_pixel);
            else if (pair)
                rows = 2;
        } else
#endif
            dw_single(call, d, &parts, b->inputs[0], position, &cache, out, out_pixel, y);
        if (!d->integer && !d->floats.direct && call->epilogue == NULL)
            any_narrow_rows(call->outputs[0].dtype, out, w->out[2], d->channels, y, d->y.s[2]);
        for (int64_t r = 0; r < rows && d->apply; r++)
            ln_epilogue_apply(call, b, (item + r) * w->out[2], w->out[2], 0, d->channels,
                              r == 0 ? out : (void *)(y + d->y.s[1] * y_size), out_pixel);
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_depthwise_float) = {.can = ln_depthwise_can_float,
                                                         .cost = ln_depthwise_cost,
                                                         .configure = ln_depthwise_configure,
                                                         .pack = ln_depthwise_pack,
                                                         .run = dw_run};

#ifdef LN_SIMD_NEON
const ln_kernel_code LN_SIMD_NAME(ln_depthwise_integer) = {.can = ln_depthwise_can_integer,
                                                           .cost = ln_depthwise_cost,
                                                           .configure = ln_depthwise_configure_narrow,
                                                           .pack = ln_depthwise_pack,
                                                           .run = dw_run};
#endif

const ln_kernel_code LN_SIMD_NAME(ln_depthwise_transpose) = {
    .can = ln_depthwise_can_transpose, .configure = ln_depthwise_configure, .pack = ln_depthwise_pack, .run = dw_run};
