/* graph.h - a verified model in memory: what model.c makes of a file and plan.c reads.
 * Everything here is a private copy, immutable after load; only large constants stay in the mapped file. */
#ifndef LN_GRAPH_H
#define LN_GRAPH_H

#include "core/memory.h"
#include "core/op.h"
#include "core/platform.h"

typedef struct ln_value {
    const char *name;             /* never NULL */
    ln_tensor tensor;             /* declared dtype, rank, dims (-1 unknown), quant; data for constants */
    uint64_t bytes;               /* of data */
    int32_t variable;             /* index into the model's variables, or -1 */
    const char *const *dim_names; /* of an input: one per dimension, "" without one; NULL: none has one */
} ln_value;

typedef struct ln_node {
    const ln_op *op;
    const void *attributes; /* the op's generated struct */
    const char *name;       /* never NULL */
    const char *source;     /* never NULL */
    int32_t n_inputs, n_outputs;
    const int32_t *inputs; /* value indices; -1: absent */
    const int32_t *outputs;
} ln_node;

typedef struct ln_function {
    const char *name;
    int32_t n_values, n_nodes, n_inputs, n_outputs;
    const ln_value *values;
    const ln_node *nodes; /* every input is made before it is used */
    const int32_t *inputs, *outputs;
} ln_function;

typedef struct ln_variable {
    const char *name;
    ln_tensor tensor; /* fully known shape; data: initial value or NULL (zeros) */
    uint64_t bytes;
} ln_variable;

/* Bytes of the file outside its structure. */
typedef struct ln_segment {
    const void *data;
    uint64_t size, digest;
    int32_t digest_kind; /* enum ln_digest_kind, or one that a later version brought */
} ln_segment;
enum ln_digest_kind { LN_DIGEST_NONE, LN_DIGEST_CRC32, LN_DIGEST_CRC32C, LN_DIGEST_KINDS };

typedef struct ln_signature {
    const char *name;
    int32_t function;
    const char *const *inputs; /* as many as the function's */
    const char *const *outputs;
} ln_signature;

struct linnet_model {
    ln_memory memory; /* allocator, and the bytes taken through it */
    ln_references references;
    ln_lock lock;                       /* of the next two */
    ln_memory packed;                   /* the same for packed weights, which plans share */
    struct ln_program *packed_programs; /* those that hold some */
    ln_pool pool;                       /* everything below */
    const void *file;                   /* mapped, the caller's, or own copy */
    size_t file_size;
    uint64_t structure_size; /* of its flatbuffer, behind the header */
    int file_kind;           /* ln_file_kind */
    uint32_t format_version;
    int32_t n_functions, n_signatures, n_variables, n_metadata, n_segments;
    const ln_function *functions;
    const ln_signature *signatures;
    const ln_variable *variables;
    const ln_segment *segments;
    const char *const *metadata; /* key, value, key, value, ... */
    char digest[33];             /* of the structure, in which segments have theirs, and of those that have none */
};

enum ln_file_kind { LN_FILE_MAPPED, LN_FILE_BORROWED, LN_FILE_COPIED };

/* One without a graph, referenced once. OUT_OF_MEMORY. */
linnet_status ln_model_new(const linnet_allocator *allocator, linnet_model **out, linnet_error *error);
linnet_model *ln_model_retain(linnet_model *model);

#endif
