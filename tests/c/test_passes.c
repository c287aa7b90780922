/* test_passes.c - every fact of plan/compile/passes.inc is found broken where it is broken, and holds in a graph of two
 * nodes. The checks are compiled here, because only builds with sanitizers have them in the library. */
#ifndef LN_CHECK_PASSES
#define LN_CHECK_PASSES
#endif
#include "plan/compile/checks.c"

#include "base/layout.h"
#include "check.h"
#include "plan/compile/checks.h"
#include "plan/compile/program.h"

enum {
#define LN_FACT(name, check, sentence) name,
#define LN_PASS(name, function, when, needs, gives, ends, sentence)
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
    FACTS
};

enum { X, Y, Z, VALUES }; /* first: x -> y, second: y -> z, which is fetched */

typedef struct graph {
    ln_memory memory;
    ln_work w;
    ln_work_node *first, *second;
    int32_t fetches[1];
    ln_device device;
    ln_work_claim claim;
    ln_program program;
    ln_step step;
    ln_operand operand;
    ln_tensor tensor;
    linnet_error error;
} graph;

static void make(graph *g) {
    memset(g, 0, sizeof *g);
    ln_memory_init(&g->memory, NULL);
    ln_work *w = &g->w;
    ln_work_init(w, NULL, &g->memory, &g->memory, &g->error);
    g->tensor = (ln_tensor){.dtype = LINNET_F32, .rank = 3, .dims = {2, 3, 4}};
    ln_set_layout(&g->tensor, LN_LAYOUT_DENSE);
    w->homes.room = w->homes.n = VALUES;
    w->homes.of = ln_memory_alloc(&g->memory, VALUES * sizeof *w->homes.of);
    static const char *const names[VALUES] = {"x", "y", "z"};
    for (int i = 0; i < VALUES; ++i) {
        ln_work_add_value(w, names[i], &g->tensor);
        ln_value_at(w, i)->known = true;
        ln_work_buffer *b = ln_list_add(w, &w->buffers, sizeof *b);
        *b = (ln_work_buffer){.size = 96, .kind = LN_REGION_ARENA, .offset = (uint64_t)i * 128};
        b->first = i == Z ? 1 : 0;
        b->last = i == X ? 0 : 1;
        w->homes.of[i] = (ln_home){.buffer = i};
    }
    ln_value_at(w, X)->input = 0;
    g->first = ln_work_identity(w, "first", X, Y);
    g->second = ln_work_identity(w, "second", Y, Z);
    ln_work_append(w, g->first);
    ln_work_append(w, g->second);
    g->fetches[0] = Z;
    w->fetches = g->fetches;
    w->n_fetches = 1;
    ln_work_sweep(w);
    w->settings.devices = &g->device;
    w->settings.n_devices = 1;
    w->updates.last_failure = -1;
    w->result.program = &g->program;
    g->program.arena = 384;
    g->program.n_outputs = 1;
    g->program.n_steps = 1;
    g->program.steps = &g->step;
    g->operand.region = LN_REGION_ARENA;
    g->step = (ln_step){.name = "step", .inputs = &g->operand, .outputs = &g->operand};
    g->step.call = (ln_call){.n_inputs = 1, .n_outputs = 1, .inputs = &g->tensor, .outputs = &g->tensor};
}

/* Whether exactly this fact is broken, at the node or value of this name; NULL: none is. */
static int broken(const graph *g, int fact, const char *where) {
    const char *node = NULL;
    for (int i = 0; i < FACTS; ++i)
        if (i != fact && ln_broken_fact(&g->w, 1u << i, &node) != NULL) {
            printf("fact %d is broken too, at %s\n", i, node);
            return 0;
        }
    if (fact < 0) return 1;
    const char *sentence = ln_broken_fact(&g->w, 1u << fact, &node);
    return sentence != NULL && sentence[0] != 0 && strcmp(node, where) == 0;
}

static void end(graph *g) {
    ln_work_free(&g->w);
    CHECK(g->memory.bytes == 0);
}

/* The second node runs on the device, without a transfer or a claim. */
static void on_device(graph *g) {
    g->second->device = 1;
    ln_value_at(&g->w, Z)->device = 1;
    ln_buffer_at(&g->w, Z)->device = 1;
}

/* A transfer of z from the device to the host, or a wait for the device, as the last node. */
static ln_work_node *add_transfer(graph *g, bool wait) {
    ln_work *w = &g->w;
    ln_work_node *node = ln_work_new_node(w, NULL, NULL, wait ? "wait" : "download", -1, wait ? 0 : 1, wait ? 0 : 1);
    if (!wait) {
        node->inputs[0] = Z;
        node->outputs[0] = ln_work_twin(w, Z);
        ln_value_at(w, node->outputs[0])->fetched = true;
        ++ln_value_at(w, Z)->uses;
        ln_buffer_at(w, Z)->last = 2;
    }
    node->device = 1;
    node->state = LN_NODE_READY;
    ln_work_append(w, node);
    return node;
}

static void test_host(void) {
    graph g;
    make(&g);
    CHECK(broken(&g, -1, NULL));
    ln_value_at(&g.w, X)->known = false;
    CHECK(broken(&g, SHAPES, "first"));
    end(&g);
    make(&g);
    ln_value_at(&g.w, Y)->tensor.rank = -1;
    g.second->inputs[0] = -1;
    ln_value_at(&g.w, Y)->uses = 0;
    ln_value_at(&g.w, Y)->exported = true;
    const char *node;
    CHECK(ln_broken_fact(&g.w, 1u << SHAPES, &node) != NULL && strcmp(node, "first") == 0);
    end(&g);

    make(&g);
    ((ln_work_node **)g.w.nodes.items)[0] = g.second;
    ((ln_work_node **)g.w.nodes.items)[1] = g.first;
    for (int i = 0; i < VALUES; ++i) ln_buffer_at(&g.w, i)->first = 0, ln_buffer_at(&g.w, i)->last = 1;
    CHECK(broken(&g, ORDER, "second"));
    end(&g);

    make(&g);
    ln_value_at(&g.w, Y)->uses = 2;
    CHECK(broken(&g, USES, "y"));
    end(&g);
    make(&g);
    g.fetches[0] = -1; /* nothing uses the second node */
    g.program.n_outputs = 0;
    ln_value_at(&g.w, Z)->fetched = false;
    CHECK(broken(&g, USES, "second"));
    end(&g);

    make(&g);
    ln_value_at(&g.w, Y)->tensor.strides[0] = 1;
    CHECK(broken(&g, LAYOUTS, "y"));
    end(&g);
    make(&g);
    ln_set_layout(&ln_value_at(&g.w, Z)->tensor, LN_LAYOUT_CHANNELS_LAST);
    CHECK(broken(&g, LAYOUTS, "z"));
    end(&g);

    make(&g);
    ln_buffer_at(&g.w, Y)->last = 0;
    CHECK(broken(&g, BUFFERS, "second"));
    end(&g);
    make(&g);
    ln_buffer_at(&g.w, Z)->offset = 128;
    CHECK(broken(&g, OFFSETS, "two buffers"));
    end(&g);
    make(&g);
    g.operand.offset = 320;
    CHECK(broken(&g, OPERANDS, "step"));
    end(&g);
    make(&g);
    g.program.n_outputs = 0;
    CHECK(broken(&g, PORTS, "the outputs"));
    end(&g);
}

static void test_updates(void) {
    graph g;
    make(&g); /* the first node writes the variable that the second one still reads */
    ln_buffer_at(&g.w, X)->kind = LN_REGION_VARIABLE;
    g.w.homes.of[Y].buffer = X;
    g.second->inputs[0] = X;
    ++ln_value_at(&g.w, X)->uses;
    --ln_value_at(&g.w, Y)->uses;
    ln_value_at(&g.w, Y)->exported = true;
    CHECK(broken(&g, UPDATES, "second"));
    g.second->inputs[0] = Y; /* it reads the new value */
    --ln_value_at(&g.w, X)->uses;
    ++ln_value_at(&g.w, Y)->uses;
    CHECK(broken(&g, -1, NULL));
    g.w.updates.last_failure = 1;
    CHECK(broken(&g, UPDATES, "first"));
    end(&g);
}

static void test_devices(void) {
    graph g;
    make(&g);
    on_device(&g);
    g.second->op = &ln_ops[LN_OP_SOFTMAX]; /* a view would need no claim */
    g.second->claim = &g.claim;
    g.claim = (ln_work_claim){.first = 1, .last = 1};
    ln_value_at(&g.w, Z)->fetched = false;
    ln_work_node *download = add_transfer(&g, false), *wait = add_transfer(&g, true);
    CHECK(broken(&g, PLACES, "second")); /* it reads y, which is on the host */
    g.device.limits.shared = true;
    ln_value_at(&g.w, Y)->input = 1;
    CHECK(broken(&g, -1, NULL));
    g.claim.last = 0;
    CHECK(broken(&g, CLAIMS, "second"));
    g.second->claim = NULL;
    CHECK(broken(&g, CLAIMS, "second"));
    g.second->claim = &g.claim;
    g.claim.last = 1;
    wait->state = LN_NODE_GONE;
    CHECK(broken(&g, WAITS, "the end of the program"));
    wait->state = LN_NODE_READY;
    download->event = wait->event = g.w.offload.n_events = 1;
    CHECK(broken(&g, -1, NULL));
    ln_work_node *reader = ln_work_identity(&g.w, "reader", download->outputs[0], ln_work_twin(&g.w, Z));
    ++ln_value_at(&g.w, download->outputs[0])->uses;
    ln_value_at(&g.w, reader->outputs[0])->exported = true;
    ln_work_append(&g.w, reader);
    CHECK(broken(&g, -1, NULL));
    ln_work_node **nodes = g.w.nodes.items; /* the host reads before it waits */
    nodes[3] = reader;
    nodes[4] = wait;
    CHECK(broken(&g, WAITS, "reader"));
    end(&g);
}

int main(void) {
    test_host();
    test_updates();
    test_devices();
    return check_end("test_passes");
}
