/* describe.h - finds values and nodes of a model by name, for questions of callers. */
#ifndef LN_DESCRIBE_H
#define LN_DESCRIBE_H

#include "model/graph.h"

/* Returns the index of the value of this name in `f`; -1 if there is none. The name may be that of an output of the
 * signature, of any value of the function, or of a source node (a node of the model before its conversion) whose result
 * is the first output of one of the function's nodes. *own receives the model's copy of the name. */
int32_t ln_find_tensor(const ln_signature *signature, const ln_function *f, const char *name, const char **own);
/* Returns the first node that was made from the source node of this name, alone or together with other source nodes.
 * Returns NULL if there is no such node. */
const ln_node *ln_find_whole(const ln_function *f, const char *name);
/* Returns the name that is most like `name`, for the text of an error. It chooses among the names that ln_find_tensor
 * finds and the names of the inputs. Returns NULL if no name is similar. */
const char *ln_nearest_name(const ln_signature *signature, const ln_function *f, const char *name);

#endif
