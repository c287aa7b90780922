/* save_forever.c - saves new values of all variables to one checkpoint again and again, until it is killed. usage:
 * save_forever MODEL.lnt CHECKPOINT [COUNT]. In each save all elements are the same number. It counts up from the
 * number in the checkpoint: 1, 2, 3, ... The number is printed when its save has returned. COUNT: the program ends
 * after this many saves. */
#include "linnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const linnet_error *error) {
    char text[1024];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return 1;
}

/* Sets all f32 variables to `value`, or only reads them if *value is 0. Returns false if the old values were not all
 * the same number. */
static int all(linnet_model *model, linnet_store *store, float *value) {
    float first = -1;
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        float *data;
        linnet_model_get_variable(model, i, &info);
        if (!(data = malloc(info.bytes))) return 0;
        linnet_store_read(store, info.name, data, info.bytes, NULL);
        for (size_t k = 0; k < info.bytes / sizeof *data; k++) {
            if (first < 0) first = data[k];
            if (data[k] != first && *value == 0) return 0;
            data[k] = *value;
        }
        if (*value != 0) linnet_store_write(store, info.name, data, info.bytes, NULL);
        free(data);
    }
    if (*value == 0) *value = first;
    return 1;
}

int main(int argc, char **argv) {
    linnet_model *model;
    linnet_store *store;
    linnet_error error;
    float value = 0;
    if (argc < 3) return 2;
    if (linnet_model_open(argv[1], NULL, &model, &error) || linnet_store_create(model, NULL, &store, &error))
        return fail(&error);
    if (linnet_store_load(store, argv[2], &error)) {
        if (error.code != LINNET_NOT_FOUND) return fail(&error);
    } else if (!all(model, store, &value)) {
        fprintf(stderr, "variables of two checkpoints in one\n");
        return 3;
    }
    for (long left = argc > 3 ? atol(argv[3]) : 1000000000; left > 0; left--) {
        value += 1;
        all(model, store, &value);
        if (linnet_store_save(store, argv[2], NULL, &error)) return fail(&error);
        printf("%d\n", (int)value);
        fflush(stdout);
    }
    linnet_store_free(store);
    linnet_model_free(model);
    return 0;
}
