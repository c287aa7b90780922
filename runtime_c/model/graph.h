/* graph.h - a verified model in memory. model.c makes these structs from a file, and the planner reads them. All of
 * them are immutable after the model is opened, except the fields that a lock or an atomic protects. The structure (the
 * flatbuffer) of a mapped file is a private copy; only the constants stay in the file. */
#ifndef LN_GRAPH_H
#define LN_GRAPH_H

#include "base/log.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/platform_locks.h"
#include "kernel/op.h"

/* A tensor of a function, as the file declares it. A model may have thousands of values, so this struct is much smaller
 * than ln_tensor. */
typedef struct ln_value {
    const char *name;             /* never NULL */
    const int64_t *dims;          /* `rank` sizes, in the model's structure; -1: unknown */
    const ln_quant *quant;        /* NULL: not quantized */
    const void *data;             /* the value of a constant; NULL: not a constant */
    const char *const *dim_names; /* for an input: one name per dimension, "" for a dimension without a name; NULL:
                                     the dimensions have no names */
    int32_t variable;             /* index into the model's variables; -1: not a variable */
    uint8_t dtype;
    int8_t rank; /* -1: unknown */
} ln_value;

/* A call of an op. */
typedef struct ln_node {
    const ln_op *op;
    const void *attributes; /* the op's generated struct */
    const char *name;       /* never NULL */
    const char *source;     /* the nodes of the original model from which it was made; never NULL */
    const char *placement;  /* device string, "" for anywhere; never NULL */
    int32_t n_inputs, n_outputs;
    const int32_t *inputs; /* value indices; -1: absent */
    const int32_t *outputs;
} ln_node;

/* A list of nodes with inputs and outputs. A function may call only functions with a greater number. */
typedef struct ln_function {
    const char *name;
    int32_t n_values, n_nodes, n_inputs, n_outputs;
    const ln_value *values;
    const ln_node *nodes;            /* in an order that computes every input before its use */
    const int32_t *inputs, *outputs; /* value indices */
} ln_function;

/* A value that stays from one run to the next. A store has the variables' current values. */
typedef struct ln_variable {
    const char *name;
    ln_tensor tensor; /* its shape is fully known; data: the initial value, or NULL (zeros) */
    uint64_t bytes;
} ln_variable;

/* A range of bytes of the file outside its structure: the value of a constant or a variable. */
typedef struct ln_segment {
    const void *data;
    uint64_t size, digest;
    int32_t digest_kind; /* enum ln_digest_kind, or a kind that a later version adds */
} ln_segment;
enum ln_digest_kind { LN_DIGEST_NONE, LN_DIGEST_CRC32, LN_DIGEST_CRC32C, LN_DIGEST_KINDS };

/* Constants that are stored in the file as a kernel packs them, so that nobody has to pack them again
 * (plan/compile/stored.c). */
typedef struct ln_stored {
    const char *key; /* says which constants, and how they are packed */
    const ln_segment *segment;
    atomic_int state; /* whether the bytes match their digest; they are compared at the first use */
} ln_stored;
enum { LN_STORED_KEY = 33 }; /* hexadecimal digits, and NUL */

/* A function that callers may plan and run, by the names of its inputs and outputs. */
typedef struct ln_signature {
    const char *name;
    int32_t function;
    const char *const *inputs;  /* one name per input of the function */
    const char *const *outputs; /* one name per output of the function */
} ln_signature;

struct linnet_model {
    ln_memory memory; /* the allocator, and the bytes allocated through it */
    ln_log_target log;
    ln_references references;
    ln_lock lock;                       /* protects the next four fields */
    ln_memory packed;                   /* the allocator of packed weights, which plans share */
    struct ln_program *packed_programs; /* the programs that hold packed weights */
    struct ln_instance *on_devices;     /* the instances of sessions that have constants on devices */
    struct ln_device *file_imports;     /* the devices of plans that read constants in the file */
    ln_pool pool;                       /* holds everything below */
    const void *file;                   /* mapped, owned by the caller, or our own copy */
    size_t file_size;
    uint64_t structure_size; /* bytes of the flatbuffer, which follows the header */
    int file_kind;           /* enum ln_file_kind: who owns `file` */
    uint32_t format_version;
    int32_t n_functions, n_signatures, n_variables, n_metadata, n_segments;
    const ln_function *functions;
    const ln_signature *signatures;
    const ln_variable *variables;
    const ln_segment *segments;
    ln_stored *stored;                 /* in the order of their keys */
    const struct ln_user_op *user_ops; /* kernel/user.h */
    int32_t n_user_ops, n_stored;
    const char *const *metadata; /* key, value, key, value, ... */
    char digest[33];             /* digest of the structure and of the segments without a digest; the structure contains
                                    the digests of the other segments */
};

enum ln_file_kind { LN_FILE_MAPPED, LN_FILE_BORROWED, LN_FILE_COPIED };

/* The most functions that one node calls (attributes.h, ln_callees). */
enum { LN_MOST_CALLEES = 2 };

#endif
