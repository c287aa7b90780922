/* mock_driver.c - runs one model on the CPU and with a half of its nodes on the mock device, and compares the results:
 * for sanitizers, which see the device's thread and the library without Python. usage: mock_driver MODEL SIGNATURE RUNS
 */
#define _POSIX_C_SOURCE 200809L
#include "mock_queue.h"

#include "linnet_ext.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t mock_number(const char *name, int set, int64_t value);

static void check(linnet_status status, const linnet_error *error) {
    char text[1024];
    if (status == LINNET_OK) return;
    linnet_error_format(error, text, sizeof text);
    printf("mock_driver: %s\n", text);
    exit(1);
}

static void fill(linnet_session *session, const linnet_plan *plan) {
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info;
        linnet_tensor_info_init(&info);
        check(linnet_plan_get_input(plan, i, &info), NULL);
        unsigned char *data = linnet_session_input(session, i);
        memset(data, 0, info.bytes);
        for (size_t k = 0; info.dtype == LINNET_F32 && k < info.bytes / 4; k++) {
            const float value = (float)((k * 2654435761u >> 7) % 2001) / 1000 - 1;
            memcpy(data + 4 * k, &value, 4);
        }
    }
}

static uint64_t room_of(const linnet_tensor_info *info) { return info->bytes + 1024; } /* more than the padding */

/* Gives the input a buffer of the device, with its value. Returns the buffer. */
static linnet_handle stay(linnet_session *session, const linnet_device *device, int i, const linnet_tensor_info *info) {
    linnet_error error;
    linnet_device_tensor tensor;
    linnet_span span = {.offset = 256, .bytes = info->bytes};
    linnet_handle queue;
    linnet_device_tensor_init(&tensor);
    tensor.dtype = LINNET_U8;
    tensor.rank = 1;
    tensor.shape[0] = (int64_t)info->bytes;
    tensor.strides[0] = 1;
    tensor.bytes = info->bytes;
    if (device->allocate(device->context, room_of(info), &span.buffer) || device->open(device->context, &queue))
        exit(1);
    if (device->upload(device->context, queue, &tensor, &span, linnet_session_input(session, i))) exit(1);
    if (device->finish(device->context, queue)) exit(1);
    device->close(device->context, queue);
    check(linnet_session_bind_device(session, 0, i, device, &span, &error), &error);
    return span.buffer;
}

/* Runs and appends all outputs to a new block. */
static unsigned char *results(linnet_model *model, const char *signature, int runs, bool mocked, size_t *size) {
    linnet_error error;
    linnet_plan_config config;
    linnet_store *store = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    const linnet_device *device = linnet_extension_device();
    unsigned char *all = NULL;
    linnet_plan_config_init(&config);
    config.signature = signature;
    config.threads = 2;
    config.devices = &device;
    config.device_count = mocked;
    *size = 0;
    check(linnet_store_create(model, NULL, &store, &error), &error);
    check(linnet_plan_create(model, &config, &plan, &error), &error);
    check(linnet_session_create(plan, store, NULL, &session, &error), &error);
    linnet_tensor_info first;
    linnet_handle kept = 0;
    linnet_tensor_info_init(&first);
    for (int r = 0; r < runs; r++) {
        fill(session, plan);
        if (mocked && r == 1 && linnet_plan_get_input(plan, 0, &first) == LINNET_OK && first.bytes > 0)
            kept = stay(session, device, 0, &first);
        if (r % 2 == 0) {
            check(linnet_run(session, &error), &error);
        } else {
            check(linnet_session_submit(session, &error), &error);
            check(linnet_session_submit(session, &error), &error);
            check(linnet_session_wait(session, NULL, &error), &error);
        }
        for (int i = 0; i < linnet_plan_output_count(plan); i++) {
            linnet_tensor_info info;
            linnet_tensor_info_init(&info);
            check(linnet_plan_get_output(plan, i, &info), NULL);
            all = realloc(all, *size + info.bytes + 1);
            memcpy(all + *size, linnet_session_output(session, i), info.bytes);
            *size += info.bytes;
        }
    }
    linnet_session_free(session);
    if (kept != 0) device->release(device->context, kept, room_of(&first));
    linnet_plan_free(plan);
    linnet_store_free(store);
    return all;
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {"claims",  "layouts", "epilogues", "shared", "visible",
                                        "refuses", "late",    "in_file",   "lends",  "pinned"};
    linnet_error error;
    linnet_model *model = NULL;
    size_t size, other;
    if (argc != 4) return 2;
    check(linnet_model_open(argv[1], NULL, &model, &error), &error);
    mock_number("share", 1, 8);
    mock_number("delay", 1, 100);
    unsigned char *alone = results(model, argv[2], atoi(argv[3]), false, &size);
    for (int kind = 0; kind < 1 << 10; kind += 91) {
        mock_number("seed", 1, kind);
        for (int k = 0; k < 10; k++) mock_number(kinds[k], 1, kind >> k & 1);
        linnet_extension_device(); /* the two devices come in turn: always the first */
        unsigned char *got = results(model, argv[2], atoi(argv[3]), true, &other);
        if (other != size) return printf("mock_driver: %zu bytes of results, not %zu\n", other, size), 1;
        for (size_t i = 0; i + 4 <= size; i += 4) {
            float a, b;
            memcpy(&a, alone + i, 4);
            memcpy(&b, got + i, 4);
            if (memcmp(&a, &b, 4) != 0 && !(fabsf(a - b) <= 1e-3f + 1e-2f * fabsf(a)))
                return printf("mock_driver: kind %d: %g instead of %g at byte %zu\n", kind, (double)b, (double)a, i), 1;
        }
        free(got);
    }
    linnet_model_free(model);
    free(alone);
    if (mock_number("live", 0, 0) != 0 || mock_number("misuse", 0, 0) != 0)
        return printf("mock_driver: %d objects are left, %d misuses\n", (int)mock_number("live", 0, 0),
                      (int)mock_number("misuse", 0, 0)),
               1;
    printf("mock_driver: %zu bytes agree, %d claims ran\n", size, (int)mock_number("runs", 0, 0));
    return 0;
}
