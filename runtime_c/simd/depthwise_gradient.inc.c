/* depthwise_gradient.inc.c - gradients of depthwise convolution, vectors over channels: of its weights (conv_gradient),
 * and of its input (conv_transpose). Included after depthwise.inc.c; planning is in ops/depthwise_gradient.c. */
#include "ops/depthwise.h"

/* `count` positions of one line: what taps P side by side add up to, for Q vectors of channels, added to sums, which
 * are `padded` floats apart from tap to tap. n: channels of the last, or only, vector. */
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

/* The same for P = 1 or 3 taps and all channels. */
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

/* One line of x and one of g through one row of taps. */
static void dwg_line(const ln_depthwise_gradient *p, const float *x, const float *g, float *sums) {
    const ln_window *w = &p->window;
    const int64_t x_tap = w->dilation[2] * p->x.s[2], x_step = w->stride[2] * p->x.s[2], g_step = p->g.s[2];
    for (int64_t kx = 0, taps; kx < w->kernel[2]; kx += taps, sums += taps * p->padded) {
        taps = w->kernel[2] - kx >= 3 ? 3 : 1;
        /* Where all of the taps lie inside the line; what one of them sees besides is added alone. */
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

const ln_kernel LN_SIMD_NAME(ln_depthwise_gradient) = {.name = "conv_gradient_depthwise__" LN_SIMD_TEXT,
                                                       .op = LN_OP_CONV_GRADIENT,
                                                       .isa = LN_SIMD_ISA,
                                                       .flags = LN_KERNEL_VIEWS,
                                                       .supports = ln_depthwise_gradient_supports,
                                                       .configure = ln_depthwise_gradient_configure,
                                                       .run = dwg_run};

/* One output row of a transposed depthwise convolution. Output pixels `stride` apart share their taps, which see
 * neighbouring pixels of the input: each such phase is a row of a convolution with the taps in reverse. */
static void dwt_row(const ln_depthwise *d, const ln_depthwise_weights *parts, const float *x, int64_t oz, int64_t oy,
                    float *out) {
    const ln_window *w = &d->window;
    const int64_t stride = w->stride[2], step = stride > 1 ? stride : 1, move = stride > 1 ? 1 : w->dilation[2];
    dw_span s = {.bias = parts->bias,
                 .x_tap = -move * d->x.s[2],
                 .w_tap = step * d->padded,
                 .pixel = d->x.s[2],
                 .low = -INFINITY,
                 .high = INFINITY};
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
        /* Pixel i sees input base + i - j * move by tap j. */
        const int64_t inner = ln_min(ln_max(0, (taps - 1) * move - base), pixels),
                      outer = ln_min(ln_max(inner, w->in[2] - base), pixels);
        for (int64_t i = 0, count; i < pixels; i += count) {
            count = i >= inner && i < outer ? outer - i : 1;
            const int64_t begin = ln_max(0, ln_ceil_div(base + i - w->in[2] + 1, move)),
                          end = ln_min(taps, (base + i) / move + 1);
            s.nx = ln_max(0, end - begin);
            s.w_shift = (kx + begin * step) * d->padded;
            dw_pixels_float(&s, count, s.nx == 0 ? 0 : (base + i - begin * move) * d->x.s[2], d->channels,
                            out + (phase + i * stride) * d->y.s[2], stride * d->y.s[2]);
        }
    }
}

static linnet_status dwt_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                             int thread) {
    (void)thread;
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    if (phase == 0 && !d->constant) {
        ln_depthwise_pack_run(call, b);
        return LINNET_OK;
    }
    const ln_depthwise_weights parts = ln_depthwise_weights_of(call, b);
    for (int64_t item = begin; item < end; item++) {
        const int64_t oy = item % w->out[1], oz = item / w->out[1] % w->out[0], n = item / w->out[1] / w->out[0];
        dwt_row(d, &parts, (const float *)b->inputs[0] + n * d->x.n, oz, oy,
                (float *)b->outputs[0] + n * d->y.n + oz * d->y.s[0] + oy * d->y.s[1]);
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_depthwise_transpose) = {.name = "conv_transpose_depthwise__" LN_SIMD_TEXT,
                                                        .op = LN_OP_CONV_TRANSPOSE,
                                                        .isa = LN_SIMD_ISA,
                                                        .flags = LN_KERNEL_VIEWS,
                                                        .supports = ln_depthwise_supports_transpose,
                                                        .configure = ln_depthwise_configure,
                                                        .pack = ln_depthwise_pack,
                                                        .run = dwt_run};
