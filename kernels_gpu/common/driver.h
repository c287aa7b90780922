/* driver.h - opens a library of a driver, such as libcuda, at run time. */
#ifndef LG_DRIVER_H
#define LG_DRIVER_H

#include "kernels_gpu/common/environment.h"

#include <stddef.h>

/* A library, and the texts for the case that the machine does not have it. */
typedef struct lg_driver {
    lg_variable variable;     /* the environment variable that names another library to open instead */
    const char *const *names; /* file names, which are tried in this order */
    size_t count;
    const char *absent, *advice; /* "there is no ... on this machine", "install ..." */
} lg_driver;

/* A field of a table of functions, and the symbol whose address it gets. */
typedef struct lg_symbol {
    const char *name;
    void *field;
} lg_symbol;

/* Opens the library that the environment variable names, or else the first library of `names` that exists. The library
 * is never closed, because drivers do not support this. If none can be opened, returns NULL and writes the
 * reason to `why`. */
void *lg_driver_open(const lg_driver *driver, char *why, size_t size);
/* Fills the fields. Returns NULL, or the name of the first symbol that the library lacks. */
const char *lg_driver_fill(void *library, const lg_symbol *symbols, size_t count);

#endif
