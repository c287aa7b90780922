/* depthwise_f32.inc.c - depthwise convolution of f32 by 3 x 3 with NEON. Included by depthwise.inc.c. */
#ifdef LN_SIMD_NEON

#define DW4_SEGMENT 56 /* output pixels before the next channels: so few that input lines stay in L1 */

#ifdef LN_SIMD_NEON64
#define DW_LOAD(v, row) "ld1 {v" #v ".4s}, [%[in" #row "]], %[step" #row "]\n"
#define DW_TAP(sum, v, k) "fmla v" #sum ".4s, v" #v ".4s, v" #k ".4s\n"
#define DW_STORE(sum, row)                                                                                             \
    "fmax v" #sum ".4s, v" #sum ".4s, v24.4s\n fmin v" #sum ".4s, v" #sum ".4s, v25.4s\n"                              \
    "st1 {v" #sum ".4s}, [%[out" #row "]], %[move]\n"
#define DW_SETUP                                                                                                       \
    "ld1 {v8.4s}, [%[w]], %[tap]\n ld1 {v9.4s}, [%[w]], %[tap]\n ld1 {v10.4s}, [%[w]], %[tap]\n"                       \
    "ld1 {v11.4s}, [%[w]], %[tap]\n ld1 {v12.4s}, [%[w]], %[tap]\n ld1 {v13.4s}, [%[w]], %[tap]\n"                     \
    "ld1 {v14.4s}, [%[w]], %[tap]\n ld1 {v15.4s}, [%[w]], %[tap]\n ld1 {v16.4s}, [%[w]], %[tap]\n"                     \
    "ld1 {v23.4s}, [%[bias]]\n ld1r {v24.4s}, [%[low]]\n ld1r {v25.4s}, [%[high]]\n"
#define DW_SLIDE dw4_slide
#define DW_SIZE 4
#include "fast/tail/depthwise_slide.inc.c"
#else
#include "fast/tail/depthwise_slide_a32.inc.c"
#endif

/* Computes one output row, or (on 64 bits) two if `out[1]` is given, and returns whether it could. */
static bool dw4_rows(const ln_depthwise *d, const ln_depthwise_weights *parts, int dtype, const void *x,
                     const int64_t *position, dw_cache *cache, void *const *out, int64_t out_pixel) {
    static const float zeros[8] = {0};
    const ln_window *w = &d->window;
    const int64_t size = d->floats.halves ? 2 : 4;
    const bool f16 = d->floats.f16_slide != NULL && d->channels >= 8;
    ln_depthwise_slide *slide = f16 ? d->floats.f16_slide : dw4_slide;
    const int64_t lanes = f16 ? 8 : 4, pad = w->pad_begin[2], pixels = w->out[2], inside = ln_depthwise_inside(w);
    if (inside < 1 || d->channels < 4 || parts->wide_bias[0] == 0) return false;
    ln_depthwise_span s = {.d = d,
                           .parts = parts,
                           .x_pixel = (d->widen ? d->channels : d->x.s[2]) * size,
                           .out = {out[0], out[1]},
                           .y_pixel = out_pixel * size};
    for (int r = 0; r < (out[1] != NULL ? 4 : 3); r++) {
        const int64_t z = position[1] * w->stride[0] - w->pad_begin[0],
                      y = position[2] * w->stride[1] - w->pad_begin[1] + r * w->dilation[1];
        const bool in = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        if (!in)
            s.rows[r] = (const char *)zeros;
        else if (!d->widen)
            s.rows[r] = (const char *)x + (position[0] * d->x.n + z * d->x.s[0] + y * d->x.s[1]) * size;
        else
            s.rows[r] = dw_input_row(d, dtype, x, position[0], z, y, r, cache);
        s.steps[r] = in ? s.x_pixel : 0;
    }
    for (int64_t ox = 0; ox < inside; ox += DW4_SEGMENT) {
        const int64_t count = ln_min(DW4_SEGMENT, inside - ox);
        for (int64_t c = 0; c < d->channels; c += lanes)
            slide(&s, ln_min(c, d->channels - lanes), ox, count, ox == 0 ? pad : 0,
                  ox + count == inside && inside < pixels);
    }
    return true;
}

#endif
