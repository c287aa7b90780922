/* gemm_driver_scatter.c - transposed convolution to few channels or with a stride, with weights that are known only in
 * the run. One product computes what every input position contributes to its taps. Then the contributions are added to
 * the output, one line of taps at a time. Unlike in the other kernels, no column of a panel is empty, and the stride
 * causes no products with zeros. */
#include "fast/gemm/gemm_driver_scatter.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_conv.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <string.h>

enum {
    BLOCK = 56,
    MOST_CHANNELS = 8
}; /* BLOCK: input positions processed at once. MOST_CHANNELS: the largest number of output channels that leaves half a
      panel empty in other kernels */

typedef struct scatter {
    const ln_gemm_set *set;
    ln_window window;
    ln_window_strides y;
    int64_t x_row, columns, panels; /* columns: (tap, output channel) */
} scatter;

static LN_PLANNING bool describe(const ln_call *call, scatter *p) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    const ln_window *g = &p->window;
    if (ln_window_conv_transpose(call->attributes, x, w, &p->window, NULL) != LINNET_OK) return false;
    const ln_window_strides xs = ln_window_strides_of(x, g->channel_axis);
    p->y = ln_window_strides_of(y, g->channel_axis);
    return g->group == 1 && g->dilation[2] == 1 && (xs.c == 1 || g->in_channels == 1) && p->y.s[2] == g->out_channels &&
           (p->y.c == 1 || g->out_channels == 1) && ln_gemm_linear(&xs, g->batch, g->in, g->in_channels, &p->x_row);
}

bool ln_gemm_scatter_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    scatter p;
    return !ln_lasting(w) && ln_is_dense(w) && ln_count(x) > 0 && ln_count(w) > 0 &&
           (call->n_inputs < 3 || call->inputs[2].dtype == LINNET_NONE) && describe(call, &p) &&
           ln_window_taps(&p.window) > 1;
}

void ln_gemm_scatter_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    enum { FEWEST_INPUTS = 32 };
    (void)kernel;
    scatter p;
    if (!describe(call, &p)) return;
    /* No other kernel does less work if there is a stride, the windows overlap, and the product has enough input
     * channels. If one of these is missing and there are many output channels, other kernels are faster, so the
     * products count five times. */
    const ln_window *w = &p.window;
    const int64_t step = w->stride[0] * w->stride[1] * w->stride[2];
    const bool product = step > 1 && ln_window_taps(w) > step && w->in_channels >= FEWEST_INPUTS;
    if (!product && w->out_channels > MOST_CHANNELS) ln_scale_products(counts, 5);
    /* Counts the contributions, which are stored and then added to the result in lines. */
    counts->work[LN_RATE_MAP] +=
        2 * (double)(w->batch * w->in[0] * w->in[1] * w->in[2]) * (double)(w->out_channels * ln_window_taps(w));
}

linnet_status ln_gemm_scatter_configure(ln_call *call, const ln_gemm_set *set) {
    scatter *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    if (!describe(call, p)) return LINNET_UNSUPPORTED;
    const ln_window *w = &p->window;
    const int64_t positions = w->in[0] * w->in[1] * w->in[2];
    p->set = set;
    p->columns = ln_window_taps(w) * w->out_channels;
    p->panels = ln_ceil_div(p->columns, set->width);
    call->scratch_bytes = (size_t)(p->panels * w->in_channels * set->width) * sizeof(float);
    call->scratch_thread = (size_t)(BLOCK * p->panels * set->width) * sizeof(float);
    call->phases = 2;
    call->work[0] = p->panels;
    call->work[1] = w->batch;
    call->grain = ln_max(1, 400000 / ln_max(1, positions * p->columns * w->in_channels));
    call->flops = 2 * (uint64_t)(w->batch * positions * w->in_channels) * (uint64_t)p->columns;
    return LINNET_OK;
}

/* Packs w[in][out][tap] as [in][column of the panel]. */
static void pack(const scatter *p, const float *w, int64_t panel, float *out) {
    const int64_t width = p->set->width, taps = ln_window_taps(&p->window), channels = p->window.out_channels;
    for (int64_t k = 0; k < p->window.in_channels; k++, w += p->columns)
        for (int64_t i = 0; i < width; i++) {
            const int64_t column = panel * width + i;
            *out++ = column < p->columns ? w[column % channels * taps + column / channels] : 0;
        }
}

static inline void add_floats(float *to, const float *from, int64_t n) {
    int64_t i = 0;
#if defined(__GNUC__)
    typedef float four __attribute__((vector_size(16)));
    for (four a, b; i + 4 <= n; i += 4) {
        memcpy(&a, to + i, sizeof a);
        memcpy(&b, from + i, sizeof b);
        a += b;
        memcpy(to + i, &a, sizeof a);
    }
#endif
    for (; i < n; i++) to[i] += from[i];
}

/* Adds the contribution of one input position to the image y. */
static void spread(const scatter *p, const float *sums, int64_t at, float *y) {
    const ln_window *w = &p->window;
    const int64_t channels = w->out_channels, x0 = at % w->in[2] * w->stride[2] - w->pad_begin[2];
    const int64_t from = ln_max(0, -x0), to = ln_min(w->kernel[2], w->out[2] - x0);
    if (from >= to) return;
    at /= w->in[2];
    for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
        const int64_t oz = at / w->in[1] * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0];
        for (int64_t ky = 0; ky < w->kernel[1]; ky++, sums += w->kernel[2] * channels) {
            const int64_t oy = at % w->in[1] * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
            if (oz < 0 || oz >= w->out[0] || oy < 0 || oy >= w->out[1]) continue;
            add_floats(y + oz * p->y.s[0] + oy * p->y.s[1] + (x0 + from) * channels, sums + from * channels,
                       (to - from) * channels);
        }
    }
}

linnet_status ln_gemm_scatter_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                  int thread) {
    static const _Alignas(64) float zeros[32] = {0};
    const scatter *p = call->state;
    const ln_window *w = &p->window;
    const int64_t width = p->set->width, panel_size = w->in_channels * width, row = p->panels * width;
    const int64_t positions = w->in[0] * w->in[1] * w->in[2];
    float *panels = b->scratch, *sums = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t item = begin; item < end; item++) {
        if (phase == 0) {
            pack(p, b->inputs[1], item, panels + item * panel_size);
            continue;
        }
        const float *x = (const float *)b->inputs[0] + item * positions * p->x_row;
        float *y = (float *)b->outputs[0] + item * p->y.n;
        for (int64_t line = 0; line < w->out[0] * w->out[1]; line++)
            memset(y + line / w->out[1] * p->y.s[0] + line % w->out[1] * p->y.s[1], 0,
                   (size_t)(w->out[2] * w->out_channels) * sizeof *y);
        for (int64_t first = 0; first < positions; first += BLOCK) {
            const int64_t count = ln_min(BLOCK, positions - first);
            const void *rows[LN_GEMM_MAX_ROWS];
            for (int64_t done = 0, n; done < count; done += n) {
                n = ln_gemm_tile_rows(p->set, count - done);
                for (int64_t r = 0; r < n; r++) rows[r] = x + (first + done + r) * p->x_row;
                for (int64_t panel = 0; panel < p->panels; panel++) {
                    const ln_gemm_tile tile = {.a = rows,
                                               .taps = 1,
                                               .kc = w->in_channels,
                                               .a_step = 1,
                                               .b = panels + panel * panel_size,
                                               .b_step = width * (int64_t)sizeof *panels,
                                               .c = sums + done * row + panel * width,
                                               .ldc = row,
                                               .columns = width,
                                               .init = zeros,
                                               .low = -INFINITY,
                                               .high = INFINITY};
                    p->set->full[n](&tile);
                }
            }
            for (int64_t i = 0; i < count; i++) spread(p, sums + i * row, first + i, y);
        }
    }
    return LINNET_OK;
}
