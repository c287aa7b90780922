/* fuzz_map.c - runs batches of random map programs that tests/maps wrote. Compares the reference with NumPy's results,
 * and every ISA level and two threads with the reference, bit by bit. usage: fuzz_map FILE.lnt...; FILE.lnt.bin must be
 * beside each file. */
#define _POSIX_C_SOURCE 200809L

#include "linnet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct batch {
    linnet_model *model;
    unsigned char *bytes; /* feeds, then expected results */
    size_t size;
    unsigned char **reference; /* results of the reference, one per output */
    int outputs;
} batch;

static void fail(const char *path, const char *what, const linnet_error *error) {
    char text[1024] = "";
    if (error) linnet_error_format(error, text, sizeof text);
    printf("fuzz_map: %s: %s %s\n", path, what, text);
    exit(1);
}

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        bytes = aligned_alloc(64, (*size + 64) / 64 * 64);
        if (bytes && fread(bytes, 1, *size, file) != *size) bytes = NULL;
    }
    if (!bytes) fail(path, "cannot be read", NULL);
    fclose(file);
    return bytes;
}

static float from_half(uint16_t h) { /* exact, also for infinity and NaN */
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float v = exponent == 31  ? (fraction ? NAN : INFINITY)
              : exponent == 0 ? ldexpf((float)fraction, -24)
                              : ldexpf((float)(fraction + 1024), exponent - 25);
    return h >> 15 ? -v : v;
}

static double value_of(int dtype, const unsigned char *p, size_t i) {
    uint16_t half;
    uint32_t word;
    float f;
    double d;
    switch (dtype) {
    case LINNET_F32: memcpy(&f, p + i * 4, 4); return (double)f;
    case LINNET_F64: memcpy(&d, p + i * 8, 8); return d;
    case LINNET_F16: memcpy(&half, p + i * 2, 2); return (double)from_half(half);
    case LINNET_BF16:
        memcpy(&half, p + i * 2, 2);
        word = (uint32_t)half << 16;
        memcpy(&f, &word, 4);
        return (double)f;
    default: return 0.0;
    }
}

/* Tells whether element i is as expected: the same bits, or both NaN, or within the relative error (denormals and
 * results that round to infinity have no relative error). */
static int same(int dtype, const unsigned char *got, const unsigned char *wanted, size_t i, double error) {
    size_t size = linnet_dtype_size(dtype);
    if (!memcmp(got + i * size, wanted + i * size, size)) return 1;
    if (dtype > LINNET_F64) return 0;
    double a = value_of(dtype, got, i), b = value_of(dtype, wanted, i);
    if (isnan(a) && isnan(b)) return 1;
    if (error == 0.0 || isnan(a) || isnan(b)) return 0;
    double largest = dtype == LINNET_F32 ? 3.4028e38 : 1.7976e308, least = dtype == LINNET_F32 ? 1e-42 : 1e-320;
    if (isinf(a) || isinf(b)) return fabs(a) > largest && fabs(b) > largest && (a > 0) == (b > 0);
    return fabs(a - b) <= error * fabs(b) + least;
}

static void compare(const char *path, const char *how, const linnet_tensor_info *info, const unsigned char *got,
                    const unsigned char *wanted, double error) {
    size_t count = info->bytes / linnet_dtype_size(info->dtype);
    for (size_t i = 0; i < count; i++) {
        if (same(info->dtype, got, wanted, i, error)) continue;
        size_t size = linnet_dtype_size(info->dtype), wrong = 0;
        for (size_t k = 0; k < count; k++) wrong += !same(info->dtype, got, wanted, k, error);
        printf("fuzz_map: %s: %s, %s: element %zu of %zu (%zu are wrong): got %.9g 0x", path, how, info->name, i, count,
               wrong, value_of(info->dtype, got, i));
        for (size_t k = size; k-- > 0;) printf("%02x", got[i * size + k]);
        printf(", expected %.9g 0x", value_of(info->dtype, wanted, i));
        for (size_t k = size; k-- > 0;) printf("%02x", wanted[i * size + k]);
        printf("\n");
        exit(1);
    }
}

static void run(const char *path, batch *b, const char *how, const char *isa, int threads, int reference) {
    linnet_plan_config config;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_tensor_info info = {.struct_size = sizeof info};
    linnet_error error;
    size_t at = 0;
    linnet_plan_config_init(&config);
    config.isa_max = isa;
    config.threads = threads;
    config.reference = reference;
    if (linnet_plan_create(b->model, &config, &plan, &error) ||
        linnet_session_create(plan, NULL, NULL, &session, &error))
        fail(path, how, &error);
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        if (linnet_plan_get_input(plan, i, &info) || at + info.bytes > b->size) fail(path, "feeds are short", NULL);
        if (info.bytes) memcpy(linnet_session_input(session, i), b->bytes + at, info.bytes);
        at += info.bytes;
    }
    if (linnet_run(session, &error)) fail(path, how, &error);
    for (int i = 0; i < b->outputs; i++) {
        double tolerance;
        const unsigned char *got = linnet_session_output(session, i);
        if (linnet_session_get_output(session, i, &info) || at + sizeof tolerance + info.bytes > b->size)
            fail(path, "expected results are short", NULL);
        memcpy(&tolerance, b->bytes + at, sizeof tolerance);
        if (reference) {
            compare(path, how, &info, got, b->bytes + at + sizeof tolerance, tolerance);
            b->reference[i] = malloc(info.bytes + 1);
            if (!b->reference[i]) fail(path, "no memory", NULL);
            if (info.bytes) memcpy(b->reference[i], got, info.bytes);
        } else {
            compare(path, how, &info, got, b->reference[i], 0.0);
        }
        at += sizeof tolerance + info.bytes;
    }
    if (at != b->size) fail(path, "results are left over", NULL);
    linnet_session_free(session);
    linnet_plan_free(plan);
}

int main(int argc, char **argv) {
    long outputs = 0;
    for (int k = 1; k < argc; k++) {
        batch b = {0};
        linnet_error error;
        char beside[4096], how[64];
        snprintf(beside, sizeof beside, "%s.bin", argv[k]);
        b.bytes = read_file(beside, &b.size);
        if (linnet_model_open(argv[k], NULL, &b.model, &error)) fail(argv[k], "open", &error);
        b.outputs = linnet_model_output_count(b.model, 0);
        b.reference = calloc((size_t)b.outputs, sizeof *b.reference);
        if (!b.reference) fail(argv[k], "no memory", NULL);
        run(argv[k], &b, "reference against NumPy", NULL, 1, 1);
        for (int isa = 0; linnet_isa_name(isa); isa++) {
            snprintf(how, sizeof how, "%s against the reference", linnet_isa_name(isa));
            run(argv[k], &b, how, linnet_isa_name(isa), 1, 0);
        }
        run(argv[k], &b, "two threads against the reference", NULL, 2, 0);
        outputs += b.outputs;
        for (int i = 0; i < b.outputs; i++) free(b.reference[i]);
        free(b.reference);
        free(b.bytes);
        linnet_model_free(b.model);
    }
    printf("fuzz_map: %d batches, %ld outputs are right\n", argc - 1, outputs);
    return 0;
}
