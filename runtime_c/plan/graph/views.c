/* views.c - which copies are views: their outputs are parts of their operand's memory.
 */
#include "plan/graph/work.h"

#include <string.h>

bool ln_same_strides(const ln_tensor *a, const ln_tensor *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; ++d)
        if (a->dims[d] != b->dims[d] || (a->dims[d] != 1 && a->strides[d] != b->strides[d])) return false;
    return true;
}

bool ln_view_of(const ln_work *w, const ln_work_node *node, int o, ln_tensor *view, int64_t *offset) {
    const ln_copy_attributes *a = node->attributes;
    const ln_tensor *x = &ln_value_at(w, node->inputs[0])->tensor, *y = &ln_value_at(w, node->outputs[o])->tensor;
    *view = *y;
    *offset = 0;
    switch (a->kind) {
    case LN_COPY_KIND_IDENTITY:
    case LN_COPY_KIND_BITCAST: memcpy(view->strides, x->strides, sizeof view->strides); return true;
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE: return ln_is_dense(x) && ln_is_dense(y);
    case LN_COPY_KIND_EXPAND:
    case LN_COPY_KIND_TILE:
        if (ln_count(x) != ln_count(y)) return false;
        return ln_is_dense(x) && ln_is_dense(y);
    case LN_COPY_KIND_TRANSPOSE:
        for (int d = 0; d < y->rank; ++d) view->strides[d] = x->strides[a->perm.n ? a->perm.v[d] : x->rank - 1 - d];
        return true;
    case LN_COPY_KIND_SPLIT: {
        const int axis = ln_axis(a->axis, x->rank);
        for (int i = 0; i < o; ++i) {
            if (node->outputs[i] < 0) return false;
            *offset += ln_value_at(w, node->outputs[i])->tensor.dims[axis] * x->strides[axis];
        }
        memcpy(view->strides, x->strides, sizeof view->strides);
        return true;
    }
    case LN_COPY_KIND_SLICE: {
        if (node->n_inputs > 1) return false; /* the converter folds constant operands into the attributes */
        memcpy(view->strides, x->strides, sizeof view->strides);
        for (int64_t i = 0; i < a->starts.n; ++i) {
            const int axis = ln_axis(a->axes.n ? a->axes.v[i] : i, x->rank);
            if (axis < 0 || (a->steps.n && a->steps.v[i] != 1)) return false;
            int64_t start = a->starts.v[i] < 0 ? a->starts.v[i] + x->dims[axis] : a->starts.v[i];
            start = start < 0 ? 0 : ln_min(start, x->dims[axis]);
            *offset += start * x->strides[axis];
        }
        return true;
    }
    default: return false;
    }
}

/* Whether the copy is a view at every shape; if not, it is a view at none. */
static bool always_view(const ln_copy_attributes *a) {
    return a->kind == LN_COPY_KIND_IDENTITY || a->kind == LN_COPY_KIND_BITCAST || a->kind == LN_COPY_KIND_RESHAPE ||
           a->kind == LN_COPY_KIND_SQUEEZE || a->kind == LN_COPY_KIND_UNSQUEEZE;
}

bool ln_is_view(const ln_work *w, const ln_work_node *node) {
    if (!ln_is_family(node, LN_FAMILY_COPY) || node->n_outputs == 0 || node->inputs[0] < 0) return false;
    if (w->frame != NULL && !always_view(node->attributes)) return false;
    if (ln_value_at(w, node->inputs[0])->host != NULL) return false;
    for (int o = 0; o < node->n_outputs; ++o) {
        ln_tensor view;
        int64_t offset;
        if (node->outputs[o] < 0) continue;
        const ln_tensor *y = &ln_value_at(w, node->outputs[o])->tensor;
        if (!ln_view_of(w, node, o, &view, &offset) || !ln_same_strides(&view, y)) return false;
        /* Kernels may rely on aligned buffers, so a view must start at an aligned offset. */
        if (!ln_element_aligned(y->dtype, offset, LN_ALIGNMENT)) return false;
        if (ln_on_device(node) &&
            !ln_element_aligned(y->dtype, offset, ln_device_at(w, node->device)->limits.alignment))
            return false;
    }
    return true;
}
