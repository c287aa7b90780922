/* gemm_driver_conv.c - turns convolutions and transposed convolutions into products for the driver. Each group is one
 * product, whose rows are output positions. A 1x1 convolution with stride 1 is a plain matrix product. All other
 * convolutions find their rows through the window. */
#include "fast/gemm/gemm_driver_conv.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_plan.h"
#include "fast/gemm/gemm_driver_widen.h"
#include "fast/gemm/gemm_state.h"
#include "kernel/cost.h"
#include "kernel/step.h"

bool ln_gemm_linear(const ln_window_strides *s, int64_t batch, const int64_t *size, int64_t fallback, int64_t *step) {
    int64_t dims[4] = {batch, size[0], size[1], size[2]}, strides[4] = {s->n, s->s[0], s->s[1], s->s[2]};
    int64_t expected = 0;
    *step = fallback;
    for (int i = 3; i >= 0; i--) {
        if (dims[i] == 1) continue;
        if (expected == 0) *step = expected = strides[i];
        if (strides[i] != expected || expected <= 0) return false;
        expected *= dims[i];
    }
    return true;
}

/* The common form of both kinds of convolution. */
typedef struct problem {
    ln_window window;
    int64_t lattice[LN_SPATIAL];
    bool transposed, folded;
    ln_gemm_fold fold; /* if `folded`: `window` is then that of the convolution to blocks */
    int mode, w_axis;  /* mode of requantization; axis of w along output channels */
    int64_t ldc;
} problem;

/* Tells whether a transposed convolution can be computed as a convolution whose results are blocks of the output
 * (ln_gemm_fold). */
static bool folds(const ln_window *w, int64_t ldc) {
    bool fits = w->group == 1 && w->stride[0] * w->stride[1] * w->stride[2] > 1 && ldc == w->out_channels;
    for (int i = 0; i < LN_SPATIAL; i++) fits = fits && (w->kernel[i] == 1 || w->dilation[i] == 1);
    return fits;
}

/* Makes the convolution that `folds` has found to be possible. Blocks are as large as a stride and begin at position 0
 * of the padded output. */
static void fold(ln_window *w, ln_gemm_fold *f) {
    *f = (ln_gemm_fold){.channels = w->out_channels, .run = w->stride[2] * w->out_channels, .period = 1};
    for (int i = 0; i < LN_SPATIAL; i++) {
        const int64_t step = w->stride[i], first = w->pad_begin[i] / step;
        f->step[i] = step, f->kernel[i] = w->kernel[i], f->out[i] = w->out[i];
        f->crop[i] = w->pad_begin[i] - first * step;
        w->kernel[i] = ln_ceil_div(w->kernel[i], step);
        w->out[i] = ln_ceil_div(w->pad_begin[i] + w->out[i], step) - first;
        w->pad_begin[i] = w->kernel[i] - 1 - first;
        w->stride[i] = w->dilation[i] = 1;
    }
}

/* Output o of a transposed convolution takes input i through tap k if o = i * stride - pad + k * dilation. This is a
 * convolution with stride 1 and negative pad and dilation, over an input that exists only at every stride-th position.
 */
static void turn(problem *p) {
    ln_window *w = &p->window;
    for (int i = 0; i < LN_SPATIAL; i++) {
        p->lattice[i] = w->stride[i];
        w->stride[i] = 1;
        w->pad_begin[i] = -w->pad_begin[i];
        w->pad_end[i] = -w->pad_end[i];
        w->dilation[i] = -w->dilation[i];
    }
}

static LN_PLANNING bool describe(const ln_call *call, problem *p) {
    const ln_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    if (ln_count(x) <= 0 || ln_count(call->inner) <= 0 || ln_count(weight) <= 0 || !ln_is_dense(weight)) return false;
    p->transposed = call->op->id == LN_OP_CONV_TRANSPOSE;
    linnet_status status;
    if (p->transposed) {
        const ln_conv_transpose_attributes *attributes = call->attributes;
        status = ln_window_conv_transpose(attributes, x, weight, &p->window, NULL);
        p->mode = (int)attributes->requant, p->w_axis = 1;
    } else {
        const ln_conv_attributes *attributes = call->attributes;
        status = ln_window_conv(attributes, x, weight, &p->window, NULL);
        p->mode = (int)attributes->requant, p->w_axis = 0;
        p->lattice[0] = p->lattice[1] = p->lattice[2] = 1;
    }
    const ln_window *w = &p->window;
    if (status != LINNET_OK) return false;
    ln_window_strides s = ln_window_strides_of(y, w->channel_axis);
    if ((s.c != 1 && w->out_channels != 1) || !ln_gemm_linear(&s, w->batch, w->out, w->out_channels, &p->ldc))
        return false;
    p->folded = p->transposed && folds(w, p->ldc);
    p->fold = (ln_gemm_fold){.channels = 0};
    if (p->folded) {
        fold(&p->window, &p->fold);
        p->lattice[0] = p->lattice[1] = p->lattice[2] = 1;
    } else if (p->transposed) {
        turn(p);
    }
    return true;
}

static const ln_gemm_set *find_set(const ln_call *call, const problem *p, const ln_gemm_set *const *sets, int n) {
    return ln_gemm_find_set(sets, n, &call->inputs[0], &call->inputs[1], call->n_inputs > 2 ? &call->inputs[2] : NULL,
                            call->inner, p->w_axis, p->window.out_channels, p->mode);
}

bool ln_gemm_conv_can(const ln_call *call, const ln_gemm_set *const *sets, int n) {
    problem p;
    if (!describe(call, &p)) return false;
    const ln_gemm_set *set = find_set(call, &p, sets, n);
    if (set == NULL) return false;
    /* Short runs of f16 and bf16 are slow to convert. Such a call is refused, and a pass converts all of x first
     * (passes/storage.c). */
    const ln_window *w = &p.window;
    if (!p.transposed && ln_is_half(call->inputs[0].dtype) && w->in_channels / w->group < 8 && ln_window_taps(w) > 1)
        return false;
    /* Most products of such a transposed convolution are products with zeros. The call is faster without an
       epilogue, which then runs as a separate map. */
    if (p.transposed && !p.folded && call->epilogue != NULL &&
        (p.lattice[0] * p.lattice[1] * p.lattice[2] > 1 || !ln_dtype_is_float(call->inputs[0].dtype)))
        return false;
    if (call->epilogue != NULL && ln_is_byte(call->inner->dtype) &&
        (p.transposed || p.mode != LN_REQUANT_FLOAT_RNE || set->store_sum == NULL))
        return false;
    const int64_t depth = p.folded ? INT64_MAX : ln_window_taps(w) * w->in_channels / w->group;
    return ln_gemm_output_ok(call, set, depth, p.ldc, p.window.out_channels);
}

/* The cost follows from the shapes, so that no window has to be resolved, except for transposed convolutions. */
void ln_gemm_conv_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    const bool transposed = call->op->id == LN_OP_CONV_TRANSPOSE;
    problem p;
    const bool folded = transposed && describe(call, &p) && p.folded;
    const ln_window *window = &p.window;
    const ln_conv_attributes *conv = call->attributes;
    const ln_conv_transpose_attributes *turned = call->attributes;
    const int64_t group = transposed ? turned->group : conv->group;
    const ln_ints strides = transposed ? turned->strides : conv->strides;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = call->inner;
    const int axis = ln_axis(transposed ? turned->channel_axis : conv->channel_axis, x->rank);
    const int64_t channels = x->dims[axis], kc = channels / group;
    int64_t columns = y->dims[axis] / group, rows = ln_count(y) / y->dims[axis], row = w->dims[w->rank - 1];
    int64_t taps = 1, lattice = 1, step = 1;
    for (int d = 2; d < w->rank; d++) taps *= w->dims[d];
    if (folded) {
        rows = window->batch * ln_window_positions(window), row = window->kernel[2], taps = ln_window_taps(window);
        columns *= p.fold.step[0] * p.fold.step[1] * p.fold.step[2];
    }
    for (int64_t i = 0; i < strides.n; i++) step *= strides.v[i];
    if (transposed && !folded) lattice = step;
    const bool dense = (channels == 1 || x->strides[axis] == 1) && (ln_is_dense(x) || ln_is_channels_last(x));
    const bool run = dense && group == 1 && lattice == 1 && (folded || taps > step || taps * step == 1);
    ln_gemm_count(kernel, call, counts,
                  &(ln_gemm_size){.products = group,
                                  .rows = rows,
                                  .columns = columns,
                                  .depth = taps * kc,
                                  .segments = taps,
                                  .run = run ? ln_count(x) : 0,
                                  .scattered = channels > 1 && x->strides[axis] != 1,
                                  .packs = folded && !ln_packable(w)});
    /* If pixels have few channels, the taps of a line of the kernel are copied together. With groups, each tap is
     * copied by itself. In a transposed convolution (lattice > 1), the input element of each tap must be looked up. */
    const double looked_up = (double)(group * rows) * (double)taps, lines = looked_up / (double)row;
    const double few = (double)ln_min(row, 5); /* long lines are copied as a whole */
#ifdef __aarch64__
    const double bytes = 1; /* a line of bytes takes two copies of a vector */
#else
    const double bytes = 8;
#endif
    const bool widened = run && ln_gemm_widened_by(kernel, x->dtype);
    if (kc < 8 && group > 1)
        counts->work[LN_RATE_MOVE] += 16 * looked_up;
    else if (kc < 8 && x->dtype == LINNET_F32)
        counts->work[LN_RATE_MOVE] += 6 * lines;
    else if (kc < 16 && taps > 1 && widened)
        counts->work[LN_RATE_MOVE] += 3 * lines;
    else if (kc < 16 && taps > 1 && x->dtype != LINNET_F32)
        counts->work[LN_RATE_MOVE] += lines * (channels == 1 ? 25 : (x->dtype == LINNET_I16 ? 4 : bytes) * few);
    if (lattice > 1) counts->work[LN_RATE_MOVE] += 8 * looked_up;
}

/* Makes one product per group. */
static linnet_status make_products(ln_call *call, ln_gemm *g) {
    int64_t groups = g->a.window.group;
    ln_gemm_product *products = ln_call_state(call, (size_t)groups * sizeof *products);
    int64_t *offsets = ln_call_state(call, (size_t)groups * sizeof *offsets);
    if (products == NULL || offsets == NULL) return LINNET_OUT_OF_MEMORY;
    for (int64_t i = 0; i < groups; i++) {
        products[i] = (ln_gemm_product){i * g->k.kc * g->a.x.c, i, 0, i * g->n};
        offsets[i] =
            i * g->n * g->k.kc * g->k.taps; /* where the group begins in w, for both orders of the channel axes of w */
    }
    g->n_products = g->n_matrices = groups;
    g->products = products, g->b.matrix_offset = offsets;
    return LINNET_OK;
}

/* Tells whether a folded convolution is faster if its results are stored directly, with one product for each line of
 * the blocks (make_lines). This is so for floats if a line of a block fills a panel and a line of the input is long.
 * Blocks must not overlap or reach over the edge of the output, and an epilogue must not need whole pixels. */
static bool stored_in_lines(const ln_call *call, const ln_gemm *g) {
    const ln_epilogue *e = call->epilogue;
    bool whole = true;
    for (int i = 0; i < LN_SPATIAL; i++)
        whole = whole && g->fold->kernel[i] == g->fold->step[i] && g->fold->crop[i] == 0 &&
                g->fold->out[i] == g->a.window.in[i] * g->fold->step[i];
    return g->set->c_dtype == LINNET_F32 && call->outputs[0].dtype == LINNET_F32 && (e == NULL || e->clamp_only) &&
           g->a.plain && g->fold->run > g->set->width && whole && g->a.window.in[2] >= 4 * g->set->rows;
}

/* Makes one product per line of the input and line of the kernel. */
static linnet_status make_lines(ln_call *call, ln_gemm *g) {
    const int64_t *in = g->a.window.in, *kernel = g->fold->step, lines = g->a.window.batch * in[0] * in[1];
    const int64_t of_kernel = kernel[0] * kernel[1];
    ln_gemm_product *products = ln_call_state(call, (size_t)(lines * of_kernel) * sizeof *products);
    int64_t *offsets = ln_call_state(call, (size_t)of_kernel * sizeof *offsets);
    if (products == NULL || offsets == NULL) return LINNET_OUT_OF_MEMORY;
    for (int64_t l = 0; l < of_kernel; l++) offsets[l] = l * kernel[2];
    g->n_products = 0, g->n_matrices = of_kernel;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t l = 0; l < of_kernel; l++) {
            const int64_t z = i / in[1] * kernel[0] + l / kernel[1];
            const int64_t y = (z * in[1] + i % in[1]) * kernel[1] + l % kernel[1];
            products[g->n_products++] = (ln_gemm_product){i * in[2] * g->a.row, l, y * in[2], 0};
        }
    g->products = products, g->b.matrix_offset = offsets;
    g->m = in[2], g->n = g->c.ldc = g->fold->run;
    g->init.matrix = 0;
    g->fold->run = 0;
    return LINNET_OK;
}

linnet_status ln_gemm_conv_configure(ln_call *call, const ln_gemm_set *const *sets, int n) {
    const ln_tensor *x = &call->inputs[0], *weight = &call->inputs[1];
    problem p;
    ln_gemm *g = call->state = ln_call_state(call, sizeof *g);
    if (g == NULL) return LINNET_OUT_OF_MEMORY;
    if (!describe(call, &p)) return LINNET_UNSUPPORTED;
    g->set = find_set(call, &p, sets, n);
    g->a.window = p.window, g->c.ldc = p.ldc;
    const ln_window *w = &g->a.window;
    if (p.folded) {
        g->fold = ln_call_state(call, sizeof *g->fold);
        if (g->fold == NULL) return LINNET_OUT_OF_MEMORY;
        *g->fold = p.fold;
    }
    const int64_t block = p.folded ? p.fold.step[0] * p.fold.step[1] * p.fold.step[2] : 1;
    g->a.x = ln_window_strides_of(x, w->channel_axis);
    g->m = w->batch * ln_window_positions(w);
    g->n = w->out_channels / w->group * block;
    g->k.taps = ln_window_taps(w), g->k.kc = w->in_channels / w->group;
    g->a.operand = 0, g->a.dtype = x->dtype, g->a.step = g->k.kc == 1 ? 1 : g->a.x.c;
    bool still = g->k.taps == 1;
    for (int i = 0; i < LN_SPATIAL; i++) {
        g->a.lattice[i] = p.lattice[i];
        still = still && w->stride[i] == 1 && p.lattice[i] == 1 && w->pad_begin[i] == 0 && w->out[i] == w->in[i];
    }
    g->a.plain = still && ln_gemm_linear(&g->a.x, w->batch, w->in, w->in_channels, &g->a.row);
    g->b.operand = 1, g->b.tap = 1;
    g->b.n = p.folded       ? 0
             : p.transposed ? g->k.taps
                            : g->k.taps * g->k.kc; /* in a folded B, columns are not evenly spaced */
    g->b.c = p.folded ? ln_count(weight) / g->k.kc : p.transposed ? g->k.taps * g->n : g->k.taps;
    g->init.operand = call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE ? 2 : -1;
    g->init.n = 1, g->init.matrix = g->n;
    const bool lines = p.folded && stored_in_lines(call, g);
    linnet_status status = lines ? make_lines(call, g) : make_products(call, g);
    return status != LINNET_OK ? status : ln_gemm_plan(call, g, weight, p.w_axis, w->out_channels, p.mode);
}
