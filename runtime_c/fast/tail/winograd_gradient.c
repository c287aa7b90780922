/* winograd_gradient.c - decides which weight gradients the Winograd kernels compute, what they cost, and how they are
 * divided into work items. An item is a block of the result and sums over all tiles, so the sums do not depend on the
 * number of threads. */
#include "fast/tail/winograd_gradient.h"

#include "kernel/cost.h"
#include "kernel/step.h"
#include "ops/conv_gradient.h"

enum {
    LEAST = 16,  /* the smallest number of channels that is supported: the lanes of the widest vector */
    BLOCK = 128, /* channels along a side of a block, which is how often each transformed value is used */
    TILE = 4,    /* positions of the output along a side of a tile */
    PRODUCTS = 36,
    CHUNK_BYTES = 3 << 20 /* transformed values of a chunk */
};

bool ln_winograd_gradient_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *g = &call->inputs[1];
    ln_window w;
    if (call->precision == LINNET_PRECISION_DIRECT) return false;
    if (ln_window_conv_gradient(call->attributes, x, g, &w, NULL) != LINNET_OK || w.n_spatial != 2) return false;
    for (int i = 1; i < LN_SPATIAL; i++)
        if (w.kernel[i] != 3 || w.stride[i] != 1 || w.dilation[i] != 1 || w.out[i] < 2) return false;
    return w.batch > 0 && w.in_channels >= LEAST * w.group && w.out_channels >= LEAST * w.group &&
           x->strides[w.channel_axis] == 1 && g->strides[w.channel_axis] == 1;
}

void ln_winograd_gradient_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    enum { TRANSFORM = 8, BACK = 20 }; /* multiply-accumulates for each transformed value, and for each of the sums */
    ln_window w;
    (void)kernel;
    if (ln_window_conv_gradient(call->attributes, &call->inputs[0], &call->inputs[1], &w, NULL) != LINNET_OK) return;
    const double in = (double)(w.in_channels / w.group), out = (double)(w.out_channels / w.group);
    const double tiles = (double)(w.batch * ln_ceil_div(w.out[1], TILE) * ln_ceil_div(w.out[2], TILE));
    const double transformed =
        tiles * (in * (double)ln_ceil_div((int64_t)out, BLOCK) + out * (double)ln_ceil_div((int64_t)in, BLOCK));
    counts->work[LN_RATE_F32] =
        (double)w.group * PRODUCTS * (tiles * in * out + TRANSFORM * transformed + BACK * in * out);
    counts->work[LN_RATE_MOVE] += 1000;
}

/* Computes the sizes of blocks of about BLOCK channels. Blocks begin at a multiple of `unit`, and none has less than
 * LEAST. */
static void divide(int64_t channels, int64_t most, int64_t unit, int64_t *size, int64_t *count, int64_t *largest) {
    const int64_t n = ln_ceil_div(channels, most);
    *size = ln_min((int64_t)ln_round_up((size_t)ln_ceil_div(channels, n), (size_t)unit), channels);
    *count = ln_max(1, (channels - LEAST) / *size + 1);
    *largest = ln_max(*size, channels - (*count - 1) * *size);
}

linnet_status ln_winograd_gradient_configure(ln_call *call, const ln_gemm_set *set) {
    const ln_tensor *x = &call->inputs[0], *g = &call->inputs[1];
    ln_winograd_gradient *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    const linnet_status status = ln_window_conv_gradient(call->attributes, x, g, &p->window, NULL);
    if (status != LINNET_OK) return status;
    const ln_window *w = &p->window;
    p->set = set;
    p->x = ln_window_strides_of(x, w->channel_axis), p->g = ln_window_strides_of(g, w->channel_axis);
    p->in = w->in_channels / w->group, p->out = w->out_channels / w->group;
    p->down = ln_ceil_div(w->out[1], TILE), p->across = ln_ceil_div(w->out[2], TILE);
    p->tiles = w->batch * p->down * p->across;
    divide(p->in, BLOCK, set->width, &p->columns, &p->column_items, &p->most_columns);
    for (int64_t most = BLOCK; most >= 2 * LEAST; most /= 2) {
        divide(p->out, most, LEAST, &p->rows, &p->row_items, &p->most_rows);
        if (w->group * p->row_items * p->column_items >= call->threads) break;
    }
    const int64_t size = (int64_t)sizeof(float), values = p->most_rows + p->most_columns;
    p->chunk = ln_max(1, ln_min(ln_min(CHUNK_BYTES / (PRODUCTS * size * values), BLOCK), p->tiles));
    /* There are 16 floats more from one product to the next, so that they do not all map to the same set of the cache.
     * The last panel of x may be read to its full width, beyond its columns. */
    p->x_step = (int64_t)ln_round_up((size_t)(p->chunk * p->most_columns), 16) + set->width + 16;
    p->g_step = (int64_t)ln_round_up((size_t)(p->chunk * p->most_rows), 16) + 16;
    p->sum_step = (int64_t)ln_round_up((size_t)(p->most_rows * p->most_columns), 16) + 16;
    p->scratch.x = 0;
    p->scratch.g = (size_t)(PRODUCTS * p->x_step * size);
    p->scratch.sum = p->scratch.g + (size_t)(PRODUCTS * p->g_step * size);
    p->scratch.edge = p->scratch.sum + (size_t)(PRODUCTS * p->sum_step * size);
    call->scratch_thread = p->scratch.edge + (size_t)(PRODUCTS * ln_max(p->most_rows, p->most_columns) * size);
    call->work[0] = w->group * p->row_items * p->column_items;
    call->flops = (uint64_t)(2 * w->batch * ln_window_positions(w) * 9 * w->out_channels * p->in);
    return LINNET_OK;
}
