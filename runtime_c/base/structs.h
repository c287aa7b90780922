/* structs.h - takes and gives public structs of other versions of the headers: struct_size is a minimum.
 * The fields that both sides know are copied, and the rest is 0. The rule is stated at the top of linnet.h. */
#ifndef LN_STRUCTS_H
#define LN_STRUCTS_H

#include "base/types.h"
#include "linnet_device.h"
#include "linnet_ext.h"

/* The size of a struct up to and including `last`, which was its last field in the first version. */
#define LN_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Copies the caller's struct into ours. Errors: INVALID_ARGUMENT. */
#define LN_TAKE(type, last, ours, theirs, error)                                                                       \
    linnet_struct_take(ours, sizeof(type), theirs, LN_UP_TO(type, last), #type, error)
/* Copies our struct into the caller's. Errors: INVALID_ARGUMENT. */
#define LN_GIVE(type, last, ours, theirs)                                                                              \
    linnet_struct_give(ours, sizeof(type), theirs, LN_UP_TO(type, last), #type, NULL)

/* The description of a tensor in the public API, for a caller of any version. `name` is stored as a
 * pointer, not copied. Errors: INVALID_ARGUMENT. */
linnet_status ln_tensor_info(const ln_tensor *t, const char *name, linnet_tensor_info *out);

#endif
