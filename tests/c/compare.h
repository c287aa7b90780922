/* compare.h - runs every kernel that supports a call, on every ISA of this machine, and compares the results with the
 * scalar reference. Buffers end (or begin) at an unreadable page. Work is divided at random places, and integers must
 * be equal bit by bit. */
#ifndef LN_TEST_COMPARE_H
#define LN_TEST_COMPARE_H

#define _DEFAULT_SOURCE
#include "kernel/cost.h"
#include "base/layout.h"
#include "can_run.h"
#include "kernel/map.h"
#include "base/memory.h"
#include "map/map_epilogue.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t random_state = 0x9E3779B97F4A7C15u;
static inline uint32_t random_u32(void) { /* splitmix64 */
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}
static inline int random_below(int n) { return (int)(random_u32() % (uint32_t)n); }
static inline double random_unit(void) { return (double)random_u32() / 4294967296.0 * 2 - 1; }

/* Memory with an unreadable page after it (or before it, with `front`). */
typedef struct guarded {
    char *map;
    size_t map_size;
    void *data;
} guarded;

static inline guarded guarded_new(size_t bytes, bool front) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = ln_round_up(bytes + 1, page);
    guarded g = {.map_size = body + 2 * page};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) || mprotect(g.map + page + body, page, PROT_NONE)) {
        fprintf(stderr, "no memory for the test\n");
        exit(2);
    }
    memset(g.map + page, 0xA5, body);
    g.data = front ? g.map + page : g.map + page + body - bytes;
    return g;
}
static inline void guarded_free(guarded *g) { munmap(g->map, g->map_size); }

/* One call under test. Fill in op, attributes, inputs (with dtype, rank, dims, strides, quant) and the number of
 * outputs. The shape rule gives the outputs' shapes; their layout is `y_layout`. */
#define MAX_TEST_OPERANDS 8
typedef struct test_case {
    const char *name;
    uint16_t op;
    const void *attributes;
    int n_inputs, n_outputs, n_extra; /* extra: operands of an epilogue, which follow the inputs */
    ln_tensor inputs[MAX_TEST_OPERANDS];
    bool constant[MAX_TEST_OPERANDS]; /* true: the operand's data is known at plan time */
    bool given[MAX_TEST_OPERANDS];    /* values[i] is used instead of random values */
    const void *values[MAX_TEST_OPERANDS];
    ln_tensor outputs[2];
    int y_layout;
    double tolerance;   /* tolerance of floats, relative to 1 + |expected|; below 0: the same bits, except NaN */
    const char *expect; /* beginning of a kernel's name: each ISA that has such a kernel must support the call with it;
                           NULL: no kernel has to support it */
} test_case;

static int failures, comparisons;
static void (*reached_by)(const ln_kernel *kernel, const ln_call *call); /* called after a kernel ran; NULL: nothing */

static inline ln_tensor tensor_of(int dtype, int layout, int rank, const int64_t *dims) {
    ln_tensor t = {.dtype = (uint8_t)dtype, .rank = (int8_t)rank};
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
    ln_set_layout(&t, layout);
    return t;
}
#define TENSOR(dtype, layout, ...)                                                                                     \
    tensor_of(dtype, layout, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static inline ln_quant *quant_of(int count, int axis, double low, double high, int zero_low, int zero_high) {
    ln_quant *q = calloc(1, sizeof *q);
    float *scale = malloc((size_t)count * sizeof *scale);
    int32_t *zero = malloc((size_t)count * sizeof *zero);
    for (int i = 0; i < count; i++) {
        scale[i] = (float)(low + (high - low) * (random_unit() + 1) / 2);
        zero[i] = zero_low + random_below(zero_high - zero_low + 1);
    }
    *q = (ln_quant){.scheme = count > 1 ? LN_QUANT_AXIS : LN_QUANT_TENSOR,
                    .axis = axis,
                    .count = (uint32_t)count,
                    .scale = scale,
                    .zero = zero};
    return q;
}
static inline void quant_free(const ln_quant *q) {
    if (q != NULL) {
        free((void *)(uintptr_t)q->scale);
        free((void *)(uintptr_t)q->zero);
        free((void *)(uintptr_t)q);
    }
}

static inline void fill_random(void *data, int dtype, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int wide = random_below(20001) - 10000, narrow = random_below(65536) - 32768;
        if (ln_dtype_is_float(dtype))
            ln_store_f64(data, dtype, i, random_unit());
        else if (dtype == LINNET_I32 || dtype == LINNET_I64)
            ln_store_i64(data, dtype, i, wide);
        else
            ln_store_i64(data, dtype, i,
                         dtype == LINNET_I16  ? narrow
                         : dtype == LINNET_I8 ? narrow / 256
                                              : narrow & 255);
    }
}

/* Runs the kernel from configure to the last item into fresh outputs. Returns false for a status other than OK. */
static inline bool run_kernel(const ln_kernel *kernel, const test_case *t, const ln_epilogue *epilogue,
                              const ln_tensor *inner, guarded *in, guarded *out, ln_features features, int threads) {
    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    ln_tensor inputs[MAX_TEST_OPERANDS];
    const void *in_data[MAX_TEST_OPERANDS] = {0};
    void *out_data[2] = {0};
    for (int i = 0; i < t->n_inputs + t->n_extra; i++) {
        inputs[i] = t->inputs[i];
        in_data[i] = inputs[i].dtype == LINNET_NONE ? NULL : in[i].data;
        inputs[i].data = t->constant[i] ? in_data[i] : NULL;
    }
    for (int i = 0; i < t->n_outputs; i++) out_data[i] = t->outputs[i].dtype == LINNET_NONE ? NULL : out[i].data;
    ln_epilogue own;
    ln_call call = {.op = &ln_ops[t->op],
                    .attributes = t->attributes,
                    .n_inputs = t->n_inputs,
                    .n_outputs = t->n_outputs,
                    .n_extra = t->n_extra,
                    .inputs = inputs,
                    .outputs = t->outputs,
                    .inner = inner != NULL ? inner : t->outputs,
                    .features = features,
                    .precision = permitting(kernel),
                    .threads = threads,
                    .phases = 1,
                    .work = {1, 1},
                    .grain = 1,
                    .plan = &pool};
    if (epilogue != NULL) {
        own = *epilogue;
        call.epilogue = &own;
        if (ln_epilogue_prepare(&own, &call) != LINNET_OK) return false;
    }
    bool ok = takes(kernel, &call) && (kernel->code->configure == NULL || kernel->code->configure(&call) == LINNET_OK);
    guarded packed = guarded_new(ln_round_up(call.packed_bytes, 64), false);
    guarded scratch = guarded_new(ln_round_up(call.scratch_bytes, 64), false);
    size_t stride = ln_round_up(call.scratch_thread, 64);
    guarded per_thread = guarded_new(stride * (size_t)threads, false);
    if (ok && kernel->code->pack != NULL) kernel->code->pack(&call, packed.data);
    ln_buffers b = {.inputs = in_data,
                    .outputs = out_data,
                    .packed = packed.data,
                    .scratch = scratch.data,
                    .thread_scratch = per_thread.data,
                    .thread_stride = stride};
    for (int phase = 0; phase < call.phases && ok; phase++)
        for (int64_t begin = 0; begin < call.work[phase > 0] && ok;) {
            int64_t left = call.work[phase > 0] - begin, size = 1 + random_below((int)ln_min(left, 1000));
            ok = kernel->code->run(&call, &b, phase, begin, begin + size, random_below(threads)) == LINNET_OK;
            begin += size;
        }
    guarded_free(&packed), guarded_free(&scratch), guarded_free(&per_thread);
    ln_pool_free(&pool);
    return ok;
}

static inline uint64_t bytes_of(const ln_tensor *t) {
    uint64_t bytes = 0;
    if (t->dtype != LINNET_NONE) ln_bytes(t, &bytes);
    return bytes;
}

/* NEON of 32-bit ARM takes denormal floats as 0, and gives 0 for them. */
#if defined(__arm__) && defined(__ARM_NEON)
enum { FLUSHES = 1 };
#else
enum { FLUSHES = 0 };
#endif
#define MADE_OF_DENORMALS (256 * (double)FLT_MIN) /* a few steps behind a denormal */

static inline bool outputs_equal(const test_case *t, const char *kernel, const guarded *expected, const guarded *got) {
    for (int o = 0; o < t->n_outputs; o++) {
        int dtype = t->outputs[o].dtype;
        for (int64_t i = 0; dtype != LINNET_NONE && i < ln_count(&t->outputs[o]); i++) {
            double a = ln_load_f64(expected[o].data, dtype, i), b = ln_load_f64(got[o].data, dtype, i);
            double unit = strstr(kernel, "__fp16") != NULL || strstr(kernel, "__bf16") != NULL ? 3e-2
                          : dtype == LINNET_F16                                                ? 1e-3
                          : dtype == LINNET_BF16                                               ? 8e-3
                                                                                               : 0;
            bool same = (a == b && (t->tolerance >= 0 || signbit(a) == signbit(b))) || (isnan(a) && isnan(b)) ||
                        (FLUSHES && fabs(a) < MADE_OF_DENORMALS && fabs(b) < MADE_OF_DENORMALS) ||
                        (ln_dtype_is_float(dtype) && fabs(a - b) <= (t->tolerance + unit) * (1 + fabs(a)));
            if (!same) {
                fprintf(stderr, "FAIL %s: %s: output %d element %lld: expected %.9g, got %.9g\n", t->name, kernel, o,
                        (long long)i, a, b);
                return false;
            }
        }
    }
    return true;
}

/* Compares all kernels for one case. */
static inline void compare(test_case *t) {
    ln_infer infer = {.op = &ln_ops[t->op],
                      .attributes = t->attributes,
                      .n_inputs = t->n_inputs,
                      .n_outputs = t->n_outputs,
                      .inputs = t->inputs,
                      .outputs = t->outputs};
    if (!wants_dtype(t->inputs[0].dtype)) return;
    guarded in[MAX_TEST_OPERANDS], expected[2], got[2];
    bool front = random_below(2) == 0;
    for (int i = 0; i < t->n_inputs; i++) {
        in[i] = guarded_new(bytes_of(&t->inputs[i]), front);
        if (t->inputs[i].dtype == LINNET_NONE) continue;
        if (t->given[i])
            memcpy(in[i].data, t->values[i], bytes_of(&t->inputs[i]));
        else
            fill_random(in[i].data, t->inputs[i].dtype, ln_count(&t->inputs[i]));
        t->inputs[i].data = t->constant[i] ? in[i].data : NULL;
    }
    if (ln_ops[t->op].infer(&infer) != LINNET_OK) {
        fprintf(stderr, "FAIL %s: the shape rule refuses it\n", t->name);
        failures++;
        return;
    }
    for (int o = 0; o < t->n_outputs; o++) {
        ln_set_layout(&t->outputs[o], t->outputs[o].rank >= 3 ? t->y_layout : LN_LAYOUT_DENSE);
        expected[o] = guarded_new(bytes_of(&t->outputs[o]), front);
        got[o] = guarded_new(bytes_of(&t->outputs[o]), front);
    }
    ln_features taken[64];
    int n_taken = 0;
    bool have_reference = false;
    for (int pass = 0; pass < 2; pass++) /* pass 0 runs the reference */
        for (const ln_kernel *k = ln_kernels; k->code != NULL; k++) {
            bool reference = (k->flags & LN_KERNEL_REFERENCE) != 0;
            if (k->op != t->op || reference != (pass == 0) || !can_run(k)) continue;
            ln_call call = {.op = &ln_ops[t->op],
                            .attributes = t->attributes,
                            .n_inputs = t->n_inputs,
                            .n_outputs = t->n_outputs,
                            .inputs = t->inputs,
                            .outputs = t->outputs,
                            .inner = t->outputs,
                            .features = k->needs,
                            .precision = permitting(k),
                            .threads = 1 + random_below(8),
                            .phases = 1,
                            .work = {1, 1},
                            .grain = 1};
            if (!takes(k, &call)) continue;
            ln_counts own; /* a kernel only adds to the op's work, so that a slower one need not be asked */
            ln_count_call(&call, &own);
            const double least = ln_counts_ns(ln_machine_for(&call), k->needs, &own);
            if (!(k->flags & LN_KERNEL_LESS) && ln_kernel_cost(k, &call) < least * (1 - 1e-9)) {
                fprintf(stderr, "FAIL %s: %s costs less than the op's work at the rates of its instructions\n", t->name,
                        k->name);
                failures++;
            }
            for (int o = 0; o < t->n_outputs && !reference; o++) memset(got[o].data, 0x5A, bytes_of(&t->outputs[o]));
            if (!run_kernel(k, t, NULL, NULL, in, reference ? expected : got, k->needs, call.threads)) {
                fprintf(stderr, "FAIL %s: %s does not run\n", t->name, k->name);
                failures++;
                continue;
            }
            have_reference |= reference;
            if (reached_by != NULL) reached_by(k, &call);
            if (reference) continue;
            comparisons++;
            failures += !outputs_equal(t, k->name, expected, got);
            if (t->expect != NULL && strncmp(k->name, t->expect, strlen(t->expect)) == 0) taken[n_taken++] = k->needs;
        }
    for (const ln_kernel *k = ln_kernels; k->code != NULL && t->expect != NULL; k++) {
        bool known = !can_run(k) || k->needs == LN_ISA_SCALAR || strncmp(k->name, t->expect, strlen(t->expect));
        for (int i = 0; i < n_taken; i++) known = known || taken[i] == k->needs;
        if (!known) { /* several kernels of a set may have the name's beginning; one of them must take the call */
            fprintf(stderr, "FAIL %s: neither %s nor its like takes it\n", t->name, k->name);
            failures++;
        }
    }
    if (!have_reference) {
        fprintf(stderr, "FAIL %s: the reference does not take it\n", t->name);
        failures++;
    }
    for (int i = 0; i < t->n_inputs; i++) guarded_free(&in[i]);
    for (int o = 0; o < t->n_outputs; o++) guarded_free(&expected[o]), guarded_free(&got[o]);
}

/* A processor without kernels of its own has nothing to compare with the references. */
static inline int report(const char *test) {
    printf("%s: %d comparisons, %d failures\n", test, comparisons, failures);
    return failures > 0 || (comparisons == 0 && linnet_isa_name(1) != NULL);
}

#endif
