/* call.c - makes the ln_call of a node, which describes the node to a kernel, and finds the kernel that would run it.
 * Passes make temporary calls in order to ask for costs; lowering makes the call that a step keeps. */
#include "plan/graph/call.h"

#include "base/layout.h"
#include "base/structs.h"
#include "dispatch/dispatch.h"
#include "kernel/cost.h"
#include "kernel/map.h"
#include "map/map_epilogue.h"
#include "plan/graph/tuning.h"
#include "plan/graph/work.h"

#include <math.h>
#include <string.h>

/* Tells whether the value is a variable, or a part of one, that no run changes. */
static bool is_read_only(const ln_work *w, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    if (w->settings.read_only == NULL || !ln_on_cpu(v->device)) return false;
    const int32_t buffer = v->variable < 0 ? ln_home_of(w, value).buffer : -1;
    const ln_work_buffer *b = buffer >= 0 ? ln_buffer_at(w, buffer) : NULL;
    const int64_t variable = b != NULL && b->kind == LN_REGION_VARIABLE ? (int64_t)b->offset : v->variable;
    return variable >= 0 && w->settings.read_only[variable];
}

int64_t ln_call_tensors(const ln_work_node *node) {
    return (int64_t)ln_slots(node) + node->n_outputs + (node->map != NULL);
}

linnet_status ln_node_call(ln_work *w, const ln_work_node *node, ln_pool *pool, ln_call *call) {
    ln_tensor *tensors = ln_pool_array(pool, ln_call_tensors(node), sizeof *tensors);
    return tensors == NULL ? ln_work_no_memory(w) : ln_node_call_in(w, node, pool, tensors, call);
}

linnet_status ln_node_call_in(ln_work *w, const ln_work_node *node, ln_pool *pool, ln_tensor *tensors, ln_call *call) {
    memset(call, 0, sizeof *call);
    const int n_in = ln_slots(node);
    ln_tensor *inner = tensors + n_in, *outputs = inner + (node->map != NULL);
    for (int i = 0; i < n_in; ++i) {
        if (node->inputs[i] < 0) continue;
        tensors[i] = ln_value_at(w, node->inputs[i])->tensor;
        tensors[i].read_only = is_read_only(w, node->inputs[i]);
    }
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0) outputs[o] = ln_value_at(w, node->outputs[o])->tensor;
    call->op = node->op;
    call->attributes = node->attributes;
    call->n_inputs = node->n_inputs;
    call->n_outputs = node->n_outputs;
    call->inputs = tensors;
    call->outputs = outputs;
    call->inner = inner;
    call->n_extra = node->n_extra;
    call->features = w->settings.features;
    call->threads = w->settings.threads;
    call->precision = w->settings.precision;
    call->machine = w->settings.machine;
    call->phases = 1;
    call->work[0] = call->work[1] = call->grain = 1;
    call->plan = pool;
    if (node->map != NULL) {
        ln_epilogue *e = ln_pool_alloc(pool, sizeof *e);
        if (e == NULL) return ln_work_no_memory(w);
        *inner = ln_value_at(w, node->inner)->tensor;
        /* f16 and bf16 are storage types only, so a value that is never stored stays f32. */
        if (ln_is_half(inner->dtype)) inner->dtype = LINNET_F32;
        e->map = node->map->attributes;
        e->tile_input = node->tile_input;
        e->n_inputs = node->map->n_inputs;
        for (int i = 0, extra = 0; i < e->n_inputs; ++i) e->operand[i] = i == node->tile_input ? -1 : extra++;
        call->epilogue = e;
        ln_epilogue_describe(e, call);
    }
    return LINNET_OK;
}

const ln_kernel *ln_node_kernel(const ln_work *w, const ln_call *call, double *ns) {
    return w->settings.tuning != NULL ? ln_tuned_kernel(w->settings.tuning, call, w->settings.reference, ns)
                                      : ln_choose_kernel(call, w->settings.reference, ns);
}

bool ln_computes_half(const ln_work *w, const ln_work_node *node) {
    if (node->op == NULL || !(node->op->flags & LN_OP_COMPUTES_F32)) return false;
    for (int i = 0; i < node->n_inputs + node->n_outputs; ++i) {
        const int32_t v = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        if (v >= 0 && ln_is_half(ln_value_at(w, v)->tensor.dtype)) return true;
    }
    return false;
}

linnet_status ln_runs_in_f32(ln_work *w, const ln_work_node *node, bool *wide) {
    ln_call call;
    *wide = false;
    if (!ln_is_kernel(node) || !ln_computes_half(w, node)) return LINNET_OK;
    const linnet_status status = ln_node_call(w, node, &w->pool, &call);
    if (status != LINNET_OK) return status;
    double ns = INFINITY, wide_ns = INFINITY;
    const ln_kernel *direct = ln_node_kernel(w, &call, &ns);
    ln_tensor *tensors = (ln_tensor *)call.inputs; /* ln_node_call allocated them for this call */
    ln_counts casts = {.work = {0}};
    for (int i = 0; i < call.n_inputs + call.n_outputs; ++i) {
        if (!ln_is_half(tensors[i].dtype)) continue;
        tensors[i].dtype = LINNET_F32;
        if (tensors[i].data == NULL) casts.work[LN_RATE_MAP] += 3 * (double)ln_count(&tensors[i]);
    }
    const ln_kernel *other = ln_node_kernel(w, &call, &wide_ns);
    if (other == NULL || (other->flags & LN_KERNEL_REFERENCE && direct != NULL)) return LINNET_OK;
    /* A product may have a kernel for f32 that is worth the casts. */
    *wide = direct == NULL || (direct->flags & LN_KERNEL_REFERENCE) ||
            (call.op->flags & LN_OP_EPILOGUE &&
             wide_ns + ln_counts_ns(w->settings.machine, w->settings.features, &casts) < ns);
    return LINNET_OK;
}

/* Tells whether the op prefers channels-last memory for an operand, or (-1) for its results. */
static bool prefers_last(const ln_call *call, int operand) {
    const int wish = call->op->layouts >> 2 * (operand < 2 ? operand + 1 : 3) & 3;
    return call->op->layout == NULL && wish == LN_PREFER_CHANNELS_LAST && ln_channels_first(call->op, call->attributes);
}

/* Returns the cost of the call if the operands for which the op prefers channels-last memory are in `layout`. `tensors`
 * are those of the call: the inputs, then the op's result if the call has an epilogue, then the outputs. With an
 * epilogue, the op's result and all operands of the same rank have the layout of the output. */
static double cost_in(const ln_call *call, ln_tensor *tensors, int layout, const ln_tuning *tuning, bool reference) {
    const int n_in = call->n_inputs + call->n_extra, rank = call->n_outputs > 0 ? call->outputs->rank : 0;
    for (int k = 0; k < n_in + call->n_outputs + (call->epilogue != NULL); ++k) {
        ln_tensor *t = &tensors[k];
        if (ln_is_half(t->dtype)) t->dtype = LINNET_F32; /* ln_pass_storage may change it in this way */
        const bool own = k < call->n_inputs, same = t == call->outputs || (call->epilogue != NULL && t->rank == rank);
        if (layout == LN_LAYOUT_CHANNELS_LAST && (own || same) && t->rank >= 3 && prefers_last(call, own ? k : -1))
            ln_set_layout(t, LN_LAYOUT_CHANNELS_LAST);
    }
    double ns = INFINITY;
    if (tuning != NULL)
        ln_tuned_kernel(tuning, call, reference, &ns);
    else
        ln_choose_kernel(call, reference, &ns);
    return ns;
}

linnet_status ln_node_cost(ln_work *w, const ln_work_node *node, int layout, double *ns) {
    ln_call call;
    const linnet_status status = ln_node_call(w, node, &w->pool, &call);
    /* ln_node_call allocated the tensors for this call. */
    if (status == LINNET_OK)
        *ns = cost_in(&call, (ln_tensor *)call.inputs, layout, w->settings.tuning, w->settings.reference);
    return status;
}

double ln_on_threads(const ln_work *w, double ns) {
    return ln_threads_ns(w->settings.machine, ns, ln_best_threads(w->settings.machine, ns, w->settings.threads));
}

static linnet_step_counts count_op(const linnet_step *step) {
    enum { MOST = 2 * LN_MAX_OPERANDS };
    ln_counts counts;
    ln_count_call(&step->call, &counts);
    linnet_step_counts own = {.operations = counts.work[LN_RATE_MAP] + counts.work[LN_RATE_MOVE],
                              .read = counts.read,
                              .written = counts.written,
                              .cpu_ns = INFINITY};
    for (int i = LN_RATE_F32; i <= LN_RATE_I16; ++i) own.macs += counts.work[i];
    ln_call call = step->call;
    ln_tensor tensors[MOST];
    const int n_in = call.n_inputs + call.n_extra, n = n_in + call.n_outputs;
    if (n < MOST) {
        const bool epilogue = call.epilogue != NULL;
        memcpy(tensors, call.inputs, (size_t)n_in * sizeof *tensors);
        if (epilogue) tensors[n_in] = *call.inner;
        memcpy(tensors + n_in + epilogue, call.outputs, (size_t)call.n_outputs * sizeof *tensors);
        call.inputs = tensors;
        call.inner = tensors + n_in;
        call.outputs = call.inner + epilogue;
        own.cpu_ns = cost_in(&call, tensors, LN_LAYOUT_CHANNELS_LAST, NULL, false);
    } else {
        ln_choose_kernel(&call, false, &own.cpu_ns);
    }
    return own;
}

int64_t ln_trips(const ln_tensor *bound) {
    const int64_t most = bound != NULL && bound->data != NULL ? ln_load_i64(bound->data, bound->dtype, 0) : 1;
    return most > INT32_MAX ? 1 : ln_max(most, 1); /* exporters write the largest number for "no bound" */
}

/* A loop has the counts of all of its iterations, and a branch those of the side that takes longer. */
static linnet_step_counts count_step(const linnet_step *step) {
    linnet_step_counts own = {.cpu_ns = 0};
    if (step->bodies[0] == NULL) return count_op(step);
    for (int k = 0; k < 2 && step->bodies[k] != NULL; ++k) {
        linnet_step_counts sum = {.cpu_ns = 0};
        for (int32_t i = 0; i < step->bodies[k]->n_steps; ++i) {
            const linnet_step_counts one = count_step(&step->bodies[k]->steps[i]);
            sum.macs += one.macs;
            sum.operations += one.operations;
            sum.read += one.read;
            sum.written += one.written;
            sum.cpu_ns += one.cpu_ns;
        }
        if (k == 0 || sum.cpu_ns > own.cpu_ns) own = sum;
    }
    const bool bounded = step->bodies[1] == NULL && step->call.n_inputs > 0;
    const double trips = (double)ln_trips(bounded ? &step->call.inputs[0] : NULL);
    own.macs *= trips;
    own.operations *= trips;
    own.read *= trips;
    own.written *= trips;
    own.cpu_ns *= trips;
    return own;
}

linnet_status linnet_step_get_counts(const linnet_step *step, linnet_step_counts *out) {
    if (!LN_HAS_DEVICES) return LINNET_UNSUPPORTED;
    if (step == NULL) return LINNET_INVALID_ARGUMENT;
    const linnet_step_counts own = count_step(step);
    return LN_GIVE(linnet_step_counts, cpu_ns, &own, out);
}
