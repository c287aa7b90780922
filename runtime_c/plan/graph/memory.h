/* memory.h - where data is when a program runs, and how much memory a planned graph needs. The passes that assign
 * offsets fill ln_needs; the program takes it over. */
#ifndef LN_PLAN_MEMORY_H
#define LN_PLAN_MEMORY_H

#include "kernel/kernel.h"
#include "linnet_device.h"

enum ln_region {
    LN_REGION_NONE = 0, /* absent operand */
    LN_REGION_HOST,     /* a constant: `pointer` points into the file or to a folded value */
    LN_REGION_VARIABLE, /* a variable, which is read directly from the store; `index` is its number */
    LN_REGION_IO,       /* `offset` in the memory of the session's inputs and outputs */
    LN_REGION_ARENA,    /* `offset` in the arena; on a device, in allocation `index` */
    LN_REGION_IMPORT, /* a value of an earlier segment, or an input, with number `index`; in a body, operand `index` of
                         the step that runs the body */
    LN_REGION_GROWN,  /* a result that grows while a loop runs; `offset` is its number in the instance */
    LN_REGION_WEIGHTS /* a constant or a copy of a variable on a device: `offset` in allocation `index` */
};

/* A constant, or a copy of a variable, in the memory of a device between runs. */
typedef struct ln_device_weight {
    const void *host; /* the bytes of a constant on the host; NULL: it is a copy of a variable */
    int32_t variable, chunk;
    uint64_t offset;
    ln_tensor tensor;
    const char *name;
    uint64_t key[4]; /* the key of a constant: constants of the model's programs with equal keys share their memory. The
                        key contains the address in the file or a digest of folded bytes, the number of bytes, and the
                        size of the allocation */
    struct ln_device_weight *next; /* next one in the outermost program's list of distinct constants */
} ln_device_weight;

/* Memory on one device. `chunks` are the sizes of its allocations: the arenas, the scratch (if any), the copies of
 * variables and the packed memory, and one for each constant. `weights` has the constants at its end. */
typedef struct ln_device_memory {
    const linnet_device *device;
    uint64_t *chunks;
    int32_t n_chunks, scratch_chunk, first_constant; /* first_constant: number of the first weight that is a constant */
    int32_t first_chunk;                             /* number of its first allocation among those of all devices */
    int32_t first_weight;                            /* number of its first weight among those of all devices */
    ln_device_weight *weights, *distinct;            /* distinct: list of the constants, also of those of bodies */
    int32_t n_weights, steps, nodes;
    uint64_t activations, scratch, packed, constants, variables, own;
} ln_device_memory;

/* Bytes and counts of all memory besides scratch and constants. */
typedef struct ln_needs {
    uint64_t arena, io;
    uint64_t lower_bound;      /* the most bytes of the arena that are in use at one step */
    uint64_t naive;            /* bytes of the arena if no values shared memory */
    uint64_t gradients;        /* the most bytes in the arena, at one time, of values that updates read */
    int32_t n_grown;           /* number of results that grow while a loop runs */
    ln_device_memory *devices; /* [place] */
    int32_t n_chunks, n_weights;
    uint64_t device_bytes; /* bytes on all devices together */
} ln_needs;

#endif
