/* piece_graph.h - the functions of a piece: the steps of a claim, and the bodies of its loops and branches. */
#ifndef LN_REMOTE_PIECE_GRAPH_H
#define LN_REMOTE_PIECE_GRAPH_H

#include "linnet_device.h"

enum { LN_PIECE_SMALL = 512 }; /* bytes of the largest constant inside the tables */

/* A tensor of a function. */
typedef struct ln_piece_value {
    linnet_device_tensor tensor;
    bool read;         /* by a step */
    int64_t segment;   /* of a constant: number of its segment; -1: none */
    uint64_t offset;   /* of the segment in the file */
    uint32_t checksum; /* CRC-32C of the segment */
} ln_piece_value;

typedef struct ln_piece_node {
    const linnet_step *step;
    int input_count, output_count; /* edges of the node, which may have fewer outputs than the step */
    int functions[2];              /* numbers of its bodies; 0: none */
} ln_piece_node;

/* Function 0 has the steps of the claim. A function refers only to functions with higher numbers. */
typedef struct ln_piece_function {
    const linnet_body *body; /* NULL: of function 0 */
    ln_piece_node *nodes;
    ln_piece_value *values;
    int32_t *edges; /* values of all nodes, inputs then outputs; -1: absent */
    int32_t *inputs, *outputs;
    int node_count, value_count, edge_count, input_count, output_count;
} ln_piece_function;

typedef struct ln_piece_graph {
    const linnet_host *host;
    ln_piece_function *functions;
    linnet_span *inputs, *outputs; /* where the operands of function 0 are on the host */
    int function_count, room;
    const linnet_device_tensor *constant; /* the output of a piece without steps; NULL: there are steps */
    bool newer;                           /* the file needs version 2 of the format */
    bool sketch;                          /* spans are not known, and data is left out */
} ln_piece_graph;

/* Collects the functions of the work. Returns false if out of memory, or if a body is not whole. The caller calls
 * ln_piece_graph_free in both cases. */
bool ln_piece_graph_collect(ln_piece_graph *graph, const linnet_work *work);
void ln_piece_graph_free(ln_piece_graph *graph);

#endif
