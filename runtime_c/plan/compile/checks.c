/* checks.c - whether the facts of passes.inc hold, in builds with LN_CHECK_PASSES. Each check reads the whole graph and
 * changes nothing. */
#include "plan/compile/checks.h"

#include "base/layout.h"
#include "plan/compile/program.h"
#include "plan/graph/views.h"

#ifdef LN_CHECK_PASSES

#include <string.h>

/* The result of a check: the name of a node or value where the fact does not hold; NULL if it holds everywhere. */
typedef const char *where;

static where here(const ln_work_node *node) { return node->name; }

/* Makes a pool that uses malloc. So a check needs none of the plan's memory, and a failure of the host's allocator does
 * not make the check fail. */
static void own_pool(ln_pool *pool, ln_memory *memory) {
    ln_memory_init(memory, NULL);
    ln_pool_init(pool, memory);
}

static bool ready(const ln_work_node *node) { return node->state == LN_NODE_READY; }

/* Tells whether the value exists before any node runs. */
static bool given(const ln_work_value *v) {
    return v->host != NULL || v->tensor.data != NULL || v->variable >= 0 || v->imported || v->input >= 0;
}

static where check_shapes(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t o = 0; node->state == LN_NODE_WAITING && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0 && ln_value_at(w, node->outputs[o])->known) return here(node);
        if (!ready(node)) continue;
        for (int32_t k = 0; k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && !ln_value_at(w, node->inputs[k])->known) return here(node);
        for (int32_t o = 0; o < node->n_outputs; ++o) {
            const ln_work_value *v = node->outputs[o] >= 0 ? ln_value_at(w, node->outputs[o]) : NULL;
            if (v != NULL && (v->tensor.rank < 0 || (!v->known && !v->bounded))) return here(node);
        }
    }
    return NULL;
}

/* Checks that each value is made before a node reads it. The outputs of views, and of ops whose result an epilogue
 * takes, count as made, although these nodes do not run. */
static where check_order(const ln_work *w) {
    ln_memory memory;
    ln_pool pool;
    own_pool(&pool, &memory);
    bool *made = ln_pool_array(&pool, w->values.count, sizeof *made);
    where wrong = NULL;
    for (int32_t i = 0; made != NULL && i < w->nodes.count && wrong == NULL; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t k = 0; ready(node) && k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && !made[node->inputs[k]] && !given(ln_value_at(w, node->inputs[k])))
                wrong = here(node);
        for (int32_t o = 0; o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0) made[node->outputs[o]] = true;
    }
    ln_pool_free(&pool);
    return wrong;
}

static where check_uses(const ln_work *w) {
    ln_memory memory;
    ln_pool pool;
    own_pool(&pool, &memory);
    int32_t *uses = ln_pool_array(&pool, w->values.count, sizeof *uses);
    where wrong = NULL;
    for (int32_t i = 0; uses != NULL && i < w->nodes.count; ++i)
        for (int32_t k = 0; ready(ln_node_at(w, i)) && k < ln_slots(ln_node_at(w, i)); ++k)
            if (ln_node_at(w, i)->inputs[k] >= 0) ++uses[ln_node_at(w, i)->inputs[k]];
    for (int32_t v = 0; uses != NULL && v < w->values.count && wrong == NULL; ++v)
        if (uses[v] != ln_value_at(w, v)->uses) wrong = ln_value_at(w, v)->name;
    for (int32_t i = 0; uses != NULL && i < w->nodes.count && wrong == NULL; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        bool used = !ready(node) || ln_is_assign(node) || node->n_outputs == 0 || node->checks;
        for (int32_t o = 0; o < node->n_outputs && !used; ++o) {
            const ln_work_value *v = node->outputs[o] >= 0 ? ln_value_at(w, node->outputs[o]) : NULL;
            used = v != NULL && (v->uses > 0 || v->exported || v->fetched);
        }
        if (!used) wrong = here(node);
    }
    ln_pool_free(&pool);
    return wrong;
}

/* Tells whether a device reads or writes the value on the host. */
static bool shared(const ln_work *w, const ln_work_node *node, const ln_work_value *v) {
    return ln_on_device(node) && ln_on_cpu(v->device) && ln_device_at(w, node->device)->limits.shared;
}

static where check_places(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (!ready(node) || node->op == NULL) continue;
        for (int32_t k = ln_is_assign(node); k < ln_slots(node) + node->n_outputs; ++k) {
            const int32_t at = k < ln_slots(node) ? node->inputs[k] : node->outputs[k - ln_slots(node)];
            const ln_work_value *v = at >= 0 ? ln_value_at(w, at) : NULL;
            if (v == NULL || v->device == node->device) continue;
            if (!shared(w, node, v) || (k < ln_slots(node) ? v->input < 0 : !v->fetched)) return here(node);
        }
    }
    return NULL;
}

static where check_layouts(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        for (int32_t o = 0; ready(node) && o < node->n_outputs; ++o) {
            const ln_work_value *v = node->outputs[o] >= 0 ? ln_value_at(w, node->outputs[o]) : NULL;
            if (v == NULL || ln_count(&v->tensor) < 0) continue;
            if (!ln_has_layout(&v->tensor, v->tensor.layout)) return v->name;
            if ((v->fetched || v->exported) && !ln_is_dense(&v->tensor)) return v->name;
        }
    }
    return NULL;
}

/* Follows the submissions to the queue of one device: numbers in order, and the last one that the host has waited for.
 */
static where check_waits_of(const ln_work *w, uint8_t device, int32_t *number, int32_t *events) {
    int32_t submitted = 0, done = 0;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (!ready(node)) continue;
        if (node->op == NULL && node->n_outputs == 0) { /* a wait: for one download, or for all work */
            if (node->device == device) done = node->event > 0 ? events[node->event] : submitted;
            continue;
        }
        if (ln_is_assign(node)) continue; /* the value is copied after the end of the program */
        const bool own = !ln_is_kernel(node) && node->device == device;
        for (int32_t k = 0; !own && k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && number[node->inputs[k]] > done) return here(node);
        const bool leaves = node->op == NULL && ln_value_at(w, node->inputs[0])->device == device;
        if (!own && !leaves) continue;
        ++submitted; /* a copy between devices is in both queues */
        if (own && node->event > 0) events[node->event] = submitted;
        for (int32_t o = 0; own && o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0 && ln_on_cpu(ln_value_at(w, node->outputs[o])->device))
                number[node->outputs[o]] = submitted;
    }
    return done < submitted ? "the end of the program" : NULL;
}

static where check_waits(const ln_work *w) {
    where wrong = NULL;
    for (uint8_t d = 1; d <= ln_device_count(w->settings.n_devices) && wrong == NULL; ++d) {
        ln_memory memory;
        ln_pool pool;
        own_pool(&pool, &memory);
        int32_t *number = ln_pool_array(&pool, w->values.count, sizeof *number);
        int32_t *events = ln_pool_array(&pool, (int64_t)w->offload.n_events + 1, sizeof *events);
        if (number != NULL && events != NULL) wrong = check_waits_of(w, d, number, events);
        ln_pool_free(&pool);
    }
    return wrong;
}

static where check_claims(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (!ready(node) || !ln_on_device(node) || ln_is_view(w, node)) continue;
        if (node->claim == NULL || i < node->claim->first || i > node->claim->last) return here(node);
    }
    return NULL;
}

/* Tells whether the value's buffer, if it is in an arena, is alive at this position. */
static bool alive(const ln_work *w, int32_t value, int32_t at) {
    const int32_t buffer = value >= 0 ? ln_home_of(w, value).buffer : -1;
    if (buffer < 0) return true;
    const ln_work_buffer *b = ln_buffer_at(w, buffer);
    return b->kind != LN_REGION_ARENA || (b->first <= at && at <= b->last);
}

/* Tells whether two values share bytes. placed: buffers of the arena have their offsets. Parts of one value that are
 * not dense have its strides, so their bytes may lie between each other's. */
static bool share_bytes(const ln_work *w, int32_t x, int32_t y, bool placed) {
    const ln_home a = ln_home_of(w, x), b = ln_home_of(w, y);
    if (a.buffer < 0 || b.buffer < 0) return false;
    const ln_work_buffer *in = ln_buffer_at(w, a.buffer), *of = ln_buffer_at(w, b.buffer);
    const ln_tensor *t = &ln_value_at(w, x)->tensor, *u = &ln_value_at(w, y)->tensor;
    int64_t first = a.offset, second = b.offset;
    if (a.buffer == b.buffer) {
        if (!ln_is_dense(t) || !ln_is_dense(u)) return false;
    } else {
        if (!placed || in->kind != LN_REGION_ARENA || of->kind != LN_REGION_ARENA) return false;
        first += (int64_t)in->offset;
        second += (int64_t)of->offset;
    }
    return first < second + (int64_t)ln_known_bytes(u) && second < first + (int64_t)ln_known_bytes(t);
}

/* Tells whether no other branch of the fork touches memory that this node writes. */
static bool is_apart(const ln_work *w, int32_t at, bool placed) {
    const ln_work_node *node = ln_node_at(w, at);
    const ln_work_fork *fork = ln_fork_at(w, node->fork);
    for (int32_t i = fork->first; i < fork->end; ++i) {
        const ln_work_node *other = ln_node_at(w, i);
        if (!ready(other) || other->branch == node->branch) continue;
        for (int32_t k = 0; k < ln_slots(other) + other->n_outputs; ++k) {
            const int32_t v = k < ln_slots(other) ? other->inputs[k] : other->outputs[k - ln_slots(other)];
            for (int32_t o = 0; v >= 0 && o < node->n_outputs; ++o)
                if (node->outputs[o] >= 0 && share_bytes(w, node->outputs[o], v, placed)) return false;
        }
    }
    return true;
}

static where check_buffers(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (!ready(node)) continue;
        for (int32_t k = ln_is_assign(node); k < ln_slots(node); ++k)
            if (!alive(w, node->inputs[k], i)) return here(node);
        for (int32_t o = 0; o < node->n_outputs; ++o)
            if (!alive(w, node->outputs[o], i)) return here(node);
        if (node->branch > 0 && !is_apart(w, i, false)) return here(node);
    }
    return NULL;
}

/* Returns the variable in whose memory the value is, as its old or its new value; -1: in none. */
static int32_t in_variable(const ln_work *w, int32_t value) {
    const int32_t buffer = value >= 0 ? ln_home_of(w, value).buffer : -1;
    const ln_work_buffer *b = buffer >= 0 ? ln_buffer_at(w, buffer) : NULL;
    return b != NULL && b->kind == LN_REGION_VARIABLE ? (int32_t)b->offset : -1;
}

static where check_updates(const ln_work *w) {
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (!ready(node) || ln_is_assign(node)) continue;
        for (int32_t o = 0; o < node->n_outputs; ++o) {
            const int32_t variable = in_variable(w, node->outputs[o]);
            if (variable < 0) continue;
            if (i <= w->updates.last_failure) return here(node);
            for (int32_t later = i + 1; later < w->nodes.count; ++later)
                for (int32_t k = ln_is_assign(ln_node_at(w, later)); k < ln_slots(ln_node_at(w, later)); ++k)
                    if (ready(ln_node_at(w, later)) && ln_node_at(w, later)->inputs[k] != node->outputs[o] &&
                        in_variable(w, ln_node_at(w, later)->inputs[k]) == variable)
                        return here(ln_node_at(w, later));
        }
    }
    return NULL;
}

static where check_offsets(const ln_work *w) {
    enum { MOST = 2048 }; /* every pair is compared */
    for (int32_t i = 0; i < w->buffers.count && w->buffers.count <= MOST; ++i) {
        const ln_work_buffer *a = ln_buffer_at(w, i);
        for (int32_t k = 0; k < i && a->kind == LN_REGION_ARENA && a->size > 0; ++k) {
            const ln_work_buffer *b = ln_buffer_at(w, k);
            if (b->kind != LN_REGION_ARENA || a->device != b->device || a->chunk != b->chunk || b->size == 0) continue;
            if (a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->size &&
                b->offset < a->offset + a->size)
                return "two buffers";
        }
    }
    for (int32_t i = 0; i < w->nodes.count && w->buffers.count <= MOST; ++i) {
        const ln_work_node *node = ln_node_at(w, i);
        if (ready(node) && node->branch > 0 && !is_apart(w, i, true)) return here(node);
    }
    return NULL;
}

static bool within(const ln_program *p, const ln_operand *operand, const ln_tensor *t) {
    const uint64_t end = operand->offset + ln_known_bytes(t);
    if (!ln_on_cpu(operand->device)) return true;
    return operand->region == LN_REGION_ARENA ? end <= p->arena : operand->region != LN_REGION_IO || end <= p->io;
}

static where check_operands(const ln_work *w) {
    const ln_program *p = w->result.program;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        for (int32_t k = 0; k < step->call.n_inputs + step->call.n_extra; ++k)
            if (!within(p, &step->inputs[k], &step->call.inputs[k])) return step->name;
        for (int32_t o = 0; o < step->call.n_outputs; ++o)
            if (!within(p, &step->outputs[o], &step->call.outputs[o])) return step->name;
    }
    return NULL;
}

static where check_ports(const ln_work *w) {
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        const ln_work_value *v = w->fetches[i] >= 0 ? ln_value_at(w, w->fetches[i]) : NULL;
        n += v != NULL && (v->known || v->bounded);
    }
    return n == w->result.program->n_outputs ? NULL : "the outputs";
}

const char *ln_broken_fact(const ln_work *w, uint32_t facts, const char **node) {
    int number = 0;
#define LN_FACT(name, check, sentence)                                                                                 \
    if ((facts >> number++ & 1) && (*node = check(w)) != NULL) return sentence;
#define LN_PASS(name, function, when, needs, gives, ends, sentence)
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
    return NULL;
}

#else

typedef int ln_no_checks; /* C11 wants a declaration in every file */

#endif
