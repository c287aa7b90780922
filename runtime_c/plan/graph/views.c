/* views.c - which copies are views: their outputs are parts of their operand's memory.
 */
#include "plan/graph/views.h"

#include "kernel/common/copy_kinds.h"
#include "kernel/common/copy_view.h"
#include "plan/graph/work.h"

bool ln_same_strides(const ln_tensor *a, const ln_tensor *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; ++d)
        if (a->dims[d] != b->dims[d] || (a->dims[d] != 1 && a->strides[d] != b->strides[d])) return false;
    return true;
}

int64_t ln_view_offset(const ln_work *w, const ln_work_node *node, int o) {
    const ln_tensor *y = &ln_value_at(w, node->outputs[o])->tensor;
    int64_t before = 0, offset;
    for (int i = 0; i < o && before >= 0; ++i)
        before = node->outputs[i] < 0 ? -1 : before + ln_count(&ln_value_at(w, node->outputs[i])->tensor);
    if (!ln_copy_view(node->attributes, node->n_inputs, &ln_value_at(w, node->inputs[0])->tensor, y, before, &offset))
        return -1;
    /* Kernels may rely on aligned buffers, so a view must start at an aligned offset. */
    if (!ln_element_aligned(y->dtype, offset, LN_ALIGNMENT)) return -1;
    if (ln_on_device(node) && !ln_element_aligned(y->dtype, offset, ln_device_at(w, node->device)->limits.alignment))
        return -1;
    return ln_offset_of_element(y->dtype, offset);
}

bool ln_is_view(const ln_work *w, const ln_work_node *node) {
    if (!ln_is_family(node, LN_FAMILY_COPY) || node->n_outputs == 0 || node->inputs[0] < 0) return false;
    if (w->request.frame != NULL && !ln_copy_keeps_order(node->attributes))
        return false; /* not a view at every shape */
    if (ln_value_at(w, node->inputs[0])->host != NULL) return false;
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && ln_view_offset(w, node, o) < 0) return false;
    return true;
}
