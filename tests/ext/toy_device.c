/* toy_device.c - a device in a library of its own, on the public extension header alone: f32 matmul of two matrices.
 * Its pointers are tagged, so that a runtime that reads through them faults, and its runs are counted. */
#include "linnet_ext.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Flipping the sign bit of the address makes it non-canonical on x86-64 and unmapped on AArch64. */
#define TAG ((uintptr_t)1 << (8 * sizeof(uintptr_t) - 1))
#define EXPORT __attribute__((visibility("default")))

static int runs, uploads, downloads, live, prepared;

static void *real(const void *tagged) { return (void *)((uintptr_t)tagged ^ TAG); }

static int supports(void *context, const linnet_step *step) {
    (void)context;
    if (strcmp(linnet_step_op(step), "matmul") != 0 || linnet_step_input_count(step) != 2) return 0;
    linnet_tensor_info a = {.struct_size = sizeof a}, b = a;
    if (linnet_step_input(step, 0, &a) != LINNET_OK || linnet_step_input(step, 1, &b) != LINNET_OK) return 0;
    int count = 0;
    const int64_t *ta = linnet_step_integers(step, "transpose_a", &count),
                  *tb = linnet_step_integers(step, "transpose_b", &count);
    return a.dtype == LINNET_F32 && b.dtype == LINNET_F32 && a.rank == 2 && b.rank == 2 && ta && tb && !*ta && !*tb;
}

static void *allocate(void *context, size_t size) {
    (void)context;
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (p == NULL) return NULL;
    ++live;
    memset(p, 0x5A, size);
    return real(p);
}

static void release(void *context, void *buffer, size_t size) {
    (void)context;
    (void)size;
    --live;
    free(real(buffer));
}

static int upload(void *context, void *to, const void *from, size_t size) {
    (void)context;
    ++uploads;
    memcpy(real(to), from, size);
    return 0;
}

static int download(void *context, void *to, const void *from, size_t size) {
    (void)context;
    ++downloads;
    memcpy(to, real(from), size);
    return 0;
}

static int prepare(void *context, const linnet_step *step, void **state) {
    (void)context;
    linnet_tensor_info a = {.struct_size = sizeof a}, b = a;
    int64_t *sizes = malloc(3 * sizeof *sizes);
    if (sizes == NULL || linnet_step_input(step, 0, &a) != LINNET_OK || linnet_step_input(step, 1, &b) != LINNET_OK) {
        free(sizes);
        return 1;
    }
    sizes[0] = a.shape[0];
    sizes[1] = a.shape[1];
    sizes[2] = b.shape[1];
    *state = sizes;
    ++prepared;
    return 0;
}

static void unprepare(void *context, void *state) {
    (void)context;
    --prepared;
    free(state);
}

static int run(void *context, const linnet_step *step, void *state, const void *const *inputs, void *const *outputs) {
    (void)context;
    (void)step;
    const int64_t *sizes = state, m = sizes[0], k = sizes[1], n = sizes[2];
    const float *a = real(inputs[0]), *b = real(inputs[1]);
    float *y = real(outputs[0]);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
            y[i * n + j] = sum;
        }
    ++runs;
    return 0;
}

static int synchronise(void *context) {
    (void)context;
    return 0;
}

static const linnet_device device = {
    .struct_size = sizeof(linnet_device),
    .version = LINNET_EXT_VERSION,
    .name = "toy",
    .supports = supports,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .prepare = prepare,
    .unprepare = unprepare,
    .run = run,
    .synchronise = synchronise,
};

EXPORT const linnet_device *linnet_extension_device(void);
const linnet_device *linnet_extension_device(void) { return &device; }

/* What happened so far: 0 runs, 1 uploads, 2 downloads, 3 buffers alive, 4 steps prepared. */
EXPORT int toy_count(int what);
int toy_count(int what) {
    const int counts[] = {runs, uploads, downloads, live, prepared};
    return what >= 0 && what < 5 ? counts[what] : -1;
}
