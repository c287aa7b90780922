/* copy_view.c - which results of a `copy` are parts of its operand's memory, so that nothing has to be copied.
 */
#include "kernel/common/copy_view.h"

#include "base/layout.h"

#include <string.h>

/* Returns the number of the first element of a slice; -1 if not all of its steps are 1. */
static int64_t slice_begin(const ln_copy_attributes *a, const ln_tensor *x) {
    int64_t begin = 0;
    for (int64_t i = 0; i < a->starts.n; ++i) {
        const int axis = ln_axis(a->axes.n ? a->axes.v[i] : i, x->rank);
        if (axis < 0 || (a->steps.n && a->steps.v[i] != 1)) return -1;
        const int64_t start = a->starts.v[i] < 0 ? a->starts.v[i] + x->dims[axis] : a->starts.v[i];
        begin += ln_max(0, ln_min(start, x->dims[axis])) * x->strides[axis];
    }
    return begin;
}

bool ln_copy_view(const ln_copy_attributes *a, int n_inputs, const ln_tensor *x, const ln_tensor *y, int64_t before,
                  int64_t *offset) {
    int64_t strides[LN_MAX_RANK];
    memcpy(strides, x->strides, sizeof strides);
    *offset = 0;
    switch (a->kind) {
    case LN_COPY_KIND_IDENTITY:
    case LN_COPY_KIND_BITCAST: break;
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE:
    case LN_COPY_KIND_EXPAND:
    case LN_COPY_KIND_TILE: return ln_count(x) == ln_count(y) && ln_is_dense(x) && ln_is_dense(y);
    case LN_COPY_KIND_TRANSPOSE:
        for (int d = 0; d < y->rank; ++d) strides[d] = x->strides[a->perm.n ? a->perm.v[d] : x->rank - 1 - d];
        break;
    case LN_COPY_KIND_SPLIT: {
        const int axis = ln_axis(a->axis, x->rank);
        if (before < 0 || axis < 0) return false;
        if (before > 0) *offset = before / (ln_count(x) / x->dims[axis]) * x->strides[axis];
        break;
    }
    case LN_COPY_KIND_SLICE: /* the converter folds constant operands into the attributes */
        if (n_inputs > 1 || (*offset = slice_begin(a, x)) < 0) return false;
        break;
    default: return false;
    }
    for (int d = 0; d < y->rank; ++d)
        if (y->dims[d] != 1 && strides[d] != y->strides[d]) return false;
    return true;
}
