/* work.c - the functions of linnet_device.h for claims, which are steps that the device takes over. In the CUDA
 * backend, a claim is always one step. It runs as one or several launches. */
#include "kernels_gpu/cuda/work.h"
#include "kernels_gpu/common/checks.h"
#include "kernels_gpu/common/choose.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/cuda/context.h"
#include "kernels_gpu/cuda/graph.h"
#include "kernels_gpu/cuda/program.h"

#include <stdlib.h>

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    const lg_device *d = context;
    const bool shows = d->cu == NULL && d->options.texts[0] != 0;
    lg_plan plan = {.sizes_only = d->compiles && !shows};
    (void)count;
    lg_claim_step(&d->machine, steps[0], &plan, out);
    if (out->count == 1 && !d->compiles && !lg_has_programs(d, &plan)) out->count = 0;
    for (int i = 0; i < plan.n && shows; ++i) lg_show(d, &plan.launches[i]);
    lg_plan_free(&plan);
    return 0;
}

/* Frees the state of a claim. If the context is not current, the driver's objects cannot be freed and remain. */
static void free_state(lg_device *d, lg_state *state, bool current) {
    if (state->queue != NULL) {
        lg_forget_graphs(d, state->queue, state, current);
        lg_check_remove(&state->queue->checks, &state->check);
    }
    for (int i = 0; i < state->n_launches; ++i) {
        free(state->launches[i].values);
        free(state->launches[i].maps);
        free(state->launches[i].parameters);
    }
    if (current && state->from != NULL) d->cu->EventDestroy(state->from);
    if (current && state->to != NULL) d->cu->EventDestroy(state->to);
    if (current && state->check.found != NULL) d->cu->MemFreeHost(state->check.found);
    free(state->launches);
    free(state);
}

static CUdeviceptr address_of(const linnet_span *span) { return span->buffer == 0 ? 0 : span->buffer + span->offset; }

/* Returns where the operand of an argument or of a tensor map is. */
static CUdeviceptr operand(const linnet_work *work, int kind, int index) {
    switch (kind) {
    case LG_INPUT: return address_of(&work->inputs[0][index]);
    case LG_OUTPUT: return address_of(&work->outputs[0][index]);
    case LG_SCRATCH: return address_of(&work->scratch);
    default: return address_of(&work->packed);
    }
}

static int encode(const lg_device *d, const linnet_work *work, const lg_tensor_map *map, CUtensorMap *out) {
    static const uint32_t ones[LG_MAP_RANK] = {1, 1, 1};
    const CUdeviceptr address = operand(work, map->kind, map->index) + map->offset;
    const int type = map->dtype == LINNET_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                     : map->dtype == LINNET_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                     : map->dtype == LINNET_F32
                         ? (map->tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32)
                         : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    if (d->cu->TensorMapEncodeTiled == NULL) return LG_BAD_STEP;
    return lg_code(d->cu->TensorMapEncodeTiled(
        out, type, (uint32_t)map->rank, (void *)(uintptr_t)address, map->sizes, map->strides + 1, map->box, ones, 0,
        map->swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : 0, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 0));
}

static int set_arguments(const lg_device *d, const linnet_work *work, const lg_launch *launch, lg_ready *ready) {
    const size_t n = (size_t)launch->n_arguments, maps = (size_t)launch->n_maps;
    ready->values = calloc(n + 1, sizeof *ready->values);
    ready->parameters = calloc(n + 1, sizeof *ready->parameters);
    ready->maps = maps > 0 ? aligned_alloc(_Alignof(CUtensorMap), maps * sizeof *ready->maps) : NULL;
    if (ready->values == NULL || ready->parameters == NULL || (maps > 0 && ready->maps == NULL)) return LG_NO_MEMORY;
    for (size_t i = 0; i < n; ++i) {
        const lg_argument *a = &launch->arguments[i];
        lg_value *value = &ready->values[i];
        ready->parameters[i] = value;
        if (a->kind == LG_INTEGER) {
            value->integer = a->integer;
        } else if (a->kind == LG_REAL) {
            value->real = a->real;
        } else if (a->kind == LG_MAP) {
            const int code = encode(d, work, &launch->maps[a->index], &ready->maps[a->index]);
            if (code != 0) return code;
            ready->parameters[i] = &ready->maps[a->index];
        } else {
            value->pointer = operand(work, a->kind, a->index);
        }
    }
    return 0;
}

static int prepare_launches(lg_device *d, const linnet_work *work, const lg_plan *plan, lg_state *state) {
    for (int i = 0; i < plan->n; ++i) {
        const lg_launch *launch = &plan->launches[i];
        lg_ready *ready = &state->launches[i];
        const int largest = lg_largest_axis(launch);
        int code = lg_build(d, launch, work->cache, &ready->function);
        if (code != 0) return code;
        state->n_launches = i + 1;
        for (int k = 0; k < 3; ++k) {
            const size_t blocks = (launch->global[k] + launch->local[k] - 1) / launch->local[k];
            ready->grid[k == largest ? 0 : k == 0 ? largest : k] = (unsigned)(blocks > 0 ? blocks : 1);
            ready->block[k] = (unsigned)launch->local[k];
        }
        ready->shared_bytes = (unsigned)launch->shared_bytes;
        if (ready->shared_bytes > 48 << 10) { /* a kernel must request more than 48 KB */
            code = lg_code(d->cu->FuncSetAttribute(ready->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   (int)ready->shared_bytes));
            if (code != 0) return code;
        }
        code = set_arguments(d, work, launch, ready);
        if (code != 0) return code;
    }
    return 0;
}

/* Writes packed memory, and waits, because the caller then frees the bytes. */
static int write_packed(const lg_device *d, const lg_queue *q, const linnet_work *work, const lg_plan *plan) {
    if (plan->packed.length == 0) return 0;
    const int code =
        lg_code(d->cu->MemcpyHtoDAsync(address_of(&work->packed), plan->packed.at, plan->packed.length, q->stream));
    const int waited = lg_code(d->cu->StreamSynchronize(q->stream));
    return code != 0 ? code : waited;
}

static int prepare_check(const lg_device *d, const linnet_work *work, const lg_plan *plan, lg_state *state) {
    int32_t *found = NULL;
    if (!plan->checks) return 0;
    const int code = lg_code(d->cu->MemHostAlloc((void **)&found, 2 * sizeof *found, CU_MEMHOSTALLOC_PORTABLE));
    if (code == 0) lg_check_add(&state->queue->checks, &state->check, found, d->machine.host, work, plan);
    return code;
}

/* Prepares a claim. The context is current. */
static int prepare_claim(lg_device *d, lg_queue *q, const linnet_work *work, const lg_plan *plan, lg_state *state) {
    state->queue = q;
    state->launches = calloc((size_t)plan->n + 1, sizeof *state->launches);
    if (state->launches == NULL) return LG_NO_MEMORY;
    int code = prepare_launches(d, work, plan, state);
    if (code == 0) code = write_packed(d, q, work, plan);
    if (code == 0) code = prepare_check(d, work, plan, state);
    if (code == 0 && work->trace) code = lg_code(d->cu->EventCreate(&state->from, CU_EVENT_DEFAULT));
    if (code == 0 && work->trace) code = lg_code(d->cu->EventCreate(&state->to, CU_EVENT_DEFAULT));
    return code;
}

static int prepare(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *out) {
    lg_device *d = context;
    lg_plan plan = {0};
    lg_state *state = calloc(1, sizeof *state);
    int code = state == NULL ? LG_NO_MEMORY : lg_enter(d);
    if (code != 0) {
        free(state);
        return code;
    }
    code = lg_plan_work(&d->machine, work, &plan);
    if (code == 0) code = prepare_claim(d, lg_queue_of(queue), work, &plan, state);
    lg_plan_free(&plan);
    if (code != 0)
        free_state(d, state, true);
    else
        *out = (uintptr_t)state;
    lg_leave(d);
    return code;
}

static void unprepare(void *context, linnet_handle handle) {
    lg_device *d = context;
    const bool entered = lg_enter(d) == 0;
    free_state(d, (lg_state *)(uintptr_t)handle, entered);
    if (entered) lg_leave(d);
}

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle handle) {
    lg_device *d = context;
    lg_queue *q = lg_queue_of(queue);
    lg_state *state = (lg_state *)(uintptr_t)handle;
    (void)work;
    if (!q->measures) return lg_submit(d, q, state); /* this calls no function of the driver */
    int code = lg_enter(d);
    if (code != 0) return code;
    if (state->from != NULL) code = lg_code(d->cu->EventRecord(state->from, q->stream));
    if (code == 0) code = lg_submit(d, q, state);
    if (code == 0 && state->to != NULL) code = lg_code(d->cu->EventRecord(state->to, q->stream));
    lg_leave(d);
    return code;
}

int lg_check(lg_device *d, lg_queue *queue) {
    static const int32_t none[2] = {0, 0};
    const lg_index_check *check = lg_check_take(queue->checks);
    if (check == NULL) return 0;
    int code = lg_code(d->cu->MemcpyHtoDAsync(address_of(&check->status), none, sizeof none, queue->stream));
    if (code == 0) code = lg_code(d->cu->StreamSynchronize(queue->stream));
    return code != 0 ? code : lg_check_failure(&d->failures, check);
}

static int elapsed(void *context, const linnet_work *work, linnet_handle handle, uint64_t *ns) {
    lg_device *d = context;
    const lg_state *state = (const lg_state *)(uintptr_t)handle;
    float ms = 0;
    (void)work;
    *ns = 0;
    if (state->from == NULL || state->to == NULL) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_code(d->cu->EventElapsedTime(&ms, state->from, state->to));
    lg_leave(d);
    *ns = (uint64_t)(1e6 * (double)ms);
    return code;
}

void lg_work_functions(linnet_device *table) {
    table->claim = claim;
    table->prepare = prepare;
    table->unprepare = unprepare;
    table->run = run;
    table->elapsed = elapsed;
}
