/* user.h - a user op that is registered with a model. model/user.c makes the rows from linnet_model_config.user_ops and
 * checks the nodes against the rows. ops/user.c calls the callbacks. */
#ifndef LN_USER_H
#define LN_USER_H

#include "kernel/op.h"
#include "generated/op_table.h"
#include "linnet_ext.h"

/* A user op of a model. The nodes that name it point to `op`, whose name, arity and flags are those of the
 * registration.
 */
typedef struct ln_user_op {
    ln_op op; /* comes first, because nodes point to it and ln_user_host finds the struct from there */
    linnet_user_op host;
} ln_user_op;

/* Returns the registration behind an op with LN_OP_REGISTERED. Returns NULL for a node that was read without a model,
 * whose op is the generic row of ln_ops. */
static inline const linnet_user_op *ln_user_host(const ln_op *op) {
    return op == &ln_ops[op->id] ? NULL : &((const ln_user_op *)(const void *)op)->host;
}

/* Returns LINNET_OK if the op takes this many operands, and SHAPE_MISMATCH otherwise. */
linnet_status ln_user_arity(const linnet_user_op *host, int n_inputs, int n_outputs, linnet_error *error);
/* Reports that a callback failed, with its text `problem`. `what` begins the message and says which callback it was; it
 * is "" or ends with a space. Returns USER_OP_FAILED. */
linnet_status ln_user_failed(const char *what, const char *name, const char *problem, linnet_error *error);

/* The functions behind the members of linnet_user_call (linnet_ext.h says what they return). They read only call->node.
 */
const char *ln_user_attribute(const linnet_user_call *call, int i, int *type, int64_t *count);
const int64_t *ln_user_integers(const linnet_user_call *call, const char *attribute, int64_t *count);
const double *ln_user_floats(const linnet_user_call *call, const char *attribute, int64_t *count);
const char *ln_user_text(const linnet_user_call *call, const char *attribute, int64_t i, size_t *size);

#endif
