/* piece_graph.c - collects the functions of a piece: their nodes, the values between them, and what enters and leaves.
 * The bodies of loops and branches become functions, the outer ones first. */
#include "remote/piece_graph.h"

#include "linnet_ext.h"

#include <stdlib.h>
#include <string.h>

static ln_piece_value *add_value(ln_piece_graph *g, ln_piece_function *f, const linnet_device_tensor *tensor) {
    ln_piece_value *v = &f->values[f->value_count++];
    *v = (ln_piece_value){.tensor = *tensor, .segment = -1};
    if (tensor->data != NULL && tensor->bytes > LN_PIECE_SMALL && !g->sketch)
        v->checksum = linnet_crc32c(0, tensor->data, (size_t)tensor->bytes);
    if (tensor->dtype == LINNET_I4 || tensor->dtype == LINNET_U4 || tensor->quant_scheme == LINNET_QUANT_BLOCK)
        g->newer = true;
    return v;
}

/* Returns the number of the value, which is added if it is new; -1 for an absent operand. */
static int32_t value_of(ln_piece_graph *g, ln_piece_function *f, const linnet_device_tensor *tensor) {
    if (tensor->dtype == LINNET_NONE) return -1;
    for (int i = 0; i < f->value_count; i++)
        if (f->values[i].tensor.value == tensor->value) return i;
    add_value(g, f, tensor);
    return f->value_count - 1;
}

/* Makes each computed value that no step reads an output. */
static void find_ends(ln_piece_function *f) {
    const int32_t *edges = f->edges;
    for (int i = 0; i < f->node_count; i++) {
        edges += f->nodes[i].input_count;
        for (int n = f->nodes[i].output_count; n > 0; n--, edges++)
            if (*edges >= 0 && !f->values[*edges].read) f->outputs[f->output_count++] = *edges;
    }
}

static bool input_of(const ln_piece_graph *g, const ln_piece_function *f, int i, linnet_device_tensor *tensor) {
    linnet_device_tensor_init(tensor);
    return g->host->body_get_input(f->body, i, tensor) == LINNET_OK;
}

static bool output_of(const linnet_host *host, const linnet_body *body, int i, linnet_device_tensor *tensor) {
    linnet_device_tensor_init(tensor);
    return host->body_get_output(body, i, tensor) == LINNET_OK;
}

static bool allocate(ln_piece_graph *g, ln_piece_function *f, const linnet_work *work) {
    const linnet_step *step;
    linnet_device_tensor tensor;
    size_t most = 1;
    if (f->body == NULL)
        f->node_count = work->count;
    else
        while (g->host->body_step(f->body, f->node_count) != NULL) f->node_count++;
    for (int i = 0; f->body != NULL && input_of(g, f, i, &tensor); i++) most++;
    for (int i = 0; f->body != NULL && output_of(g->host, f->body, i, &tensor); i++) most++;
    f->nodes = calloc((size_t)f->node_count + 1, sizeof *f->nodes);
    for (int i = 0; f->nodes != NULL && i < f->node_count; i++) {
        step = f->body == NULL ? work->steps[i] : g->host->body_step(f->body, i);
        f->nodes[i].step = step;
        most += (size_t)(g->host->step_input_count(step) + g->host->step_output_count(step));
    }
    f->values = malloc(most * sizeof *f->values);
    f->edges = malloc(most * sizeof *f->edges);
    f->inputs = malloc(most * sizeof *f->inputs);
    f->outputs = malloc(most * sizeof *f->outputs);
    if (f->body == NULL) {
        g->inputs = malloc(most * sizeof *g->inputs);
        g->outputs = malloc(most * sizeof *g->outputs);
        if (g->inputs == NULL || g->outputs == NULL) return false;
    }
    return f->nodes != NULL && f->values != NULL && f->edges != NULL && f->inputs != NULL && f->outputs != NULL;
}

static bool is_loop(const linnet_host *host, const linnet_step *step) { return host->step_body(step, 1) == NULL; }

/* Adds a function for each body of the node. */
static bool add_bodies(ln_piece_graph *g, ln_piece_node *node) {
    for (int k = 0; k < 2; k++) {
        const linnet_body *body = g->host->step_body(node->step, k);
        if (body == NULL) return true;
        if (g->function_count == g->room) {
            ln_piece_function *more = realloc(g->functions, (size_t)g->room * 2 * sizeof *more);
            if (more == NULL) return false;
            g->functions = more;
            g->room *= 2;
        }
        node->functions[k] = g->function_count;
        g->functions[g->function_count++] = (ln_piece_function){.body = body};
    }
    return true;
}

static bool add_inputs(ln_piece_graph *g, ln_piece_function *f, ln_piece_node *node, const linnet_span *spans) {
    linnet_device_tensor tensor;
    node->input_count = g->host->step_input_count(node->step);
    for (int n = 0; n < node->input_count; n++) {
        const int before = f->value_count;
        linnet_device_tensor_init(&tensor);
        if (g->host->step_get_input(node->step, n, &tensor) != LINNET_OK) return false;
        const int32_t v = f->edges[f->edge_count++] = value_of(g, f, &tensor);
        if (v >= 0) f->values[v].read = true;
        if (f->value_count == before || tensor.data != NULL) continue; /* known, or a constant */
        if (f->body != NULL) return false;                             /* nothing gives a body this value */
        g->inputs[f->input_count] = g->sketch ? (linnet_span){0} : spans[n];
        f->inputs[f->input_count++] = v;
    }
    return true;
}

/* A file knows no absent results. So what nothing reads is left out of the functions of a loop or a branch, and a loop
 * gets a tensor for each carried value. */
static bool add_outputs(ln_piece_graph *g, ln_piece_function *f, ln_piece_node *node, const linnet_span *spans) {
    linnet_device_tensor tensor;
    const int count = g->host->step_output_count(node->step);
    const linnet_body *body = g->host->step_body(node->step, 0);
    for (int n = 0; n < count; n++) {
        linnet_device_tensor_init(&tensor);
        if (g->host->step_get_output(node->step, n, &tensor) != LINNET_OK) return false;
        int32_t v = value_of(g, f, &tensor);
        if (v < 0 && body != NULL) {
            if (!output_of(g->host, body, n + is_loop(g->host, node->step), &tensor)) return false;
            if (tensor.dtype == LINNET_NONE) continue;
            tensor.data = NULL;
            add_value(g, f, &tensor)->tensor.value = -1; /* the number of no other value */
            v = f->value_count - 1;
            f->values[v].read = true; /* it is no output of a sketch */
        }
        f->edges[f->edge_count++] = v;
        node->output_count++;
        if (v < 0 || f->body != NULL || g->sketch || spans[n].buffer == 0) continue;
        g->outputs[f->output_count] = spans[n];
        f->outputs[f->output_count++] = v;
    }
    return true;
}

static bool collect(ln_piece_graph *g, int number, const linnet_work *work) {
    ln_piece_function f = g->functions[number];
    linnet_device_tensor tensor;
    bool good = allocate(g, &f, work);
    for (int i = 0; good && f.body != NULL && input_of(g, &f, i, &tensor); i++) {
        tensor.data = NULL; /* the host finds out by itself which operands are constants */
        f.inputs[f.input_count++] = value_of(g, &f, &tensor);
        good = f.value_count == f.input_count;
    }
    for (int i = 0; good && i < f.node_count; i++)
        good = add_bodies(g, &f.nodes[i]) &&
               add_inputs(g, &f, &f.nodes[i], f.body || g->sketch ? NULL : work->inputs[i]) &&
               add_outputs(g, &f, &f.nodes[i], f.body || g->sketch ? NULL : work->outputs[i]);
    for (int i = 0; good && f.body != NULL && output_of(g->host, f.body, i, &tensor); i++)
        if (tensor.dtype != LINNET_NONE) f.outputs[f.output_count++] = value_of(g, &f, &tensor);
    if (good && f.body == NULL && g->sketch) find_ends(&f);
    if (good && f.body == NULL && g->constant != NULL) f.outputs[f.output_count++] = value_of(g, &f, g->constant);
    g->functions[number] = f;
    return good;
}

bool ln_piece_graph_collect(ln_piece_graph *graph, const linnet_work *work) {
    graph->functions = calloc(graph->room = 4, sizeof *graph->functions);
    if (graph->functions == NULL) return false;
    graph->function_count = 1;
    bool good = true;
    for (int i = 0; good && i < graph->function_count; i++) good = collect(graph, i, work);
    return good;
}

void ln_piece_graph_free(ln_piece_graph *graph) {
    for (int i = 0; graph->functions != NULL && i < graph->function_count; i++) {
        const ln_piece_function *f = &graph->functions[i];
        free(f->nodes);
        free(f->values);
        free(f->edges);
        free(f->inputs);
        free(f->outputs);
    }
    free(graph->functions);
    free(graph->inputs);
    free(graph->outputs);
    graph->functions = NULL;
}
