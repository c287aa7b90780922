/* faulty_device.c - a device with deliberate faults, for tests of `linnet check-device`. It runs matmul of two f32
 * matrices and requantized matmul of i8 (float_rne, per tensor, without zero points of the weights), each wrong in one
 * way that its option chooses: fault=last (the last element, if the number of elements is odd), fault=rounding
 * (integers are rounded down), fault=again (every other run has other bits), fault=call (`run` fails if a matrix has 5
 * rows). Without an option it is right. */
#include "linnet_device.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { NONE, LAST, ROUNDING, AGAIN, CALL };
static const char *const faults[] = {"", "fault=last", "fault=rounding", "fault=again", "fault=call"};

static const linnet_host *host;
static int fault, runs;

static char *at(const linnet_span *span) { return (char *)(uintptr_t)span->buffer + span->offset; }

static int flag(const linnet_step *step, const char *name) {
    int count = 0;
    const int64_t *value = host->step_integers(step, name, &count);
    return value != NULL && count > 0 && *value != 0;
}

static linnet_device_tensor operand(const linnet_step *step, int i) {
    linnet_device_tensor t;
    linnet_device_tensor_init(&t);
    if (host->step_get_input(step, i, &t) != LINNET_OK) t.dtype = LINNET_NONE;
    return t;
}

static double cost(void *context, const linnet_step *step) {
    (void)context;
    if (strcmp(host->step_op(step), "matmul") != 0) return -1;
    const linnet_device_tensor a = operand(step, 0), b = operand(step, 1);
    if (a.rank != 2 || b.rank != 2 || flag(step, "transpose_a") || flag(step, "transpose_b")) return -1;
    if (a.dtype == LINNET_F32 && b.dtype == LINNET_F32) return host->step_input_count(step) == 2 ? 0 : -1;
    linnet_requant info;
    linnet_requant_init(&info);
    if (a.dtype != LINNET_I8 || b.dtype != LINNET_I8 || host->step_get_requant(step, &info) != LINNET_OK) return -1;
    linnet_device_tensor y;
    linnet_device_tensor_init(&y);
    if (host->step_get_output(step, 0, &y) != LINNET_OK || y.dtype != LINNET_I8) return -1;
    return host->step_input_count(step) == 3 && info.table == LINNET_REQUANT_SCALE && operand(step, 2).rank == 1 ? 0
                                                                                                                 : -1;
}

static int limits(void *context, linnet_device_limits *out) {
    (void)context;
    out->alignment = 64;
    return 0;
}

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    (void)context;
    void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    *buffer = (uintptr_t)p;
    return p == NULL;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    (void)context, (void)bytes;
    free((void *)(uintptr_t)buffer);
}

static int open_one(void *context, linnet_handle *object) {
    (void)context;
    *object = 1;
    return 0;
}

static void close_one(void *context, linnet_handle object) { (void)context, (void)object; }

static int nothing(void *context, linnet_handle object) {
    (void)context, (void)object;
    return 0;
}

static int record(void *context, linnet_handle queue, linnet_handle event) {
    (void)context, (void)queue, (void)event;
    return 0;
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    (void)context, (void)queue;
    memcpy(at(to), from, (size_t)tensor->bytes);
    return 0;
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    (void)context, (void)queue;
    memcpy(to, at(from), (size_t)tensor->bytes);
    return 0;
}

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    (void)context, (void)queue, (void)of;
    memcpy(at(to), at(from), (size_t)from->bytes);
    return 0;
}

static int prepare(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *state) {
    (void)context, (void)queue, (void)work;
    *state = 1;
    return 0;
}

static void floats(const linnet_work *work, int64_t m, int64_t k, int64_t n) {
    const float *a = (const float *)at(&work->inputs[0][0]), *b = (const float *)at(&work->inputs[0][1]);
    float *y = (float *)at(&work->outputs[0][0]);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
            y[i * n + j] = sum;
        }
    if (fault == LAST && m * n % 2 == 1) y[m * n - 1] += 0.5f;
    if (fault == AGAIN) y[0] *= 1 + (float)(runs++ % 2) * 1e-6f;
}

static int integers(const linnet_work *work, int64_t m, int64_t k, int64_t n) {
    const int8_t *a = (const int8_t *)at(&work->inputs[0][0]), *b = (const int8_t *)at(&work->inputs[0][1]);
    const int32_t *bias = (const int32_t *)at(&work->inputs[0][2]);
    int8_t *y = (int8_t *)at(&work->outputs[0][0]);
    float *scale = malloc((size_t)n * sizeof *scale);
    int32_t *zeros = malloc((size_t)n * sizeof *zeros);
    linnet_requant info;
    linnet_requant_init(&info);
    info.scale = scale, info.w_zero = zeros, info.capacity = n;
    const int failed = scale == NULL || zeros == NULL || host->step_get_requant(work->steps[0], &info) != LINNET_OK;
    for (int64_t i = 0; !failed && i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            int32_t sum = bias[j];
            for (int64_t l = 0; l < k; ++l) sum += (a[i * k + l] - info.x_zero) * (b[l * n + j] - zeros[j]);
            const float real = (float)sum * scale[j];
            float whole = fault == ROUNDING ? floorf(real) : rintf(real);
            whole += (float)info.y_zero;
            y[i * n + j] = (int8_t)(whole < -128 ? -128 : whole > 127 ? 127 : whole);
        }
    free(scale);
    free(zeros);
    return failed;
}

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle state) {
    (void)context, (void)queue, (void)state;
    const linnet_device_tensor a = operand(work->steps[0], 0), b = operand(work->steps[0], 1);
    if (fault == CALL && a.shape[0] == 5) return 7;
    if (a.dtype == LINNET_I8) return integers(work, a.shape[0], a.shape[1], b.shape[1]);
    floats(work, a.shape[0], a.shape[1], b.shape[1]);
    return 0;
}

static const linnet_device faulty = {
    .struct_size = sizeof(linnet_device),
    .version = LINNET_DEVICE_VERSION,
    .name = "faulty",
    .limits = limits,
    .cost = cost,
    .allocate = allocate,
    .release = release,
    .open = open_one,
    .close = close_one,
    .finish = nothing,
    .create_event = open_one,
    .free_event = close_one,
    .record = record,
    .wait = nothing,
    .upload = upload,
    .download = download,
    .copy = copy,
    .prepare = prepare,
    .unprepare = close_one,
    .run = run,
};

EXPORT int linnet_extension_devices(const linnet_host *functions, const char *options, linnet_device_list *list) {
    static const linnet_device *const devices[] = {&faulty};
    host = functions;
    for (fault = CALL; fault > NONE && strcmp(options, faults[fault]) != 0;) --fault;
    list->devices = devices;
    list->count = 1;
    return 0;
}
