/* session_layout.h - a session in memory: its structs, and the size of the block that holds them.
 * The plan counts these bytes before a session exists; run/ fills the structs. */
#ifndef LN_SESSION_LAYOUT_H
#define LN_SESSION_LAYOUT_H

#include "base/platform_threads.h"
#include "model/snapshot.h"
#include "model/store_types.h"
#include "plan/graph/evaluate.h"
#include "plan/plan.h"

/* One step with its pointers. */
typedef struct ln_resolved_step {
    const ln_step *step;
    ln_buffers buffers;
    void *state;       /* of loops and branches: the instances of their bodies */
    uint32_t alone[2]; /* [0]: phase 0, [1]: later phases; a time that ln_threads_run keeps here */
} ln_resolved_step;

typedef struct ln_trace {
    uint64_t runs, total_ns, saturated, infinite, not_a_number, device_ns, start_ns;
} ln_trace;

/* A claim of a device in an instance. */
typedef struct ln_resolved_claim {
    linnet_work work;
    linnet_handle state;
    bool prepared;
} ln_resolved_claim;

/* Memory of a device that the caller has bound to an input or output. */
typedef struct ln_device_binding {
    uint8_t place; /* 0: none */
    bool staged;   /* the value goes through the session's own memory, because more than one transfer uses it */
    linnet_span span;
} ln_device_binding;

/* A transfer, and the description of its operands for the device. `spans` are the source and the destination. */
typedef struct ln_resolved_transfer {
    linnet_device_tensor tensor;
    linnet_span spans[2];
    const ln_device_binding *binding; /* the memory that takes the place of the host's memory; NULL: none */
} ln_resolved_transfer;

/* A session's queue on one device. */
typedef struct ln_queue {
    linnet_handle queue, event; /* `event` is recorded where the host waits for all work */
    bool open, has_event;
    bool busy;       /* work was submitted that the host has not waited for */
    bool leaves_out; /* of the end of the last run: new values stay on the device ... */
    int code;        /* ... and what the device said when they were put in place */
} ln_queue;

/* The objects of devices that belong to an instance. Everything is 0 until it exists. */
typedef struct ln_device_objects {
    linnet_handle *chunks;  /* program->n_chunks allocations; those of constants are shared (run/constants.c) */
    linnet_handle *events;  /* program->n_events */
    linnet_handle *imports; /* [device]: the memory of inputs and outputs as a buffer of the device */
    bool *has_chunk, *has_event, *has_import;
    bool *released;     /* [device]: the device owns the imported memory now, and the host must not use it */
    uint64_t *versions; /* [weight]: 1 + the version of the variable that the device has; 0: it has none */
    ln_resolved_claim *claims;
    ln_resolved_transfer *transfers;
    linnet_span *spans;
    const linnet_step **steps; /* the steps of all claims, one claim after another */
    const linnet_span **inputs, **outputs;
} ln_device_objects;

/* The key that decides whether a planned later segment can be used: the true shapes, and the small values that shapes
 * depend on. */
typedef struct ln_segment_key {
    int64_t *words;
    int32_t count;
} ln_segment_key;

/* A result of a loop whose number of iterations is known only at run time. */
typedef struct ln_grown {
    char *data;
    size_t size;
} ln_grown;

typedef struct ln_packed_variable ln_packed_variable; /* run/packed_variables.c */

typedef struct ln_instance {
    ln_program *program;
    ln_resolved_step *steps;
    const void **pointers; /* the addresses of all operands */
    ln_grown *grown;
    /* Packed copies of variables: */
    ln_packed_variable **packed_variables;
    uint64_t seen; /* state that the copies have: the number of writes to the store, or the snapshot's commit */
    const ln_snapshot *source; /* the snapshot from which the copies are packed; NULL: they are packed from the store */
    struct ln_instance *next;  /* next one in the list of the store's cache of packed variables */
    struct ln_instance *bodies;
    /* Only in a body: the instance and the step that run it. */
    struct ln_instance *outer;
    ln_resolved_step *runner;
    ln_trace *trace;   /* [step] */
    int64_t *dims;     /* program->n_dims rows of LN_MAX_RANK: the true dims, which each run sets */
    int64_t *next_key; /* space for the key of the following segment */
    char *io, *arena;
    ln_device_objects on_devices;
    struct ln_instance *also; /* the next one in the model's list of instances with constants on devices */
    /* Only in instances of later segments: */
    struct ln_instance *parent, *children, *sibling;
    ln_segment_key key;
    ln_program own;
    void *block, *memory; /* block: the instance's arrays; memory: its io and arena */
    size_t block_size, memory_size;
    uint64_t last_run;
} ln_instance;

typedef struct ln_session_output {
    const void *data;
    ln_tensor tensor;
} ln_session_output;

/* The clock is read before each slow step (ln_step.slow), and before one of so many other steps. */
enum { LN_WATCH_QUICK = 16 };

/* The conditions that may end the current run (linnet_run_config). */
typedef struct ln_watch {
    bool on; /* false: there are no such conditions, or the run has begun to overwrite variables and must not end */
    uint32_t quick; /* number of short steps since the last check; a short step takes less time than a check */
    const volatile int *cancel;
    uint64_t begun, deadline, next_poll;
    bool (*poll)(void *context);
    void *poll_context;
} ln_watch;

struct linnet_session {
    ln_memory memory;
    linnet_plan *plan;
    linnet_store *store;   /* the store of the caller, or the session's own store */
    ln_snapshot *snapshot; /* NULL: variables are read directly from the store */
    linnet_parallel_for parallel_for;
    void *parallel_context;
    ln_threads *threads;
    /* How the session runs, chosen when it is created (run/drive.h, run/steps.h): */
    linnet_status (*run)(struct linnet_session *session, bool submits, linnet_error *error);
    linnet_status (*run_steps)(struct linnet_session *session, ln_instance *instance, linnet_error *error);
    ln_instance root;
    ln_instance *last;          /* the instance of the last segment that the last run executed */
    ln_session_output *outputs; /* [fetch] */
    ln_queue *queues;           /* [device of the plan] */
    /* For each input, then for each output of the first program; NULL without devices. */
    ln_device_binding *device_bindings;
    /* For each input, then for each output of the first program: the caller's memory; NULL: none. */
    char **host_bindings;
    bool has_host_bindings; /* at least one is not NULL */
    const linnet_program_cache *program_cache;
    const ln_step *refused; /* the step whose claim a device has refused to prepare; NULL: none */
    void *block, *io, *arena;
    const ln_device *io_owner;              /* the device that allocated `io`; NULL: the session's allocator did */
    size_t block_size, io_size, arena_size; /* arena_size 0: the arena is the caller's */
    size_t first_bytes;  /* bytes that `memory` counted when the session was created; any further bytes belong to later
                            segments */
    size_t packed_bytes; /* bytes of constants and variables that later segments have packed */
    uint64_t max_bytes;  /* 0: none */
    uint64_t run_count;
    struct ln_run_error run_error;
    ln_watch watch;
    bool locks, exclusive, parallel, trace, count_special;
    bool binds_all;  /* inputs and outputs have only memory that is bound */
    int32_t unbound; /* with `binds_all`: inputs and outputs that are not bound yet */
    bool pending;    /* work may be in queues: of submitted runs, or of a run that the caller has ended */
    bool staged;     /* at least one of `device_bindings` is staged */
    int32_t waits;   /* number of waits at the end of the program; a submitted run leaves them to linnet_session_wait */
    int32_t skipped; /* number of waits that the current run leaves out: `waits` in a submitted run, else 0 */
    bool stacks; /* several runs may be in the queues at once, because the host touches no memory that devices read or
                    write */
    bool releases_io;      /* a device shares memory, and must be told when the host has written or will read it */
    bool refreshed;        /* the run has uploaded a variable */
    bool left_out;         /* the last transfer was left out, because it was not necessary */
    bool defers_downloads; /* runs may leave new values of variables on devices, from which others fetch them */
    ln_holder holder;
    uint64_t seen_left; /* ln_store_left when the session last read what it needs from files */
};

/* Offsets of the parts of a session's block. */
typedef struct ln_session_layout {
    size_t outputs, queues, host_bindings, device_bindings, threads, instance;
} ln_session_layout;

/* Tells whether any step, including those of segments not planned yet, may use more than one thread. */
bool ln_plan_parallel(const linnet_plan *plan);
/* Returns the size in bytes of a session's block, with or without space for its own threads. `at` receives the offsets
 * of its parts. */
size_t ln_session_measure(const linnet_plan *plan, bool own_threads, ln_session_layout *at);
/* Returns the bytes that a session of this plan allocates besides arena and io, with its own threads. */
size_t ln_session_bookkeeping(const linnet_plan *plan);
/* Returns the bytes of the arrays of an instance and its bodies. */
size_t ln_instance_size(const ln_program *program);
/* Divides the block (ln_instance_size bytes, zeroed) into the arrays of the instance and its bodies. */
void ln_instance_carve(ln_instance *instance, void *block);
/* Returns the most words that the key of a following segment can have; 0 if no segment follows. */
int32_t ln_segment_key_words(const ln_program *program);

#endif
