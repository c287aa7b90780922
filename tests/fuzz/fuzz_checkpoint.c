/* fuzz_checkpoint.c - changes a checkpoint at random and loads it: either all of its variables are loaded, or none.
 * usage: fuzz_checkpoint MODEL.lnt CHECKPOINT COUNT SEED. Writes CHECKPOINT.bad. Build it with sanitizers. */
#define _POSIX_C_SOURCE 200809L

#include "linnet.h"
#include "mutate.h"

#include <unistd.h>

enum { CASE_SECONDS = 60, MOST_BYTES = 1 << 16 };

static void stop(const char *what) {
    printf("fuzz_checkpoint: %s\n", what);
    exit(4);
}

/* Copies all variables, one after the other. */
static size_t values(linnet_model *model, linnet_store *store, unsigned char *to) {
    size_t used = 0;
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_model_get_variable(model, i, &info);
        if (info.bytes > MOST_BYTES - used) stop("the variables are too large for this program");
        if (linnet_store_read(store, info.name, to + used, info.bytes, NULL)) stop("a variable cannot be read");
        used += info.bytes;
    }
    return used;
}

/* Fills the variables with bytes that no checkpoint of the test contains, so that loaded ones are visible. */
static void mark(linnet_model *model, linnet_store *store) {
    static unsigned char marks[MOST_BYTES];
    memset(marks, 0x5a, sizeof marks);
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_model_get_variable(model, i, &info);
        if (linnet_store_write(store, info.name, marks, info.bytes, NULL)) stop("a variable cannot be written");
    }
}

static void write_file(const char *path, const mutant *m) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(m->bytes, 1, m->size, file) != m->size || fclose(file) != 0) stop("the case cannot be written");
}

int main(int argc, char **argv) {
    static unsigned char before[MOST_BYTES], after[MOST_BYTES];
    static long codes[600], taken;
    static mutant m;
    linnet_model *model;
    linnet_store *store;
    linnet_error error;
    char path[4096], text[1024];
    if (argc != 5 || !mutant_load(&m, argv[2]) || linnet_model_open(argv[1], NULL, &model, &error) ||
        linnet_store_create(model, NULL, &store, &error)) {
        fprintf(stderr, "usage: fuzz_checkpoint MODEL.lnt CHECKPOINT COUNT SEED\n");
        return 2;
    }
    m.state = strtoull(argv[4], NULL, 10);
    snprintf(path, sizeof path, "%s.bad", argv[2]);
    for (long i = strtol(argv[3], NULL, 10); i > 0; i--) {
        linnet_status status;
        alarm(CASE_SECONDS);
        mutant_make(&m);
        write_file(path, &m);
        mark(model, store);
        const size_t size = values(model, store, before);
        status = linnet_store_load(store, path, &error);
        values(model, store, after);
        if (status == LINNET_OK) {
            taken++;
        } else {
            linnet_error_format(&error, text, sizeof text);
            if (error.code != (int)status || !error.what[0] || strchr(text, '\n')) stop("a bad record");
            if (memcmp(before, after, size) != 0) stop("a checkpoint that was refused changed a variable");
            codes[status < 600 ? status : 599]++;
        }
        free(m.bytes);
    }
    alarm(0);
    remove(path);
    printf("fuzz_checkpoint: taken %ld", taken);
    for (int code = 1; code < 600; code++)
        if (codes[code]) printf(" %s %ld", linnet_status_name(code), codes[code]);
    printf("\n");
    linnet_store_free(store);
    linnet_model_free(model);
    free(m.file);
    return 0;
}
