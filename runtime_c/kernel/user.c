/* user.c - what registration and shape rule of user ops share. */
#include "kernel/user.h"

linnet_status ln_user_arity(const linnet_user_op *host, int n_inputs, int n_outputs, linnet_error *error) {
    if (n_inputs >= host->least_inputs && (host->most_inputs < 0 || n_inputs <= host->most_inputs) &&
        n_outputs >= host->least_outputs && (host->most_outputs < 0 || n_outputs <= host->most_outputs) &&
        n_inputs + n_outputs <= LN_MAX_OPERANDS)
        return LINNET_OK;
    ln_fail(error, LINNET_SHAPE_MISMATCH, "user op %s does not take this number of operands", host->name);
    ln_expected(error, "%d to %d inputs and %d to %d outputs (-1: any number), together at most %d",
                (int)host->least_inputs, (int)host->most_inputs, (int)host->least_outputs, (int)host->most_outputs,
                LN_MAX_OPERANDS);
    return ln_got(error, "%d inputs and %d outputs", n_inputs, n_outputs), LINNET_SHAPE_MISMATCH;
}

linnet_status ln_user_failed(const char *what, const char *name, const char *problem, linnet_error *error) {
    ln_fail(error, LINNET_USER_OP_FAILED, "%suser op %s failed: %s", what, name, problem);
    return ln_hint(error, "linnet only calls this op; correct the node's operands, or the program's op"),
           LINNET_USER_OP_FAILED;
}
