/* structure_reader.h - what has been read of a structure so far, and numbers of the format. */
#ifndef LN_STRUCTURE_READER_H
#define LN_STRUCTURE_READER_H

#include "base/flatbuffer.h"
#include "model/graph.h"

enum { LN_MAP_INSTRUCTION = 5, LN_MAP_MOST_INSTRUCTIONS = 4096, LN_HEADER_SIZE = 64, LN_FORMAT_VERSION = 2 };

/* Slots of the tables in schema/linnet.fbs. */
enum {
    LN_NODE_OP,
    LN_NODE_INPUTS,
    LN_NODE_OUTPUTS,
    LN_NODE_ATTRIBUTES_TYPE,
    LN_NODE_ATTRIBUTES,
    LN_NODE_NAME,
    LN_NODE_SOURCE
};

typedef struct ln_reader {
    linnet_model *model;
    ln_pool *pool;     /* the model's pool */
    ln_pool temporary; /* freed at the end */
    ln_fb fb;
    ln_function *functions;
    uint64_t *expanded; /* nodes per function after expansion */
    int32_t *depth;     /* levels of calls below each function */
    int32_t *assigned;  /* per variable: 1 + the function that assigned it last */
    int32_t n_functions;
    linnet_error *error;
} ln_reader;

#endif
