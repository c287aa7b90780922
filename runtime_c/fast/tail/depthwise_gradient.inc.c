/* depthwise_gradient.inc.c - the weight gradient of depthwise convolution, with vectors over channels.
 * Compiled per ISA. Planning is in fast/tail/depthwise_gradient.c; the input gradient is in depthwise.inc.c. */
#include "fast/tail/depthwise_gradient.h"

#include "fast/tail/depthwise.h"

/* Adds the products of `count` positions of one line to `sums`, for P adjacent taps and Q vectors of channels. The sums
 * of two taps are `padded` floats apart. n: number of channels in the last, or only, vector. */
static LN_ALWAYS_INLINE void dwg_add(const int P, const int Q, const float *x, int64_t x_tap, int64_t x_step,
                                     const float *g, int64_t g_step, int64_t count, int n, float *sums,
                                     int64_t padded) {
    vf acc[3][4];
    LN_UNROLL
    for (int p = 0; p < P; p++) LN_UNROLL
    for (int q = 0; q < Q; q++) acc[p][q] = vf_zero();
    for (int64_t i = 0; i < count; i++, x += x_step, g += g_step) {
        LN_UNROLL
        for (int q = 0; q < Q; q++) {
            const vf factor = Q > 1 || n == VF_WIDTH ? vf_load(g + q * VF_WIDTH) : vf_load_partial(g, n);
            LN_UNROLL
            for (int p = 0; p < P; p++) {
                const float *from = x + p * x_tap + q * VF_WIDTH;
                const vf v = Q > 1 || n == VF_WIDTH ? vf_load(from) : vf_load_partial(from, n);
                acc[p][q] = vf_fma(v, factor, acc[p][q]);
            }
        }
    }
    LN_UNROLL
    for (int p = 0; p < P; p++) LN_UNROLL
    for (int q = 0; q < Q; q++) {
        float *to = sums + p * padded + q * VF_WIDTH;
        vf_store(to, vf_add(vf_load(to), acc[p][q]));
    }
}

/* Adds the products for all channels, with P = 1 or 3 taps. */
static LN_NEVER_INLINE void dwg_taps(const int P, const float *x, int64_t x_tap, int64_t x_step, const float *g,
                                     int64_t g_step, int64_t count, int64_t channels, float *sums, int64_t padded) {
    if (count <= 0) return;
    int64_t c = 0;
    for (; c + 4 * VF_WIDTH <= channels; c += 4 * VF_WIDTH)
        if (P == 3)
            dwg_add(3, 4, x + c, x_tap, x_step, g + c, g_step, count, VF_WIDTH, sums + c, padded);
        else
            dwg_add(1, 4, x + c, x_tap, x_step, g + c, g_step, count, VF_WIDTH, sums + c, padded);
    for (; c < channels; c += VF_WIDTH) {
        const int n = (int)ln_min(VF_WIDTH, channels - c);
        if (P == 3)
            dwg_add(3, 1, x + c, x_tap, x_step, g + c, g_step, count, n, sums + c, padded);
        else
            dwg_add(1, 1, x + c, x_tap, x_step, g + c, g_step, count, n, sums + c, padded);
    }
}

/* Processes one line of x and one of g for one row of taps. */
static void dwg_line(const ln_depthwise_gradient *p, const float *x, const float *g, float *sums) {
    const ln_window *w = &p->window;
    const int64_t x_tap = w->dilation[2] * p->x.s[2], x_step = w->stride[2] * p->x.s[2], g_step = p->g.s[2];
    for (int64_t kx = 0, taps; kx < w->kernel[2]; kx += taps, sums += taps * p->padded) {
        taps = w->kernel[2] - kx >= 3 ? 3 : 1;
        /* Finds the positions where all taps are inside the line. Other positions of a tap are added separately. */
        int64_t low[3], high[3], from = 0, to = w->out[2];
        for (int64_t i = 0; i < taps; i++) {
            const int64_t shift = (kx + i) * w->dilation[2] - w->pad_begin[2], last = w->in[2] - 1 - shift;
            low[i] = ln_min(ln_max(0, ln_ceil_div(-shift, w->stride[2])), w->out[2]);
            high[i] = last < 0 ? 0 : ln_min(last / w->stride[2] + 1, w->out[2]);
            from = ln_max(from, low[i]), to = ln_min(to, high[i]);
        }
        const float *first = x + (kx * w->dilation[2] - w->pad_begin[2]) * p->x.s[2];
        to = ln_max(from, to);
        dwg_taps((int)taps, first + from * x_step, x_tap, x_step, g + from * g_step, g_step, to - from, p->channels,
                 sums, p->padded);
        for (int64_t i = 0; i < taps && taps > 1; i++) {
            const int64_t left = ln_min(from, high[i]), right = ln_max(to, low[i]);
            dwg_taps(1, first + i * x_tap + low[i] * x_step, 0, x_step, g + low[i] * g_step, g_step, left - low[i],
                     p->channels, sums + i * p->padded, p->padded);
            dwg_taps(1, first + i * x_tap + right * x_step, 0, x_step, g + right * g_step, g_step, high[i] - right,
                     p->channels, sums + i * p->padded, p->padded);
        }
    }
}

static linnet_status dwg_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                             int thread) {
    (void)thread;
    const ln_depthwise_gradient *p = call->state;
    const ln_window *w = &p->window;
    const int64_t taps = ln_window_taps(w), size = taps * p->padded, lines = w->batch * w->out[0] * w->out[1];
    if (phase == 1) {
        ln_depthwise_gradient_finish(call, b, begin, end);
        return LINNET_OK;
    }
    for (int64_t item = begin; item < end; item++) {
        float *sums = (float *)b->scratch + item * size;
        memset(sums, 0, (size_t)size * sizeof *sums);
        for (int64_t line = item * p->part; line < ln_min(lines, (item + 1) * p->part); line++) {
            const int64_t oy = line % w->out[1], oz = line / w->out[1] % w->out[0], n = line / w->out[1] / w->out[0];
            const float *g = (const float *)b->inputs[1] + n * p->g.n + oz * p->g.s[0] + oy * p->g.s[1];
            int64_t low[2], high[2];
            ln_window_valid(w, 0, oz, &low[0], &high[0]);
            ln_window_valid(w, 1, oy, &low[1], &high[1]);
            for (int64_t kz = low[0]; kz < high[0]; kz++)
                for (int64_t ky = low[1]; ky < high[1]; ky++) {
                    const int64_t z = oz * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0],
                                  y = oy * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
                    const float *x = (const float *)b->inputs[0] + n * p->x.n + z * p->x.s[0] + y * p->x.s[1];
                    dwg_line(p, x, g, sums + (kz * w->kernel[1] + ky) * w->kernel[2] * p->padded);
                }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_depthwise_gradient) = {
    .can = ln_depthwise_gradient_can, .configure = ln_depthwise_gradient_configure, .run = dwg_run};
