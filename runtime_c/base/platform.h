/* platform.h - definitions that all headers of operating-system services (platform_*.h) use. Only base/platform_*.c may
 * include headers of the operating system. */
#ifndef LN_PLATFORM_H
#define LN_PLATFORM_H

#include "base/error.h"

#include <stdatomic.h>

/* The number of owners of an object. The owner that lowers the count to 0 frees the object. */
typedef struct ln_references {
    atomic_int count;
} ln_references;

enum { LN_MOST_PATH = 4096 }; /* most bytes of a path, with its NUL */

#endif
