/* session.h - a session: programs bound to memory. One instance per planned segment; the first lives as long as it.
 * Operand pointers are resolved here, once; a run only follows them. */
#ifndef LN_SESSION_H
#define LN_SESSION_H

#include "core/plan.h"
#include "core/snapshot.h"

/* One step with its pointers. */
typedef struct ln_bound {
    const ln_step *step;
    ln_buffers buffers;
    void *state; /* of a device; loops and branches: the instances of their bodies */
} ln_bound;

typedef struct ln_trace {
    uint64_t runs, total_ns, saturated, infinite, not_a_number;
} ln_trace;

/* What decides whether a planned later segment fits: the true shapes, and the small values that shapes depend on. */
typedef struct ln_segment_key {
    int64_t *words;
    int32_t count;
} ln_segment_key;

/* A result of a loop whose iterations only the run knows. */
typedef struct ln_grown {
    char *data;
    size_t size;
} ln_grown;

typedef struct ln_instance {
    ln_program *program;
    ln_bound *steps;
    const void **pointers; /* of all operands */
    ln_grown *grown;
    struct ln_instance *bodies;
    /* Of a body: whose step runs it. */
    struct ln_instance *outer;
    ln_bound *runner;
    ln_trace *trace;
    int64_t *dims;     /* program->n_dims rows of LN_MAX_RANK: true dims, refreshed before and by each run */
    int64_t *next_key; /* room for the key of the segment that follows */
    char *io, *arena;
    void **device_arenas, **residents; /* per device */
    /* Later segments only */
    struct ln_instance *parent, *children, *sibling;
    ln_segment_key key;
    ln_program own;
    void *block, *memory; /* bookkeeping; io and arena */
    size_t block_size, memory_size;
    uint64_t last_run;
} ln_instance;

typedef struct ln_session_output {
    const void *data;
    ln_tensor tensor;
} ln_session_output;

enum { LN_WATCH_QUICK = 16 }; /* steps that take less than a look at the clock does are looked at so many at once */

/* What may end the run that is on (linnet_run_config). */
typedef struct ln_watch {
    bool on;        /* false too once the run has begun to write over variables */
    uint32_t quick; /* steps since the last look that take less time than a look */
    const volatile int *cancel;
    uint64_t begun, deadline, next_poll;
    int (*poll)(void *context);
    void *poll_context;
} ln_watch;

struct linnet_session {
    ln_memory memory;
    linnet_plan *plan;
    linnet_store *store;   /* the caller's, or one of its own */
    ln_snapshot *snapshot; /* NULL: variables are read where the store has them */
    linnet_parallel_for parallel_for;
    void *parallel_context;
    ln_threads *threads;
    ln_instance root;
    ln_instance *last;          /* of the last run: where the chain ended */
    ln_session_output *outputs; /* per fetch */
    void *block, *io, *arena;
    size_t block_size, io_size, arena_size; /* arena_size 0: the caller's arena */
    size_t first_bytes;  /* that `memory` counted when the session was made; what is more is of later segments */
    size_t packed_bytes; /* that later segments have packed */
    uint64_t max_bytes;  /* 0: none */
    uint64_t run_count;
    struct ln_run_error run_error;
    ln_watch watch;
    bool locks, exclusive, parallel, trace, count_special;
};

/* Bytes that a session of this plan takes besides arena and io, with its own threads. */
size_t ln_session_bookkeeping(const linnet_plan *plan);
size_t ln_instance_size(const ln_program *program);
/* Carves the instance's arrays out of block (ln_instance_size bytes, zeroed) and resolves every operand. */
linnet_status ln_instance_bind(linnet_session *session, ln_instance *instance, void *block, linnet_error *error);
/* segment.c: bytes that later segments may still take within max_bytes; UINT64_MAX without one. */
uint64_t ln_session_free(const linnet_session *session);
/* segment.c: sees to it that so many bytes more fit, by dropping continuations that the run up to `last` does not stand
 * on, those not run for longest first. TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_segments_make_room(linnet_session *session, ln_instance *last, uint64_t bytes, linnet_error *error);
/* Gives back what the instance holds on devices. */
void ln_instance_unbind(linnet_session *session, ln_instance *instance);
/* Host pointer of an operand, or that on its device. */
void *ln_instance_pointer(const linnet_session *session, const ln_instance *instance, const ln_operand *operand);
void ln_instance_publish(linnet_session *session, const ln_instance *instance); /* its outputs become the session's */

/* Room for that many bytes of a result that grows, what it holds kept. TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_instance_grow(linnet_session *session, ln_instance *instance, ln_grown *grown, size_t bytes,
                               linnet_error *error);

/* run.c */
linnet_status ln_run_steps(linnet_session *session, ln_instance *instance, linnet_error *error);
/* watch.c: takes the configuration of a run (NULL: nothing ends it). INVALID_ARGUMENT. */
linnet_status ln_watch_begin(ln_watch *watch, const linnet_run_config *config, linnet_error *error);
/* Whether the run ends before `step` (NULL: while it waits for the store). CANCELLED, DEADLINE_EXCEEDED. */
linnet_status ln_watch_look(ln_watch *watch, const ln_step *step, linnet_error *error);
static inline bool ln_watch_cancelled(const ln_watch *watch) {
    return __atomic_load_n(watch->cancel, __ATOMIC_RELAXED) != 0; /* the caller's, who need not know of <stdatomic.h> */
}
/* Before each step and iteration. */
static inline linnet_status ln_watch_step(ln_watch *watch, const ln_step *step, bool slow, linnet_error *error) {
    if (!watch->on || (!ln_watch_cancelled(watch) && !slow && ++watch->quick < LN_WATCH_QUICK)) return LINNET_OK;
    return ln_watch_look(watch, step, error);
}
/* segment.c: most words that the key of a following segment may have; 0 when nothing waits. */
int32_t ln_segment_key_words(const ln_program *program);
/* segment.c: the instance that continues after `instance`, planned if it has not been met before. */
linnet_status ln_segment_next(linnet_session *session, ln_instance *instance, ln_instance **next, linnet_error *error);
void ln_segments_free(linnet_session *session, ln_instance *instance); /* all children */
/* device.c */
linnet_status ln_device_prepare(linnet_session *session, ln_instance *instance, linnet_error *error);
linnet_status ln_device_step(linnet_session *session, const ln_bound *bound, linnet_error *error);
void ln_device_release(linnet_session *session, ln_instance *instance);
/* trace.c */
void ln_count_special(const ln_bound *bound, ln_trace *trace);

#endif
