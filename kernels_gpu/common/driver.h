/* driver.h - opens a library of the driver at run time. */
#ifndef LG_DRIVER_H
#define LG_DRIVER_H

#include "kernels_gpu/common/environment.h"

#include <stddef.h>

/* A library, and what to say if it is not there. */
typedef struct lg_driver {
    lg_variable variable; /* names another library */
    const char *const *names;
    size_t count;
    const char *absent, *advice; /* "there is no ... on this machine", "install ..." */
} lg_driver;

/* Where a field of a table is, and the symbol that fills it. */
typedef struct lg_symbol {
    const char *name;
    void *field;
} lg_symbol;

/* Opens the library that the environment variable names, or the first of the names that there is. It is never closed,
 * because drivers do not survive it. NULL, with the reason in `why`. */
void *lg_driver_open(const lg_driver *driver, char *why, size_t size);
/* Fills the fields. Returns the symbol that the library lacks, or NULL. */
const char *lg_driver_fill(void *library, const lg_symbol *symbols, size_t count);

#endif
