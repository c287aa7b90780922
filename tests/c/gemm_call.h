/* gemm_call.h - builds one matmul or conv call by hand and runs it with a given kernel; shared by test_gemm and
 * bench_gemm. Operands end (or begin) at a guard page, so that an access one byte beyond crashes. */
#ifndef GEMM_CALL_H
#define GEMM_CALL_H

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif

#include "fast/gemm/gemm.h"
#include "base/layout.h"
#include "kernel/map.h"
#include "base/memory.h"
#include "can_run.h"
#include "kernel/common/window.h"
#include "map/map_epilogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct guarded {
    char *map;
    size_t mapped;
    void *data;
} guarded;

/* Allocates memory whose end is as close to an unreadable page as `align` allows. The page before it is unreadable,
 * too. */
static guarded guarded_alloc(size_t bytes, size_t align) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page + page;
    guarded g = {.mapped = inner + 2 * page};
    g.map = mmap(NULL, g.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "no memory for a test operand of %zu bytes\n", bytes);
        exit(1);
    }
    g.data = g.map + page + (inner - bytes) / align * align;
    return g;
}

static void guarded_free(guarded *g) {
    if (g->map != NULL) munmap(g->map, g->mapped);
    g->map = NULL;
}

typedef struct gemm_call {
    ln_op op;
    ln_conv_attributes conv;
    ln_conv_transpose_attributes transpose;
    ln_matmul_attributes matmul;
    int64_t lists[3][6];
    ln_tensor in[3], out;
    ln_tensor with_extra[4], outer; /* with an epilogue: its operands and the residual; the stored result */
    ln_map_attributes map;
    ln_epilogue epilogue;
    bool fused;
    guarded extra;
    ln_quant quant[3]; /* of x, w, y */
    float scales[3][256];
    int32_t zeros[3][256];
    guarded memory[4]; /* x, w, bias, y */
    ln_call call;
    int n_inputs;
} gemm_call;

static void tensor(ln_tensor *t, int dtype, int rank, const int64_t *dims, bool channels_last) {
    *t = (ln_tensor){.dtype = (uint8_t)dtype, .rank = (int8_t)rank};
    for (int i = 0; i < rank; i++) t->dims[i] = dims[i];
    ln_set_layout(t, channels_last ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE);
}

/* Returns how many elements the tensor's memory spans. */
static int64_t span(const ln_tensor *t) {
    int64_t last = 0;
    for (int i = 0; i < t->rank; i++) last += (t->dims[i] - 1) * t->strides[i];
    return last + 1;
}

/* Allocates memory for every operand, and fills the output with a pattern. */
static inline void gemm_allocate(gemm_call *g) {
    for (int i = 0; i < 4; i++) {
        const ln_tensor *t = i < 3 ? &g->in[i] : &g->out;
        if (t->dtype == LINNET_NONE) continue;
        size_t size = ln_dtype_size(t->dtype), bytes = (size_t)span(t) * size;
        g->memory[i] = guarded_alloc(bytes, size);
        if (i == 3) memset(g->memory[i].data, 0xA5, bytes);
    }
}

static inline void gemm_free(gemm_call *g) {
    for (int i = 0; i < 4; i++) guarded_free(&g->memory[i]);
    guarded_free(&g->extra);
}

/* Time of this thread only, because the machine may be busy. */
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs `kernel` on the operands, with the work divided into `threads` parts. Returns false if the kernel does not
 * support the call. `seconds` (may be NULL) receives the best time of `repeats` runs. Packed and scratch memory have
 * guard pages, too. */
static inline bool gemm_run(gemm_call *g, const ln_kernel *kernel, int threads, int repeats, double *seconds) {
    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    const void *attributes = g->op.id == LN_OP_CONV     ? (const void *)&g->conv
                             : g->op.id == LN_OP_MATMUL ? (const void *)&g->matmul
                                                        : (const void *)&g->transpose;
    ln_call call = {.op = &g->op,
                    .attributes = attributes,
                    .n_inputs = 3,
                    .n_outputs = 1,
                    .inputs = g->in,
                    .outputs = &g->out,
                    .inner = &g->out,
                    .features = kernel->needs,
                    .precision = permitting(kernel),
                    .threads = threads,
                    .phases = 1,
                    .work = {1, 1},
                    .grain = 1,
                    .plan = &pool};
    if (g->fused) {
        memcpy(g->with_extra, g->in, sizeof g->in);
        call.inputs = g->with_extra, call.n_extra = 1, call.outputs = &g->outer, call.epilogue = &g->epilogue;
        if (ln_epilogue_prepare(&g->epilogue, &call) != LINNET_OK) exit(1);
    }
    if (kernel->op != g->op.id || !takes(kernel, &call)) {
        ln_pool_free(&pool);
        return false;
    }
    if (kernel->code->configure != NULL && kernel->code->configure(&call) != LINNET_OK) {
        fprintf(stderr, "%s: configure failed\n", kernel->name);
        exit(1);
    }
    guarded packed = guarded_alloc(ln_round_up(call.packed_bytes, 64), 64);
    guarded scratch = guarded_alloc(ln_round_up(call.scratch_bytes, 64), 64);
    size_t stride = ln_round_up(call.scratch_thread, 64);
    guarded thread_scratch = guarded_alloc(stride * (size_t)threads, 64);
    memset(packed.data, 0xFF, call.packed_bytes); /* NaN, so that bytes that a kernel forgets are noticed */
    memset(scratch.data, 0xFF, call.scratch_bytes);
    memset(thread_scratch.data, 0xFF, stride * (size_t)threads);
    if (kernel->code->pack != NULL) kernel->code->pack(&call, packed.data);
    const void *inputs[4] = {g->memory[0].data, g->memory[1].data, g->memory[2].data, g->extra.data};
    void *outputs[1] = {g->memory[3].data};
    ln_buffers b = {.inputs = inputs,
                    .outputs = outputs,
                    .packed = packed.data,
                    .scratch = scratch.data,
                    .thread_scratch = thread_scratch.data,
                    .thread_stride = stride};
    double best = 1e30;
    for (int i = 0; i < repeats; i++) {
        double begin = processor_seconds();
        for (int phase = 0; phase < call.phases; phase++)
            for (int t = 0; t < threads; t++) {
                int64_t from = call.work[phase] * t / threads, to = call.work[phase] * (t + 1) / threads;
                if (from < to && kernel->code->run(&call, &b, phase, from, to, t) != LINNET_OK) exit(1);
            }
        double taken = processor_seconds() - begin;
        best = taken < best ? taken : best;
    }
    if (seconds != NULL) *seconds = best;
    guarded_free(&packed);
    guarded_free(&scratch);
    guarded_free(&thread_scratch);
    ln_pool_free(&pool);
    return true;
}

/* Describes y = conv(x, w) when out, in / group, kernel and so on are set. x_dims are batch, channels, spatial dims. */
static inline void gemm_make_conv(gemm_call *g, const int dtypes[4], int spatial, const int64_t *x_dims,
                                  const int64_t *w_dims, const int64_t *strides, const int64_t *dilations,
                                  const int64_t *pads, int64_t group, bool x_channels_last) {
    g->op = (ln_op){.name = "conv", .id = LN_OP_CONV};
    for (int i = 0; i < spatial; i++) {
        g->lists[0][i] = strides[i], g->lists[1][i] = dilations[i];
        g->lists[2][i] = g->lists[2][spatial + i] = pads[i];
    }
    g->conv = (ln_conv_attributes){.strides = {g->lists[0], spatial},
                                   .dilations = {g->lists[1], spatial},
                                   .pads = {g->lists[2], 2 * spatial},
                                   .group = group,
                                   .channel_axis = 1};
    tensor(&g->in[0], dtypes[0], spatial + 2, x_dims, x_channels_last);
    tensor(&g->in[1], dtypes[1], spatial + 2, w_dims, false);
    tensor(&g->in[2], dtypes[2], 1, w_dims, false);
    ln_window w;
    if (ln_window_conv(&g->conv, &g->in[0], &g->in[1], &w, NULL) != LINNET_OK) exit(1);
    g->out = (ln_tensor){.dtype = (uint8_t)dtypes[3]};
    ln_window_shape(&w, &g->out);
    /* With only one position, both layouts are the same in memory, so the plan may choose either of them. */
    ln_set_layout(&g->out, ln_window_positions(&w) > 1 ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE);
}

/* The same for a transposed convolution; w_dims are then in, out / group, kernel. */
static inline void gemm_make_transpose(gemm_call *g, const int dtypes[4], int spatial, const int64_t *x_dims,
                                       const int64_t *w_dims, const int64_t *strides, const int64_t *dilations,
                                       const int64_t *pads, int64_t group, bool x_channels_last) {
    g->op = (ln_op){.name = "conv_transpose", .id = LN_OP_CONV_TRANSPOSE};
    for (int i = 0; i < spatial; i++) {
        g->lists[0][i] = strides[i], g->lists[1][i] = dilations[i];
        g->lists[2][i] = g->lists[2][spatial + i] = pads[i];
    }
    g->transpose = (ln_conv_transpose_attributes){.strides = {g->lists[0], spatial},
                                                  .dilations = {g->lists[1], spatial},
                                                  .pads = {g->lists[2], 2 * spatial},
                                                  .group = group,
                                                  .channel_axis = 1};
    int64_t out = w_dims[1] * group;
    tensor(&g->in[0], dtypes[0], spatial + 2, x_dims, x_channels_last);
    tensor(&g->in[1], dtypes[1], spatial + 2, w_dims, false);
    tensor(&g->in[2], dtypes[2], 1, &out, false);
    ln_window w;
    if (ln_window_conv_transpose(&g->transpose, &g->in[0], &g->in[1], &w, NULL) != LINNET_OK) exit(1);
    g->out = (ln_tensor){.dtype = (uint8_t)dtypes[3]};
    ln_window_shape(&w, &g->out);
    ln_set_layout(&g->out, ln_window_positions(&w) > 1 ? LN_LAYOUT_CHANNELS_LAST : LN_LAYOUT_DENSE);
}

static inline void gemm_quantize(gemm_call *g, int i, ln_tensor *t, int64_t count, int axis) {
    g->quant[i] = (ln_quant){.scheme = count > 1 ? LN_QUANT_AXIS : LN_QUANT_TENSOR,
                             .bits = 8,
                             .axis = axis,
                             .count = (uint32_t)count,
                             .scale = g->scales[i],
                             .zero = g->zeros[i]};
    t->quant = &g->quant[i];
}

#endif
