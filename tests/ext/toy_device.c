/* toy_device.c - a library with one device, on linnet's headers alone: f32 matmul of two matrices. It calls linnet
 * through the table that it gets, so it links nothing: cc -shared -fPIC -I .../include -o liblinnet_toy.so toy_device.c
 * It runs each step while it is submitted. Its buffers are tagged addresses, so that a runtime that reads through them
 * faults, and its calls are counted. tests/ext/mock_device.c is an asynchronous device. */
#include "linnet_device.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Flipping the sign bit of the address makes it non-canonical on x86-64 and unmapped on AArch64. */
#define TAG ((uint64_t)1 << 63)
#define EXPORT __attribute__((visibility("default")))

static const linnet_host *host; /* linnet's functions */
static int runs, uploads, downloads, live, prepared;
static uint64_t live_bytes;

static char *real(const linnet_span *span) { return (char *)(uintptr_t)(span->buffer ^ TAG) + span->offset; }

static int limits(void *context, linnet_device_limits *out) {
    (void)context;
    out->alignment = 128;
    return 0;
}

/* Two f32 matrices, not transposed. */
static double cost(void *context, const linnet_step *step) {
    (void)context;
    linnet_device_tensor a, b;
    linnet_device_tensor_init(&a);
    linnet_device_tensor_init(&b);
    if (strcmp(host->step_op(step), "matmul") != 0 || host->step_input_count(step) != 2) return -1;
    if (host->step_get_input(step, 0, &a) != LINNET_OK || host->step_get_input(step, 1, &b) != LINNET_OK) return -1;
    int count = 0;
    const int64_t *ta = host->step_integers(step, "transpose_a", &count),
                  *tb = host->step_integers(step, "transpose_b", &count);
    return a.dtype == LINNET_F32 && b.dtype == LINNET_F32 && a.rank == 2 && b.rank == 2 && ta && tb && !*ta && !*tb
               ? 0
               : -1;
}

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    (void)context;
    void *p = aligned_alloc(128, (size_t)(bytes + 127) / 128 * 128);
    if (p == NULL) return 1;
    ++live;
    live_bytes += bytes;
    memset(p, 0x5A, (size_t)bytes);
    *buffer = (uintptr_t)p ^ TAG;
    return 0;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    (void)context;
    --live;
    live_bytes -= bytes;
    free((void *)(uintptr_t)(buffer ^ TAG));
}

static int open_queue(void *context, linnet_handle *queue) {
    (void)context;
    *queue = 1;
    return 0;
}

static void close_queue(void *context, linnet_handle queue) {
    (void)context;
    (void)queue;
}

/* All work has ended when its function returns, so there is nothing to wait for. */
static int nothing(void *context, linnet_handle object) {
    (void)context;
    (void)object;
    return 0;
}

static int record(void *context, linnet_handle queue, linnet_handle event) {
    (void)context;
    (void)queue;
    (void)event;
    return 0;
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    (void)context;
    (void)queue;
    ++uploads;
    memcpy(real(to), from, (size_t)tensor->bytes);
    return 0;
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    (void)context;
    (void)queue;
    ++downloads;
    memcpy(to, real(from), (size_t)tensor->bytes);
    return 0;
}

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    (void)context;
    (void)queue;
    (void)of;
    memcpy(real(to), real(from), (size_t)from->bytes);
    return 0;
}

static int prepare(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *state) {
    (void)context;
    (void)queue;
    linnet_device_tensor a, b;
    linnet_device_tensor_init(&a);
    linnet_device_tensor_init(&b);
    int64_t *sizes = malloc(3 * sizeof *sizes);
    if (sizes == NULL || host->step_get_input(work->steps[0], 0, &a) != LINNET_OK ||
        host->step_get_input(work->steps[0], 1, &b) != LINNET_OK) {
        free(sizes);
        return 1;
    }
    sizes[0] = a.shape[0];
    sizes[1] = a.shape[1];
    sizes[2] = b.shape[1];
    *state = (uintptr_t)sizes;
    ++prepared;
    return 0;
}

static void unprepare(void *context, linnet_handle state) {
    (void)context;
    --prepared;
    free((void *)(uintptr_t)state);
}

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle state) {
    (void)context;
    (void)queue;
    const int64_t *sizes = (const int64_t *)(uintptr_t)state, m = sizes[0], k = sizes[1], n = sizes[2];
    const float *a = (const float *)real(&work->inputs[0][0]), *b = (const float *)real(&work->inputs[0][1]);
    float *y = (float *)real(&work->outputs[0][0]);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
            y[i * n + j] = sum;
        }
    ++runs;
    return 0;
}

static int about(void *context, linnet_device_about *out) {
    (void)context;
    out->kind = LINNET_DEVICE_CPU;
    out->hardware = "the processor that runs linnet";
    out->driver = "toy 1.0";
    out->features = "f32";
    return 0;
}

static const linnet_device toy = {
    .struct_size = sizeof(linnet_device),
    .version = LINNET_DEVICE_VERSION,
    .name = "toy",
    .limits = limits,
    .cost = cost,
    .allocate = allocate,
    .release = release,
    .open = open_queue,
    .close = close_queue,
    .finish = nothing,
    .create_event = open_queue,
    .free_event = close_queue,
    .record = record,
    .wait = nothing,
    .upload = upload,
    .download = download,
    .copy = copy,
    .prepare = prepare,
    .unprepare = unprepare,
    .run = run,
    .about = about,
};

EXPORT int linnet_extension_devices(const linnet_host *functions, const char *options, linnet_device_list *list) {
    static const linnet_device *const devices[] = {&toy};
    static _Thread_local char text[96]; /* says which option is not known */
    if (options[0] != 0) {
        snprintf(text, sizeof text, "the toy has no option '%.*s': leave it out", (int)strcspn(options, "=,"), options);
        list->missing = text;
        return 1;
    }
    host = functions;
    list->devices = devices;
    list->count = 1;
    return 0;
}

/* What happened so far: 0 runs, 1 uploads, 2 downloads, 3 buffers alive, 4 steps prepared, 5 bytes of the buffers. */
EXPORT int toy_count(int what);
int toy_count(int what) {
    const int counts[] = {runs, uploads, downloads, live, prepared, (int)live_bytes};
    return what >= 0 && what < 6 ? counts[what] : -1;
}
