/* work.c - the functions of linnet_device.h for claims, which are steps that the device takes over. In the OpenCL
 * backend, a claim is always one step. It runs as one or several launches. */
#include "kernels_gpu/opencl/work.h"
#include "kernels_gpu/common/checks.h"
#include "kernels_gpu/common/choose.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/opencl/program.h"

#include <stdlib.h>

typedef struct lg_ready { /* a launch that is ready to run */
    cl_kernel kernel;
    size_t global[3], local[3];
    cl_event event; /* with profiling: the event of the last run */
} lg_ready;

typedef struct lg_state { /* a claim in a session */
    int n_launches, n_views;
    lg_ready *launches;
    cl_mem *views;   /* the sub-buffers that are operands, scratch memory and packed memory */
    lg_queue *queue; /* the queue whose list has `check`; NULL: the claim checks no indices */
    lg_index_check check;
    int32_t found[2];
} lg_state;

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    const lg_device *d = context;
    lg_plan plan = {.sizes_only = true};
    (void)count;
    lg_claim_step(&d->machine, steps[0], &plan, out);
    lg_plan_free(&plan);
    return 0;
}

static void free_state(const lg_device *d, lg_state *state) {
    if (state->queue != NULL) lg_check_remove(&state->queue->checks, &state->check);
    for (int i = 0; i < state->n_launches; ++i) {
        if (state->launches[i].kernel != NULL) d->cl->ReleaseKernel(state->launches[i].kernel);
        if (state->launches[i].event != NULL) d->cl->ReleaseEvent(state->launches[i].event);
    }
    for (int i = 0; i < state->n_views; ++i) d->cl->ReleaseMemObject(state->views[i]);
    free(state->launches);
    free(state->views);
    free(state);
}

/* Makes a memory object for the part of a buffer that contains the operand; NULL for an absent operand. */
static int view_of(const lg_device *d, lg_state *state, const linnet_span *span, cl_mem *out) {
    cl_int code = CL_SUCCESS;
    *out = NULL;
    if (span->buffer == 0) return 0;
    const cl_region region = {(size_t)span->offset, span->bytes > 0 ? (size_t)span->bytes : 1};
    *out = d->cl->CreateSubBuffer(lg_buffer(span->buffer), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (code == CL_SUCCESS) state->views[state->n_views++] = *out;
    return code;
}

/* The memory objects of a claim's operands that launches have used so far. */
typedef struct views {
    cl_mem inputs[LG_MOST_OPERANDS], outputs[LG_MOST_OPERANDS], scratch, packed;
} views;

static int set_arguments(lg_device *d, const linnet_work *work, lg_state *state, const lg_launch *launch,
                         cl_kernel kernel, views *seen) {
    for (int i = 0; i < launch->n_arguments; ++i) {
        const lg_argument *a = &launch->arguments[i];
        const linnet_span *span = NULL;
        cl_mem *view = NULL;
        const void *value = NULL;
        size_t size = sizeof(cl_mem);
        int code = 0;
        switch (a->kind) {
        case LG_INPUT: span = &work->inputs[0][a->index], view = &seen->inputs[a->index]; break;
        case LG_OUTPUT: span = &work->outputs[0][a->index], view = &seen->outputs[a->index]; break;
        case LG_SCRATCH: span = &work->scratch, view = &seen->scratch; break;
        case LG_PACKED: span = &work->packed, view = &seen->packed; break;
        case LG_INTEGER: value = &a->integer, size = sizeof a->integer; break;
        default: value = &a->real, size = sizeof a->real; break;
        }
        if (view != NULL) {
            if (*view == NULL) code = view_of(d, state, span, view);
            if (code != 0) return code;
            value = view;
        }
        code = d->cl->SetKernelArg(kernel, (cl_uint)i, size, value);
        if (code != 0) return code;
    }
    return 0;
}

static int prepare_launches(lg_device *d, const linnet_work *work, const lg_plan *plan, lg_state *state) {
    views seen = {0};
    for (int i = 0; i < plan->n; ++i) {
        const lg_launch *launch = &plan->launches[i];
        lg_ready *ready = &state->launches[i];
        cl_program program = NULL;
        cl_int code = CL_SUCCESS;
        code = lg_build(d, launch, work->cache, &program);
        if (code != 0) return code;
        ready->kernel = d->cl->CreateKernel(program, launch->kernel, &code);
        if (code != 0) return code;
        state->n_launches = i + 1;
        for (int k = 0; k < 3; ++k) {
            ready->local[k] = launch->local[k];
            ready->global[k] = (launch->global[k] + launch->local[k] - 1) / launch->local[k] * launch->local[k];
        }
        code = set_arguments(d, work, state, launch, ready->kernel, &seen);
        if (code != 0) return code;
    }
    return 0;
}

static int prepare_claim(lg_device *d, lg_queue *q, const linnet_work *work, const lg_plan *plan, lg_state *state) {
    state->launches = calloc((size_t)plan->n, sizeof *state->launches);
    state->views = calloc(sizeof(views) / sizeof(cl_mem), sizeof *state->views);
    if (state->launches == NULL || state->views == NULL) return LG_NO_MEMORY;
    int code = prepare_launches(d, work, plan, state);
    if (code == 0 && plan->packed.length > 0) /* a blocking write, because the bytes are freed with the plan */
        code = d->cl->EnqueueWriteBuffer(q->queue, lg_buffer(work->packed.buffer), CL_TRUE, (size_t)work->packed.offset,
                                         plan->packed.length, plan->packed.at, 0, NULL, NULL);
    if (code != 0 || !plan->checks) return code;
    state->queue = q;
    lg_check_add(&q->checks, &state->check, state->found, d->machine.host, work, plan);
    return 0;
}

static int prepare(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *out) {
    lg_device *d = context;
    lg_plan plan = {0};
    lg_state *state = calloc(1, sizeof *state);
    if (state == NULL) return LG_NO_MEMORY;
    int code = lg_plan_work(&d->machine, work, &plan);
    if (code == 0) code = prepare_claim(d, lg_queue_of(queue), work, &plan, state);
    lg_plan_free(&plan);
    if (code != 0)
        free_state(d, state);
    else
        *out = (uintptr_t)state;
    return code;
}

static void unprepare(void *context, linnet_handle state) { free_state(context, (lg_state *)(uintptr_t)state); }

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle handle) {
    const lg_device *d = context;
    lg_state *state = (lg_state *)(uintptr_t)handle;
    const bool timed = work->trace;
    for (int i = 0; i < state->n_launches; ++i) {
        lg_ready *l = &state->launches[i];
        if (l->event != NULL) d->cl->ReleaseEvent(l->event);
        l->event = NULL;
        const int code = d->cl->EnqueueNDRangeKernel(lg_queue_of(queue)->queue, l->kernel, 3, NULL, l->global, l->local,
                                                     0, NULL, timed ? &l->event : NULL);
        if (code != 0) return code;
    }
    if (state->queue == NULL) return 0;
    return d->cl->EnqueueReadBuffer(lg_queue_of(queue)->queue, lg_buffer(state->check.status.buffer), CL_FALSE,
                                    (size_t)state->check.status.offset, sizeof state->found, state->found, 0, NULL,
                                    NULL);
}

int lg_check(lg_device *d, lg_queue *queue) {
    static const int32_t none[2] = {0, 0};
    const lg_index_check *check = lg_check_take(queue->checks);
    if (check == NULL) return 0;
    d->cl->EnqueueWriteBuffer(queue->queue, lg_buffer(check->status.buffer), CL_TRUE, (size_t)check->status.offset,
                              sizeof none, none, 0, NULL, NULL);
    return lg_check_failure(&d->failures, check);
}

static int elapsed(void *context, const linnet_work *work, linnet_handle handle, uint64_t *ns) {
    const lg_device *d = context;
    const lg_state *state = (const lg_state *)(uintptr_t)handle;
    (void)work;
    *ns = 0;
    for (int i = 0; i < state->n_launches; ++i) {
        uint64_t from = 0, to = 0;
        if (state->launches[i].event == NULL) continue;
        const int code = d->cl->GetEventProfilingInfo(state->launches[i].event, CL_PROFILING_COMMAND_START, sizeof from,
                                                      &from, NULL);
        if (code != 0) return code;
        if (d->cl->GetEventProfilingInfo(state->launches[i].event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL) == 0)
            *ns += to - from;
    }
    return 0;
}

void lg_work_functions(linnet_device *table) {
    table->claim = claim;
    table->prepare = prepare;
    table->unprepare = unprepare;
    table->run = run;
    table->elapsed = elapsed;
}
