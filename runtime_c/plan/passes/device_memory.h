/* device_memory.h - the memory of a program on devices. */
#ifndef LN_PLAN_PASSES_DEVICE_MEMORY_H
#define LN_PLAN_PASSES_DEVICE_MEMORY_H

#include "plan/graph/memory.h"

/* The resident of the list `first` that has the same constant; NULL: none. */
ln_resident *ln_same_constant(ln_resident *first, const ln_resident *constant);

#endif
