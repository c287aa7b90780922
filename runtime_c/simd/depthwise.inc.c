/* depthwise.inc.c - depthwise convolution, vectors over channels, several pixels at a time; floats and integers.
 * Compiled per ISA by longtail__<isa>.c. What does not depend on the ISA is in ops/depthwise.c. */
#include "ops/depthwise.h"
#include "simd/any.inc.c"
#include "simd/requant.inc.c"

#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_NEON)
#define LN_DW_PIXELS 8
#else
#define LN_DW_PIXELS 4
#endif

/* The taps that some pixels see: nz by ny by nx, with the steps between taps in x and in the packed weights. */
typedef struct dw_span {
    const void *x, *w, *init;
    int64_t nz, ny, nx;
    int64_t xz, xy, xx, wz, wy, wx;
    float low, high;
    int32_t zero;
} dw_span;

#define NUMBER float
#define VECTOR vf
#define SET1(v) vf_set1((float)(v))
#define LOAD vf_load
#define STORE vf_store
#define LOAD_PARTIAL vf_load_partial
#define STORE_PARTIAL vf_store_partial
#define MULTIPLY_ADD(x, w, sum) vf_fma(x, w, sum)
#define FINISH(v) vf_min(high, vf_max(low, v)) /* NaN passes */

#define ELEMENT float
#define WIDEN(p) vf_load(p)
#define WIDEN_PARTIAL(p, n) vf_load_partial(p, n)
#define NAMED(name) name##_f32
#include "simd/depthwise_tile.inc.c"

#define ELEMENT uint16_t
#define WIDEN(p) vf_load_f16(p)
#define WIDEN_PARTIAL(p, n) vf_load_f16_partial(p, n)
#define NAMED(name) name##_f16
#include "simd/depthwise_tile.inc.c"

#define ELEMENT uint16_t
#define WIDEN(p) vf_load_bf16(p)
#define WIDEN_PARTIAL(p, n) vf_load_bf16_partial(p, n)
#define NAMED(name) name##_bf16
#include "simd/depthwise_tile.inc.c"

#undef NUMBER
#undef VECTOR
#undef SET1
#undef LOAD
#undef STORE
#undef LOAD_PARTIAL
#undef STORE_PARTIAL
#undef MULTIPLY_ADD
#undef FINISH

#define NUMBER int32_t
#define VECTOR vi
#define SET1(v) vi_set1(v)
#define LOAD vi_load
#define STORE vi_store
#define LOAD_PARTIAL vi_load_partial
#define STORE_PARTIAL vi_store_partial
#define MULTIPLY_ADD(x, w, sum) vi_add(sum, vi_mul(x, w))
#define FINISH(v) (v)

/* Whole windows of i8 have the zero point in their initial value; all others subtract it tap by tap. */
#define ELEMENT int8_t
#define WIDEN(p) vi_load_i8(p)
#define WIDEN_PARTIAL(p, n) vi_load_i8_partial(p, n)
#define NAMED(name) name##_i8
#include "simd/depthwise_tile.inc.c"
#define ELEMENT int8_t
#define WIDEN(p) vi_sub(vi_load_i8(p), zero)
#define WIDEN_PARTIAL(p, n) vi_sub(vi_load_i8_partial(p, n), zero)
#define NAMED(name) name##_cut_i8
#include "simd/depthwise_tile.inc.c"
#define ELEMENT uint8_t
#define WIDEN(p) vi_sub(vi_load_u8(p), zero)
#define WIDEN_PARTIAL(p, n) vi_sub(vi_load_u8_partial(p, n), zero)
#define NAMED(name) name##_u8
#include "simd/depthwise_tile.inc.c"
#define ELEMENT int16_t
#define WIDEN(p) vi_sub(vi_load_i16(p), zero)
#define WIDEN_PARTIAL(p, n) vi_sub(vi_load_i16_partial(p, n), zero)
#define NAMED(name) name##_i16
#include "simd/depthwise_tile.inc.c"

#undef NUMBER
#undef VECTOR
#undef SET1
#undef LOAD
#undef STORE
#undef LOAD_PARTIAL
#undef STORE_PARTIAL
#undef MULTIPLY_ADD
#undef FINISH

static void dw_pixels(int dtype, bool cut, const dw_span *s, int64_t count, int64_t pixel, int64_t channels, void *out,
                      int64_t out_pixel) {
    switch (dtype) {
    case LINNET_F32: pixels_f32(*s, count, pixel, channels, out, out_pixel); break;
    case LINNET_F16: pixels_f16(*s, count, pixel, channels, out, out_pixel); break;
    case LINNET_BF16: pixels_bf16(*s, count, pixel, channels, out, out_pixel); break;
    case LINNET_I8: (cut ? pixels_cut_i8 : pixels_i8)(*s, count, pixel, channels, out, out_pixel); break;
    case LINNET_U8: pixels_u8(*s, count, pixel, channels, out, out_pixel); break;
    default: pixels_i16(*s, count, pixel, channels, out, out_pixel); break;
    }
}

/* One output row into `out` (f32, or i32 sums), out_pixel elements from pixel to pixel. */
static void dw_row(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *parts, const char *x, int64_t oz,
                   int64_t oy, void *out, int64_t out_pixel) {
    const ln_window *w = &d->window;
    int dtype = call->inputs[0].dtype;
    int64_t size = (int64_t)ln_dtype_size(dtype), begin[3], end[3];
    ln_window_valid(w, 0, oz, &begin[0], &end[0]);
    ln_window_valid(w, 1, oy, &begin[1], &end[1]);
    dw_span s = {.nz = end[0] - begin[0], .ny = end[1] - begin[1],
                 .xz = w->dilation[0] * d->x.s[0], .xy = w->dilation[1] * d->x.s[1], .xx = w->dilation[2] * d->x.s[2],
                 .wz = w->kernel[1] * w->kernel[2] * d->padded, .wy = w->kernel[2] * d->padded, .wx = d->padded,
                 .low = d->low, .high = d->high, .zero = d->requant.x_zero};
    int64_t z = oz * w->stride[0] - w->pad_begin[0] + begin[0] * w->dilation[0];
    int64_t y = oy * w->stride[1] - w->pad_begin[1] + begin[1] * w->dilation[1];
    int64_t row = z * d->x.s[0] + y * d->x.s[1], row_weights = begin[0] * s.wz + begin[1] * s.wy;
    bool whole_rows = s.nz == w->kernel[0] && s.ny == w->kernel[1];
    if (s.nz == 0 || s.ny == 0)
        row = 0, s.nz = s.ny = 0;
    int64_t reach = w->in[2] - 1 - (w->kernel[2] - 1) * w->dilation[2] + w->pad_begin[2];
    int64_t inner_begin = ln_min(ln_ceil_div(w->pad_begin[2], w->stride[2]), w->out[2]);
    int64_t inner_end = reach < 0 ? inner_begin : ln_max(inner_begin, ln_min(w->out[2], reach / w->stride[2] + 1));
    for (int64_t ox = 0; ox < w->out[2];) {
        bool inner = ox >= inner_begin && ox < inner_end;
        int64_t count = inner ? inner_end - ox : 1;
        ln_window_valid(w, 2, ox, &begin[2], &end[2]);
        s.nx = end[2] - begin[2];
        int64_t at = s.nx == 0 ? 0 : ox * w->stride[2] - w->pad_begin[2] + begin[2] * w->dilation[2];
        bool cut = dtype != LINNET_I8 || (d->requant.x_zero != 0 && !(inner && whole_rows));
        s.x = x + (row + at * d->x.s[2]) * size;
        s.w = (const char *)parts->taps + (row_weights + begin[2] * s.wx) * 4;
        s.init = cut ? parts->bias : parts->full;
        dw_pixels(dtype, cut, &s, count, w->stride[2] * d->x.s[2], d->channels, (char *)out + ox * out_pixel * 4, out_pixel);
        ox += count;
    }
}

/* Sums of a row to the output (or to f32 in place, for the epilogue). */
static void dw_requant(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *parts, int32_t *sums, void *y) {
    int64_t channels = d->channels, size = (int64_t)ln_dtype_size(d->requant.output_dtype);
    for (int64_t ox = 0; ox < d->window.out[2]; ox++) {
        int32_t *from = sums + ox * channels;
        char *to = call->epilogue != NULL ? (char *)from : (char *)y + ox * d->y.s[2] * size;
        if (d->sums_fit)
            requant_row(&d->requant, 0, from, channels, to);
        else
            for (int64_t c = 0; c < channels; c++)
                ln_requant_store(&d->requant, c, from[c] + parts->wide_bias[c], to, c);
    }
}

static linnet_status dw_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    if (phase == 0 && !d->constant) {
        ln_depthwise_pack_run(call, b);
        return LINNET_OK;
    }
    ln_depthwise_weights parts = ln_depthwise_weights_of(call, b);
    void *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    int64_t x_size = (int64_t)ln_dtype_size(call->inputs[0].dtype), y_size = (int64_t)ln_dtype_size(call->outputs[0].dtype);
    for (int64_t item = begin; item < end; item++) {
        int64_t oy = item % w->out[1], oz = item / w->out[1] % w->out[0], n = item / w->out[1] / w->out[0];
        const char *x = (const char *)b->inputs[0] + n * d->x.n * x_size;
        int64_t at = n * d->y.n + oz * d->y.s[0] + oy * d->y.s[1];
        char *y = (char *)b->outputs[0] + at * y_size;
        void *out = d->direct ? (void *)y : scratch;
        int64_t out_pixel = d->direct ? d->y.s[2] : d->channels;
        dw_row(call, d, &parts, x, oz, oy, out, out_pixel);
        if (d->integer)
            dw_requant(call, d, &parts, scratch, y);
        else if (!d->direct && call->epilogue == NULL)
            any_narrow_rows(call->outputs[0].dtype, scratch, w->out[2], d->channels, y, d->y.s[2]);
        if (d->apply)
            ln_epilogue_apply(call, b, item * w->out[2], w->out[2], 0, d->channels, out, out_pixel);
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_depthwise_float) = {.name = "conv_float_depthwise__" LN_SIMD_TEXT,
                                                    .op = LN_OP_CONV,
                                                    .isa = LN_SIMD_ISA,
                                                    .flags = LN_KERNEL_EPILOGUE | LN_KERNEL_VIEWS,
                                                    .supports = ln_depthwise_supports_float,
                                                    .configure = ln_depthwise_configure,
                                                    .pack = ln_depthwise_pack,
                                                    .run = dw_run};

const ln_kernel LN_SIMD_NAME(ln_depthwise_integer) = {.name = "conv_integer_depthwise__" LN_SIMD_TEXT,
                                                      .op = LN_OP_CONV,
                                                      .isa = LN_SIMD_ISA,
                                                      .flags = LN_KERNEL_EPILOGUE | LN_KERNEL_VIEWS,
                                                      .supports = ln_depthwise_supports_integer,
                                                      .configure = ln_depthwise_configure,
                                                      .pack = ln_depthwise_pack,
                                                      .run = dw_run};
