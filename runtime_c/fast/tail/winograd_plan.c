/* winograd_plan.c - plans the Winograd kernels for all ISAs: decides which convolutions they support, what they cost,
 * how much memory they need, and how they are divided into work items. A. Lavin and S. Gray, "Fast Algorithms for
 * Convolutional Neural Networks", 2016. */
#include "fast/tail/winograd_plan.h"

#include "base/layout.h"
#include "fast/tail/winograd.h"
#include "kernel/cost.h"
#include "kernel/machine.h"
#include "kernel/step.h"

#include <math.h>

/* Returns the share of the time for reading the weights that is hidden by computing, for products of `rows` rows. The
 * x86 kernels prefetch weights. */
#if defined(__x86_64__) || defined(_M_X64)
static double hidden(int64_t rows) { return 0.5 * (double)ln_min(rows, 14) / 14; }
#else
static double hidden(int64_t rows) { return 0 * (double)rows; }
#endif

/* The time of a product of f16, in that of a product of f32. */
#define F16_PRODUCT 0.65

enum {
    LEAST_CHANNELS = 16,  /* with fewer channels, the transforms take longer than they save; also the lanes of the
                             widest vector */
    IN_BYTES = 256 << 10, /* transformed inputs of a group of tiles, which stay in L2 with the weights */
    ROW_BYTES = 256 << 10 /* transformed inputs of one product */
};

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

/* Tells whether phase 0 has to transform the weights in every run. */
static bool packs(const ln_call *call) {
    return !ln_packable(&call->inputs[1]) || (has_bias(call) && !ln_packable(&call->inputs[2]));
}

/* Finds the window of the convolution that computes the call. */
static bool window_of(const ln_call *call, ln_window *g) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    if (call->op->id != LN_OP_CONV_TRANSPOSE) return ln_window_conv(call->attributes, x, w, g, NULL) == LINNET_OK;
    if (ln_window_conv_transpose(call->attributes, x, w, g, NULL) != LINNET_OK) return false;
    for (int i = 1; i < LN_SPATIAL; i++) g->pad_begin[i] = g->kernel[i] - 1 - g->pad_begin[i];
    return true;
}

bool ln_winograd_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *y = call->inner;
    ln_window g;
    if (call->precision == LINNET_PRECISION_DIRECT) return false;
    const int bias = has_bias(call) ? call->inputs[2].dtype : LINNET_F32;
    if (bias != LINNET_F32 && bias != call->inputs[1].dtype) return false;
    if (!window_of(call, &g) || g.n_spatial != 2) return false;
    for (int i = 1; i < LN_SPATIAL; i++)
        if (g.kernel[i] != 3 || g.stride[i] != 1 || g.dilation[i] != 1 || g.out[i] < 2) return false;
    if (g.batch < 1 || g.in_channels < LEAST_CHANNELS * g.group || g.out_channels < LEAST_CHANNELS * g.group)
        return false;
    if (x->strides[g.channel_axis] != 1 || y->strides[g.channel_axis] != 1) return false;
    if (call->epilogue == NULL) return true;
    /* ln_epilogue_apply needs rows of channels without gaps. */
    return g.channel_axis == y->rank - 1 ? ln_is_dense(y) : ln_is_channels_last(y);
}

static int64_t products_of(int64_t tile) { return (tile + 2) * (tile + 2); }

/* Returns the number of rows of full tiles that would take as long as `tiles` rows. The rows that remain after the full
   tiles have a tile of their own, which takes at least as long as a tile of 4 rows. */
static int64_t rows_of(int64_t tiles, int64_t rows) {
    const int64_t rest = tiles % rows;
    return tiles - rest + (rest == 0 ? 0 : ln_max(rest, 4));
}

/* Counts the work of a convolution with tiles of this size. It uses only the operands, because the window is resolved
   only when the kernel is chosen. */
static void count(const ln_call *call, int64_t tile, int64_t rows, ln_counts *counts) {
    enum { TRANSFORM = 8, FILTER = 12 }; /* multiply-accumulates for each transformed value, and for each weight */
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = call->inner;
    const ln_conv_attributes *conv = call->attributes;
    const ln_conv_transpose_attributes *turned = call->attributes;
    const bool transposed = call->op->id == LN_OP_CONV_TRANSPOSE;
    const int first = ln_axis(transposed ? turned->channel_axis : conv->channel_axis, x->rank) == 1 ? 2 : 1;
    const double group = (double)(transposed ? turned->group : conv->group);
    const double in = (double)w->dims[!transposed], out = (double)w->dims[transposed] * (transposed ? group : 1),
                 products = (double)products_of(tile), weights = products * in * out / (transposed ? group : 1);
    const int64_t tiles = x->dims[0] * ln_ceil_div(y->dims[first], tile) * ln_ceil_div(y->dims[first + 1], tile);
    const double inputs = transposed ? in : in * group; /* channels of all groups */
    const bool f16 = w->dtype == LINNET_F16;
    counts->work[LN_RATE_F32] = (double)rows_of(tiles, rows) * weights * (f16 ? F16_PRODUCT : 1) +
                                TRANSFORM * products * (double)tiles * (inputs + out);
    counts->read += (1 - hidden(tiles)) * (weights - weights / products * 9) * (f16 ? 2 : 4);
    if (!ln_lasting(w) || (has_bias(call) && !ln_lasting(&call->inputs[2]))) {
        counts->work[LN_RATE_F32] += FILTER * weights;
        counts->written += weights * (double)sizeof(float);
    }
    counts->work[LN_RATE_MOVE] += 1000;
}

/* Returns the side of the tiles, 2 or 4, that need less modelled time. */
static int64_t best_tile(const ln_call *call, int64_t rows) {
    double ns[2];
    for (int i = 0; i < 2; i++) {
        ln_counts counts;
        ln_count_call(call, &counts);
        count(call, 2 + 2 * i, rows, &counts);
        ns[i] = ln_counts_ns(ln_machine_for(call), call->features, &counts);
    }
    return ns[0] < ns[1] ? 2 : 4;
}

void ln_winograd_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    count(call, best_tile(call, kernel->tile[0]), kernel->tile[0], counts);
}

/* Returns the largest number of tiles in a group. The weights are read once per group. If the weights stay in a core's
   own cache, a group is so small that the values of its tiles stay there too. Larger weights are read from the shared
   cache or from memory. A group then has enough tiles to hide the time for that, and its own values go through the same
   memory, because they are written and read only once. */
static int64_t most_tiles(int64_t products, int64_t in, int64_t out) {
    const int64_t values = products * (int64_t)sizeof(float), weights = values * in * out;
    if (weights <= LN_OWN_CACHE * 3 / 2) return ln_max(ln_min(IN_BYTES / (values * in), 64), 1);
    return ln_min(weights <= LN_SHARED_CACHE / 2 ? 48 : 96, ROW_BYTES / (in * (int64_t)sizeof(float)));
}

/* Divides tiles and output channels into work items. Items are whole groups of tiles. If these are too few for the
   threads, each group is also divided into parts of the channels, and every part transforms the inputs again. With
   large weights, parts of channels are preferred to more groups, so that not every thread reads all weights. */
static void plan_items(const ln_call *call, ln_winograd *p) {
    const int64_t unit = 4 * p->set->width; /* parts begin with a panel */
    const int64_t all = p->window.batch * p->down * p->across, rows = p->set->rows, threads = call->threads;
    const int64_t in = p->in, out = p->out;
    const int64_t stripes = ln_ceil_div(all, rows),
                  most = ln_max(most_tiles(p->products, in, out), ln_min(2 * rows, all));
    p->groups = ln_ceil_div(all, most), p->parts = 1;
    const bool few = p->products * in * out * (int64_t)sizeof(float) <= 2 * LN_OWN_CACHE;
    if (few || p->groups >= threads)
        p->groups = ln_min((int64_t)ln_round_up((size_t)p->groups, (size_t)threads), stripes);
    if (p->groups < threads) p->parts = ln_max(1, ln_min(ln_ceil_div(threads, p->groups), out / unit));
    if (p->groups * p->parts < threads) p->groups = ln_min(ln_ceil_div(threads, p->parts), stripes);
    p->group = (int64_t)ln_round_up((size_t)ln_ceil_div(all, p->groups), (size_t)rows);
    p->groups = ln_ceil_div(all, p->group);
    p->columns = p->parts == 1 ? out : (int64_t)ln_round_up((size_t)ln_ceil_div(out, p->parts), (size_t)unit);
    p->parts = ln_max(1, (out - LEAST_CHANNELS) / p->columns + 1); /* the last part takes a short rest, too */
}

/* Returns the columns of the largest part. */
static int64_t most_columns(const ln_winograd *p) { return ln_max(p->columns, p->out - (p->parts - 1) * p->columns); }

static void plan_weights(const ln_call *call, ln_winograd *p) {
    const ln_window_strides s = ln_window_strides_of(&call->inputs[1], 1);
    if (call->op->id == LN_OP_CONV_TRANSPOSE) {
        p->w_out = s.c, p->w_in = s.n, p->w_group = p->in * s.n;
        p->w_line = -s.s[1], p->w_tap = -s.s[2], p->w_first = 2 * s.s[1] + 2 * s.s[2];
    } else {
        p->w_out = s.n, p->w_in = s.c, p->w_group = p->out * s.n;
        p->w_line = s.s[1], p->w_tap = s.s[2], p->w_first = 0;
    }
}

linnet_status ln_winograd_configure(ln_call *call, const ln_gemm_set *set) {
    const ln_tensor *x = &call->inputs[0], *y = call->inner;
    ln_winograd *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    if (!window_of(call, &p->window)) return LINNET_INVALID_ARGUMENT;
    const ln_window *g = &p->window;
    p->in = g->in_channels / g->group, p->out = g->out_channels / g->group;
    plan_weights(call, p);
    p->set = set->in_order != NULL && ln_in_order() ? set->in_order : set;
    p->tile = best_tile(call, set->rows), p->products = products_of(p->tile);
    p->x = ln_window_strides_of(x, g->channel_axis), p->y = ln_window_strides_of(y, g->channel_axis);
    p->down = ln_ceil_div(g->out[1], p->tile), p->across = ln_ceil_div(g->out[2], p->tile);
    p->low = -INFINITY, p->high = INFINITY;
    const bool clamp = call->epilogue != NULL && call->epilogue->clamp_only && call->outputs[0].dtype == LINNET_F32;
    if (clamp) p->low = call->epilogue->low, p->high = call->epilogue->high;
    p->direct = call->epilogue == NULL || clamp;
#ifdef __aarch64__
    const ln_epilogue *e = call->epilogue;
    p->x_halves = x->dtype == LINNET_F16;
    p->y_halves = call->outputs[0].dtype == LINNET_F16 && (e == NULL || (e->half_sum && e->half_added == 0));
    if (p->y_halves && e != NULL) p->low = e->low, p->high = e->high, p->direct = true;
#endif
    plan_items(call, p);

    const int64_t in = p->in, products = p->products, size = (int64_t)sizeof(float);
    p->panels = ln_ceil_div(p->out, p->set->width);
    const int64_t rest = p->out - (p->panels - 1) * p->set->width; /* columns of the last panel */
    p->weight_bytes = p->set->b_dtype == LINNET_F16 ? 2 : size;
    p->panel_bytes = in * p->set->width * p->weight_bytes;
    p->matrix_bytes = (p->panels - 1) * p->panel_bytes + in * ln_gemm_width(p->set, rest) * p->weight_bytes;
    p->matrix_bytes = (int64_t)ln_round_up((size_t)p->matrix_bytes, LN_ALIGNMENT);
    p->bias = (size_t)(g->group * products * p->matrix_bytes);
    const size_t packed = p->bias + (size_t)g->out_channels * sizeof(float);
    p->packs = packs(call);
    if (p->packs) {
        call->phases = 2;
        call->scratch_bytes = packed;
        call->work[0] = g->group * p->panels;
    } else {
        call->packed_bytes = packed;
        call->packed_inputs = 1u << 1 | 1u << 2;
        call->packing = (uint64_t)(p->set->width << 8 | p->weight_bytes);
    }

    /* 16 floats more from one product to the next, so that they do not all map to the same set of the cache. */
    p->in_step = (int64_t)ln_round_up((size_t)(p->group * in), 16) + 16;
    p->out_step = (int64_t)ln_round_up((size_t)(p->group * most_columns(p)), 16) + 16;
    size_t at = 0;
    p->scratch.in = at, at += (size_t)(products * p->in_step * size);
    p->scratch.out = at, at += (size_t)(products * p->out_step * size);
    p->scratch.packed = at, at += ln_round_up((size_t)(p->group * in * size), LN_ALIGNMENT);
    p->scratch.edge = at;
    at += ln_round_up((size_t)(products * in * size), LN_ALIGNMENT);
    p->scratch.lines = at;
    at += ln_round_up((size_t)((p->direct ? 1 : p->group) * p->tile * p->tile * most_columns(p) * size), LN_ALIGNMENT);
    call->scratch_thread = at;
    call->work[p->packs] = g->group * p->groups * p->parts;
    call->flops = (uint64_t)(2 * g->batch * g->out_channels * ln_window_positions(g) * 9 * in);
    return LINNET_OK;
}
