/* exercise.h - opens a model in memory, plans its signatures in random ways and runs them with hostile inputs, in
 * bounded memory. Every failure must have an error record and leak nothing; sanitizers find the rest. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include "linnet_ext.h"
#include "mutate.h"

#include <math.h>

enum { EXERCISE_INPUTS = 16 };
enum exercise_stage { AT_OPEN, AT_PLAN, AT_RUN, AT_LOOP }; /* a loop may legitimately be endless */
static const uint64_t most_bytes = 64 << 20, most_run_bytes = 4 << 20, most_flops = 20000000;

typedef struct fuzz {
    mutant m;
    size_t live; /* bytes that the library has allocated */
    long opened, planned, ran, codes[600];
    volatile int *stage; /* NULL: nobody watches, and loops are left out */
} fuzz;

static inline void exercise_at(fuzz *f, int stage) {
    if (f->stage) *f->stage = stage;
}

/* The host's memory is bounded, too, because a model must not take all of it. */
static void *bounded_alloc(void *context, size_t size, size_t alignment) {
    fuzz *f = context;
    void *pointer;
    if (size > 4 * most_bytes - f->live) return NULL;
    pointer = aligned_alloc(alignment, size);
    f->live += pointer ? size : 0;
    return pointer;
}

static void bounded_free(void *context, void *pointer, size_t size) {
    ((fuzz *)context)->live -= size;
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

/* Runs the plan if this takes only moments. */
static void run(fuzz *f, linnet_plan *plan) {
    linnet_plan_info info = {.struct_size = sizeof info};
    linnet_session *session = NULL;
    linnet_error error;
    uint64_t flops = 0, bytes = 0;
    int stage = AT_RUN;
    if (linnet_plan_get_info(plan, &info)) return;
    for (int i = 0; i < info.steps; i++) {
        linnet_step_info step = {.struct_size = sizeof step};
        if (linnet_plan_get_step(plan, i, &step)) return;
        if (!strcmp(step.op, "while")) stage = AT_LOOP;
        flops += step.flops;
        bytes += step.bytes;
    }
    if (flops > most_flops || bytes > most_run_bytes || (stage == AT_LOOP && !f->stage)) return;
    exercise_at(f, stage);
    if (linnet_session_create(plan, NULL, NULL, &session, &error) == LINNET_OK) {
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < linnet_plan_input_count(plan); i++) {
                linnet_tensor_info input = {.struct_size = sizeof input};
                if (linnet_plan_get_input(plan, i, &input) == LINNET_OK)
                    fill_input(f, &input, linnet_session_input(session, i));
            }
            linnet_status status = linnet_run(session, &error);
            check_record(NULL, &error, status);
            f->codes[status < 600 ? status : 599]++;
            f->ran += status == LINNET_OK;
        }
    }
    linnet_session_free(session);
}

static void plan(fuzz *f, linnet_model *model, int signature) {
    linnet_shape shapes[EXERCISE_INPUTS];
    linnet_plan_config config;
    linnet_plan *made = NULL;
    linnet_error error;
    linnet_status status;
    int levels = 0;
    while (linnet_isa_name(levels)) levels++;
    linnet_plan_config_init(&config);
    config.signature = linnet_model_signature_name(model, signature);
    config.threads = 1 + (int)mutant_below(&f->m, 2);
    config.max_bytes = most_bytes;
    config.reference = mutant_below(&f->m, 3) == 0;
    config.isa_max = mutant_below(&f->m, 2) ? linnet_isa_name((int)mutant_below(&f->m, (size_t)levels)) : NULL;
    config.shapes = shapes;
    for (int i = 0; i < linnet_model_input_count(model, signature) && i < EXERCISE_INPUTS; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_shape *shape = &shapes[config.shape_count];
        int open = 0;
        if (linnet_model_get_input(model, signature, i, &info)) continue;
        shape->input = info.name;
        shape->rank = info.rank < 0 ? (int)mutant_below(&f->m, 4) : info.rank;
        for (int d = 0; d < shape->rank; d++) {
            shape->dims[d] = info.rank < 0 || info.shape[d] < 0 ? (int64_t)mutant_below(&f->m, 5) : info.shape[d];
            open |= info.rank < 0 || info.shape[d] < 0;
        }
        config.shape_count += open || info.rank < 0;
    }
    exercise_at(f, AT_PLAN);
    status = linnet_plan_create(model, &config, &made, &error);
    f->codes[status < 600 ? status : 599]++;
    if (status == LINNET_OK) {
        f->planned++;
        run(f, made);
    }
    check_record(made, &error, status);
    linnet_plan_free(made);
}

/* Exercises the model in `bytes`, whose end AddressSanitizer should know. */
static void exercise(fuzz *f, const void *bytes, size_t size) {
    linnet_allocator allocator = {f, bounded_alloc, bounded_free};
    linnet_model_config config;
    linnet_model *model = NULL;
    linnet_error error;
    linnet_status status;
    exercise_at(f, AT_OPEN);
    linnet_model_config_init(&config);
    config.allocator = &allocator;
    config.verify = -1; /* otherwise few mutants would get further than verification */
    status = linnet_model_open_memory(bytes, size, mutant_below(&f->m, 4) == 0, &config, &model, &error);
    f->codes[status < 600 ? status : 599]++;
    check_record(model, &error, status);
    if (status == LINNET_OK) {
        f->opened++;
        check_record(NULL, &error, linnet_model_verify(model, (int)mutant_below(&f->m, 2), NULL, &error));
        for (int i = 0; i < linnet_model_signature_count(model) && i < 4; i++) plan(f, model, i);
    }
    linnet_model_free(model);
    if (f->live) {
        printf("exercise: %zu bytes were not given back\n", f->live);
        exit(4);
    }
}

static void exercise_counts(const fuzz *f) {
    for (int code = 1; code < 600; code++)
        if (f->codes[code]) printf(" %s %ld", linnet_status_name(code), f->codes[code]);
    printf("\n");
}

#endif
