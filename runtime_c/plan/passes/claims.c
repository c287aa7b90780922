/* claims.c - asks devices about consecutive steps: private layouts of the values between the steps, and sequences of
 * steps that a device executes as one. */
#include "plan/passes/passes.h"

#include "base/layout.h"
#include "plan/graph/device_nodes.h"
#include "plan/graph/refusals.h"
#include "plan/graph/views.h"

/* ---- private layouts --------------------------------------------------------------------------------------------- */

/* Tells whether the node is a step on a device. Views are no steps, because they compute nothing. */
static bool is_step(const ln_work *w, const ln_work_node *node) {
    return node->state == LN_NODE_READY && ln_on_device(node) && !ln_is_view(w, node);
}

/* Checks the description of a layout that a device proposes. It must be an order of all axes, one of which may be
 * divided into blocks. */
static linnet_status check(ln_work *w, const ln_device *d, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    const uint32_t token = w->offload.tokens[value];
    linnet_layout layout = {.block = 0};
    const int rank = v->tensor.rank;
    bool good = d->is.describe != NULL && d->is.describe(d->is.context, token, rank, &layout) == 1;
    if (!good && d->is.layout_bytes != NULL) return LINNET_OK;
    unsigned seen = 0;
    uint64_t bytes;
    for (int i = 0; good && i < rank; ++i) {
        good = layout.order[i] >= 0 && layout.order[i] < rank && !(seen >> layout.order[i] & 1);
        if (good) seen |= 1u << layout.order[i];
    }
    good = good && layout.block >= 0 && layout.block_axis >= 0 && layout.block_axis < ln_max(rank, 1);
    if (good && ln_layout_bytes(&layout, &v->tensor, &bytes)) return LINNET_OK;
    ln_fail(w->error, LINNET_DEVICE_FAILED, "device %s failed to describe a layout", d->is.name);
    ln_at_node(w->error, -1, v->name);
    ln_expected(w->error, "an order of the %d axes of the value, and blocks of one axis that fit in memory", rank);
    ln_got(w->error, "the layout of token %u", (unsigned)token);
    return ln_hint(w->error, "report this bug of the device's library");
}

static linnet_status propose(ln_work *w, const ln_work_node *node) {
    const ln_device *d = ln_device_at(w, node->device);
    linnet_step step;
    if (d->is.propose == NULL) return LINNET_OK;
    linnet_status status = ln_device_step_of(w, node, node->device, &w->pool, &step);
    for (int o = 0; status == LINNET_OK && o < node->n_outputs; ++o) {
        const int32_t value = node->outputs[o];
        const ln_work_value *v = value >= 0 ? ln_value_at(w, value) : NULL;
        if (v == NULL || v->device != node->device || v->committed) continue;
        w->offload.tokens[value] = d->is.propose(d->is.context, &step, o);
        if (w->offload.tokens[value] != 0) status = check(w, d, value);
    }
    return status;
}

/* Makes a value dense unless all of its readers accept its layout. A download accepts every layout. */
static linnet_status accept_layouts(ln_work *w, const ln_work_node *node) {
    for (int k = 0; k < ln_slots(node); ++k) {
        uint32_t *token = node->inputs[k] >= 0 ? &w->offload.tokens[node->inputs[k]] : NULL;
        if (token == NULL || *token == 0) continue;
        if (node->op == NULL) {
            if (!ln_on_cpu(ln_value_at(w, node->outputs[0])->device)) *token = 0;
            continue;
        }
        const ln_device *d = ln_device_at(w, ln_value_at(w, node->inputs[k])->device);
        linnet_step step;
        const linnet_status status = ln_device_step_of(w, node, node->device, &w->pool, &step);
        if (status != LINNET_OK) return status;
        if (!is_step(w, node) || d->is.accept(d->is.context, &step, k, *token) != 1) *token = 0;
    }
    return LINNET_OK;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

enum { MOST_STEPS = 4096 }; /* steps that are offered to a device at once */

typedef struct run {
    ln_work_node *nodes[MOST_STEPS];
    int32_t positions[MOST_STEPS];
    int32_t n;
} run;

/* Collects the steps of one device from position `at` on. Views and assignments may lie between them. */
static void collect(const ln_work *w, run *r, int32_t at) {
    r->n = 0;
    const uint8_t place = ln_node_at(w, at)->device;
    for (; at < w->nodes.count && r->n < MOST_STEPS; ++at) {
        ln_work_node *node = ln_node_at(w, at);
        if (node->state != LN_NODE_READY || ln_is_assign(node)) continue;
        if (!ln_on_device(node) || node->device != place) return;
        if (!is_step(w, node)) continue;
        r->positions[r->n] = at;
        r->nodes[r->n++] = node;
    }
}

/* Returns the number of steps from `first` on, at most `count`, that have no other nodes between them. */
static int32_t close_steps(const ln_work *w, const run *r, int32_t first, int32_t count) {
    for (int32_t k = first + 1; k < first + count; ++k)
        for (int32_t at = r->positions[k - 1] + 1; at < r->positions[k]; ++at)
            if (ln_node_at(w, at)->state == LN_NODE_READY) return k - first;
    return count;
}

static linnet_status ask(ln_work *w, const ln_device *d, const run *r, int32_t first, const linnet_step *const *steps,
                         linnet_claim *claim) {
    int32_t count = r->n - first;
    for (;;) {
        *claim = (linnet_claim){.struct_size = sizeof *claim, .count = 1};
        const int code = d->is.claim != NULL ? d->is.claim(d->is.context, steps + first, count, claim) : 0;
        if (code != 0) return ln_device_failed(d, code, "claim a step", r->nodes[first]->name, w->error);
        if (claim->count < 0 || claim->count > count) {
            ln_device_failed(d, claim->count, "claim a step", r->nodes[first]->name, w->error);
            ln_expected(w->error, "a count of 0 to %d", count);
            return ln_hint(w->error, "report this bug of the device's library");
        }
        if (claim->count == 0) return ln_refuse(w, r->nodes[first], r->nodes[first]->device);
        const int32_t close = claim->fused ? close_steps(w, r, first, claim->count) : claim->count;
        if (close == claim->count) return LINNET_OK;
        count = close; /* a value inside a fused claim has no memory, so there can be no view of it */
    }
}

static linnet_status claim_run(ln_work *w, const run *r) {
    const ln_device *d = ln_device_at(w, r->nodes[0]->device);
    linnet_step *steps = ln_pool_array(&w->pool, r->n, sizeof *steps);
    const linnet_step **offered = ln_pool_array(&w->pool, r->n, sizeof *offered);
    ln_work_node **nodes = ln_pool_array(&w->pool, r->n, sizeof *nodes);
    if (w->pool.failed) return ln_work_no_memory(w);
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < r->n && status == LINNET_OK; ++i) {
        nodes[i] = r->nodes[i];
        offered[i] = &steps[i];
        status = ln_device_step_of(w, nodes[i], nodes[i]->device, &w->pool, &steps[i]);
    }
    for (int32_t first = 0; first < r->n && status == LINNET_OK;) {
        ln_work_claim **slot = ln_list_add(w, &w->offload.claims, sizeof *slot);
        ln_work_claim *c = slot != NULL ? ln_pool_alloc(&w->pool, sizeof *c) : NULL;
        if (c == NULL) return ln_work_no_memory(w);
        *slot = c;
        status = ask(w, d, r, first, offered, &c->is);
        if (status != LINNET_OK) return status;
        if (c->is.count == 0) { /* refused */
            nodes[first++]->claim = c;
            continue;
        }
        c->nodes = nodes + first;
        c->first = r->positions[first];
        c->last = r->positions[first + c->is.count - 1];
        for (int32_t i = 0; i < c->is.count; ++i) nodes[first + i]->claim = c;
        first += c->is.count;
    }
    return status;
}

/* Counts the readers of each value. The counts stay correct, because no later pass adds a reader. */
static bool count_readers(ln_work *w) {
    int32_t *readers = ln_pool_array(&w->pool, w->values.count, sizeof *readers);
    if (readers == NULL) return false;
    for (int32_t i = 0; i < w->values.count; ++i) {
        const ln_work_value *v = ln_value_at(w, i);
        readers[i] = v->fetched || v->exported || v->committed;
    }
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int k = 0; node->state == LN_NODE_READY && k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0) readers[node->inputs[k]]++;
    }
    w->offload.readers = readers;
    return true;
}

linnet_status ln_pass_claims(ln_work *w) {
    linnet_status status = LINNET_OK;
    w->offload.tokens = ln_pool_array(&w->pool, w->values.count, sizeof *w->offload.tokens);
    if (w->offload.tokens == NULL) return ln_work_no_memory(w);
    if (ln_device_count(w->settings.n_devices) == 0) return LINNET_OK;
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i)
        if (is_step(w, ln_node_at(w, i))) status = propose(w, ln_node_at(w, i));
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i)
        if (ln_node_at(w, i)->state == LN_NODE_READY && ln_node_at(w, i)->n_outputs > 0)
            status = accept_layouts(w, ln_node_at(w, i));
    run *r = status == LINNET_OK && count_readers(w) ? ln_pool_alloc(&w->pool, sizeof *r) : NULL;
    if (r == NULL) return status != LINNET_OK ? status : ln_work_no_memory(w);
    for (int32_t i = 0; i < w->nodes.count && status == LINNET_OK; ++i) {
        if (!is_step(w, ln_node_at(w, i)) || ln_node_at(w, i)->claim != NULL) continue;
        collect(w, r, i);
        status = claim_run(w, r);
    }
    return status == LINNET_OK ? ln_end_if_refused(w) : status;
}
