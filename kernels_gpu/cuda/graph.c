/* graph.c - submits claims: one launch after another, or as a CUDA graph if the same claims have run before. */
#include "kernels_gpu/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GRAPHS = 8 }; /* most graphs of a queue; a session has few sequences of claims between transfers */

static int launch(const lg_device *d, const lg_queue *q, const lg_ready *l) {
    return lg_code(d->cu->LaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                                       l->block[2], l->shared_bytes, q->stream, l->parameters, NULL));
}

int lg_launch_all(lg_device *d, lg_queue *q, const lg_state *state) {
    int code = 0;
    for (int i = 0; i < state->n_launches && code == 0; ++i) code = launch(d, q, &state->launches[i]);
    return code;
}

static void free_graph(const lg_device *d, lg_graph *graph, bool current) {
    if (current && graph->exec != NULL) d->cu->GraphExecDestroy(graph->exec);
    free(graph->states);
    free(graph);
}

void lg_forget_graphs(lg_device *d, lg_queue *q, const lg_state *state, bool current) {
    for (lg_graph **at = &q->graphs; *at != NULL;) {
        lg_graph *graph = *at;
        bool has = state == NULL;
        for (int i = 0; i < graph->count; ++i) has |= graph->states[i] == state;
        if (has) {
            *at = graph->next;
            free_graph(d, graph, current);
        } else {
            at = &graph->next;
        }
    }
}

/* Builds the graph as a chain: as in a stream, each launch begins when the previous one has ended. */
static int build(const lg_device *d, lg_graph *graph) {
    CUgraph chain = NULL;
    CUgraphNode last = NULL, node = NULL;
    int code = lg_code(d->cu->GraphCreate(&chain, 0));
    if (code != 0) return code;
    for (int s = 0; s < graph->count && code == 0; ++s)
        for (int i = 0; i < graph->states[s]->n_launches && code == 0; ++i) {
            const lg_ready *l = &graph->states[s]->launches[i];
            const CUDA_KERNEL_NODE_PARAMS p = {.func = l->function,
                                               .grid_x = l->grid[0],
                                               .grid_y = l->grid[1],
                                               .grid_z = l->grid[2],
                                               .block_x = l->block[0],
                                               .block_y = l->block[1],
                                               .block_z = l->block[2],
                                               .shared_bytes = l->shared_bytes,
                                               .parameters = l->parameters};
            code = lg_code(d->cu->GraphAddKernelNode(&node, chain, &last, last != NULL, &p));
            last = node;
        }
    if (code == 0) code = lg_code(d->cu->GraphInstantiate(&graph->exec, chain, 0));
    d->cu->GraphDestroy(chain);
    return code;
}

/* Returns the graph of the pending claims. Makes an empty graph if there is none. Returns NULL if out of memory. */
static lg_graph *find(lg_device *d, lg_queue *q) {
    const size_t bytes = (size_t)q->n_pending * sizeof(lg_state *);
    lg_graph **at = &q->graphs;
    for (int n = 0; *at != NULL; at = &(*at)->next, ++n) {
        if ((*at)->count == q->n_pending && memcmp((*at)->states, q->pending, bytes) == 0) return *at;
        if (n == MOST_GRAPHS - 1) { /* removes the oldest graph to make room */
            lg_graph *oldest = q->graphs;
            q->graphs = oldest->next;
            free_graph(d, oldest, true);
            return find(d, q);
        }
    }
    lg_graph *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->states = malloc(bytes);
    if (made->states == NULL) {
        free(made);
        return NULL;
    }
    memcpy(made->states, q->pending, bytes);
    made->count = q->n_pending;
    return *at = made;
}

/* Queues the reading of the numbers that the claims' kernels have written about wrong indices. */
static int read_checks(const lg_device *d, const lg_queue *q) {
    for (int i = 0; i < q->n_pending; ++i) {
        const lg_index_check *check = &q->pending[i]->check;
        if (check->found == NULL) continue;
        const CUdeviceptr status = check->status.buffer + check->status.offset;
        const int code = lg_code(d->cu->MemcpyDtoHAsync(check->found, status, 2 * sizeof(int32_t), q->stream));
        if (code != 0) return code;
    }
    return 0;
}

int lg_flush(lg_device *d, lg_queue *q) {
    int code = 0, launches = 0;
    if (q->n_pending == 0) return 0;
    for (int i = 0; i < q->n_pending; ++i) launches += q->pending[i]->n_launches;
    lg_graph *graph = d->options.graphs && launches > 1 ? find(d, q) : NULL;
    /* Builds the graph in the second run, because the first run may be the only one. */
    if (graph != NULL && graph->runs++ == 1 && build(d, graph) != 0) graph->exec = NULL;
    if (graph != NULL && graph->exec != NULL)
        code = lg_code(d->cu->GraphLaunch(graph->exec, q->stream));
    else
        for (int i = 0; i < q->n_pending && code == 0; ++i) code = lg_launch_all(d, q, q->pending[i]);
    if (code == 0) code = read_checks(d, q);
    q->n_pending = 0;
    return code;
}

int lg_submit(lg_device *d, lg_queue *q, lg_state *state) {
    if (q->n_pending == q->room) {
        const int room = 2 * q->room + 64;
        lg_state **grown = realloc(q->pending, (size_t)room * sizeof *grown);
        if (grown == NULL) return LG_NO_MEMORY;
        q->pending = grown, q->room = room;
    }
    q->pending[q->n_pending++] = state;
    return q->measures ? lg_flush(d, q) : 0;
}
