/* session.h - a session: programs bound to memory. There is one instance per planned segment; the first one exists as
 * long as the session. Operand pointers are resolved here, once; a run only reads them. */
#ifndef LN_SESSION_H
#define LN_SESSION_H

#include "plan/continue.h"
#include "plan/session_layout.h"

/* NULL stays NULL, because arithmetic on it is undefined even with offset 0. */
static inline void *ln_at(const void *base, uint64_t offset) {
    return base != NULL ? (char *)(uintptr_t)base + offset : NULL;
}
/* The inputs of the program, then its outputs. */
static inline const ln_port *ln_port_at(const ln_program *p, int32_t i) {
    return i < p->n_inputs ? &p->inputs[i] : &p->outputs[i - p->n_inputs];
}

/* instance.c */
/* Places the instance's arrays in `block` (ln_instance_size bytes, zeroed) and resolves every operand. */
linnet_status ln_instance_bind(linnet_session *session, ln_instance *instance, void *block, linnet_error *error);
/* Resolves the operands of the instance and of all later segments again. */
void ln_instance_rebind(linnet_session *session, ln_instance *instance);
/* segment.c: bytes that later segments may still allocate within max_bytes; UINT64_MAX without a limit. */
uint64_t ln_session_free(const linnet_session *session);
/* segment.c: makes room for `bytes` more bytes. It drops later segments on which the run up to `last` does not depend.
   The least recently run segment is dropped first. Errors: TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_segments_make_room(linnet_session *session, ln_instance *last, uint64_t bytes, linnet_error *error);
/* Frees the device memory of the instance. */
void ln_instance_unbind(linnet_session *session, ln_instance *instance);
/* operand.c: the pointer to an operand on the host; NULL if it is on a device. */
void *ln_instance_pointer(const linnet_session *session, const ln_instance *instance, const ln_operand *operand);
void ln_instance_publish(linnet_session *session, const ln_instance *instance); /* the instance's outputs become the
                                                                                   session's outputs */
/* Forgets the outputs of segments, whose memory a run that fails may have freed. */
void ln_session_no_outputs(linnet_session *session);

/* Frees the memory of a growing result. */
void ln_instance_shrink(linnet_session *session, ln_grown *grown);
/* segment.c: makes room for `bytes` bytes of a growing result and keeps its contents. Errors: TOO_LARGE, OUT_OF_MEMORY.
 */
linnet_status ln_instance_grow(linnet_session *session, ln_instance *instance, ln_grown *grown, size_t bytes,
                               linnet_error *error);
/* instance.c: allocates the memory that the plan reserves for growing results. Errors: OUT_OF_MEMORY. */
linnet_status ln_instance_reserve(linnet_session *session, ln_instance *instance, linnet_error *error);

/* kept.c: allocates the packed copies of variables that the instance and its bodies need, or shares those of other
   sessions. *bytes: what it allocated. Errors: OUT_OF_MEMORY. */
linnet_status ln_kept_take(linnet_session *session, ln_instance *instance, size_t *bytes, linnet_error *error);
/* Returns the bytes that it freed. */
size_t ln_kept_release(linnet_session *session, ln_instance *instance);
/* Packs the variables again that have changed since their copies were made. Called in a run, before the instance's
   steps. */
void ln_kept_refresh(linnet_session *session, ln_instance *instance);
void *ln_kept_content(const ln_instance *instance, const ln_step *step);

/* share.c: runs a phase of a step on `count` threads. */
linnet_status ln_run_parallel(linnet_session *session, ln_bound *bound, int phase, int count);
/* fork.c: runs the branches of a fork side by side. `traced`: and measures their steps. */
linnet_status ln_run_fork(linnet_session *session, ln_instance *instance, const ln_fork *fork, bool traced,
                          linnet_error *error);
/* The error of a step. */
static inline linnet_status ln_step_failed(linnet_session *s, const ln_bound *bound, linnet_status status,
                                           linnet_error *error) {
    ln_run_error_fail(&s->run_error, status, error);
    ln_at_node(error, bound->step->index, bound->step->name);
    return status;
}
/* run.c. `submits`: as linnet_session_submit, otherwise as linnet_run_with. */
linnet_status ln_run(linnet_session *session, const linnet_run_config *config, bool submits, linnet_error *error);
/* ln_queues_drain, under the store's lock if others may use the queues. */
linnet_status ln_drain(linnet_session *session, linnet_error *error);
linnet_status ln_run_steps(linnet_session *session, ln_instance *instance, linnet_error *error);
/* watch.c: takes the configuration of a run (NULL: nothing ends it). Errors: INVALID_ARGUMENT. */
linnet_status ln_watch_begin(ln_watch *watch, const linnet_run_config *config, linnet_error *error);
/* Whether the run ends before `step` (NULL: while it waits for the store). Errors: CANCELLED, DEADLINE_EXCEEDED. */
linnet_status ln_watch_look(ln_watch *watch, const ln_step *step, linnet_error *error);
/* Nanoseconds until the deadline, but at most `most`. */
uint64_t ln_watch_left(const ln_watch *watch, uint64_t most);
static inline bool ln_watch_cancelled(const ln_watch *watch) {
    return __atomic_load_n(watch->cancel, __ATOMIC_RELAXED) != 0; /* the caller may not use <stdatomic.h> */
}
/* Whether the run should end, for threads that cannot say why: the thread that has begun the run looks afterwards. */
static inline bool ln_watch_over(const ln_watch *watch, bool slow) {
    return watch->on &&
           (ln_watch_cancelled(watch) || (slow && watch->deadline != UINT64_MAX && ln_now_ns() >= watch->deadline));
}
/* Called before each step and iteration. */
static inline linnet_status ln_watch_step(ln_watch *watch, const ln_step *step, bool slow, linnet_error *error) {
    if (!watch->on || (!ln_watch_cancelled(watch) && !slow && ++watch->quick < LN_WATCH_QUICK)) return LINNET_OK;
    return ln_watch_look(watch, step, error);
}
/* segment.c: the instance that continues after `instance`. The segment is planned if its key is new. */
linnet_status ln_segment_next(linnet_session *session, ln_instance *instance, ln_instance **next, linnet_error *error);
void ln_segments_free(linnet_session *session, ln_instance *instance); /* frees all children of the instance */
/* device.c. Opens the session's queues; the caller closes them with ln_queues_close, also after an error. */
linnet_status ln_queues_open(linnet_session *session, linnet_error *error);
void ln_queues_close(linnet_session *session);
/* Waits until the queues are empty, after a failed run or before objects are freed. */
void ln_queues_finish(linnet_session *session);
/* After a failed run: no device counts as having a variable any more, in `last` and the instances before it. The queues
 * are empty afterwards, unless the caller has ended the run: then the next run, or what frees objects, empties them. */
void ln_queues_abandon(linnet_session *session, ln_instance *last, bool ended);
/* Completes what earlier runs have left in the queues. Errors: those of a wait, CANCELLED, DEADLINE_EXCEEDED. */
linnet_status ln_queues_drain(linnet_session *session, linnet_error *error);
/* Gives the memory of the instance's inputs and outputs to the devices that read it in place, and gets it back after
 * all work that was submitted before. For sessions with `lends`. Errors: DEVICE_FAILED. */
linnet_status ln_device_lend(linnet_session *session, ln_instance *instance, linnet_error *error);
linnet_status ln_device_reclaim(linnet_session *session, ln_instance *instance, linnet_error *error);
/* submit.c: whether and how runs can be submitted; the session has its queues. */
void ln_submit_prepare(linnet_session *session);
/* operand.c: the port of output i of the plan, as ln_port_at numbers them; -1: a later segment computes it. */
int32_t ln_port_of_output(const linnet_session *session, int i);
/* operand.c: why no memory of the caller can replace that of port i; NULL: it can. */
const char *ln_cannot_bind(const linnet_session *session, int32_t i);
/* bind_device.c: fetches bound inputs of devices into the session's memory before a run, and stores outputs after it.
 * Only of those that are staged. Errors: DEVICE_FAILED. */
linnet_status ln_stays_fetch(linnet_session *session, linnet_error *error);
linnet_status ln_stays_store(linnet_session *session, linnet_error *error);
/* Nothing of a device is bound to port i any more. */
void ln_stay_forget(linnet_session *session, int32_t i);
/* device.c: a transfer of the caller's between the host and the memory of a device, which it waits for. */
linnet_status ln_device_move(linnet_session *session, const ln_port *port, const ln_stay *stay, void *host,
                             bool to_device, linnet_error *error);
/* Makes the instance's objects on devices, and frees them. */
linnet_status ln_device_prepare(linnet_session *session, ln_instance *instance, linnet_error *error);
void ln_device_release(linnet_session *session, ln_instance *instance);
/* The allocations of the program that it does not share: those before the constants. */
static inline int32_t ln_own_chunks(const ln_device_memory *m) {
    return m->n_chunks - (m->n_residents - m->first_constant);
}
/* constants.c: gives the instance its constants on devices. It shares those that other instances of the model have, and
 * writes the others. After an error it has none. Errors: DEVICE_FAILED, OUT_OF_MEMORY. */
linnet_status ln_constants_take(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Releases the constants that no other instance has. */
void ln_constants_give(ln_instance *instance);
/* If a device has refused to prepare a step, notes that, so that the plan is made again. Returns `status`,
 * or OUT_OF_MEMORY. */
linnet_status ln_note_refused(linnet_session *session, struct ln_refusals *refusals, linnet_status status,
                              linnet_error *error);
/* Submits a transfer or a claim, or waits. */
linnet_status ln_device_step(linnet_session *session, ln_instance *instance, const ln_bound *bound,
                             linnet_error *error);
/* held.c. After a successful run, and its commit: the devices keep the new values of variables, and hold those whose
 * downloads were left out. Errors: DEVICE_FAILED (such a value is lost). */
linnet_status ln_device_commit(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Whether this run leaves out a download: the device keeps the value, and the store gets it when it is read. */
bool ln_leaves_out(const linnet_session *session, const ln_instance *instance, const ln_step *step);
/* Whether a device of the session has the variable's only value. Needs the store's lock if the session `keeps`. */
bool ln_holds(const linnet_session *session, int32_t variable);
/* Sets `holder` and `keeps`. */
void ln_held_prepare(linnet_session *session);
/* The store gets the values that the session holds, which is about to be freed. */
void ln_held_give(linnet_session *session);
/* After a traced run: asks devices for the times of their steps. */
linnet_status ln_device_times(linnet_session *session, ln_instance *instance, linnet_error *error);
/* trace.c */
void ln_count_special(const ln_bound *bound, ln_trace *trace);

#endif
