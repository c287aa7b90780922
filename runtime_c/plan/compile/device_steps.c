/* device_steps.c - turns what devices have claimed into steps of a program, and notes which new values of variables
 * stay on a device. */
#include "plan/compile/device_steps.h"

#include "plan/compile/operands.h"
#include "plan/compile/program.h"
#include "plan/graph/device_nodes.h"

#include <string.h>

/* Returns the names of all steps of the claim but the first, separated by "+". */
static const char *join_names(ln_program *program, const ln_work_claim *c) {
    size_t length = 1;
    for (int32_t i = 1; i < c->is.count; ++i) length += strlen(c->nodes[i]->name) + 1;
    char *text = ln_pool_alloc(&program->pool, length), *to = text;
    for (int32_t i = 1; text != NULL && i < c->is.count; ++i) {
        if (i > 1) *to++ = '+';
        const size_t n = strlen(c->nodes[i]->name);
        memcpy(to, c->nodes[i]->name, n);
        to += n;
    }
    return text;
}

linnet_status ln_lower_claim(ln_work *w, ln_program *program, const ln_work_claim *from, ln_step *step) {
    const uint8_t place = from->nodes[0]->device;
    ln_claim *c = ln_pool_alloc(&program->pool, sizeof *c);
    const int32_t n = from->is.count;
    if (c == NULL) return ln_work_no_memory(w);
    c->n = n;
    c->graph = w->offload.graph;
    c->number = program->n_claims++;
    c->first_member = program->n_members;
    c->first_span = program->n_spans;
    c->scratch_bytes = from->is.scratch_bytes;
    c->packed_bytes = from->is.packed_bytes;
    c->packed_chunk = from->packed_chunk;
    c->packed_offset = from->packed_offset;
    c->steps = ln_pool_array(&program->pool, n, sizeof *c->steps);
    c->operands = ln_pool_array(&program->pool, n, sizeof *c->operands);
    if (c->steps == NULL || c->operands == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < n; ++i) {
        const ln_work_node *node = from->nodes[i];
        const linnet_status status = ln_device_step_of(w, node, place, &program->pool, &c->steps[i]);
        if (status != LINNET_OK) return status;
        const int n_in = ln_slots(node), count = n_in + node->n_outputs;
        c->operands[i] = ln_pool_array(&program->pool, count, sizeof **c->operands);
        if (c->operands[i] == NULL) return ln_work_no_memory(w);
        for (int k = 0; k < count; ++k) {
            const int32_t value = k < n_in ? node->inputs[k] : node->outputs[k - n_in];
            const bool packed = from->is.packs && value >= 0 && ln_value_at(w, value)->host != NULL;
            /* The claim reads its own packed copy. The original may still be on the device, for a step that reads it
             * unpacked. */
            c->operands[i][k] = ln_operand_of(w, packed ? -1 : value);
        }
        program->n_spans += count;
        for (int k = 0; i > 0 && k < count; ++k) step->bytes += c->steps[i].values[k].bytes;
        if (node->reason != LN_REASON_NONE) step->reason = node->reason;
    }
    const linnet_step **scratch = ln_pool_array(&w->pool, n, sizeof *scratch);
    if (scratch == NULL) return ln_work_no_memory(w);
    step->ns = (float)ln_device_steps_ns(ln_device_at(w, place), c->steps, n, scratch);
    program->n_members += n;
    step->kind = LN_STEP_DEVICE;
    step->device = place;
    step->claim = c;
    c->kernel = from->is.kernel != NULL ? from->is.kernel : "device";
    if (n > 1) step->fused = join_names(program, from);
    return step->fused != NULL ? LINNET_OK : ln_work_no_memory(w);
}

void ln_note_download(ln_work *w, int32_t value, int32_t step) {
    ln_work_move *moves = w->offload.moves.items;
    for (int32_t i = 0; i < w->offload.moves.count; ++i)
        if (moves[i].value == value) moves[i].step = step;
}

/* Returns the number of the transfer that a run may leave out because the value can stay on the device, and marks the
 * copy into the store as optional too. Returns -1 if the run must store the value. */
static int32_t may_leave_out(ln_program *program, const ln_work_move *move, int32_t weight) {
    if (!move->alone || move->step < 0) return -1;
    for (int32_t i = 0; i < program->n_commits; ++i)
        program->commits[i].alone |= program->commits[i].index == move->variable;
    program->steps[move->step].weight = weight;
    return program->steps[move->step].number;
}

linnet_status ln_lower_moves(ln_work *w, ln_program *program) {
    const ln_work_move *moves = w->offload.moves.items;
    program->moves = ln_pool_array(&program->pool, w->offload.moves.count, sizeof *program->moves);
    if (program->moves == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < w->offload.moves.count; ++i) {
        const ln_operand to = ln_operand_of(w, moves[i].copy), from = ln_operand_of(w, moves[i].value);
        uint64_t bytes;
        if (to.region != LN_REGION_WEIGHTS || from.region == LN_REGION_NONE ||
            !ln_bytes(&ln_value_at(w, moves[i].value)->tensor, &bytes))
            continue;
        const ln_device_memory *m = &program->devices[to.device];
        int32_t at = 0;
        while (m->weights[at].chunk != to.index || m->weights[at].offset != to.offset) ++at;
        program->moves[program->n_moves++] =
            (ln_move){.weight = at, .from = from, .bytes = bytes, .transfer = may_leave_out(program, &moves[i], at)};
    }
    return LINNET_OK;
}
