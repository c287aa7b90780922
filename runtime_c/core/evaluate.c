/* evaluate.c - computing one op at once; plan-time memory and run-time index errors of a call.
 * Used for constant folding and by linnet_op_evaluate. */
#include "core/evaluate.h"

#include "core/error.h"

#include <stdio.h>
#include <string.h>

void *ln_call_state(ln_call *call, size_t bytes) { return ln_pool_alloc(call->plan, bytes); }

linnet_status ln_index_error(const ln_buffers *b, const char *operand, int64_t index, int64_t low, int64_t high) {
    struct ln_run_error *e = b->error;
    if (e != NULL && atomic_exchange(&e->raised, 1) == 0) {
        e->operand = operand;
        e->index = index;
        e->low = low;
        e->high = high;
    }
    return LINNET_INDEX_OUT_OF_RANGE;
}

linnet_status ln_run_error_fail(const struct ln_run_error *raised, linnet_status status, linnet_error *error) {
    if (status != LINNET_INDEX_OUT_OF_RANGE || !atomic_load(&raised->raised))
        return ln_fail(error, status, "the kernel failed: %s", linnet_status_name(status));
    ln_fail(error, status, "an index that came with the data lies outside its tensor");
    ln_expected(error, "%s from %lld to %lld", raised->operand, (long long)raised->low, (long long)raised->high);
    ln_got(error, "%lld", (long long)raised->index);
    return ln_hint(error, "give indices inside the tensor");
}

linnet_status ln_no_kernel(const ln_call *call, linnet_error *error) {
    char text[96];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < call->n_inputs + call->n_outputs && used + 8 < sizeof text; ++i) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        const char *name = linnet_dtype_name(t->dtype);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 i == call->n_inputs ? " -> "
                                 : i                 ? ", "
                                                     : "",
                                 name ? name : "?");
    }
    ln_fail(error, LINNET_UNSUPPORTED, "no kernel for %s with these types and shapes", call->op->name);
    ln_expected(error, "operand types listed for %s in docs/ops.md", call->op->name);
    ln_got(error, "%s", text);
    return ln_hint(error, "cast the operands, or check their quantization");
}

linnet_status ln_evaluate(ln_memory *memory, const ln_op *op, const void *attributes, int n_inputs,
                          const ln_tensor *inputs, int n_outputs, const ln_tensor *outputs, void *const *data, int isa,
                          bool reference, int64_t *output_dims, linnet_error *error) {
    ln_pool pool;
    ln_pool_init(&pool, memory);
    ln_call call = {.op = op,
                    .attributes = attributes,
                    .n_inputs = n_inputs,
                    .n_outputs = n_outputs,
                    .inputs = inputs,
                    .outputs = outputs,
                    .inner = outputs,
                    .isa = isa,
                    .threads = 1,
                    .phases = 1,
                    .work = {1, 1},
                    .grain = 1,
                    .plan = &pool};
    const ln_kernel *kernel = ln_choose_kernel(&call, isa, reference);
    if (kernel == NULL) {
        ln_pool_free(&pool);
        return ln_no_kernel(&call, error);
    }
    linnet_status status = kernel->configure ? kernel->configure(&call) : LINNET_OK;
    struct ln_run_error raised = {.raised = 0};
    const void **in = ln_pool_array(&pool, n_inputs, sizeof *in);
    char *packed = call.packed_bytes ? ln_memory_alloc(memory, call.packed_bytes) : NULL;
    char *scratch = call.scratch_bytes ? ln_memory_alloc(memory, call.scratch_bytes) : NULL;
    char *thread = call.scratch_thread ? ln_memory_alloc(memory, call.scratch_thread) : NULL;
    if (status == LINNET_OK && (in == NULL || (call.packed_bytes && !packed) || (call.scratch_bytes && !scratch) ||
                                (call.scratch_thread && !thread)))
        status = LINNET_OUT_OF_MEMORY;
    if (status == LINNET_OK) {
        for (int i = 0; i < n_inputs; ++i) /* an empty operand is not an absent one */
            in[i] = inputs[i].data != NULL || inputs[i].dtype == LINNET_NONE ? inputs[i].data : &raised;
        if (packed && kernel->pack) kernel->pack(&call, packed);
        ln_buffers b = {.inputs = in,
                        .outputs = data,
                        .packed = packed,
                        .scratch = scratch,
                        .thread_scratch = thread != NULL ? thread : (char *)(void *)&raised,
                        .thread_stride = call.scratch_thread,
                        .output_dims = output_dims,
                        .error = &raised};
        for (int phase = 0; phase < call.phases && status == LINNET_OK; ++phase)
            status = kernel->run(&call, &b, phase, 0, call.work[phase > 0], 0);
        if (status != LINNET_OK) ln_run_error_fail(&raised, status, error);
    } else {
        ln_fail(error, status, "cannot prepare %s for evaluation", op->name);
    }
    ln_memory_free(memory, packed, call.packed_bytes);
    ln_memory_free(memory, scratch, call.scratch_bytes);
    ln_memory_free(memory, thread, call.scratch_thread);
    ln_pool_free(&pool);
    return status;
}
