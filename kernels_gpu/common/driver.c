/* driver.c - opens a library of the driver at run time. */
#include "kernels_gpu/common/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *reason_of_loader(void) {
    const char *text = dlerror();
    return text != NULL ? text : "not found";
}

void *lg_driver_open(const lg_driver *driver, char *why, size_t size) {
    const char *chosen = lg_variable_value(driver->variable);
    if (chosen != NULL) {
        void *library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            snprintf(why, size, "%s names a library that cannot be opened (%s); correct or unset it",
                     lg_variable_name(driver->variable), reason_of_loader());
        return library;
    }
    for (size_t i = 0; i < driver->count; ++i) {
        void *library = dlopen(driver->names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) return library;
        if (i == 0) snprintf(why, size, "%s (%.300s); %s", driver->absent, reason_of_loader(), driver->advice);
    }
    return NULL;
}

const char *lg_driver_fill(void *library, const lg_symbol *symbols, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) return symbols[i].name;
        memcpy(symbols[i].field, &symbol, sizeof symbol);
    }
    return NULL;
}
