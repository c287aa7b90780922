/* exercise_fuzz.h - what the drivers of the fuzzers share: bounded memory, checks of error records, hostile inputs. */
#ifndef EXERCISE_FUZZ_H
#define EXERCISE_FUZZ_H

#include "linnet_ext.h"
#include "mutate.h"

#include <math.h>

enum exercise_stage { AT_OPEN, AT_PLAN, AT_RUN, AT_LOOP }; /* a loop may legitimately be endless */
static const uint64_t most_bytes = 64 << 20, most_run_bytes = 4 << 20, most_flops = 20000000;

typedef struct fuzz {
    mutant m;
    size_t live; /* bytes that the library has allocated */
    long opened, planned, ran, bound, fed, placed, codes[600];
    volatile int *stage; /* NULL: nobody watches, and loops are left out */
    const linnet_user_op *const *user_ops;
    int user_op_count;
    const struct linnet_device *const *devices; /* NULL: none */
    int device_count;
    void (*change_devices)(struct fuzz *f); /* called before each plan with devices */
} fuzz;

static inline void exercise_at(fuzz *f, int stage) {
    if (f->stage) *f->stage = stage;
}

/* The host's memory is bounded, too, because a model must not take all of it. A device's thread allocates as well. */
static void *bounded_alloc(void *context, size_t size, size_t alignment) {
    fuzz *f = context;
    void *pointer;
    if (size > 4 * most_bytes - __atomic_load_n(&f->live, __ATOMIC_RELAXED)) return NULL;
    pointer = aligned_alloc(alignment, size);
    if (pointer) __atomic_add_fetch(&f->live, size, __ATOMIC_RELAXED);
    return pointer;
}

static void bounded_free(void *context, void *pointer, size_t size) {
    __atomic_sub_fetch(&((fuzz *)context)->live, size, __ATOMIC_RELAXED);
    free(pointer);
}

/* Checks that a failure creates no object, and gives a record with its code in one line. */
static void check_record(const void *made, const linnet_error *error, linnet_status status) {
    char text[1024];
    if (status == LINNET_OK) return;
    linnet_error_format(error, text, sizeof text);
    if (!made && error->code == (int)status && error->what[0] && !strchr(text, '\n')) return;
    printf("exercise: status %d with a bad record: %s\n", (int)status, text);
    exit(4);
}

static void put_number(const linnet_tensor_info *input, unsigned char *to, int64_t integer, double real) {
    float single = (float)real;
    switch (input->dtype) {
    case LINNET_F32: memcpy(to, &single, 4); break;
    case LINNET_F64: memcpy(to, &real, 8); break;
    default: memcpy(to, &integer, linnet_dtype_size(input->dtype)); break; /* the low bytes; for f16 any bits */
    }
}

/* Fills an input with zeros and ones, so that indices are in range; with sizes that fit; with numbers at the limits of
 * types; or with random bits. Data that decides shapes is a few integers: these get one of the first two ways, mostly
 * with one exception. */
static void fill_input(fuzz *f, const linnet_tensor_info *input, unsigned char *to) {
    static const int64_t ends[] = {0,         -1,        1,         2,         INT8_MIN,     127,
                                   255,       INT16_MAX, 65536,     INT32_MAX, INT32_MIN,    1LL << 32,
                                   1LL << 40, 1LL << 62, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    static const double reals[] = {0.0,   -0.0, 1.0,  -1.0,         0.5,    1e-45,    1e38,     -1e38,
                                   1e300, 1e9,  -1e9, 2147483648.0, 9.3e18, 0x1p-149, HUGE_VAL, -HUGE_VAL};
    size_t size = linnet_dtype_size(input->dtype), kind = mutant_below(&f->m, 5);
    if (size == 0) { /* two elements in a byte: any bits are values */
        for (size_t k = 0; k < input->bytes; k++) to[k] = (unsigned char)mutant_next(&f->m);
        return;
    }
    size_t count = input->bytes / size;
    static const int64_t sizes[] = {1, 1, 2, 3, 65536, INT32_MAX, 1LL << 32, 1LL << 40, 1LL << 62};
    size_t odd = count <= 8 && mutant_below(&f->m, 2) ? mutant_below(&f->m, count) : count;
    for (size_t k = 0; k < count; k++) {
        size_t way = k == odd ? 2 : count <= 8 && kind != 0 && kind != 3 && odd < count ? 1 : kind;
        uint64_t bits = mutant_next(&f->m);
        double real = bits % 29 == 0 ? NAN : reals[bits % (sizeof reals / sizeof *reals)];
        if (input->dtype == LINNET_BOOL)
            to[k] = bits & 1;
        else if (way == 0)
            put_number(input, to + k * size, (int64_t)(bits & 1), (double)(bits & 1));
        else if (way == 1)
            put_number(input, to + k * size, (int64_t)(bits % 7), (double)(int)(bits % 2001 - 1000) / 100);
        else if (way == 2)
            put_number(input, to + k * size, ends[bits % (sizeof ends / sizeof *ends)], real);
        else if (way == 3) /* dimensions that are fine individually */
            put_number(input, to + k * size, sizes[bits % (sizeof sizes / sizeof *sizes)], real);
        else
            memcpy(to + k * size, &bits, size);
    }
}

#endif
