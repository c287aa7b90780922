/* platform.h - what all headers of operating-system services use (platform_*.h). Only base/platform_*.c may include
 * operating-system headers. */
#ifndef LN_PLATFORM_H
#define LN_PLATFORM_H

#include "base/error.h"

#include <stdatomic.h>

typedef struct ln_references {
    atomic_int count;
} ln_references;

enum { LN_MOST_PATH = 4096 };

#endif
