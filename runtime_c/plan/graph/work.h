/* work.h - the graph during planning: a flat list of nodes over values, which one pass after another rewrites.
 * It is in temporary memory; only the parts that steps need are copied into the program (program.h). */
#ifndef LN_WORK_H
#define LN_WORK_H

#include "model/graph.h"
#include "plan/graph/budget.h"
#include "plan/graph/devices.h"
#include "plan/graph/evaluate.h"
#include "plan/graph/memory.h"
#include "generated/op_table.h"

enum ln_node_state {
    LN_NODE_WAITING = 0, /* a shape or value that the node needs is not known yet, so it belongs to a later segment */
    LN_NODE_READY,       /* its shapes are known, so it becomes a step of this segment */
    LN_NODE_GONE         /* folded, dead, turned into a view, or fused into another node */
};

/* Kinds of value numbers. They allow reuse, so that a segment of a long loop does not carry the values of all earlier
 * iterations. */
enum ln_value_slot {
    LN_SLOT_KEPT = 0, /* a value of the signature's function, whose number is permanent */
    LN_SLOT_BLOCK,    /* one of the values of an inlined function, which have consecutive numbers */
    LN_SLOT_SINGLE
};

/* A value of the graph. Facts about a value that only one pass finds out are in a table of that pass: ln_updates,
 * ln_home, tokens. */
typedef struct ln_work_value {
    const char *name;
    ln_tensor tensor; /* `data` is the value if planning knows it, in dense memory; else NULL */
    const void *host; /* of a constant: the bytes that steps read, with the tensor's strides; else NULL */
    int32_t variable; /* index into the model's variables, or -1 */
    int32_t input;    /* index among the function's inputs and the feeds, which follow them; or -1 */
    /* Set while the graph is expanded: */
    int32_t blob;    /* index of the ln_blob that holds the folded value, or -1 */
    int32_t readers; /* number of readers that are not inlined or folded yet; -1: they are not counted, and the value is
                        kept */
    bool known;      /* its shape is known, so this or an earlier segment computes it */
    bool imported;   /* an earlier segment computes it */
    bool wanted;     /* planning of a later segment needs the value */
    bool undecided;  /* while bounds are computed: nothing has run, so its value stays unknown */
    uint16_t bounded; /* bit d: dims[d] is an upper bound; the run determines the true dimension */
    uint8_t slot;     /* ln_value_slot, which says what may reuse its number when nothing needs the value any more */
    uint8_t device;   /* the place where its memory is */
    /* Set by ln_work_sweep: */
    bool exported; /* a later segment reads it */
    bool fetched;
    int32_t uses;   /* number of operands of ready nodes that are this value */
    bool committed; /* an assign stores the value into its variable at the end of the run; set when the assign is final
                     */
} ln_work_value;

typedef struct ln_work_node {
    const ln_op *op; /* NULL: a transfer between places, or (without outputs) a wait of the host */
    const void *attributes;
    const char *name;
    const char *scope; /* device string that says where it should run; NULL or "": anywhere */
    int32_t index;     /* number of the node in its function, for error messages */
    int32_t number; /* position of the node when devices are first asked; a node with an epilogue has the number of its
                       op */
    int32_t n_inputs, n_outputs;
    int32_t *inputs; /* values; -1: absent. In a node with an epilogue, the other operands of the map follow */
    int32_t *outputs;
    uint8_t state;        /* ln_node_state */
    uint8_t device;       /* the place that runs it; of transfers and waits: the device whose queue is used */
    uint8_t reason;       /* ln_reason */
    bool checks;          /* the node runs only because it checks its operands; nothing reads its result */
    bool continues;       /* its first input is the last result of the step before it (lower.c) */
    bool dense;           /* computes in dense memory although its op prefers another layout (layouts.c) */
    int32_t fork, branch; /* set by ln_pass_branches: 1 + the number of its fork, and the number of its branch, from 1
                           * on; 0: it runs beside no other node */
    int32_t event;        /* of transfers and waits: number of the event, from 1 on; 0: none */
    const ln_work_claim *claim; /* of a node on a device: its claim, set by ln_pass_claims */
    /* The epilogue, set by ln_pass_fuse: */
    const struct ln_work_node *map;
    int32_t tile_input, n_extra, inner; /* inner: the op's own result, which is not stored */
    struct ln_work *bodies[2];          /* of a loop or branch that is one step: the graphs of its functions */
} ln_work_node;

/* A range of nodes that consists of independent branches, which run side by side. The nodes of a branch are
 * consecutive. */
typedef struct ln_work_fork {
    int32_t first, end; /* positions in the order of nodes */
    int32_t branches;
} ln_work_fork;

/* Where ln_find_buffers puts a value: a buffer, and the offset in it. */
typedef struct ln_home {
    int32_t buffer; /* -1: in none */
    int64_t offset; /* bytes */
} ln_home;

/* A range of memory that steps write. Values that are views share one. */
typedef struct ln_work_buffer {
    uint64_t size;
    int32_t first, last; /* positions of the first and the last node that use it */
    uint8_t kind;        /* ln_region */
    uint8_t device;
    bool gradient;   /* an update reads it */
    int32_t branch;  /* the branch whose nodes alone use it; 0: there is no such branch */
    int32_t chunk;   /* of a buffer on a device: the number of its allocation */
    uint64_t offset; /* set when memory is planned */
} ln_work_buffer;

/* The buffers of an earlier plan. Another plan with the same buffers reuses their offsets if none of its buffers is
   larger (`reference` 2). */
typedef struct ln_frame {
    const ln_work_buffer *buffers; /* NULL until the first plan exists */
    int32_t count;
    uint64_t arena;
    uint8_t *folds; /* for each node that could be folded, in order: whether it was folded */
    int32_t n_folds, most_folds, next_fold;
    bool lost; /* there was no memory to record `folds` */
    ln_pool pool;
} ln_frame;

/* Memory that a folded value was computed into. The program takes it over if a step still reads it; otherwise it is
 * freed. */
typedef struct ln_blob {
    void *data; /* NULL: freed already */
    size_t size;
    int32_t holders; /* number of values that refer to it */
    bool kept;
    bool packed_only; /* only packing reads it, so it is freed after packing */
} ln_blob;

typedef struct ln_list {
    void *items;
    int32_t count, capacity;
} ln_list;

enum ln_work_kind {
    LN_WORK_SIGNATURE, /* expanded from a signature of the model */
    LN_WORK_SEGMENT,   /* what has waited for the values of an earlier program */
    LN_WORK_BODY       /* the function of a loop or branch that is one step of another graph */
};

/* The settings of a plan. Later segments and bodies are planned with the same settings. */
typedef struct ln_settings {
    ln_features features;
    int threads;
    int precision;         /* linnet_precision, for kernels; planning itself computes in f32 */
    uint64_t max_bytes;    /* 0: no bound */
    bool reference;        /* steps run reference kernels */
    bool whole_branches;   /* outside of bodies, too, an `if` may be one node */
    bool unpacked;         /* there is no memory for packed copies of variables */
    const bool *read_only; /* per variable: no run of the signature changes it, so kernels may pack it; NULL: none */
    const ln_device *devices;
    int32_t n_devices;
    const linnet_placement *hints;
    int32_t n_hints;
    const struct ln_task *tasks; /* the cluster */
    int32_t n_tasks;
    const struct ln_machine *machine; /* the rates by which times are modelled */
    const struct ln_tuning *tuning;   /* NULL: costs alone choose the kernels */
} ln_settings;

/* What the caller asks of a signature's plan. All of it is 0 in segments and bodies. */
typedef struct ln_request {
    const ln_signature *signature;
    const linnet_plan_config *config;
    bool separate;                  /* outputs share their memory with no other tensor */
    bool apart;                     /* no steps run side by side, because there is no memory for that */
    ln_frame *frame;                /* the buffers that this plan has to use; NULL: it may choose */
    struct ln_pass_change *changes; /* [pass]: what it changed; NULL: the caller does not ask */
    /* Set by ln_pass_expand: */
    const int32_t *fetches; /* the values that the caller fetches, as they were before passes replaced some */
    int32_t *fed; /* [value of the signature's function]: the fed value that its readers get instead; 0: the value is
                     not fed. NULL: only inputs are fed */
    const char *opened; /* an input with an open dimension that a given shape has bound, or NULL */
} ln_request;

/* In segments: the values that no waiting node needs, whose numbers can be used again. None in other graphs. */
typedef struct ln_spare {
    bool *values; /* for each value that the segment began with: whether its number can be used again */
    int32_t n;
} ln_spare;

/* The result of ln_pass_order: which new values may be written over their variables, and from which node on. All fields
 * are 0 in graphs that are not ordered. */
typedef struct ln_updates {
    bool ordered;         /* the nodes are in an order for updates */
    int32_t last_failure; /* position of the last node that can fail */
    int32_t *variable;    /* per value: the variable that it may overwrite; -1: none */
    int32_t n;            /* number of entries of `variable`; values that later passes add overwrite no variable */
} ln_updates;

/* How ln_pass_recompute saves memory. A target of 0: nothing is computed again. */
typedef struct ln_recomputing {
    uint64_t target; /* the size of the arena, in bytes, that the pass aims at */
    int32_t added;   /* number of nodes that the pass has added */
} ln_recomputing;

/* The branches that run side by side, from ln_pass_branches. There are none before it, in segments and in bodies. */
typedef struct ln_parallel {
    ln_list forks; /* ln_work_fork */
    int32_t n_branches;
} ln_parallel;

/* What devices are asked, and what they have answered. All of it is 0 in plans without devices, but for `refusals`. */
typedef struct ln_offload {
    struct ln_refusals *refusals; /* what devices have refused in earlier builds (refusals.h) */
    int32_t graph;    /* number of a body, in the order in which bodies are opened; 0: this graph is no body */
    ln_list moves;    /* ln_work_move, from ln_pass_transfers */
    int32_t n_events; /* number of events, from ln_pass_waits */
    ln_list claims;   /* ln_work_claim *, from ln_pass_claims, which also sets: */
    int32_t *readers; /* per value: linnet_device_tensor.readers; NULL: not known */
    uint32_t *tokens; /* per value: its private layout on a device; 0: dense; NULL: all are */
} ln_offload;

/* Where values lie, from ln_find_buffers. */
typedef struct ln_homes {
    ln_home *of;     /* [value]: where it lies */
    int32_t n, room; /* values that have a home, and homes that are allocated */
} ln_homes;

/* What the graph is turned into. Set by ln_program_build. */
typedef struct ln_result {
    struct ln_program *program;
    struct ln_program *outer; /* of a body: the program that runs it; set before its own is built */
    ln_pool *pool;            /* the program's pool, for the memory of steps, which outlives the graph */
    ln_needs *needs;          /* the memory that the program needs; NULL: it is not being built */
} ln_result;

/* The graph, and the parts in which a plan and its passes note what they know of it. */
typedef struct ln_work {
    uint8_t kind; /* ln_work_kind */
    linnet_model *model;
    linnet_error *error;
    /* Memory: */
    ln_memory *memory;     /* temporary */
    ln_memory *persistent; /* the plan's memory, for folded values */
    ln_budget *budget;     /* the budget of the whole plan; NULL: nothing is folded or expanded any more */
    ln_pool pool;
    /* The graph: */
    ln_list values;   /* ln_work_value */
    ln_list nodes;    /* ln_work_node *, in order */
    ln_list blobs;    /* ln_blob */
    ln_list bodies;   /* ln_work *: the bodies that nodes call */
    int32_t *fetches; /* values */
    int32_t n_fetches;
    int32_t depth;   /* number of nested calls that are being inlined, while the graph is expanded */
    int32_t waiting; /* number of nodes that are left for later segments */
    /* What is given: */
    ln_settings settings;
    ln_request request;
    /* What passes find out: */
    ln_spare spare;
    ln_updates updates;
    ln_recomputing recomputing;
    ln_offload offload;
    ln_parallel parallel;
    ln_list buffers; /* ln_work_buffer */
    ln_homes homes;
    ln_result result;
} ln_work;

static inline ln_work_value *ln_value_at(const ln_work *w, int32_t i) { return (ln_work_value *)w->values.items + i; }
static inline ln_work_node *ln_node_at(const ln_work *w, int32_t i) { return ((ln_work_node **)w->nodes.items)[i]; }
static inline ln_work_buffer *ln_buffer_at(const ln_work *w, int32_t i) {
    return (ln_work_buffer *)w->buffers.items + i;
}
/* Returns the number of operands of the node and of its epilogue. */
static inline int32_t ln_slots(const ln_work_node *node) { return node->n_inputs + node->n_extra; }

/* Returns the variable that the value may overwrite; -1: none. */
static inline int32_t ln_update_of(const ln_work *w, int32_t value) {
    return value < w->updates.n ? w->updates.variable[value] : -1;
}
static inline uint32_t ln_token_of(const ln_work *w, int32_t value) {
    return w->offload.tokens != NULL ? w->offload.tokens[value] : 0; /* no pass adds values after ln_pass_claims */
}
static inline ln_home ln_home_of(const ln_work *w, int32_t value) {
    return value < w->homes.n ? w->homes.of[value] : (ln_home){.buffer = -1};
}

/* work.c */
void ln_work_init(ln_work *w, linnet_model *model, ln_memory *temporary, ln_memory *persistent, linnet_error *error);
/* Frees everything, including the blobs that no program took over. */
void ln_work_free(ln_work *w);
linnet_status ln_work_no_memory(ln_work *w);
/* Appends one zeroed item of `item` bytes; NULL when out of memory. Pointers into the list are invalid afterwards. */
void *ln_list_add(ln_work *w, ln_list *list, size_t item);
/* Adds a value with the tensor `like`, which may be NULL; -1 when out of memory. */
int32_t ln_work_add_value(ln_work *w, const char *name, const ln_tensor *like);
/* Adds a value of the same name, shape and layout as another one, and says that its shape is known; -1 when out of
   memory. */
int32_t ln_work_twin(ln_work *w, int32_t value);
/* Adds n consecutive values, zeroed except for their kind of slot. Returns the first, or -1 when out of memory. */
int32_t ln_work_add_values(ln_work *w, int32_t n, int slot);
/* Frees the blob, unless a program took ownership of it. */
void ln_blob_free(ln_work *w, ln_blob *blob);
/* Finds the spare values. Call it when all nodes that remain are waiting. */
linnet_status ln_work_find_spare(ln_work *w);
ln_work_node *ln_work_new_node(ln_work *w, const ln_op *op, const void *attributes, const char *name, int32_t index,
                               int32_t n_inputs, int32_t n_outputs);
linnet_status ln_work_append(ln_work *w, ln_work_node *node);
/* Empties the list of nodes and returns what it held, for a pass that appends them again with others between them; NULL
   when out of memory. */
ln_work_node **ln_work_take_nodes(ln_work *w, int32_t *n);
/* Finds for each value the position of the ready node that computes it; -1: none does. NULL when out of memory. */
int32_t *ln_find_makers(ln_work *w);
/* Creates a `copy` node of the kind in `attributes`, with one output. The caller still has to set its operands. */
ln_work_node *ln_work_copy(ln_work *w, const ln_copy_attributes *attributes, const char *name, int32_t index,
                           int32_t n_inputs);
/* Creates a `copy` identity node from one value to another. */
ln_work_node *ln_work_identity(ln_work *w, const char *name, int32_t from, int32_t to);
/* Counts n more nodes or values. Fails with TOO_LARGE when their number, or the memory of planning, exceeds the
   budget. */
linnet_status ln_work_charge(ln_work *w, uint64_t n);
/* Recounts `uses` and removes ready nodes that nothing needs. */
linnet_status ln_work_sweep(ln_work *w);
/* Copies the waiting part of the graph, which becomes the graph of a segment. `error` is the record for the copy,
 * because the record that `from` was planned with may no longer exist. */
linnet_status ln_work_snapshot(const ln_work *from, ln_work *to, ln_memory *memory, linnet_error *error);
bool ln_is_assign(const ln_work_node *node);
/* Tells whether a kernel of the CPU computes the node. */
static inline bool ln_is_kernel(const ln_work_node *node) { return node->op != NULL && ln_on_cpu(node->device); }
/* Tells whether a device computes the node. */
static inline bool ln_on_device(const ln_work_node *node) { return node->op != NULL && !ln_on_cpu(node->device); }
static inline const ln_device *ln_device_at(const ln_work *w, uint8_t place) { return &w->settings.devices[place - 1]; }
/* Tells whether the op of the node belongs to the family. A transfer between devices belongs to none. */
static inline bool ln_is_family(const ln_work_node *node, int family) {
    return node->op != NULL && node->op->family == family;
}

static inline const ln_work_fork *ln_fork_at(const ln_work *w, int32_t number) {
    return (const ln_work_fork *)w->parallel.forks.items + number - 1;
}

#endif
