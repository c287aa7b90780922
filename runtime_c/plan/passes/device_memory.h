/* device_memory.h - the memory of a program on devices. */
#ifndef LN_PLAN_PASSES_DEVICE_MEMORY_H
#define LN_PLAN_PASSES_DEVICE_MEMORY_H

#include "plan/graph/memory.h"

/* Returns the entry of the list that begins with `first` (which may be NULL) that holds the same constant; NULL: there
 * is none. */
ln_device_weight *ln_same_constant(ln_device_weight *first, const ln_device_weight *constant);

#endif
