/* program.h - a planned segment, ready for a session to run: kernels are chosen, operands located, and every byte is
 * known. Immutable after ln_program_build, except `packed`, which the first session fills under the model's lock. */
#ifndef LN_PROGRAM_H
#define LN_PROGRAM_H

#include "kernel/cost.h"
#include "plan/graph/work.h"

typedef struct ln_operand {
    uint8_t region;
    uint8_t device; /* the place */
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

/* Steps that a device executes as one. In a session, their spans begin at first_span, in the order of the operands. */
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
    int32_t transfer; /* number of the transfer to the host, if the host needs the value for its store alone, and the
                       * weight is all that the program reads of the variable; else -1 (run/device_variables.c) */
    uint64_t bytes;
} ln_move;

typedef struct ln_step {
    uint8_t kind;
    uint8_t device;    /* the place; of transfers and waits: the device whose queue is used */
    uint8_t reason;    /* ln_reason */
    uint8_t pieces[2]; /* parts of the range of each thread that other threads may take; 1: none (run/share.c) */
    bool updates;      /* overwrites a variable */
    bool slow;         /* the step takes so long that the clock is checked before it; always set with `updates` */
    const ln_kernel *kernel;
    ln_call call;             /* also for device and transfer steps: op (NULL for transfers), attributes, tensors */
    const ln_operand *inputs; /* call.n_inputs + call.n_extra */
    const ln_operand *outputs;
    const char *name;
    const char *fused;
    uint64_t bytes;               /* bytes read and written; of a transfer: bytes transferred */
    struct ln_program *bodies[2]; /* programs of the bodies, which run in the step's scratch: a loop uses only [0], a
                                     branch has one per case */
    uint64_t content[2];          /* a digest of the inputs that `folded` names */
    uint32_t folded;         /* bit i: input i, which the kernel rearranges, was folded and has no permanent address */
    int32_t packed;          /* of constants that the kernel rearranges: index in the program's list, else -1 */
    int32_t packed_variable; /* of variables that the kernel rearranges: index in the instance's list, else -1 */
    int32_t stored; /* of constants that the file holds as the kernel needs them: index in the model's list, else -1 */
    int32_t threads[2]; /* of phase 0, and of each later phase */
    int32_t dims_slot;  /* data-dependent ops: first entry of the instance's table of true dims, else -1 */
    int32_t index;      /* number of the node in its function */
    int32_t fork;       /* 1 + the number of the fork that the step begins; 0: it begins none */
    float ns;           /* modelled nanoseconds on its threads; 0: not modelled */
    /* Of devices: */
    int32_t event;  /* transfers and waits: number of the event, from 1 on; 0: none */
    int32_t number; /* transfers: index in the instance's list */
    int32_t weight; /* uploads of variables, and downloads that may be left out because the device keeps the value
                     * (ln_move.transfer): number of the weight; else -1 */
    const ln_claim *claim; /* the claim of a device's step */
    uint64_t token_bytes;  /* transfers: bytes in the private layout on the device */
    uint32_t token;
} ln_step;

/* A branch begins where the one before it ends. */
typedef struct ln_fork_branch {
    int32_t end; /* number of the step after the branch's last step */
    double ns;   /* modelled nanoseconds on one thread */
} ln_fork_branch;

/* Steps that fall into branches, which threads run side by side. A thread takes one branch after another. */
typedef struct ln_fork {
    int32_t first, end; /* steps */
    int32_t n_branches; /* at least 2 */
    const ln_fork_branch *branches;
    double ns; /* modelled nanoseconds of all its steps on one thread */
} ln_fork;

/* A tensor that enters or leaves the program. */
typedef struct ln_port {
    int32_t value; /* in the working graph; the same in all segments */
    int32_t index; /* outputs: number of the fetch; inputs: number of the function's input; commits: variable */
    const char *name;
    ln_operand operand;
    ln_tensor tensor;
    uint64_t bytes;
    int32_t dims_slot; /* -1: dims are exact */
    bool wanted;       /* exports: the shapes of the next segment depend on the value */
    bool alone;        /* commits: the download of the value may be left out */
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
    ln_port *inputs, *outputs, *exports, *commits;
    ln_blob *blobs;
    ln_device_memory *devices; /* per place */
    int32_t n_devices, n_chunks, n_weights, n_claims, n_members, n_spans, n_transfers, n_events, n_moves;
    uint8_t *event_devices; /* per event: its device */
    ln_move *moves;
    uint64_t device_bytes; /* of all devices */
    int32_t fallbacks;     /* steps of the CPU that no device took */
    double ns;             /* modelled nanoseconds of a run: the sum over the steps */
    uint64_t arena, scratch_shared, scratch_thread, io, packed_bytes, constants;
    uint64_t
        scratch_beside;    /* of each thread after the first that runs branches: what scratch_shared is to the first */
    int32_t lanes;         /* threads that run branches at the same time, at most; 1: there are no forks */
    uint64_t stored_bytes; /* of constants that the file holds packed */
    uint64_t packed_variable_bytes; /* of packed_bytes: copies of variables, which belong to the store */
    uint64_t packed_only;           /* bytes of folded values that are freed after packing */
    uint64_t lower_bound, naive, gradients;
    int32_t recomputed;   /* steps that compute a value again instead of keeping it */
    bool ordered;         /* ln_pass_order has ordered the nodes, or those of the graph that this body belongs to. Only
                             such graphs recompute values, so a plan with a lower recomputing.target may save memory */
    int32_t *packing;     /* hash table of the steps that first rearrange their constants: 1 + step, or 0 */
    int32_t packing_size; /* a power of two */
    ln_packed **packed;   /* NULL until the first session; shared with other programs of the model */
    uint64_t packed_own;  /* bytes of packed constants that this program was the first to need */
    struct ln_program *next; /* in the model's list of programs with packed constants: */
    bool listed;
    bool reads_variables, writes_variables, parallel;
    bool packs_variables;     /* it or one of its bodies packs variables */
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
