/* program.h - a planned segment, ready for a session to run: kernels are chosen, operands located, and every byte is
 * known. A segment is the part of a graph whose shapes are known when it is planned; most graphs have only one. A
 * program is immutable after ln_program_build, except `packed`, which the first session fills under the model's lock.
 */
#ifndef LN_PROGRAM_H
#define LN_PROGRAM_H

#include "kernel/cost.h"
#include "plan/graph/work.h"

typedef struct ln_operand {
    uint8_t region;
    uint8_t device; /* the place: LN_CPU or the number of a device (plan/graph/devices.h) */
    int32_t index;
    uint64_t offset;
    const void *pointer;
} ln_operand;

enum ln_step_kind {
    LN_STEP_KERNEL,
    LN_STEP_UPLOAD,
    LN_STEP_DOWNLOAD,
    LN_STEP_COPY, /* from device to device */
    LN_STEP_WAIT,
    LN_STEP_DEVICE,
    LN_STEP_LOOP,
    LN_STEP_BRANCH
};

/* A claim: steps that a device executes as one. In a session, their spans begin at first_span, in the order of the
 * operands. */
typedef struct ln_claim {
    int32_t n, number, first_member, first_span;
    int32_t graph; /* number of the graph of its nodes (ln_offload.graph) */
    linnet_step *steps;
    ln_operand **operands; /* per step: inputs, operands of the epilogue, outputs */
    uint64_t scratch_bytes, packed_bytes, packed_offset;
    int32_t packed_chunk;
    const char *kernel;
} ln_claim;

/* After a run, the device keeps the new value of a variable in its weight number `weight`. */
typedef struct ln_move {
    ln_operand from;
    int32_t weight;
    int32_t transfer; /* number of the transfer that brings the value to the host, if a run may leave it out; else -1. A
                       * run may leave it out if the host needs the value only for the store, and if the program reads
                       * the variable only through the weight (run/device_variables.c) */
    uint64_t bytes;
} ln_move;

typedef struct ln_step {
    uint8_t kind;
    uint8_t device;    /* the place that runs the step; of transfers and waits: the device whose queue is used */
    uint8_t reason;    /* ln_reason */
    uint8_t pieces[2]; /* number of pieces of each thread's range, which idle threads may take; [0]: in phase 0, [1]: in
                          later phases; 1: the range is one piece, which no other thread takes (run/share.c) */
    bool updates;      /* the step overwrites a variable */
    bool slow;         /* the step takes so long that the clock is checked before it; always set with `updates` */
    const ln_kernel *kernel;
    ln_call call; /* steps of devices and transfers set only op (NULL for transfers), attributes and tensors */
    const ln_operand *inputs; /* call.n_inputs + call.n_extra entries */
    const ln_operand *outputs;
    const char *name;
    const char *fused;
    uint64_t bytes;               /* bytes that the step reads and writes; of a transfer: bytes that it moves */
    struct ln_program *bodies[2]; /* programs of the bodies, which run in the step's scratch: a loop uses only [0], a
                                     branch has one per case */
    uint64_t content[2];          /* a digest of the inputs that `folded` names */
    uint32_t folded;         /* bit i: input i, which the kernel rearranges, was folded and has no permanent address */
    int32_t packed;          /* index in ln_program.packed of the constants that the kernel rearranges; -1: none */
    int32_t packed_variable; /* index in the instance's list of the variables that the kernel rearranges; -1: none */
    int32_t stored;          /* index in the model's list of the constants that the file holds rearranged; -1: none */
    int32_t threads[2];      /* number of threads in phase 0, and in each later phase */
    int32_t dims_slot; /* of an op whose result has dims that depend on data: first entry of the dims in the instance's
                          table of true dims; else -1 */
    int32_t index;     /* number of the node in its function */
    int32_t fork;      /* 1 + the number of the fork that the step begins; 0: it begins none */
    float ns;          /* modelled time in nanoseconds, with the threads of the step; 0: there is no model */
    /* Only for steps of devices, transfers and waits: */
    int32_t event;  /* of transfers and waits: number of the event, from 1 on; 0: none */
    int32_t number; /* of transfers: index in the instance's list of transfers */
    int32_t weight; /* of uploads of variables, and of downloads that a run may leave out because the device keeps the
                     * value (ln_move.transfer): number of the weight; else -1 */
    const ln_claim *claim; /* the claim of a device's step */
    uint64_t token_bytes;  /* of transfers: bytes of the value in the device's own layout */
    uint32_t token;
} ln_step;

/* A branch begins where the one before it ends. */
typedef struct ln_fork_branch {
    int32_t end; /* number of the step after the branch's last step */
    double ns;   /* modelled nanoseconds on one thread */
} ln_fork_branch;

/* A range of steps that consists of independent branches. Threads run the branches side by side, and each thread takes
 * one branch after another. */
typedef struct ln_fork {
    int32_t first, end; /* steps */
    int32_t n_branches; /* at least 2 */
    const ln_fork_branch *branches;
    double ns; /* modelled nanoseconds of all its steps on one thread */
} ln_fork;

/* A tensor that enters or leaves the program. */
typedef struct ln_port {
    int32_t value; /* number of the value in the working graph, which is the same in all segments */
    int32_t index; /* of outputs: number of the fetch; of inputs: number of the function's input; of commits: number of
                      the variable */
    const char *name;
    ln_operand operand;
    ln_tensor tensor;
    uint64_t bytes;
    int32_t dims_slot; /* -1: dims are exact */
    bool wanted;       /* of exports: the shapes of the next segment depend on the value */
    bool alone;        /* of commits: a run may leave out the download of the value (ln_move.transfer) */
} ln_port;

typedef struct ln_packed ln_packed; /* packed.c */

typedef struct ln_program {
    ln_memory *memory;
    linnet_model *model;
    ln_pool pool;
    int32_t n_forks;
    ln_fork *forks;
    int32_t n_steps, n_inputs, n_outputs, n_exports, n_commits, n_dims, n_blobs, n_packed, n_packed_variables, n_grown,
        n_bodies;
    ln_step *steps;
    /* exports: values that later segments read; commits: new values of variables. */
    ln_port *inputs, *outputs, *exports, *commits;
    ln_blob *blobs;
    ln_device_memory *devices; /* [place], n_devices + 1 entries */
    int32_t n_devices, n_chunks, n_weights, n_claims, n_members, n_spans, n_transfers, n_events, n_moves;
    uint8_t *event_devices; /* [event]: the device that signals it */
    ln_move *moves;
    uint64_t device_bytes; /* bytes of memory on all devices together */
    int32_t fallbacks;     /* steps that run on the CPU because no device took them */
    double ns;             /* modelled nanoseconds of a run: the sum over the steps */
    uint64_t arena, scratch_shared, scratch_thread, io, packed_bytes, constants;
    uint64_t scratch_beside; /* shared scratch of each further lane (a thread that runs branches of a fork); the first
                                lane uses scratch_shared */
    int32_t lanes;           /* most threads that run branches at the same time; 1: there are no forks */
    uint64_t stored_bytes;   /* bytes of the packed constants that are read from the file */
    uint64_t packed_variable_bytes; /* the part of packed_bytes that is packed copies of variables, which belong to the
                                       store */
    uint64_t packed_only;           /* bytes of folded values that are freed after packing */
    uint64_t lower_bound, naive, gradients;
    int32_t recomputed;   /* steps that compute a value again instead of keeping it */
    bool ordered;         /* ln_pass_order has ordered the nodes, or those of the graph that this body belongs to. Only
                             such graphs recompute values, so a plan with a lower recomputing.target may save memory */
    int32_t *packing;     /* hash table of the steps that first rearrange their constants: 1 + step, or 0 */
    int32_t packing_size; /* a power of two */
    ln_packed **packed;   /* NULL until the first session; shared with other programs of the model */
    uint64_t packed_own;  /* bytes of packed constants that this program was the first to need */
    struct ln_program *next; /* the next program in the model's list of programs with packed constants */
    bool listed;
    bool reads_variables, writes_variables, parallel;
    bool packs_variables;     /* the program or one of its bodies packs variables */
    struct ln_program *outer; /* of a body: the program that runs it */
    ln_work *rest;            /* the part of the graph that waits for data; NULL: nothing waits */
} ln_program;
/* Returns the threads that take branches of the fork. */
static inline int ln_lanes_of(const ln_fork *fork, int threads) {
    const int most = threads < LN_MOST_LANES ? threads : LN_MOST_LANES;
    return fork->n_branches < most ? fork->n_branches : most;
}
static inline uint64_t ln_lane_scratch(const ln_program *p, int lane) { /* where the shared part of the lane begins */
    return lane == 0 ? 0 : p->scratch_shared + p->scratch_beside * (uint64_t)(lane - 1);
}
static inline uint64_t ln_thread_scratch(const ln_program *p) { /* where the parts of the threads begin */
    return ln_lane_scratch(p, p->lanes > 1 ? p->lanes : 1);
}

#endif
