/* reduce_plan.c - brings a reduction into the form that the fast kernels support (runtime_c/fast/tail/reduce.inc.c).
 * Kept dims are sorted by their stride in memory, so that channels-last pooling is a sum of rows. */
#include "ops/reduce_plan.h"

#include "kernel/infer.h"

#include <math.h>
#include <string.h>

bool ln_reduce_mask(const ln_reduce_attributes *a, const ln_tensor *inputs, int n_inputs, uint32_t *mask, bool *bad) {
    int64_t v[2 * LN_MAX_RANK];
    const int64_t *axes = a->axes.v;
    int64_t n = a->axes.n;
    *mask = 0;
    *bad = false;
    if (n_inputs > 1 && inputs[1].dtype != LINNET_NONE) {
        int known = ln_int_operand(&inputs[1], v);
        if (known == -2) *bad = true;
        if (known < 0) return false;
        axes = v;
        n = known;
    }
    int rank = inputs[0].rank;
    if (rank < 0) return false;
    if (n == 0 && !a->noop_with_empty_axes) *mask = (1u << rank) - 1u;
    for (int64_t i = 0; i < n; i++) {
        int d = ln_axis(axes[i], rank);
        if (d < 0) {
            *bad = true;
            return false;
        }
        *mask |= 1u << d;
    }
    return true;
}

typedef struct dim {
    int64_t size, x, y;
} dim;

/* Appends a dim, or merges it into the previous dim if they are contiguous in memory. */
static void add_dim(int64_t *sizes, int64_t *xs, int64_t *ys, int *n, dim d) {
    int last = *n - 1;
    if (last >= 0 && xs[last] == d.x * d.size && (!ys || ys[last] == d.y * d.size)) {
        sizes[last] *= d.size;
    } else {
        last = (*n)++;
        sizes[last] = d.size;
    }
    xs[last] = d.x;
    if (ys) ys[last] = d.y;
}

/* Sorts dims by their stride in memory; the outermost comes first. */
static void sort_dims(dim *dims, int n) {
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && dims[j].x > dims[j - 1].x; j--) {
            dim t = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = t;
        }
}

double ln_reduce_result(int64_t kind, double total, float scale, int64_t count) {
    total = total * (double)scale + 0.0; /* -0 becomes 0, so that extremes do not depend on the order of elements */
    return kind == LN_REDUCE_KIND_MEAN ? total / (double)count : kind == LN_REDUCE_KIND_L2 ? sqrt(total) : total;
}

/* Tells whether a kind dequantizes elements before it adds them. */
static bool powers(int64_t kind) {
    return kind == LN_REDUCE_KIND_L1 || kind == LN_REDUCE_KIND_L2 || kind == LN_REDUCE_KIND_SUM_SQUARE;
}

static bool fast_kind(const ln_call *call) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    bool adds = a->kind == LN_REDUCE_KIND_SUM || a->kind == LN_REDUCE_KIND_MEAN;
    const bool extreme = a->kind == LN_REDUCE_KIND_MAX || a->kind == LN_REDUCE_KIND_MIN;
    if (x->dtype == LINNET_F32) return adds || extreme || powers(a->kind);
    if (x->dtype == LINNET_F16 || x->dtype == LINNET_BF16) return adds;
    if (x->dtype == LINNET_I32) return a->kind == LN_REDUCE_KIND_SUM && y->dtype == LINNET_I32;
    if (extreme && x->dtype == y->dtype && (ln_is_byte(x->dtype) || x->dtype == LINNET_I16)) return true;
    return y->dtype == LINNET_F32 && x->quant && x->quant->scheme == LN_QUANT_TENSOR && x->quant->count > 0 &&
           (adds || powers(a->kind) || (extreme && x->quant->scale[0] > 0)); /* extremes of stored integers */
}

/* Tells whether the result does not depend on the order of the elements. */
static bool any_order(const ln_call *call) {
    const int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    return kind == LN_REDUCE_KIND_MAX || kind == LN_REDUCE_KIND_MIN || call->inputs[0].dtype == LINNET_I32;
}

bool ln_reduce_make_plan(const ln_call *call, ln_reduce_plan *p) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint32_t mask;
    bool bad;
    dim kept[LN_MAX_RANK], reduced[LN_MAX_RANK];
    int n = 0, own = 0, removed = 0;
    memset(p, 0, sizeof *p);
    if (!fast_kind(call) || !ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad) || ln_count(x) <= 0)
        return false;
    p->count = p->inner = 1;
    for (int d = 0; d < x->rank; d++) {
        bool gone = mask >> d & 1u;
        int64_t y_stride = gone ? 0 : y->strides[own];
        own += !gone || a->keep_dims;
        if (gone) p->count *= x->dims[d];
        if (x->dims[d] == 1) continue;
        if (gone)
            reduced[removed++] = (dim){x->dims[d], x->strides[d], 0};
        else
            kept[n++] = (dim){x->dims[d], x->strides[d], y_stride};
    }
    sort_dims(kept, n);
    if (any_order(call)) sort_dims(reduced, removed);
    for (int i = 0; i < removed; i++) add_dim(p->reduced_dims, p->reduced_x, NULL, &p->reduced, reduced[i]);
    for (int i = 0; i < n; i++) add_dim(p->kept_dims, p->kept_x, p->kept_y, &p->kept, kept[i]);
    if (p->reduced == 0) p->reduced_dims[p->reduced++] = 1;
    /* Fewer than 8 columns are not worth a vector. */
    if (p->kept > 0 && p->kept_x[p->kept - 1] == 1 && p->kept_dims[p->kept - 1] >= 8) {
        p->columns = true;
        p->inner = p->kept_dims[--p->kept];
        p->inner_y = p->kept_y[p->kept];
    }
    p->block = ln_min(p->inner, 64);
    p->blocks = ln_ceil_div(p->inner, p->block);
    p->scale = p->factor = 1.0f;
    p->stored = !ln_dtype_is_float(call->outputs[0].dtype);
    if (x->quant && !ln_dtype_is_float(x->dtype) && !p->stored) {
        *(powers(a->kind) ? &p->factor : &p->scale) = x->quant->scale[0];
        p->zero = x->quant->zero ? x->quant->zero[0] : 0;
    }
    return true;
}
