/* lower.c - turns nodes into steps: fills in calls, locates operands, and shares work among threads.
 * In a plan, only graph/prepare.c and the fusion pass call kernels. The fusion pass asks whether a kernel supports an
 * epilogue. */
#include "plan/compile/lower.h"

#include "plan/compile/operands.h"
#include "plan/compile/packed.h"
#include "plan/compile/program.h"
#include "plan/compile/body_steps.h"
#include "plan/compile/device_steps.h"
#include "plan/compile/stored.h"
#include "plan/graph/call.h"
#include "plan/graph/device_nodes.h"
#include "plan/graph/prepare.h"

#include <stdio.h>
#include <string.h>

/* Returns the number of pieces of a thread's range. The work of a piece takes much longer than the thread needs to get
 * the piece. */
static uint8_t pieces_for(const ln_call *call, int phase, double ns, int threads) {
    enum { MOST = 8, PIECE_NS = 8000 };
    const double repeated = call->phases > 2 ? call->phases - 1 : 1;
    const int64_t items = call->work[phase] / threads, most = (int64_t)(ns / repeated / threads / PIECE_NS);
    return (uint8_t)ln_max(1, ln_min(MOST, ln_min(items, most)));
}

static linnet_status configure(ln_work *w, ln_program *program, ln_step *step, const ln_work_node *node) {
    ln_call *call = &step->call;
    double ns = 0;
    const linnet_status status = ln_node_prepare(w, node, call, &step->kernel, &ns);
    if (status != LINNET_OK) return status;
    for (int phase = 0; phase < 2 && phase < call->phases; ++phase) {
        step->threads[phase] = node->branch > 0 ? 1 : ln_phase_threads(call, phase, ns);
        step->pieces[phase] = pieces_for(call, phase, ns, step->threads[phase]);
        if (step->threads[phase] > 1) program->parallel = true;
    }
    const int most = (int)ln_max(step->threads[0], step->threads[1]);
    step->ns = (float)ln_threads_ns(call->machine, ns, most);
    if (call->packed_bytes > 0) {
        ln_packs_describe(w->model, step);
        const ln_step *like = ln_packs_find(program, step); /* for example the step of another iteration of an
                                                               unrolled loop */
        bool read_only = false;
        for (int i = 0; i < call->n_inputs; ++i) read_only |= call->inputs[i].read_only;
        step->stored = read_only || like != NULL ? -1 : ln_stored_find(w->model, step);
        if (step->stored >= 0)
            program->stored_bytes += call->packed_bytes;
        else if (read_only)
            step->packed_variable = like != NULL ? like->packed_variable : program->n_packed_variables++;
        else
            step->packed = like != NULL ? like->packed : program->n_packed++;
        program->packs_variables |= read_only;
        const ln_program *root = program;
        while (root->outer != NULL) root = root->outer;
        if (like == NULL && step->stored < 0 && !ln_packed_before(root, step)) {
            program->packed_bytes += ln_packed_size(call);
            if (read_only) program->packed_variable_bytes += ln_packed_size(call);
        }
        if (like == NULL && step->stored < 0) ln_packs_enter(program, step);
    }
    if (call->scratch_bytes > program->scratch_shared)
        program->scratch_shared = ln_round_up(call->scratch_bytes, LN_ALIGNMENT);
    if (call->scratch_thread > program->scratch_thread)
        program->scratch_thread = ln_round_up(call->scratch_thread, LN_ALIGNMENT);
    if (node->branch > 0 && call->scratch_bytes > program->scratch_beside)
        program->scratch_beside = ln_round_up(call->scratch_bytes, LN_ALIGNMENT);
    return LINNET_OK;
}

/* Builders may leave nodes without a name, but their results always have one. A copy or cast that planning added is
 * called after its operand, as in "copy(x)". */
static const char *display_name(const ln_work *w, ln_program *program, const ln_work_node *node) {
    if (node->index < 0 && node->op != NULL && node->n_inputs == 1 && node->inputs[0] >= 0) {
        const char *op = node->op->name, *of = ln_value_at(w, node->inputs[0])->name;
        const size_t size = strlen(op) + strlen(of) + 3;
        char *text = ln_pool_alloc(&program->pool, size);
        if (text != NULL) snprintf(text, size, "%s(%s)", op, of);
        return text; /* NULL: the pool has failed, and so will the plan */
    }
    if (node->name[0] != 0 || node->n_outputs == 0 || node->outputs[0] < 0) return node->name;
    return ln_value_at(w, node->outputs[0])->name;
}

static linnet_status lower_transfer(ln_work *w, ln_program *program, const ln_work_node *node, ln_step *step) {
    step->device = node->device;
    step->event = node->event;
    if (node->n_outputs == 0) {
        step->kind = LN_STEP_WAIT;
        step->bytes = 0;
        return LINNET_OK;
    }
    const ln_operand *from = &step->inputs[0], *to = &step->outputs[0];
    step->bytes /= 2;
    step->kind = ln_on_cpu(from->device) ? LN_STEP_UPLOAD : ln_on_cpu(to->device) ? LN_STEP_DOWNLOAD : LN_STEP_COPY;
    step->number = program->n_transfers++;
    if (step->kind == LN_STEP_DOWNLOAD) ln_note_download(w, node->inputs[0], program->n_steps);
    const int32_t there = step->kind == LN_STEP_DOWNLOAD ? node->inputs[0] : node->outputs[0];
    step->token = ln_token_of(w, there);
    step->token_bytes = ln_device_bytes(w, there) - ln_device_at(w, ln_value_at(w, there)->device)->limits.padding;
    if (to->region == LN_REGION_WEIGHTS) {
        const ln_device_memory *m = &program->devices[to->device];
        for (step->weight = 0;
             m->weights[step->weight].chunk != to->index || m->weights[step->weight].offset != to->offset;)
            ++step->weight;
        program->reads_variables = true;
    }
    step->ns = (float)ln_transfer_ns(ln_device_at(w, ln_value_at(w, there)->device), step->bytes);
    for (int k = 0; step->event > 0 && k < (step->kind == LN_STEP_COPY ? 2 : 1); ++k)
        program->event_devices[step->event - 1 + k] = k == 0 ? from->device : to->device;
    return LINNET_OK;
}

/* Returns the next node that becomes a step or a commit, from *i on; NULL: none. */
static ln_work_node *next_node(const ln_work *w, int32_t *i) {
    while (*i < w->nodes.count) {
        ln_work_node *node = ln_node_at(w, (*i)++);
        if (node->state == LN_NODE_READY && (node->claim == NULL || node->claim->nodes[0] == node)) return node;
    }
    return NULL;
}

/* Tells whether the node's first input is the last result of the node before it. Their calls then share this tensor. */
static bool continues(const ln_work_node *before, const ln_work_node *node) {
    return before != NULL && before->n_outputs > 0 && ln_slots(node) > 0 &&
           node->inputs[0] == before->outputs[before->n_outputs - 1];
}

static bool same_place(const ln_operand *a, const ln_operand *b) {
    return a->region == b->region && a->device == b->device && a->index == b->index && a->offset == b->offset &&
           a->region != LN_REGION_NONE && a->region != LN_REGION_HOST;
}

static linnet_status lower(ln_work *w, ln_program *program, const ln_work_node *node, ln_tensor *tensors,
                           ln_step *step) {
    const int n_in = ln_slots(node);
    linnet_status status = ln_node_call_in(w, node, &program->pool, tensors, &step->call);
    if (status != LINNET_OK) return status;
    ln_operand *operands = ln_pool_array(&program->pool, (int64_t)n_in + node->n_outputs, sizeof *operands);
    if (operands == NULL) return ln_work_no_memory(w);
    step->inputs = operands;
    step->outputs = operands + n_in;
    step->name = display_name(w, program, node);
    step->index = node->index;
    step->fused = node->map != NULL ? display_name(w, program, node->map) : "";
    step->dims_slot = step->packed = step->packed_variable = step->stored = step->weight = -1;
    step->reason = node->reason;
    step->threads[0] = step->threads[1] = 1;
    for (int i = 0; i < n_in + node->n_outputs; ++i) {
        const int32_t value = i < n_in ? node->inputs[i] : node->outputs[i - n_in];
        operands[i] = ln_operand_of(w, value);
        if (operands[i].region == LN_REGION_VARIABLE) program->reads_variables = true;
        step->updates |= i >= n_in && operands[i].region == LN_REGION_VARIABLE;
        if (value < 0 || operands[i].region == LN_REGION_NONE) continue;
        const bool table = i == 0 && node->op != NULL && (node->op->flags & LN_OP_LOOKS_UP);
        step->bytes += ln_known_bytes(&ln_value_at(w, table ? node->outputs[0] : value)->tensor);
    }
    step->call.in_place = n_in > 0 && node->n_outputs > 0 && same_place(&operands[0], &operands[n_in]);
    if (step->call.in_place && node->op != NULL && node->op->count != NULL && !ln_is_family(node, LN_FAMILY_MAP)) {
        ln_counts counts;
        ln_count_call(&step->call, &counts);
        step->bytes = (uint64_t)(counts.read + counts.written);
    }
    if (LN_HAS_DEVICES && node->op == NULL) return lower_transfer(w, program, node, step);
    if (LN_HAS_DEVICES && node->claim != NULL) return ln_lower_claim(w, program, node->claim, step);
    step->kind = LN_STEP_KERNEL;
    if (node->bodies[0] != NULL && (status = ln_body_lower(w, program, node, step)) != LINNET_OK) return status;
    bool dependent = false;
    for (int o = 0; o < node->n_outputs; ++o)
        dependent |= node->outputs[o] >= 0 && ln_value_at(w, node->outputs[o])->bounded;
    if (dependent) {
        step->dims_slot = program->n_dims;
        program->n_dims += node->n_outputs;
    }
    return step->kind == LN_STEP_KERNEL ? configure(w, program, step, node) : LINNET_OK;
}

/* Counts the branches of each fork, and how many steps they have. A branch whose nodes all became views has none. */
static linnet_status make_forks(ln_work *w, ln_program *program) {
    program->forks = ln_pool_array(&program->pool, w->parallel.forks.count, sizeof *program->forks);
    for (int32_t f = 0; program->forks != NULL && f < w->parallel.forks.count; ++f) {
        ln_fork_branch *branches = ln_pool_array(&program->pool, ln_fork_at(w, f + 1)->branches, sizeof *branches);
        program->forks[f].branches = branches;
    }
    return program->pool.failed ? ln_work_no_memory(w) : LINNET_OK;
}

/* Adds the step to the fork of its node. `before`: the node of the step before it. */
static void enter_fork(ln_program *program, const ln_work_node *before, const ln_work_node *node, const ln_step *step) {
    ln_fork *fork = &program->forks[node->fork - 1];
    if (fork->n_branches == 0) fork->first = program->n_steps;
    if (fork->n_branches == 0 || before->branch != node->branch) ++fork->n_branches;
    ln_fork_branch *branch = (ln_fork_branch *)(uintptr_t)&fork->branches[fork->n_branches - 1];
    branch->end = fork->end = program->n_steps + 1;
    branch->ns += (double)step->ns;
}

/* Keeps the forks that still have several branches. */
static void finish_forks(ln_work *w, ln_program *program) {
    program->lanes = 1;
    for (int32_t f = 0; f < w->parallel.forks.count; ++f) {
        ln_fork fork = program->forks[f];
        if (fork.n_branches < 2) continue;
        for (int32_t b = 0; b < fork.n_branches; ++b) fork.ns += fork.branches[b].ns;
        double lanes[LN_MOST_LANES] = {0};
        const int n = ln_lanes_of(&fork, w->settings.threads);
        for (int32_t b = 0; b < fork.n_branches; ++b) ln_give_lane(lanes, n, fork.branches[b].ns);
        program->ns += ln_lanes_ns(w->settings.machine, lanes, n) - fork.ns;
        program->lanes = (int32_t)ln_max(program->lanes, n);
        program->parallel = true;
        program->forks[program->n_forks++] = fork;
        program->steps[fork.first].fork = program->n_forks;
    }
}

enum { SLOW = 10000 }; /* nanoseconds; a step that takes so long is not slower for a check of the clock before it */

linnet_status ln_lower_steps(ln_work *w) {
    ln_program *program = w->result.program;
    int32_t steps = 0, commits = 0;
    int64_t n_tensors = 0;
    ln_work_node *node, *before = NULL;
    for (int32_t i = 0; (node = next_node(w, &i)) != NULL;) {
        if (ln_is_assign(node)) {
            ++commits;
            continue;
        }
        ++steps;
        node->continues = continues(before, node);
        n_tensors += ln_call_tensors(node) - node->continues;
        before = node;
    }
    ln_tensor *tensors = ln_pool_array(&program->pool, n_tensors, sizeof *tensors);
    program->steps = ln_pool_array(&program->pool, steps, sizeof *program->steps);
    program->commits = ln_pool_array(&program->pool, commits, sizeof *program->commits);
    for (program->packing_size = 4; program->packing_size < 2 * steps;) program->packing_size *= 2;
    program->packing = ln_pool_array(&program->pool, program->packing_size, sizeof *program->packing);
    if (w->parallel.forks.count > 0 && make_forks(w, program) != LINNET_OK) return LINNET_OUT_OF_MEMORY;
    program->n_events = w->offload.n_events;
    if (w->offload.n_events > 0) program->event_devices = ln_pool_array(&program->pool, w->offload.n_events, 1);
    if (program->pool.failed) return ln_work_no_memory(w);
    before = NULL;
    for (int32_t i = 0; (node = next_node(w, &i)) != NULL;) {
        if (ln_is_assign(node)) {
            /* Either the step that computes the value overwrites the variable, or the value is copied into the variable
               at the end of the run, when nothing can fail any more. */
            const ln_work_value *variable = ln_value_at(w, node->inputs[0]), *value = ln_value_at(w, node->inputs[1]);
            ln_port *commit = &program->commits[program->n_commits++];
            commit->value = node->inputs[1];
            commit->index = variable->variable;
            commit->name = variable->name;
            commit->operand = ln_operand_of(w, node->inputs[1]);
            commit->tensor = value->tensor;
            commit->bytes = commit->operand.region == LN_REGION_VARIABLE && commit->operand.index == commit->index
                                ? 0
                                : ln_known_bytes(&value->tensor);
            commit->dims_slot = -1;
            program->writes_variables = true;
            continue;
        }
        ln_step *step = &program->steps[program->n_steps];
        tensors -= node->continues;
        const linnet_status status = lower(w, program, node, tensors, step);
        tensors += ln_call_tensors(node);
        if (status != LINNET_OK) return status;
        step->slow = step->updates || step->kind != LN_STEP_KERNEL || step->ns >= SLOW;
        program->ns += (double)step->ns;
        if (node->fork > 0) enter_fork(program, before, node, step);
        before = node;
        program->fallbacks +=
            step->reason == LN_REASON_CANNOT || step->reason == LN_REASON_COST || step->reason == LN_REASON_REFUSED;
        ++program->n_steps;
    }
    if (w->parallel.forks.count > 0) finish_forks(w, program);
    program->packed = ln_pool_array(&program->pool, program->n_packed, sizeof *program->packed);
    if (program->packed == NULL) return ln_work_no_memory(w);
    return w->offload.moves.count > 0 ? ln_lower_moves(w, program) : LINNET_OK;
}
