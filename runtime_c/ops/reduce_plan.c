/* reduce_plan.c - brings a reduction into the form that the fast kernels take (runtime_c/simd/reduce.inc.c).
 * Logical dims are sorted by their stride in memory, so that channels-last pooling is a sum of rows. */
#include "ops/reduce_axes.h"

#include <string.h>

typedef struct dim {
    int64_t size, x, y;
    bool reduced;
} dim;

static bool fast_kind(const ln_call *call) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    bool adds = a->kind == LN_REDUCE_KIND_SUM || a->kind == LN_REDUCE_KIND_MEAN;
    if (!ln_dtype_is_float(y->dtype) || y->dtype == LINNET_F64 || call->epilogue)
        return false;
    if (x->dtype == LINNET_F32)
        return adds || a->kind == LN_REDUCE_KIND_MAX || a->kind == LN_REDUCE_KIND_MIN || a->kind == LN_REDUCE_KIND_L1 ||
               a->kind == LN_REDUCE_KIND_L2 || a->kind == LN_REDUCE_KIND_SUM_SQUARE;
    if (x->dtype == LINNET_F16 || x->dtype == LINNET_BF16)
        return adds;
    bool stored = x->dtype == LINNET_I8 || x->dtype == LINNET_U8 || x->dtype == LINNET_I16;
    return adds && stored && y->dtype == LINNET_F32 && x->quant && x->quant->scheme == LN_QUANT_TENSOR && x->quant->count > 0;
}

bool ln_reduce_make_plan(const ln_call *call, ln_reduce_plan *p) {
    const ln_reduce_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint32_t mask;
    bool bad;
    dim dims[LN_MAX_RANK];
    int n = 0, own = 0;
    int64_t reduced_total = 1;
    memset(p, 0, sizeof *p);
    if (!fast_kind(call) || !ln_reduce_mask(a, call->inputs, call->n_inputs, &mask, &bad) || ln_count(x) <= 0)
        return false;
    for (int d = 0; d < x->rank; d++) {
        bool reduced = mask >> d & 1u;
        int64_t y_stride = reduced ? 0 : y->strides[own];
        own += !reduced || a->keep_dims;
        if (reduced)
            reduced_total *= x->dims[d];
        if (x->dims[d] != 1)
            dims[n++] = (dim){x->dims[d], x->strides[d], y_stride, reduced};
    }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && dims[j].x > dims[j - 1].x; j--) {
            dim t = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = t;
        }
    int m = 0;
    for (int i = 0; i < n; i++) {
        dim *last = m > 0 ? &dims[m - 1] : NULL;
        if (last && last->reduced == dims[i].reduced && last->x == dims[i].x * dims[i].size &&
            (last->reduced || last->y == dims[i].y * dims[i].size)) {
            last->size *= dims[i].size;
            last->x = dims[i].x;
            last->y = dims[i].y;
        } else {
            dims[m++] = dims[i];
        }
    }
    if (m == 0 || dims[m - 1].x != 1)
        return false;
    p->columns = !dims[m - 1].reduced;
    p->inner = dims[m - 1].size;
    p->inner_y = dims[m - 1].y;
    p->reduced_count = 1;
    for (int i = 0; i < m - 1; i++) {
        if (dims[i].reduced) {
            p->reduced_dims[p->reduced] = dims[i].size;
            p->reduced_x[p->reduced++] = dims[i].x;
            p->reduced_count *= dims[i].size;
        } else {
            p->kept_dims[p->kept] = dims[i].size;
            p->kept_x[p->kept] = dims[i].x;
            p->kept_y[p->kept++] = dims[i].y;
        }
    }
    p->block = p->columns ? ln_min(p->inner, 64) : 1;
    p->blocks = p->columns ? ln_ceil_div(p->inner, p->block) : 1;
    p->factor = a->kind == LN_REDUCE_KIND_MEAN ? 1.0 / (double)reduced_total : 1.0;
    p->scale = 1.0f;
    if (x->quant && !ln_dtype_is_float(x->dtype)) {
        p->scale = x->quant->scale[0];
        p->zero = x->quant->zero ? x->quant->zero[0] : 0;
    }
    return true;
}
