/* user.c - the attributes of a node that calls a user op, and its errors. The registration of user ops, their callbacks
 * and devices use them. */
#include "kernel/user.h"

#include <string.h>

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
    return ln_hint(error, "correct the node's operands, or the op in your program"), LINNET_USER_OP_FAILED;
}

const char *ln_user_attribute(const linnet_user_call *call, int i, int *type, int64_t *count) {
    const ln_user_attributes *a = call->node;
    if (i < 0 || i >= a->kinds.n / 2) return NULL;
    const char *name = a->names.v;
    for (int k = 0; k < i; ++k) name += strlen(name) + 1;
    if (type != NULL) *type = (int)a->kinds.v[2 * i];
    if (count != NULL) *count = a->kinds.v[2 * i + 1];
    return name;
}

/* Returns the place of the attribute's first value among all values of its type, and sets *count to the number of its
 * values. Returns -1 if the node has no attribute of this name and type. LINNET_USER_TEXT also finds bytes. */
static int64_t find(const linnet_user_call *call, const char *attribute, int type, int64_t *count) {
    const ln_user_attributes *a = call->node;
    const char *name = a->names.v;
    int64_t at = 0;
    for (int64_t i = 0; attribute != NULL && i < a->kinds.n; i += 2, name += strlen(name) + 1) {
        const int64_t n = a->kinds.v[i + 1] < 0 ? 1 : a->kinds.v[i + 1];
        const int kind = a->kinds.v[i] == LINNET_USER_BYTES ? LINNET_USER_TEXT : (int)a->kinds.v[i];
        if (kind == type && strcmp(name, attribute) == 0) {
            *count = n;
            return at;
        }
        if (kind == type) at += n;
    }
    return -1;
}

const int64_t *ln_user_integers(const linnet_user_call *call, const char *attribute, int64_t *count) {
    int64_t n;
    const int64_t at = find(call, attribute, LINNET_USER_INTEGERS, &n);
    if (at >= 0 && count != NULL) *count = n;
    return at < 0 || n == 0 ? NULL : ((const ln_user_attributes *)call->node)->integers.v + at;
}

const double *ln_user_floats(const linnet_user_call *call, const char *attribute, int64_t *count) {
    int64_t n;
    const int64_t at = find(call, attribute, LINNET_USER_FLOATS, &n);
    if (at >= 0 && count != NULL) *count = n;
    return at < 0 || n == 0 ? NULL : ((const ln_user_attributes *)call->node)->floats.v + at;
}

const char *ln_user_text(const linnet_user_call *call, const char *attribute, int64_t i, size_t *size) {
    int64_t n;
    const int64_t at = find(call, attribute, LINNET_USER_TEXT, &n);
    if (at < 0 || i < 0 || i >= n) return NULL;
    const ln_user_attributes *a = call->node;
    const char *text = a->text.v;
    for (int64_t k = 0; k < at + i; ++k) text += a->sizes.v[k] + 1;
    if (size != NULL) *size = (size_t)a->sizes.v[at + i];
    return text;
}
