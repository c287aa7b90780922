/* matmul_weights_plan.c - which products by quantized weights the kernels of matmul_weights.inc.c support, and their
 * plan.
 */
#include "fast/tail/matmul_weights_plan.h"

#include "base/layout.h"
#include "kernel/common/quant_unpack.h"
#include "kernel/step.h"

bool ln_weights_can(const ln_call *call) {
    const ln_tensor *b = &call->inputs[1];
    if (!ln_quant_has_values(b) || b->rank < 2 || call->inputs[0].rank < 1 || !ln_is_dense(b) ||
        ln_count(&call->outputs[0]) <= 0)
        return false;
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    return v.a_column == 1 || v.k <= 1;
}

linnet_status ln_weights_configure(ln_call *call) {
    enum { PANEL_BYTES = 128 << 10 };
    ln_weights *s = call->state = ln_call_state(call, sizeof *s);
    if (s == NULL) return LINNET_OUT_OF_MEMORY;
    ln_matmul_view_of(call, &s->view);
    const bool biased = call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE;
    s->bias_stride = biased && call->inputs[2].dims[0] > 1 ? call->inputs[2].strides[0] : 0;
    s->padded = (int64_t)ln_round_up((size_t)ln_max(1, s->view.k), LN_WEIGHT_LANES);
    s->panel = LN_WEIGHT_PANEL;
    while (s->panel > 4 && s->panel * s->padded * (int64_t)sizeof(float) > PANEL_BYTES) s->panel /= 2;
    call->work[0] = s->view.batch * ln_ceil_div(s->view.n, s->panel);
    call->scratch_thread = (size_t)(s->panel * s->padded) * sizeof(float);
    call->flops = (uint64_t)(2 * s->view.batch * s->view.m * s->view.n * s->view.k);
    return LINNET_OK;
}
