/* copy_plan.c - turns a `copy` call into strided rectangles: offsets, dims and strides on both sides.
 * Every kind is one or more rectangles. Dims are merged where both sides allow it, so most calls become a few memcpy.
 */
#include "ops/copy_plan.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"

#include <string.h>

/* Rectangles are made twice: first to count them, then to store them. */
static void add(ln_copy_plan *plan, ln_copy_rectangle *r) {
    for (int d = 0; d < r->rank; d++)
        if (r->dims[d] == 0) return;
    if (plan->rectangles) plan->rectangles[plan->count] = *r;
    plan->count++;
}

static ln_copy_rectangle whole(const ln_tensor *x, const ln_tensor *y) {
    ln_copy_rectangle r;
    memset(&r, 0, sizeof r);
    r.rank = x->rank;
    for (int d = 0; d < x->rank; d++) {
        r.dims[d] = x->dims[d];
        r.source_strides[d] = x->strides[d];
        r.target_strides[d] = y->strides[d];
    }
    return r;
}

static void append(ln_copy_rectangle *r, int64_t size, int64_t source_stride, int64_t target_stride) {
    r->dims[r->rank] = size;
    r->source_strides[r->rank] = source_stride;
    r->target_strides[r->rank] = target_stride;
    r->rank++;
}

/* ---- reshape ---- */

/* Dims and strides without dims of size 1; adjacent dims that are contiguous in memory are merged. Returns the new
 * rank. */
static int merged(const ln_tensor *t, int64_t *dims, int64_t *strides) {
    int n = 0;
    for (int d = 0; d < t->rank; d++) {
        if (t->dims[d] == 1) continue;
        if (n > 0 && strides[n - 1] == t->strides[d] * t->dims[d]) {
            dims[n - 1] *= t->dims[d];
            strides[n - 1] = t->strides[d];
        } else {
            dims[n] = t->dims[d];
            strides[n++] = t->strides[d];
        }
    }
    return n;
}

/* The common refinement of both shapes, from the innermost dim outwards; false if the dims do not divide each other. */
static bool refine(const ln_tensor *x, const ln_tensor *y, ln_copy_rectangle *r) {
    int64_t xd[LN_MAX_RANK], xs[LN_MAX_RANK], yd[LN_MAX_RANK], ys[LN_MAX_RANK];
    int i = merged(x, xd, xs) - 1, j = merged(y, yd, ys) - 1;
    memset(r, 0, sizeof *r);
    while (i >= 0 && j >= 0) {
        int64_t common = ln_min(xd[i], yd[j]);
        if (common == 0 || xd[i] % common != 0 || yd[j] % common != 0 || r->rank == LN_COPY_MAX_DIMS) return false;
        append(r, common, xs[i], ys[j]);
        xs[i] *= common;
        ys[j] *= common;
        if ((xd[i] /= common) == 1) i--;
        if ((yd[j] /= common) == 1) j--;
    }
    for (int a = 0, b = r->rank - 1; a < b; a++, b--) {
        int64_t t[3] = {r->dims[a], r->source_strides[a], r->target_strides[a]};
        r->dims[a] = r->dims[b];
        r->source_strides[a] = r->source_strides[b];
        r->target_strides[a] = r->target_strides[b];
        r->dims[b] = t[0];
        r->source_strides[b] = t[1];
        r->target_strides[b] = t[2];
    }
    return i < 0 && j < 0;
}

static void plan_reshape(ln_copy_plan *plan, const ln_tensor *x, const ln_tensor *y) {
    ln_copy_rectangle r;
    if (ln_count(x) == 0) return;
    if (refine(x, y, &r))
        add(plan, &r);
    else
        plan->flat = true;
}

/* ---- pad ---- */

/* A run of output indices along one axis: starts at source index `source` and advances by `step`. source -1: the
 * constant. */
typedef struct piece {
    int64_t target, count, source, step;
} piece;

static int64_t padded_source(int64_t mode, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    switch (mode) {
    case LN_COPY_PAD_MODE_CONSTANT: return -1;
    case LN_COPY_PAD_MODE_EDGE: return i < 0 ? 0 : n - 1;
    case LN_COPY_PAD_MODE_WRAP: return ((i % n) + n) % n;
    default: break;
    }
    if (n == 1) return 0;
    int64_t period = 2 * (n - 1);
    i = ((i % period) + period) % period;
    return i < n ? i : period - i;
}

/* The pieces of one axis; `pieces` may be NULL to count them. The axis is cropped first, and then padded. */
static int64_t axis_pieces(int64_t mode, int64_t size, int64_t begin, int64_t end, piece *pieces) {
    int64_t low = ln_max(0, -begin), n = size - low - ln_max(0, -end), before = ln_max(0, begin);
    int64_t total = size + begin + end, count = 0;
    piece p = {0, 0, 0, 0};
    if (n < 0) { /* one side crops more elements than the axis has, so only the padding of the other side remains */
        n = 0;
        low = 0;
        before = total;
    }
    for (int64_t o = 0; o < total; o++) {
        int64_t source = padded_source(mode, o - before, n);
        source = source < 0 ? -1 : source + low;
        if (p.count == 1 && (p.source < 0) == (source < 0) && source - p.source <= 1 && p.source - source <= 1) {
            p.step = source - p.source;
            p.count = 2;
        } else if (p.count > 1 && (p.source < 0) == (source < 0) && source == p.source + p.step * p.count) {
            p.count++;
        } else {
            if (p.count > 0 && pieces) pieces[count] = p;
            count += p.count > 0;
            p = (piece){o, 1, source, 0};
        }
    }
    if (p.count > 0 && pieces) pieces[count] = p;
    return count + (p.count > 0);
}

static linnet_status plan_pad(ln_copy_plan *plan, ln_call *call, const ln_copy_attributes *a, piece **pieces,
                              int64_t *counts) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t begin[LN_MAX_RANK], end[LN_MAX_RANK], at[LN_MAX_RANK] = {0};
    ln_copy_pads(a, call->inputs, call->n_inputs, begin, end);
    for (int d = 0; d < x->rank; d++) {
        if (pieces[d]) continue;
        counts[d] = axis_pieces(a->pad_mode, x->dims[d], begin[d], end[d], NULL);
        pieces[d] = ln_call_state(call, (size_t)ln_max(1, counts[d]) * sizeof(piece));
        if (!pieces[d]) return LINNET_OUT_OF_MEMORY;
        axis_pieces(a->pad_mode, x->dims[d], begin[d], end[d], pieces[d]);
    }
    for (int d = 0; d < x->rank; d++)
        if (counts[d] == 0) return LINNET_OK;
    for (;;) {
        /* A constant piece of one axis covers the full extent of the axes after it. */
        ln_copy_rectangle r;
        memset(&r, 0, sizeof r);
        int constant = -1;
        for (int d = 0; d < x->rank; d++) {
            const piece *p = &pieces[d][at[d]];
            if (constant >= 0) {
                append(&r, y->dims[d], 0, y->strides[d]);
                continue;
            }
            if (p->source < 0) {
                constant = d;
                r.input = -1;
                r.source = 0;
                memset(r.source_strides, 0, sizeof r.source_strides);
            }
            r.target += p->target * y->strides[d];
            r.source += p->source < 0 ? 0 : p->source * x->strides[d];
            append(&r, p->count, p->source < 0 ? 0 : p->step * x->strides[d], y->strides[d]);
        }
        if (constant >= 0) {
            r.source = 0;
            memset(r.source_strides, 0, sizeof r.source_strides);
        }
        add(plan, &r);
        int d = constant >= 0 ? constant : x->rank - 1;
        for (int e = d + 1; e < x->rank; e++) at[e] = 0;
        while (d >= 0 && ++at[d] == counts[d]) at[d--] = 0;
        if (d < 0) return LINNET_OK;
    }
}

/* ---- the other kinds ---- */

/* depth_to_space, from x with many channels to y with few. space_to_depth is the same with x and y exchanged. */
static void plan_depth(ln_copy_plan *plan, const ln_copy_attributes *a, const ln_tensor *deep, const ln_tensor *flat,
                       bool to_space) {
    int c = ln_axis(a->axis, 4), h = c == 1 ? 2 : 1, w = c == 1 ? 3 : 2;
    int64_t b = a->block, few = flat->dims[c];
    bool dcr = a->depth_mode == LN_COPY_DEPTH_MODE_DCR;
    int64_t dims[6] = {flat->dims[0], few, deep->dims[h], b, deep->dims[w], b};
    int64_t s = deep->strides[c];
    int64_t deep_strides[6] = {deep->strides[0],          dcr ? s : s * b * b, deep->strides[h],
                               dcr ? s * b * few : s * b, deep->strides[w],    dcr ? s * few : s};
    int64_t flat_strides[6] = {flat->strides[0], flat->strides[c],     flat->strides[h] * b,
                               flat->strides[h], flat->strides[w] * b, flat->strides[w]};
    ln_copy_rectangle r;
    memset(&r, 0, sizeof r);
    for (int d = 0; d < 6; d++)
        append(&r, dims[d], to_space ? deep_strides[d] : flat_strides[d], to_space ? flat_strides[d] : deep_strides[d]);
    add(plan, &r);
}

static void plan_expand(ln_copy_plan *plan, const ln_tensor *x, const ln_tensor *y) {
    ln_copy_rectangle r;
    memset(&r, 0, sizeof r);
    for (int d = 0; d < y->rank; d++) {
        int own = d - (y->rank - x->rank);
        append(&r, y->dims[d], own < 0 || x->dims[own] == 1 ? 0 : x->strides[own], y->strides[d]);
    }
    add(plan, &r);
}

static linnet_status make(ln_copy_plan *plan, ln_call *call, piece **pieces, int64_t *counts) {
    const ln_copy_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t start[LN_MAX_RANK], step[LN_MAX_RANK], count[LN_MAX_RANK], offset = 0;
    ln_copy_rectangle r;
    plan->count = 0;
    switch (a->kind) {
    case LN_COPY_KIND_IDENTITY:
    case LN_COPY_KIND_BITCAST:
        r = whole(x, y);
        add(plan, &r);
        return LINNET_OK;
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE: plan_reshape(plan, x, y); return LINNET_OK;
    case LN_COPY_KIND_TRANSPOSE:
        r = whole(y, y);
        for (int d = 0; d < y->rank; d++)
            r.source_strides[d] = x->strides[a->perm.n ? ln_axis(a->perm.v[d], x->rank) : x->rank - 1 - d];
        add(plan, &r);
        return LINNET_OK;
    case LN_COPY_KIND_CONCAT:
        for (int i = 0; i < call->n_inputs; i++) {
            int axis = ln_axis(a->axis, y->rank);
            r = whole(&call->inputs[i], y);
            r.input = i;
            r.target = offset * y->strides[axis];
            offset += call->inputs[i].dims[axis];
            add(plan, &r);
        }
        return LINNET_OK;
    case LN_COPY_KIND_SPLIT:
        for (int i = 0; i < call->n_outputs; i++) {
            int axis = ln_axis(a->axis, x->rank);
            r = whole(&call->outputs[i], &call->outputs[i]);
            memcpy(r.source_strides, x->strides, sizeof x->strides);
            r.output = i;
            r.source = offset * x->strides[axis];
            offset += call->outputs[i].dims[axis];
            add(plan, &r);
        }
        return LINNET_OK;
    case LN_COPY_KIND_SLICE:
        ln_copy_slice(a, call->inputs, call->n_inputs, start, step, count);
        r = whole(y, y);
        for (int d = 0; d < x->rank; d++) {
            r.source += start[d] * x->strides[d];
            r.source_strides[d] = step[d] * x->strides[d];
        }
        add(plan, &r);
        return LINNET_OK;
    case LN_COPY_KIND_PAD: return plan_pad(plan, call, a, pieces, counts);
    case LN_COPY_KIND_EXPAND: plan_expand(plan, x, y); return LINNET_OK;
    case LN_COPY_KIND_TILE:
        memset(&r, 0, sizeof r);
        for (int d = 0; d < x->rank; d++) {
            int64_t repeats = x->dims[d] > 0 ? y->dims[d] / x->dims[d] : 0;
            append(&r, repeats, 0, y->strides[d] * x->dims[d]);
            append(&r, x->dims[d], x->strides[d], y->strides[d]);
        }
        add(plan, &r);
        return LINNET_OK;
    case LN_COPY_KIND_DEPTH_TO_SPACE: plan_depth(plan, a, x, y, true); return LINNET_OK;
    default: plan_depth(plan, a, y, x, false); return LINNET_OK;
    }
}

static void exchange(ln_copy_rectangle *r, int i, int j) {
    int64_t t[3] = {r->dims[i], r->source_strides[i], r->target_strides[i]};
    r->dims[i] = r->dims[j];
    r->source_strides[i] = r->source_strides[j];
    r->target_strides[i] = r->target_strides[j];
    r->dims[j] = t[0];
    r->source_strides[j] = t[1];
    r->target_strides[j] = t[2];
}

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

void ln_copy_coalesce(ln_copy_rectangle *r) {
    int n = 0;
    for (int d = 0; d < r->rank; d++) {
        if (r->dims[d] == 1) continue;
        exchange(r, n, d);
        n++;
    }
    /* Sorts by target stride, largest first (insertion sort keeps the order of equal strides). */
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && magnitude(r->target_strides[j]) > magnitude(r->target_strides[j - 1]); j--)
            exchange(r, j, j - 1);
    int m = 0;
    for (int d = 0; d < n; d++) {
        if (m > 0 && r->source_strides[m - 1] == r->source_strides[d] * r->dims[d] &&
            r->target_strides[m - 1] == r->target_strides[d] * r->dims[d]) {
            r->dims[m - 1] *= r->dims[d];
            r->source_strides[m - 1] = r->source_strides[d];
            r->target_strides[m - 1] = r->target_strides[d];
        } else {
            exchange(r, m, d);
            m++;
        }
    }
    if (m == 0) {
        r->dims[0] = 1;
        r->source_strides[0] = r->target_strides[0] = 1;
        m = 1;
    }
    r->rank = m;
    int last = m - 1;
    if (r->input < 0) {
        r->shape = LN_COPY_FILL;
        return;
    }
    if (r->target_strides[last] == 1 && r->source_strides[last] == 1) {
        r->shape = LN_COPY_RUN;
        return;
    }
    r->shape = LN_COPY_STRIDED;
    if (r->target_strides[last] != 1) return;
    for (int d = 0; d < last; d++) {
        if (r->source_strides[d] == 1) {
            for (int e = d; e + 1 < last; e++) exchange(r, e, e + 1);
            r->shape = LN_COPY_TRANSPOSE;
            return;
        }
    }
}

/* Splits the rectangle into work items of about 16 KiB, depending only on the shape. */
static void cut(ln_copy_plan *plan, ln_copy_rectangle *r) {
    int inner = r->shape == LN_COPY_TRANSPOSE ? 2 : 1;
    int64_t want = 16384 / plan->size, cut_dim = r->dims[r->rank - inner];
    r->rows = 1;
    for (int d = 0; d < r->rank - inner; d++) r->rows *= r->dims[d];
    if (inner == 2) want = ln_max(64, ln_round_up((size_t)ln_max(1, want / r->dims[r->rank - 1]), 64));
    r->panel = ln_min(want, cut_dim);
    r->panels = ln_ceil_div(cut_dim, r->panel);
    r->items = r->rows * r->panels;
    r->first_item = plan->items;
    plan->items += r->items;
}

/* Elements that share bytes are copied as the bytes of the whole tensor. */
static linnet_status plan_bytes(ln_copy_plan *plan, ln_call *call) {
    const int64_t bytes = (int64_t)ln_bytes_of(call->outputs[0].dtype, ln_count(&call->outputs[0]));
    plan->size = 1;
    if (bytes == 0) return LINNET_OK;
    plan->count = 1;
    plan->rectangles = ln_call_state(call, sizeof *plan->rectangles);
    if (!plan->rectangles) return LINNET_OUT_OF_MEMORY;
    plan->rectangles[0] = (ln_copy_rectangle){.rank = 1, .dims = {bytes}, .source_strides = {1}, .target_strides = {1}};
    cut(plan, &plan->rectangles[0]);
    return LINNET_OK;
}

linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out) {
    const ln_copy_attributes *a = call->attributes;
    ln_copy_plan *plan = ln_call_state(call, sizeof *plan);
    piece *pieces[LN_MAX_RANK] = {NULL};
    int64_t counts[LN_MAX_RANK] = {0};
    linnet_status status;
    if (!plan) return LINNET_OUT_OF_MEMORY;
    plan->size = (uint32_t)ln_dtype_size(call->outputs[0].dtype);
    plan->value_input = -1;
    *out = plan;
    if (plan->size == 0) return plan_bytes(plan, call);
    if (a->kind == LN_COPY_KIND_PAD) {
        if (call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE) plan->value_input = 2;
        ln_store_float(plan->value, call->outputs[0].dtype, 0, a->value);
    }
    if ((status = make(plan, call, pieces, counts))) return status;
    plan->capacity = plan->count;
    plan->rectangles = ln_call_state(call, (size_t)ln_max(1, plan->count) * sizeof *plan->rectangles);
    if (!plan->rectangles) return LINNET_OUT_OF_MEMORY;
    if ((status = make(plan, call, pieces, counts))) return status;
    for (int64_t i = 0; i < plan->count; i++) {
        ln_copy_coalesce(&plan->rectangles[i]);
        cut(plan, &plan->rectangles[i]);
    }
    if (plan->flat) plan->items = ln_count(&call->outputs[0]);
    return LINNET_OK;
}
