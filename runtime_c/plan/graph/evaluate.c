/* evaluate.c - computes one op immediately, and turns the errors of a call into messages.
 * Used for constant folding and by linnet_op_evaluate. */
#include "plan/graph/evaluate.h"

#include "base/error.h"
#include "dispatch/dispatch.h"
#include "kernel/map.h"
#include "kernel/parts.h"
#include "kernel/user.h"

#include <stdio.h>
#include <string.h>

linnet_status ln_run_error_fail(const struct ln_run_error *raised, linnet_status status, linnet_error *error) {
    if (status == LINNET_USER_OP_FAILED) return ln_user_failed("", raised->operand, raised->text, error);
    if (status != LINNET_INDEX_OUT_OF_RANGE || !atomic_load(&raised->raised))
        return ln_fail(error, status, "the kernel failed: %s", linnet_status_name(status));
    ln_fail(error, status, "an index in the data is out of range");
    ln_expected(error, "%s from %lld to %lld", raised->operand, (long long)raised->low, (long long)raised->high);
    ln_got(error, "%lld", (long long)raised->index);
    return ln_hint(error, "use indices within the tensor");
}

linnet_status ln_no_kernel(const ln_call *call, linnet_error *error) {
    char text[96];
    size_t used = 0;
    text[0] = 0;
    if (!ln_has_kernel(call->op->id)) { /* a build can leave out only the ops of training */
        char kernels[64];
        snprintf(kernels, sizeof kernels, "the op %s", call->op->name);
        return ln_left_out(kernels, "LINNET_TRAINING", error);
    }
    for (int i = 0; i < call->n_inputs + call->n_outputs && used + 8 < sizeof text; ++i) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        const char *name = linnet_dtype_name(t->dtype);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 i == call->n_inputs ? " -> "
                                 : i                 ? ", "
                                                     : "",
                                 name ? name : "?");
    }
    ln_fail(error, LINNET_UNSUPPORTED, "no kernel supports %s with these dtypes and shapes", call->op->name);
    ln_expected(error, "operand dtypes listed for %s in docs/ops.md", call->op->name);
    ln_got(error, "%s", text);
    return ln_hint(error, "cast the operands, or check their quantization");
}

/* Packs the operands, whose values are now known. */
static bool pack(const ln_kernel *kernel, const ln_call *call, const void *const *operands, ln_pool *pool,
                 char *packed) {
    ln_call known = *call;
    ln_tensor *inputs = ln_pool_array(pool, call->n_inputs, sizeof *inputs);
    if (inputs == NULL) return false;
    for (int i = 0; i < call->n_inputs; ++i) {
        inputs[i] = call->inputs[i];
        inputs[i].data = operands[i];
    }
    known.inputs = inputs;
    kernel->code->pack(&known, packed);
    return true;
}

linnet_status ln_evaluate_call(ln_memory *memory, ln_call *call, bool reference, const void *const *operands,
                               void *const *data, int64_t *output_dims, linnet_error *error) {
    ln_pool pool;
    ln_pool_init(&pool, memory);
    call->threads = call->phases = 1;
    call->work[0] = call->work[1] = call->grain = 1;
    call->plan = &pool;
    const ln_kernel *kernel = ln_choose_kernel(call, reference, NULL);
    if (kernel == NULL) {
        ln_pool_free(&pool);
        return ln_no_kernel(call, error);
    }
    linnet_status status = kernel->code->configure ? kernel->code->configure(call) : LINNET_OK;
    struct ln_run_error raised = {.raised = 0};
    const int n_inputs = call->n_inputs + call->n_extra;
    const void **in = ln_pool_array(&pool, n_inputs, sizeof *in);
    char *packed = call->packed_bytes ? ln_memory_alloc(memory, call->packed_bytes) : NULL;
    char *scratch = call->scratch_bytes ? ln_memory_alloc(memory, call->scratch_bytes) : NULL;
    char *thread = call->scratch_thread ? ln_memory_alloc(memory, call->scratch_thread) : NULL;
    if (status == LINNET_OK && (in == NULL || (call->packed_bytes && !packed) || (call->scratch_bytes && !scratch) ||
                                (call->scratch_thread && !thread)))
        status = LINNET_OUT_OF_MEMORY;
    if (status == LINNET_OK) {
        for (int i = 0; i < n_inputs; ++i) { /* an empty operand must not look like an absent one */
            in[i] = operands != NULL ? operands[i] : call->inputs[i].data;
            if (in[i] == NULL && call->inputs[i].dtype != LINNET_NONE) in[i] = &raised;
        }
        if (packed && kernel->code->pack && !pack(kernel, call, in, &pool, packed)) status = LINNET_OUT_OF_MEMORY;
    }
    if (status == LINNET_OK) {
        ln_buffers b = {.inputs = in,
                        .outputs = data,
                        .packed = packed,
                        .scratch = scratch,
                        .thread_scratch = thread != NULL ? thread : (char *)(void *)&raised,
                        .thread_stride = call->scratch_thread,
                        .output_dims = output_dims,
                        .error = &raised};
        for (int phase = 0; phase < call->phases && status == LINNET_OK; ++phase)
            status = kernel->code->run(call, &b, phase, 0, call->work[phase > 0], 0);
        if (status != LINNET_OK) ln_run_error_fail(&raised, status, error);
    } else {
        ln_fail(error, status, "cannot prepare %s for evaluation", call->op->name);
    }
    ln_memory_free(memory, packed, call->packed_bytes);
    ln_memory_free(memory, scratch, call->scratch_bytes);
    ln_memory_free(memory, thread, call->scratch_thread);
    ln_pool_free(&pool);
    return status;
}

linnet_status ln_evaluate(ln_memory *memory, const ln_op *op, const void *attributes, int n_inputs,
                          const ln_tensor *inputs, int n_outputs, const ln_tensor *outputs, void *const *data,
                          ln_features features, bool reference, int64_t *output_dims, linnet_error *error) {
    ln_call call = {.op = op,
                    .attributes = attributes,
                    .n_inputs = n_inputs,
                    .n_outputs = n_outputs,
                    .inputs = inputs,
                    .outputs = outputs,
                    .inner = outputs,
                    .features = features};
    return ln_evaluate_call(memory, &call, reference, NULL, data, output_dims, error);
}

/* Evaluates the op of a step without its epilogue, because few kernels can apply a map to operands in every layout. */
static linnet_status evaluate_op(ln_memory *memory, const ln_call *like, const ln_tensor *inputs,
                                 const void *const *operands, void *const *outputs, linnet_error *error) {
    ln_call call = {.op = like->op,
                    .attributes = like->attributes,
                    .n_inputs = like->n_inputs,
                    .n_outputs = like->n_outputs,
                    .inputs = inputs,
                    .outputs = like->inner,
                    .inner = like->inner,
                    .features = like->features};
    return ln_evaluate_call(memory, &call, false, operands, outputs, NULL, error);
}

/* Computes the result of the op first, and then the map. */
static linnet_status evaluate_epilogue(ln_memory *memory, const ln_call *like, const ln_tensor *inputs,
                                       const void *const *operands, void *const *outputs, linnet_error *error) {
    const ln_epilogue *e = like->epilogue;
    ln_tensor tensors[LN_MAX_OPERANDS];
    const void *values[LN_MAX_OPERANDS];
    uint64_t bytes;
    void *inner = ln_bytes(like->inner, &bytes) ? ln_memory_alloc(memory, bytes + 1) : NULL;
    if (inner == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to evaluate a step");
    linnet_status status = evaluate_op(memory, like, inputs, operands, &inner, error);
    for (int i = 0; i < e->n_inputs; ++i) {
        const bool result = i == e->tile_input;
        tensors[i] = result ? *like->inner : inputs[like->n_inputs + e->operand[i]];
        values[i] = result ? inner : operands[like->n_inputs + e->operand[i]];
    }
    ln_call map = {.op = &ln_ops[LN_OP_MAP],
                   .attributes = e->map,
                   .n_inputs = e->n_inputs,
                   .n_outputs = 1,
                   .inputs = tensors,
                   .outputs = like->outputs,
                   .inner = like->outputs,
                   .features = like->features};
    if (status == LINNET_OK) status = ln_evaluate_call(memory, &map, false, values, outputs, NULL, error);
    ln_memory_free(memory, inner, bytes + 1);
    return status;
}

linnet_status linnet_step_evaluate(const linnet_step *step, const void *const *inputs, void *const *outputs,
                                   linnet_error *error) {
    if (!LN_HAS_DEVICES) return ln_left_out("linnet_step_evaluate", "LINNET_DEVICES", error);
    const ln_call *like = &step->call;
    const int n_inputs = like->n_inputs + like->n_extra;
    ln_memory memory;
    ln_memory_init(&memory, NULL);
    ln_tensor *given = ln_memory_alloc(&memory, (size_t)(n_inputs + 1) * sizeof *given);
    if (given == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to evaluate a step");
    for (int i = 0; i < n_inputs; ++i) {
        given[i] = like->inputs[i];
        if (given[i].data != NULL) given[i].data = inputs[i]; /* the plan may have freed its own constant */
    }
    const linnet_status status = like->epilogue != NULL
                                     ? evaluate_epilogue(&memory, like, given, inputs, outputs, error)
                                     : evaluate_op(&memory, like, given, inputs, outputs, error);
    if (status != LINNET_OK) ln_at_node(error, -1, step->name);
    ln_memory_free(&memory, given, (size_t)(n_inputs + 1) * sizeof *given);
    return status;
}
