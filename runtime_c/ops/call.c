/* call.c - shape rules of `call`, `if` and `while`. Their results depend on functions, which a rule does not see.
 * Plans replace such a node by the nodes of the function (plan/compile/expand.c), and infer the shapes of these nodes.
 */
#include "kernel/op.h"

static linnet_status unknown_outputs(const ln_infer *infer) {
    for (int i = 0; i < infer->n_outputs; ++i) infer->outputs[i].rank = -1;
    return LINNET_OK;
}

static linnet_status check_condition(const ln_infer *infer, int i) {
    if (i >= infer->n_inputs || infer->inputs[i].dtype == LINNET_NONE) return LINNET_OK;
    if (infer->inputs[i].dtype != LINNET_BOOL) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "%s: the condition is not a bool", infer->op->name);
        ln_expected(infer->error, "bool");
        ln_got(infer->error, "%s", linnet_dtype_name(infer->inputs[i].dtype));
        return LINNET_WRONG_DTYPE;
    }
    if (infer->inputs[i].rank > 0 && ln_count(&infer->inputs[i]) != 1 && ln_count(&infer->inputs[i]) >= 0)
        return ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "%s: the condition has more than one element",
                       infer->op->name);
    return LINNET_OK;
}

linnet_status ln_infer_call(const ln_infer *infer) { return unknown_outputs(infer); }

linnet_status ln_infer_if(const ln_infer *infer) {
    const linnet_status status = check_condition(infer, 0);
    return status == LINNET_OK ? unknown_outputs(infer) : status;
}

linnet_status ln_infer_while(const ln_infer *infer) {
    const linnet_status status = check_condition(infer, 1);
    return status == LINNET_OK ? unknown_outputs(infer) : status;
}
