/* copy_plan.c - turns a `copy` call into strided rectangles: offsets, dims and strides on both sides.
 * Every kind is one or more rectangles. Dims are merged where both sides allow it, so most calls become a few memcpy.
 */
#include "ops/copy_plan.h"

#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/step.h"
#include "ops/copy_operands.h"

#include <string.h>

/* A rectangle under construction. */
typedef struct box {
    int32_t input, output, rank;
    int64_t source, target;
    ln_copy_dim dims[LN_COPY_MAX_DIMS];
} box;

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

/* Moves dim `from` in front of dim `to`. */
static void move(box *r, int from, int to) {
    const ln_copy_dim moved = r->dims[from];
    const int step = from < to ? 1 : -1;
    for (; from != to; from += step) r->dims[from] = r->dims[from + step];
    r->dims[to] = moved;
}

/* Merges dims where possible. Returns how to run the rectangle. */
static enum ln_copy_shape coalesce(box *r) {
    int n = 0, m = 0;
    for (int d = 0; d < r->rank; d++) { /* sorts by target stride, largest first; equal strides keep their order */
        if (r->dims[d].size == 1) continue;
        int to = n;
        while (to > 0 && magnitude(r->dims[d].target) > magnitude(r->dims[to - 1].target)) to--;
        r->dims[n] = r->dims[d];
        move(r, n++, to);
    }
    for (int d = 0; d < n; d++) {
        const ln_copy_dim *inner = &r->dims[d];
        if (m > 0 && r->dims[m - 1].source == inner->source * inner->size &&
            r->dims[m - 1].target == inner->target * inner->size) {
            const int64_t size = r->dims[m - 1].size * inner->size;
            r->dims[m - 1] = *inner;
            r->dims[m - 1].size = size;
        } else {
            r->dims[m++] = *inner;
        }
    }
    if (m == 0) r->dims[m++] = (ln_copy_dim){1, 1, 1};
    r->rank = m;
    const int last = m - 1;
    if (r->input < 0) return LN_COPY_FILL;
    if (r->dims[last].target != 1) return LN_COPY_STRIDED;
    if (r->dims[last].source == 1) return LN_COPY_RUN;
    for (int d = 0; d < last; d++) {
        if (r->dims[d].source != 1) continue;
        move(r, d, last - 1);
        return LN_COPY_TRANSPOSE;
    }
    return LN_COPY_STRIDED;
}

/* Stores the rectangle, and splits it into work items of about 16 KiB, depending only on the shape. */
static void store(ln_copy_plan *plan, const box *b, enum ln_copy_shape shape) {
    ln_copy_rectangle *r = &plan->rectangles[plan->count];
    const int cut = b->rank - (shape == LN_COPY_TRANSPOSE ? 2 : 1);
    const int64_t cut_size = b->dims[cut].size;
    int64_t want = 16384 / plan->size;
    r->input = b->input;
    r->output = b->output;
    r->rank = b->rank;
    r->shape = (uint8_t)shape;
    r->source = b->source;
    r->target = b->target;
    r->dims = memcpy(plan->dims + plan->n_dims, b->dims, (size_t)b->rank * sizeof *b->dims);
    if (cut < b->rank - 1) want = ln_max(64, ln_round_up((size_t)ln_max(1, want / b->dims[cut + 1].size), 64));
    r->panel = ln_min(want, cut_size);
    r->items = r->panels = ln_ceil_div(cut_size, r->panel);
    for (int d = 0; d < cut; d++) r->items *= b->dims[d].size;
    r->first_item = plan->items;
    plan->items += r->items;
}

/* Adds a rectangle to the plan. All rectangles are made twice: first they are counted, then they are stored. */
static void add(ln_copy_plan *plan, box *r) {
    for (int d = 0; d < r->rank; d++)
        if (r->dims[d].size == 0) return;
    const enum ln_copy_shape shape = coalesce(r);
    if (plan->rectangles) store(plan, r, shape);
    plan->n_dims += r->rank;
    plan->count++;
}

static void append(box *r, int64_t size, int64_t source, int64_t target) {
    r->dims[r->rank++] = (ln_copy_dim){size, source, target};
}

/* Begins a rectangle of the shape of `like`. */
static void begin_box(box *r, const ln_tensor *like, const int64_t *source, const int64_t *target) {
    memset(r, 0, sizeof *r);
    for (int d = 0; d < like->rank; d++) append(r, like->dims[d], source[d], target[d]);
}

/* ---- reshape ---- */

/* Writes the dims and strides of t without dims of size 1, with adjacent dims merged where memory is contiguous.
 * Returns the new rank. */
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

/* Divides the dims of both shapes, from the innermost one outwards, until both have the same dims, which become those
 * of the box. Returns false if dims do not divide each other. */
static bool refine(const ln_tensor *x, const ln_tensor *y, box *r) {
    int64_t xd[LN_MAX_RANK], xs[LN_MAX_RANK], yd[LN_MAX_RANK], ys[LN_MAX_RANK];
    int i = merged(x, xd, xs) - 1, j = merged(y, yd, ys) - 1;
    while (i >= 0 && j >= 0) {
        int64_t common = ln_min(xd[i], yd[j]);
        if (common == 0 || xd[i] % common != 0 || yd[j] % common != 0 || r->rank == LN_COPY_MAX_DIMS) return false;
        append(r, common, xs[i], ys[j]);
        xs[i] *= common;
        ys[j] *= common;
        if ((xd[i] /= common) == 1) i--;
        if ((yd[j] /= common) == 1) j--;
    }
    for (int d = 1; d < r->rank; d++) move(r, d, 0);
    return i < 0 && j < 0;
}

/* ---- pad ---- */

/* A piece of the output along one axis: `repeats` runs of `count` indices. The first run begins at index `target`, and
 * each further run `every` indices later. Every run reads the source from index `source` on, in steps of `step`. With
 * source -1, it gets the fill value. */
typedef struct piece {
    int64_t target, count, source, step, repeats, every;
} piece;

enum { MOST_PIECES = 4 };

/* The pieces of the axis in the order of the output. */
typedef struct pieces {
    int n;
    piece of[MOST_PIECES];
} pieces;

static void run_of(pieces *p, int64_t target, int64_t count, int64_t source, int64_t step, int64_t repeats,
                   int64_t every) {
    if (count > 0 && repeats > 0) p->of[p->n++] = (piece){target, count, source, step, repeats, every};
}

/* Adds the pieces of an output that passes over the axis of the source again and again: first the rest of a pass, then
 * whole passes, and at last the beginning of a pass. WRAP begins each pass at the first element. REFLECT goes up and
 * down in turn; a turning point belongs to the pass before it. */
static void go_around(pieces *p, bool turns, int64_t total, int64_t before, int64_t low, int64_t n) {
    const int64_t kinds = 1 + turns, side = n - turns, period = kinds * side;
    const int64_t phase = (period - before % period) % period;
    bool up = phase < side;
    const int64_t start = up ? phase : period - phase, head = ln_min(total, up ? n - start : start + 1);
    const int64_t sides = (total - head) / side;
    run_of(p, 0, head, low + start, up ? 1 : -1, 1, 0);
    for (int64_t k = 0; k <= kinds; k++) { /* the last round adds the beginning of a pass */
        const bool part = k == kinds;
        if (turns && (!part || sides % 2 == 0)) up = !up;
        run_of(p, head + side * (part ? sides : k), part ? (total - head) % side : side, low + (up ? turns : n - 2),
               up ? 1 : -1, part ? 1 : (sides + kinds - 1 - k) / kinds, period);
    }
}

/* The axis is cropped first, and then padded. */
static void axis_pieces(int64_t mode, int64_t size, int64_t begin, int64_t end, pieces *p) {
    const bool constant = mode == LN_COPY_PAD_MODE_CONSTANT, turns = mode == LN_COPY_PAD_MODE_REFLECT;
    const int64_t total = size + begin + end, low = ln_max(0, -begin);
    int64_t n = size - low - ln_max(0, -end), before = ln_max(0, begin);
    if (n <= 0) { /* only the padding remains, and one side may crop more elements than the axis has */
        n = 0;
        before = total;
    }
    p->n = 0;
    if (n > turns && (turns || mode == LN_COPY_PAD_MODE_WRAP)) {
        go_around(p, turns, total, before, low, n);
        return;
    }
    run_of(p, 0, before, constant ? -1 : low, 0, 1, 0);
    run_of(p, before, n, low, 1, 1, 0);
    run_of(p, before + n, total - before - n, constant ? -1 : low + n - 1, 0, 1, 0);
}

static void plan_pad(ln_copy_plan *plan, const ln_call *call, const ln_copy_attributes *a) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t begin[LN_MAX_RANK], end[LN_MAX_RANK];
    int at[LN_MAX_RANK] = {0};
    pieces axes[LN_MAX_RANK];
    ln_copy_pads(a, call->inputs, call->n_inputs, begin, end);
    for (int d = 0; d < x->rank; d++) {
        axis_pieces(a->pad_mode, x->dims[d], begin[d], end[d], &axes[d]);
        if (axes[d].n == 0) return;
    }
    for (;;) {
        /* If the piece of one axis gets the fill value, the rectangle covers the full extent of the axes after it. */
        box r;
        memset(&r, 0, sizeof r);
        int constant = -1;
        for (int d = 0; d < x->rank; d++) {
            const piece *p = &axes[d].of[at[d]];
            if (constant >= 0) {
                append(&r, y->dims[d], 0, y->strides[d]);
                continue;
            }
            if (p->source < 0) constant = d;
            r.target += p->target * y->strides[d];
            r.source += p->source * x->strides[d];
            if (p->repeats > 1) append(&r, p->repeats, 0, p->every * y->strides[d]);
            append(&r, p->count, p->step * x->strides[d], y->strides[d]);
        }
        if (constant >= 0) {
            r.input = -1;
            r.source = 0;
            for (int d = 0; d < r.rank; d++) r.dims[d].source = 0;
        }
        add(plan, &r);
        int d = constant >= 0 ? constant : x->rank - 1;
        for (int e = d + 1; e < x->rank; e++) at[e] = 0;
        while (d >= 0 && ++at[d] == axes[d].n) at[d--] = 0;
        if (d < 0) return;
    }
}

/* ---- the other kinds ---- */

/* depth_to_space, from x with many channels to y with few. space_to_depth is the same with x and y exchanged. */
static void box_of_depth(box *r, const ln_copy_attributes *a, const ln_tensor *deep, const ln_tensor *flat,
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
    for (int d = 0; d < 6; d++)
        append(r, dims[d], to_space ? deep_strides[d] : flat_strides[d], to_space ? flat_strides[d] : deep_strides[d]);
}

static void make(ln_copy_plan *plan, const ln_call *call) {
    const ln_copy_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t start[LN_MAX_RANK], step[LN_MAX_RANK], count[LN_MAX_RANK], offset = 0;
    const int axis = ln_axis(a->axis, y->rank);
    box r;
    memset(&r, 0, sizeof r);
    plan->count = plan->n_dims = 0;
    if (ln_dtype_bits(y->dtype) < 8) { /* elements that share bytes are copied as the bytes of the whole tensor */
        append(&r, (int64_t)ln_bytes_of(y->dtype, ln_count(y)), 1, 1);
        add(plan, &r);
        return;
    }
    switch (a->kind) {
    case LN_COPY_KIND_IDENTITY:
    case LN_COPY_KIND_BITCAST: begin_box(&r, x, x->strides, y->strides); break;
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE:
        if (ln_count(x) == 0) return;
        plan->flat = !refine(x, y, &r);
        if (plan->flat) return;
        break;
    case LN_COPY_KIND_TRANSPOSE:
        for (int d = 0; d < y->rank; d++)
            append(&r, y->dims[d], x->strides[a->perm.n ? ln_axis(a->perm.v[d], x->rank) : x->rank - 1 - d],
                   y->strides[d]);
        break;
    case LN_COPY_KIND_CONCAT:
        for (int i = 0; i < call->n_inputs; i++) {
            const ln_tensor *part = &call->inputs[i];
            begin_box(&r, part, part->strides, y->strides);
            r.input = i;
            r.target = offset * y->strides[axis];
            offset += part->dims[axis];
            add(plan, &r);
        }
        return;
    case LN_COPY_KIND_SPLIT:
        for (int i = 0; i < call->n_outputs; i++) {
            const ln_tensor *part = &call->outputs[i];
            begin_box(&r, part, x->strides, part->strides);
            r.output = i;
            r.source = offset * x->strides[axis];
            offset += part->dims[axis];
            add(plan, &r);
        }
        return;
    case LN_COPY_KIND_SLICE:
        ln_copy_slice(a, call->inputs, call->n_inputs, start, step, count);
        for (int d = 0; d < x->rank; d++) {
            r.source += start[d] * x->strides[d];
            append(&r, y->dims[d], step[d] * x->strides[d], y->strides[d]);
        }
        break;
    case LN_COPY_KIND_PAD: plan_pad(plan, call, a); return;
    case LN_COPY_KIND_EXPAND:
        for (int d = 0; d < y->rank; d++) {
            const int own = d - (y->rank - x->rank);
            append(&r, y->dims[d], own < 0 || x->dims[own] == 1 ? 0 : x->strides[own], y->strides[d]);
        }
        break;
    case LN_COPY_KIND_TILE:
        for (int d = 0; d < x->rank; d++) {
            append(&r, x->dims[d] > 0 ? y->dims[d] / x->dims[d] : 0, 0, y->strides[d] * x->dims[d]);
            append(&r, x->dims[d], x->strides[d], y->strides[d]);
        }
        break;
    case LN_COPY_KIND_DEPTH_TO_SPACE: box_of_depth(&r, a, x, y, true); break;
    case LN_COPY_SHUFFLE:
        for (int d = 0; d < x->rank; d++) {
            const int64_t groups = d == axis ? a->block : 1, each = x->dims[d] / groups;
            append(&r, each, x->strides[d], y->strides[d] * groups);
            if (d == axis) append(&r, groups, x->strides[d] * each, y->strides[d]);
        }
        break;
    default: box_of_depth(&r, a, y, x, false); break;
    }
    add(plan, &r);
}

linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out) {
    const ln_copy_attributes *a = call->attributes;
    ln_copy_plan *plan = ln_call_state(call, sizeof *plan);
    if (!plan) return LINNET_OUT_OF_MEMORY;
    plan->size = (uint32_t)ln_max(1, (int64_t)ln_dtype_size(call->outputs[0].dtype));
    plan->value_input = -1;
    *out = plan;
    if (a->kind == LN_COPY_KIND_PAD) {
        if (call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE) plan->value_input = 2;
        ln_convert_element(plan->value, call->outputs[0].dtype, 0, &a->value, LINNET_F64, 0);
    }
    make(plan, call);
    plan->dims = ln_call_state(call, (size_t)plan->n_dims * sizeof *plan->dims);
    ln_copy_rectangle *rectangles = ln_call_state(call, (size_t)plan->count * sizeof *rectangles);
    if (!plan->dims || !rectangles) return LINNET_OUT_OF_MEMORY;
    plan->rectangles = rectangles;
    make(plan, call);
    if (plan->flat) plan->items = ln_count(&call->outputs[0]);
    return LINNET_OK;
}
