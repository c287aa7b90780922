/* worker.c - trains a model together with other machines: pulls parameters from a server, computes gradients on its own
 * data, pushes them. linnet.sync.signatures (Python) makes the file: `grad` has inputs x, f32 [batch, 28, 28], and t,
 * i32 [batch], the output loss, and the gradients. `linnet parameter-server digits.lnt --workers 2` is the server.
 *
 *   cc worker.c -Iruntime_c/include build/liblinnet_sync.a build/liblinnet.a -lm -lpthread -ldl -o worker
 *   ./worker digits.lnt 127.0.0.1:4000 0 train-images-idx3-ubyte train-labels-idx1-ubyte 1000 [cuda:0]
 *
 * 0 is this worker's number: a worker that is started again with it after a crash continues where it was. cuda:0 is a
 * device that computes the gradients. */
#include "linnet_device.h"
#include "linnet_sync.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64 };

static int fail(const linnet_error *error) {
    char text[1024];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "worker: %s\n", text);
    return 1;
}

/* Example `row` of an idx file: `size` bytes, after a header of 4 bytes and 4 more for each dimension. */
static int read_row(FILE *file, int dimensions, size_t size, size_t row, unsigned char *to) {
    return !fseek(file, (long)(4 + 4 * (size_t)dimensions + row * size), SEEK_SET) && fread(to, 1, size, file) == size;
}

int main(int argc, char **argv) {
    static const linnet_shape shapes[2] = {{"x", 3, {BATCH, 28, 28}}, {"t", 1, {BATCH}}};
    linnet_model *model;
    linnet_store *store;
    linnet_plan *plan;
    linnet_session *session;
    linnet_worker *worker;
    const linnet_device *device = NULL;
    linnet_error error;
    linnet_plan_config config;
    linnet_worker_config with;
    linnet_worker_info info;
    unsigned char header[8], pixels[784], label;
    FILE *images = argc >= 7 ? fopen(argv[4], "rb") : NULL, *labels = argc >= 7 ? fopen(argv[5], "rb") : NULL;
    if (!images || !labels || fread(header, 1, 8, images) != 8)
        return fprintf(stderr, "usage: worker MODEL.lnt SERVER NUMBER IMAGES.idx LABELS.idx STEPS [DEVICE]\n"), 2;
    const size_t examples = (size_t)header[4] << 24 | (size_t)header[5] << 16 | (size_t)header[6] << 8 | header[7];
    const char *const servers[1] = {argv[2]};

    linnet_plan_config_init(&config);
    config.signature = "grad";
    config.shapes = shapes; /* the batch, which the file leaves open */
    config.shape_count = 2;
    if (argc > 7 && linnet_device_open(argv[7], &device, &error)) return fail(&error);
    config.devices = &device;
    config.device_count = device != NULL;
    linnet_worker_info_init(&info);
    linnet_worker_config_init(&with);
    with.worker = atoi(argv[3]);
    if (linnet_model_open(argv[1], NULL, &model, &error) || linnet_store_create(model, NULL, &store, &error) ||
        linnet_plan_create(model, &config, &plan, &error) ||
        linnet_session_create(plan, store, NULL, &session, &error) ||
        linnet_worker_create(model, store, servers, 1, &with, &worker, &error))
        return fail(&error);

    float *x = linnet_session_input(session, 0);
    int32_t *t = linnet_session_input(session, 1);
    const float *loss = linnet_session_output(session, 0);
    const uint64_t steps = strtoull(argv[6], NULL, 10);
    while (!linnet_worker_get_info(worker, &info) && info.step < steps) {
        for (size_t i = 0; i < BATCH; i++) { /* rows differ between workers, and are the same after a restart */
            const size_t row = (size_t)((info.step * 7919 + i) * 31 + (size_t)with.worker * 17) % examples;
            if (!read_row(images, 3, sizeof pixels, row, pixels) || !read_row(labels, 1, 1, row, &label)) return 1;
            for (size_t k = 0; k < sizeof pixels; k++) x[i * sizeof pixels + k] = (float)pixels[k] / 255;
            t[i] = label;
        }
        if (linnet_worker_step(worker, session, NULL, BATCH, &error)) return fail(&error); /* pull, run, push */
        if ((info.step + 1) % 100 == 0 || info.step + 1 == steps)
            printf("step %llu: loss %.4f\n", (unsigned long long)info.step + 1, (double)*loss);
    }
    linnet_worker_free(worker); /* leaves the job: no step waits for this worker any more */
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_model_free(model);
    return 0;
}
