/* user.h - the user ops of a model. */
#ifndef LN_MODEL_USER_H
#define LN_MODEL_USER_H

#include "model/graph.h"

/* Copies config->user_ops into the model, before its structure is read. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
linnet_status ln_user_register(linnet_model *model, const linnet_model_config *config, linnet_error *error);
/* Checks one registration and fills a row of the model's table from it. The name is not copied. Errors:
 * INVALID_ARGUMENT. */
linnet_status ln_user_row(const linnet_user_op *from, struct ln_user_op *row, linnet_error *error);
/* Checks that the lists in the attributes of a user op fit together. Errors: BAD_ATTRIBUTE. */
linnet_status ln_user_check(const void *attributes, linnet_error *error);
/* Sets node->op to the registered op that the node names, and checks the operands. Errors: BAD_ATTRIBUTE, UNSUPPORTED,
 * SHAPE_MISMATCH, UNKNOWN_SHAPE. */
linnet_status ln_user_resolve(const linnet_model *model, ln_node *node, const ln_value *values, linnet_error *error);

#endif
