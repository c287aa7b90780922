/* train.c - trains a model on the device. Python writes the file: its signature `train` contains gradients and
 * optimizer (docs/on_device_training.md). It has inputs x, f32 [batch, ...], and t, i32 [batch], and the output loss.
 *
 *   cc train.c -Iruntime_c/include build/liblinnet.a -lm -lpthread -o train
 *   ./train digits.lnt train-images-idx3-ubyte train-labels-idx1-ubyte digits.ckpt 1000
 *
 * The data are idx files, like those of MNIST. Trained variables are in the checkpoint, where the next run continues.
 */
#include "linnet.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64 };

static int fail(const linnet_error *error) {
    char text[1024];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "train: %s\n", text);
    return 1;
}

/* Example `row` of an idx file: `size` bytes, after a header of 4 bytes and 4 more for each dimension. */
static int read_row(FILE *file, int dimensions, size_t size, size_t row, unsigned char *to) {
    return !fseek(file, (long)(4 + 4 * (size_t)dimensions + row * size), SEEK_SET) && fread(to, 1, size, file) == size;
}

int main(int argc, char **argv) {
    static const linnet_shape shapes[2] = {{"x", 3, {BATCH, 28, 28}}, {"t", 1, {BATCH}}};
    linnet_model *model;
    linnet_store *store;     /* the variables: weights, and the optimizer's state */
    linnet_plan *plan;       /* the plan knows every byte of a step before the first step */
    linnet_session *session; /* the buffers, so that a step allocates nothing */
    linnet_error error;
    linnet_plan_config config;
    linnet_plan_info info = {.struct_size = sizeof info};
    unsigned char header[8], pixels[784], label;
    FILE *images = argc == 6 ? fopen(argv[2], "rb") : NULL, *labels = argc == 6 ? fopen(argv[3], "rb") : NULL;
    if (!images || !labels || fread(header, 1, 8, images) != 8) {
        fprintf(stderr, "usage: train MODEL.lnt IMAGES.idx LABELS.idx CHECKPOINT STEPS\n");
        return 2;
    }
    const size_t examples = (size_t)header[4] << 24 | (size_t)header[5] << 16 | (size_t)header[6] << 8 | header[7];

    linnet_plan_config_init(&config);
    config.signature = "train";
    config.shapes = shapes; /* the batch, which the file leaves open */
    config.shape_count = 2;
    if (linnet_model_open(argv[1], NULL, &model, &error) || linnet_store_create(model, NULL, &store, &error) ||
        linnet_plan_create(model, &config, &plan, &error) || linnet_session_create(plan, store, NULL, &session, &error))
        return fail(&error);
    linnet_plan_get_info(plan, &info);
    printf("%zu examples, %.2f MB, %d threads\n", examples, (double)info.total / 1e6, (int)info.threads);
    if (linnet_store_load(store, argv[4], &error) && error.code != LINNET_NOT_FOUND) /* no checkpoint: a new start */
        return fail(&error);

    float *x = linnet_session_input(session, 0); /* inputs are filled in place */
    int32_t *t = linnet_session_input(session, 1);
    const float *loss = linnet_session_output(session, 0);
    for (int step = 1, steps = atoi(argv[5]); step <= steps; step++) {
        for (size_t i = 0; i < BATCH; i++) {
            const size_t row = (size_t)rand() % examples; /* linnet-train visits each example once per epoch */
            if (!read_row(images, 3, sizeof pixels, row, pixels) || !read_row(labels, 1, 1, row, &label)) {
                fprintf(stderr, "train: cannot read example %zu\n", row);
                return 1;
            }
            for (size_t k = 0; k < sizeof pixels; k++) x[i * sizeof pixels + k] = (float)pixels[k] / 255;
            t[i] = label;
        }
        if (linnet_run(session, &error)) return fail(&error); /* forward, backward, and the new variables */
        if (step % 100 == 0 || step == steps) printf("step %d: loss %.4f\n", step, (double)*loss);
        /* Even if the power fails, the old checkpoint or the new one is complete. It has only what training changes. */
        if ((step % 500 == 0 || step == steps) && linnet_store_save(store, argv[4], NULL, &error)) return fail(&error);
    }
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_model_free(model);
    return 0;
}
