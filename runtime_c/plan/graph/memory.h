/* memory.h - where data is when a program runs, and how much memory a planned graph needs. The passes that assign
 * offsets fill ln_needs; the program takes it over. */
#ifndef LN_PLAN_MEMORY_H
#define LN_PLAN_MEMORY_H

#include "kernel/kernel.h"
#include "linnet_device.h"

enum ln_region {
    LN_REGION_NONE = 0, /* absent operand */
    LN_REGION_HOST,     /* constant: `pointer`, into the file or a folded blob */
    LN_REGION_VARIABLE, /* index: variable; read directly from the store */
    LN_REGION_IO,       /* offset in the session's input and output buffers */
    LN_REGION_ARENA,    /* offset in the arena; on a device: in allocation `index` */
    LN_REGION_IMPORT,   /* index: value from an earlier segment (or an input); in a body: operand of its step */
    LN_REGION_GROWN,    /* offset: index of an instance's result that grows while a loop runs */
    LN_REGION_WEIGHTS   /* offset in allocation `index` of a device: a constant or a copy of a variable */
};

/* A constant, or a copy of a variable, in the memory of a device between runs. */
typedef struct ln_device_weight {
    const void *host; /* a constant; NULL: a copy of a variable */
    int32_t variable, chunk;
    uint64_t offset;
    ln_tensor tensor;
    const char *name;
    uint64_t key[4]; /* the key of a constant: constants of the model's programs with equal keys share their memory. The
                        key contains the address in the file or a digest of folded bytes, the number of bytes, and the
                        size of the allocation */
    struct ln_device_weight *next; /* in the outermost program's list of distinct constants */
} ln_device_weight;

/* Memory on one device. `chunks` are the sizes of its allocations: the arenas, the scratch (if any), the copies of
 * variables and the packed memory, and one for each constant. `weights` has the constants at its end. */
typedef struct ln_device_memory {
    const linnet_device *device;
    uint64_t *chunks;
    int32_t n_chunks, scratch_chunk, first_constant; /* first_constant: number of the weight */
    int32_t first_chunk;                             /* number of its first allocation among those of all devices */
    int32_t first_weight;                            /* number of its first weight among those of all devices */
    ln_device_weight *weights, *distinct;            /* distinct: list of the constants, also of those of bodies */
    int32_t n_weights, steps, nodes;
    uint64_t activations, scratch, packed, constants, variables;
} ln_device_memory;

/* Bytes and counts of all memory besides scratch and constants. */
typedef struct ln_needs {
    uint64_t arena, io;
    uint64_t lower_bound;      /* bytes of the arena: the most that are in use at one step */
    uint64_t naive;            /* bytes of the arena if no values shared memory */
    uint64_t gradients;        /* the most bytes in the arena that updates read */
    int32_t n_grown;           /* results that grow while a loop runs */
    ln_device_memory *devices; /* per place */
    int32_t n_chunks, n_weights;
    uint64_t device_bytes; /* of all devices */
} ln_needs;

#endif
