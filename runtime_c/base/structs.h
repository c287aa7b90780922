/* structs.h - copies public structs from and to callers that were compiled with another version of the headers. The
 * caller sets struct_size to the size that it knows. The fields that both sides know are copied, and the others become
 * 0. The top of linnet.h states this rule. */
#ifndef LN_STRUCTS_H
#define LN_STRUCTS_H

#include "base/types.h"
#include "linnet_device.h"
#include "linnet_ext.h"

/* The size of a struct up to and including `last`, which was its last field in the first version. */
#define LN_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Copies the caller's struct into ours, for example a config. Errors: INVALID_ARGUMENT (struct_size is not a size). */
#define LN_TAKE(type, last, ours, theirs, error)                                                                       \
    linnet_struct_take(ours, sizeof(type), theirs, LN_UP_TO(type, last), #type, error)
/* Copies our struct into the caller's, for example an info. Returns INVALID_ARGUMENT if struct_size is not a size. */
#define LN_GIVE(type, last, ours, theirs)                                                                              \
    linnet_struct_give(ours, sizeof(type), theirs, LN_UP_TO(type, last), #type, NULL)

/* Fills the caller's description of a tensor. `name` is not copied, so it must outlive *out. Errors: INVALID_ARGUMENT.
 */
linnet_status ln_tensor_info(const ln_tensor *t, const char *name, linnet_tensor_info *out);

#endif
