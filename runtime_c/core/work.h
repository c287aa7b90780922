/* work.h - the graph while it is being planned: a flat list of nodes over values, rewritten by one pass after the
 * other. It lives in temporary memory; only what steps need is copied into the program (program.h). */
#ifndef LN_WORK_H
#define LN_WORK_H

#include "core/budget.h"
#include "core/evaluate.h"
#include "core/graph.h"
#include "generated/op_table.h"

enum ln_node_state {
    LN_NODE_WAITING = 0, /* some shape or value that it needs is not known yet: it belongs to a later segment */
    LN_NODE_READY,       /* shapes known: a step of this segment */
    LN_NODE_GONE         /* folded, dead, fused into another or a view */
};

/* Segments of a long loop would otherwise each carry the values of all iterations before. */
enum ln_value_slot {
    LN_SLOT_KEPT = 0, /* of the signature's function: numbered for good */
    LN_SLOT_BLOCK,    /* one of the values of an inlined function, which are numbered in a row */
    LN_SLOT_SINGLE
};

typedef struct ln_work_value {
    const char *name;
    ln_tensor tensor; /* data: the value when known, always dense */
    const void *host; /* constants: the bytes that steps read, in the tensor's strides */
    int32_t producer; /* position of the node that makes it, or -1; kept by ln_pass_fuse only */
    int32_t variable; /* index into the model's variables, or -1 */
    int32_t input;    /* index into the function's inputs, or -1 */
    int32_t uses;     /* operand slots of ready nodes that read it */
    int32_t updates;  /* the variable over which it may be written, set by ln_pass_order; -1 none */
    int32_t blob;     /* index of the memory that it was folded into, or -1 */
    int32_t readers;  /* how many are still to be inlined or folded; -1: not counted, it is kept */
    bool known;       /* its shape is known: it is made in this segment or was made before */
    bool imported;    /* made by an earlier segment */
    bool exported;    /* a later segment reads it */
    bool wanted;      /* ... and must know its value to be planned */
    bool fetched;
    bool committed;   /* an assign stores it into its variable at the end of the run */
    uint16_t bounded; /* bit d: dims[d] is an upper bound; the true one comes out of the run */
    bool undecided;   /* where bounds are looked for: what it would be is not known, whatever is run */
    uint8_t slot;     /* ln_value_slot: what may take its place when nothing needs it any more */
    uint8_t device;   /* where it is made: 0 is the CPU, then 1 + index in the plan's device list */
    int32_t buffer;   /* after ln_pass_alias: index of its buffer, and where in it (bytes) */
    int64_t offset;
} ln_work_value;

typedef struct ln_work_node {
    const ln_op *op; /* NULL: a transfer between devices */
    const void *attributes;
    const char *name;
    int32_t index; /* in its function, for messages */
    int32_t n_inputs, n_outputs;
    int32_t *inputs; /* values, -1 absent; for a fused node the operands of the map follow */
    int32_t *outputs;
    uint8_t state;  /* ln_node_state */
    uint8_t device; /* 0: CPU, else 1 + index */
    bool checks;    /* done for that alone: nobody reads its result */
    /* epilogue, set by ln_pass_fuse */
    const struct ln_work_node *map;
    int32_t tile_input, n_extra, inner; /* inner: the value that is no longer stored */
    struct ln_work *bodies[2];          /* of a loop or a branch that is one step: its functions, inferred */
} ln_work_node;

/* A run of memory that steps write. Values that are views share one. */
typedef struct ln_work_buffer {
    uint64_t size;
    int32_t first, last; /* positions in the order */
    uint8_t kind;        /* ln_region of program.h */
    uint8_t device;
    bool gradient;   /* an update reads it */
    uint64_t offset; /* result */
} ln_work_buffer;

/* The buffers of a plan, in whose places another is put that has the same ones, none larger: `reference` 2. */
typedef struct ln_frame {
    const ln_work_buffer *buffers; /* NULL until the first plan has been made */
    int32_t count;
    uint64_t arena;
    uint8_t *folds; /* for each node that might have been folded, in order: whether it was */
    int32_t n_folds, most_folds, next_fold;
    bool lost; /* no memory for them */
    ln_pool pool;
} ln_frame;

/* Memory that a folded value was computed into; adopted by the program when a step still reads it, else freed. */
typedef struct ln_blob {
    void *data; /* NULL: freed already */
    size_t size;
    int32_t holders; /* values that have it */
    bool kept;
    bool packed_only; /* nobody reads it but `pack` */
} ln_blob;

typedef struct ln_list {
    void *items;
    int32_t count, capacity;
} ln_list;

typedef struct ln_work {
    linnet_model *model;
    ln_memory *memory;     /* temporary */
    ln_memory *persistent; /* the plan's: blobs */
    ln_budget *budget;     /* of the whole plan; NULL: nothing is folded or expanded any more */
    ln_pool pool;
    ln_list values;   /* ln_work_value */
    ln_list nodes;    /* ln_work_node *, in order */
    ln_list blobs;    /* ln_blob */
    ln_list buffers;  /* ln_work_buffer */
    int32_t *fetches; /* values */
    int32_t n_fetches;
    int isa, threads;
    bool reference;
    ln_frame *frame; /* NULL: none */
    const linnet_device *const *devices;
    int32_t n_devices;
    uint64_t max_bytes;       /* 0: no bound */
    int32_t waiting;          /* nodes left for later segments */
    int32_t depth;            /* of inlined calls */
    bool ordered;             /* by ln_pass_order, for updates: */
    int32_t last_failure;     /* position of the last node that can fail */
    uint64_t target;          /* bytes of the arena that ln_pass_recompute is to come to */
    int32_t recomputed;       /* nodes that it added */
    bool nested;              /* a body: run by a step of `outer` */
    struct ln_program *outer; /* set when it is lowered */
    ln_list bodies;           /* ln_work *, of the nodes */
    bool *spare;              /* later segments: values that nothing waiting needs, whose numbers may be given again */
    int32_t n_spare;
    linnet_error *error;
} ln_work;

static inline ln_work_value *ln_value_at(const ln_work *w, int32_t i) { return (ln_work_value *)w->values.items + i; }
static inline ln_work_node *ln_node_at(const ln_work *w, int32_t i) { return ((ln_work_node **)w->nodes.items)[i]; }
static inline ln_work_buffer *ln_buffer_at(const ln_work *w, int32_t i) {
    return (ln_work_buffer *)w->buffers.items + i;
}

/* work.c */
void ln_work_init(ln_work *w, linnet_model *model, ln_memory *temporary, ln_memory *persistent, linnet_error *error);
/* Frees all, and the blobs that nobody kept. */
void ln_work_free(ln_work *w);
linnet_status ln_work_no_memory(ln_work *w);
/* Appends one zeroed item; NULL when out of memory. Earlier pointers into the list become invalid. */
void *ln_list_add(ln_work *w, ln_list *list, size_t item);
/* New value like `like` (may be NULL); -1 when out of memory. */
int32_t ln_work_add_value(ln_work *w, const char *name, const ln_tensor *like);
/* n new values in a row, zeroed but for their kind of slot; the first, or -1 when out of memory. */
int32_t ln_work_add_values(ln_work *w, int32_t n, int slot);
/* Finds out which values are spare: called when only waiting nodes are left. */
linnet_status ln_work_find_spare(ln_work *w);
ln_work_node *ln_work_new_node(ln_work *w, const ln_op *op, const void *attributes, const char *name, int32_t index,
                               int32_t n_inputs, int32_t n_outputs);
linnet_status ln_work_append(ln_work *w, ln_work_node *node);
/* A `copy` identity node from one value to another. */
ln_work_node *ln_work_identity(ln_work *w, const char *name, int32_t from, int32_t to);
/* Makes the value a constant: computes op(inputs) into a blob with the strides of the value's tensor. */
linnet_status ln_work_fold(ln_work *w, const ln_op *op, const void *attributes, int n_inputs, const int32_t *inputs,
                           int n_outputs, const int32_t *outputs);
/* Counts n nodes or values more: TOO_LARGE when these, or the memory of planning, are beyond the budget. */
linnet_status ln_work_charge(ln_work *w, uint64_t n);
/* Recounts `uses` and kills ready nodes that nothing needs. */
linnet_status ln_work_sweep(ln_work *w);
/* TOO_LARGE when bytes exceed the bound of a plan; 0 is none. */
linnet_status ln_check_bound(uint64_t bound, uint64_t bytes, linnet_error *error);
/* Copy of the waiting part of the graph, for planning later segments. `error` is the new one's: the record of whoever
 * planned `from` may be gone. */
linnet_status ln_work_snapshot(const ln_work *from, ln_work *to, ln_memory *memory, linnet_error *error);
bool ln_is_assign(const ln_work_node *node);
/* alias.c: whether every output of the node can be a part of its first operand's memory. */
bool ln_is_view(const ln_work *w, const ln_work_node *node);

/* The passes, in the order in which plan.c calls them. */
/* expand.c: the signature's function, its shapes bound, as values and nodes; then inference, folding and inlining. */
linnet_status ln_pass_expand(ln_work *w, const ln_signature *signature, const linnet_plan_config *config);
/* infer_pass.c: one node forward: READY, folded away, or WAITING. Calls are replaced by their functions' nodes. */
linnet_status ln_pass_infer(ln_work *w, ln_work_node *node);
/* device.c: which device takes which node, and the transfers at the borders. */
linnet_status ln_pass_devices(ln_work *w);
/* layout.c: strides of every value, and conversions. */
linnet_status ln_pass_layout(ln_work *w);
/* legalize.c: f16 and bf16 nodes that only have a fast kernel in f32 get casts around them. */
linnet_status ln_pass_storage(ln_work *w);
/* fuse.c: maps become epilogues. */
linnet_status ln_pass_fuse(ln_work *w);
/* order.c: where variables are updated, what frees memory comes first, and an update behind all that reads the old
 * value or can fail. */
linnet_status ln_pass_order(ln_work *w);
/* recompute.c: of an ordered graph, values that are made again instead of kept, until w->target is reached if it can.
 */
linnet_status ln_pass_recompute(ln_work *w);
/* alias.c: views, concat without copy, in place; then buffers with lifetimes. */
linnet_status ln_pass_alias(ln_work *w);
/* Undoes it, where all nodes were ready. */
void ln_forget_aliases(ln_work *w);

#endif
