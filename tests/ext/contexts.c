/* contexts.c - which functions of instrumented libraries have run since the last question: for `make contexts`. Clang's
 * -fsanitize-coverage=func,inline-8bit-counters,pc-table calls the two functions below when a library is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct module {
    unsigned char *counters;
    const uintptr_t *entries; /* an address and flags for each counter */
    size_t count;
} module;

static module modules[256];
static int n_modules, n_tables;

void __sanitizer_cov_8bit_counters_init(char *begin, char *end);
void __sanitizer_cov_8bit_counters_init(char *begin, char *end) {
    if (begin == end || n_modules == 256) return;
    modules[n_modules].counters = (unsigned char *)begin;
    modules[n_modules++].count = (size_t)(end - begin);
}

void __sanitizer_cov_pcs_init(const uintptr_t *begin, const uintptr_t *end);
void __sanitizer_cov_pcs_init(const uintptr_t *begin, const uintptr_t *end) {
    if (begin != end && n_tables < 256) modules[n_tables++].entries = begin;
}

/* Appends "FILE OFFSET" for each function that ran, and forgets it. */
void contexts_take(const char *path);
void contexts_take(const char *path) {
    FILE *out = fopen(path, "a");
    for (int m = 0; out && m < n_modules && m < n_tables; m++)
        for (size_t i = 0; i < modules[m].count; i++) {
            Dl_info info;
            if (!modules[m].counters[i]) continue;
            modules[m].counters[i] = 0;
            if (dladdr((const void *)modules[m].entries[2 * i], &info))
                fprintf(out, "%s %lx\n", info.dli_fname,
                        (unsigned long)(modules[m].entries[2 * i] - (uintptr_t)info.dli_fbase));
        }
    if (out) fclose(out);
}

/* Programs that a test starts write when they end. */
__attribute__((destructor)) static void at_end(void) {
    const char *path = getenv("LINNET_CONTEXTS");
    if (path) contexts_take(path);
}
