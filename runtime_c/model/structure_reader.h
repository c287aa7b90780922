/* structure_reader.h - the state of reading a structure, for the files structure*.c; and numbers of the format. */
#ifndef LN_STRUCTURE_READER_H
#define LN_STRUCTURE_READER_H

#include "base/flatbuffer.h"
#include "model/graph.h"

enum { LN_MAP_INSTRUCTION = 5, LN_MAP_MOST_INSTRUCTIONS = 4096, LN_HEADER_SIZE = 64, LN_FORMAT_VERSION = 2 };

/* Slots of the table Node in schema/linnet.fbs. */
enum {
    LN_NODE_OP,
    LN_NODE_INPUTS,
    LN_NODE_OUTPUTS,
    LN_NODE_ATTRIBUTES_TYPE,
    LN_NODE_ATTRIBUTES,
    LN_NODE_NAME,
    LN_NODE_SOURCE,
    LN_NODE_PLACEMENT
};

/* The state of reading one structure. It exists only during ln_read_structure. */
typedef struct ln_reader {
    linnet_model *model;
    ln_pool *pool;     /* the model's pool */
    ln_pool temporary; /* freed when the structure has been read */
    ln_fb fb;
    ln_function *functions;
    uint64_t *expanded; /* per function: number of its nodes if all calls were expanded */
    int32_t *depth;     /* per function: levels of calls below the function */
    int32_t *assigned;  /* per variable: 1 + the function that assigned it last */
    int32_t n_functions;
    linnet_error *error;
} ln_reader;

#endif
