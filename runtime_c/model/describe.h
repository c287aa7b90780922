/* describe.h - finds tensors by name, for answers about a model. */
#ifndef LN_DESCRIBE_H
#define LN_DESCRIBE_H

#include "model/graph.h"

/* The value of that name: the name of an output of the signature, of any value of its function, or of a node that
 * computes the value of the source node of this name as its first output. -1: none. *own: the model's copy of the name.
 */
int32_t ln_find_tensor(const ln_signature *signature, const ln_function *f, const char *name, const char **own);
/* The first node that was made from the source node of that name, perhaps together with others. NULL: none. */
const ln_node *ln_find_whole(const ln_function *f, const char *name);
/* Of the names that ln_find_tensor knows and of the inputs, the one that is most like `name`, for an error. NULL: none
 * is. */
const char *ln_nearest_name(const ln_signature *signature, const ln_function *f, const char *name);

#endif
