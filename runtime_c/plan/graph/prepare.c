/* prepare.c - chooses the kernel of a node's call and has it prepare the call, and finds out on how many threads each
 * phase runs. Lowering keeps the call; passes ask how long it takes. */
#include "plan/graph/prepare.h"

#include "kernel/cost.h"
#include "kernel/map.h"
#include "map/map_epilogue.h"
#include "plan/graph/call.h"
#include "plan/graph/work.h"

int ln_phase_threads(const ln_call *call, int phase, double ns) {
    const int64_t n = call->work[phase] / (call->grain > 0 ? call->grain : 1);
    const double repeated = call->phases > 2 ? call->phases - 1 : 1;
    const int best = ln_best_threads(call->machine, ns / repeated, call->threads);
    return n < 1 ? 1 : n < best ? (int)n : best;
}

/* Lets the kernel pack variables in each run, if it can. The kernel is the same that would otherwise keep packed
 * copies, so max_bytes does not change the bits of a result. */
static void leave_unpacked(ln_call *call, const ln_kernel *kernel) {
    ln_tensor *inputs = (ln_tensor *)call->inputs; /* ln_node_call allocated them for this call */
    for (int i = 0; i < call->n_inputs; ++i) {
        inputs[i].lasting = inputs[i].read_only;
        inputs[i].read_only = false;
    }
    if (kernel->code->can == NULL || kernel->code->can(call)) return;
    for (int i = 0; i < call->n_inputs; ++i) inputs[i].read_only = inputs[i].lasting;
}

linnet_status ln_node_prepare(ln_work *w, const ln_work_node *node, ln_call *call, const ln_kernel **out, double *ns) {
    const ln_kernel *kernel = *out = ln_node_kernel(w, call, ns);
    linnet_status status;
    if (kernel == NULL) {
        status = ln_no_kernel(call, w->error);
        ln_at_node(w->error, node->index, node->name);
        return status;
    }
    if (w->settings.unpacked) leave_unpacked(call, kernel);
    if (call->epilogue != NULL && (status = ln_epilogue_prepare((ln_epilogue *)call->epilogue, call)) != LINNET_OK)
        return ln_fail(w->error, status, "cannot prepare the epilogue of %s", node->name);
    if (kernel->code->configure == NULL || (status = kernel->code->configure(call)) == LINNET_OK) return LINNET_OK;
    ln_fail(w->error, status, "cannot prepare kernel %s: %s", kernel->name, linnet_status_name(status));
    ln_at_node(w->error, node->index, node->name);
    return status;
}

linnet_status ln_node_times(ln_work *w, const ln_work_node *node, const struct ln_machine *machine, double ns[2]) {
    ln_pool pool;
    ln_call call;
    const ln_kernel *kernel;
    ln_pool_init(&pool, w->memory);
    linnet_status status = ln_node_call(w, node, &pool, &call);
    if (status == LINNET_OK) status = ln_node_prepare(w, node, &call, &kernel, &ns[0]);
    if (status == LINNET_OK) { /* each later phase is work of its own for the threads */
        const double repeated = call.phases > 2 ? call.phases - 1 : 1;
        const int last = call.phases > 1, threads = ln_phase_threads(&call, last, ns[0]);
        ns[1] = repeated *
                ln_threads_ns(machine, ns[0] / repeated, (int)ln_max(threads, ln_phase_threads(&call, 0, ns[0])));
    }
    ln_pool_free(&pool);
    return status;
}
