/* kept.c - packed copies of variables. Sessions of one store share a copy if their kernels pack the same variables in
 * the same way. A copy has the version of the values that it was packed from, and is packed again when a run needs it
 * and the variables have been written since.
 *
 * Every run that reads a copy holds the store's lock, so versions do not change while a copy is in use, and nobody uses
 * a copy that is being packed under the keeper's lock. Snapshots have versions of their own; sessions that share one do
 * not run at the same time. */
#include "run/kept.h"

#include "base/platform_locks.h"
#include "base/platform_threads.h"
#include "model/store.h"
#include "plan/compile/packed.h"
#include "run/operand.h"

#include <string.h>

enum { PARALLEL_BYTES = 1 << 16 }; /* the work of packing less than this is not divided */

struct ln_kept {
    size_t size; /* including this header */
    int32_t references;
    atomic_uint_least64_t version; /* sum of the versions of the variables that it was packed from */
};

static void *content(ln_kept *k) { return (char *)k + LN_ALIGNMENT; }

void *ln_kept_content(const ln_instance *instance, const ln_step *step) { return content(instance->kept[step->kept]); }

/* Versions only grow, so their sum is the same only if each of them is. */
static uint64_t version_of(const linnet_session *s, const ln_step *step) {
    uint64_t sum = 0;
    for (int i = 0; i < step->call.n_inputs; ++i)
        if (step->call.inputs[i].steady)
            sum += s->snapshot != NULL ? ln_snapshot_version(s->snapshot, step->inputs[i].index)
                                       : ln_store_version(s->store, step->inputs[i].index);
    return sum;
}

static bool is_current(const ln_kept *k, uint64_t version) {
    return atomic_load_explicit(&((ln_kept *)(uintptr_t)k)->version, memory_order_acquire) == version;
}

/* ---- sharing --------------------------------------------------------------------------------------------------- */

static ln_kept *find(const ln_keeper *keeper, const ln_instance *instance, const ln_step *step) {
    for (const ln_instance *other = keeper->first; other != NULL; other = other->next) {
        const ln_step *like = other->source == instance->source ? ln_packs_find(other->program, step) : NULL;
        if (like != NULL && other->kept[like->kept] != NULL) return other->kept[like->kept];
    }
    return NULL;
}

static ln_kept *make(ln_keeper *keeper, const ln_step *step) {
    const size_t size = (size_t)ln_packed_size(&step->call);
    ln_kept *k = ln_memory_alloc(&keeper->memory, size);
    if (k == NULL) return NULL;
    k->size = size;
    k->references = 0;
    atomic_init(&k->version, UINT64_MAX);
    return k;
}

/* Called under the keeper's lock. */
static bool take(ln_keeper *keeper, linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_instance *body = instance->bodies;
    instance->source = s->snapshot;
    instance->seen = UINT64_MAX;
    if (p->n_kept > 0) {
        instance->next = keeper->first;
        keeper->first = instance;
    }
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->kept >= 0 && instance->kept[step->kept] == NULL) {
            ln_kept *k = find(keeper, instance, step);
            if (k == NULL && (k = make(keeper, step)) == NULL) return false;
            ++k->references;
            instance->kept[step->kept] = k;
        }
        for (int b = 0; b < 2 && step->bodies[b] != NULL; ++b, ++body) {
            body->program = step->bodies[b];
            if (!take(keeper, s, body)) return false;
        }
    }
    return true;
}

/* Called under the keeper's lock. Bodies that were not reached have no program. */
static void give_up(ln_keeper *keeper, ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_instance **at = &keeper->first;
    while (*at != NULL && *at != instance) at = &(*at)->next;
    if (*at != NULL) *at = instance->next;
    for (int32_t i = 0; i < p->n_kept; ++i) {
        ln_kept *k = instance->kept[i];
        if (k != NULL && --k->references == 0) ln_memory_free(&keeper->memory, k, k->size);
        instance->kept[i] = NULL;
    }
    for (int32_t i = 0; i < p->n_bodies; ++i)
        if (instance->bodies[i].program != NULL) give_up(keeper, &instance->bodies[i]);
}

linnet_status ln_kept_take(linnet_session *s, ln_instance *instance, size_t *bytes, linnet_error *error) {
    *bytes = 0;
    if (!instance->program->keeps) return LINNET_OK;
    ln_keeper *keeper = ln_store_keeper(s->store);
    ln_lock_exclusive(&keeper->lock);
    const size_t before = keeper->memory.bytes;
    const bool done = take(keeper, s, instance);
    *bytes = keeper->memory.bytes - before;
    if (!done) give_up(keeper, instance);
    atomic_store(&keeper->bytes, keeper->memory.bytes);
    ln_unlock(&keeper->lock);
    if (done) return LINNET_OK;
    *bytes = 0;
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate packed copies of variables");
}

size_t ln_kept_release(linnet_session *s, ln_instance *instance) {
    if (!instance->program->keeps || instance->kept == NULL) return 0;
    ln_keeper *keeper = ln_store_keeper(s->store);
    ln_lock_exclusive(&keeper->lock);
    const size_t before = keeper->memory.bytes;
    give_up(keeper, instance);
    const size_t freed = before - keeper->memory.bytes;
    atomic_store(&keeper->bytes, keeper->memory.bytes);
    ln_unlock(&keeper->lock);
    return freed;
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

static void pack(linnet_session *s, const ln_instance *instance, const ln_step *step) {
    ln_tensor tensors[LN_MAX_OPERANDS];
    ln_call call = step->call;
    for (int i = 0; i < call.n_inputs; ++i) {
        tensors[i] = call.inputs[i];
        if (tensors[i].steady) tensors[i].data = ln_instance_pointer(s, instance, &step->inputs[i]);
    }
    call.inputs = tensors;
    step->kernel->code->pack(&call, content(instance->kept[step->kept]));
}

typedef struct packing {
    linnet_session *session;
    const ln_instance *instance;
    int32_t parts;
} packing;

/* Packs every copy of the instance whose number belongs to this part. */
static void pack_part(void *argument, int part) {
    const packing *job = argument;
    const ln_program *p = job->instance->program;
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->kept < 0 || step->kept % job->parts != part) continue;
        const uint64_t version = version_of(job->session, step);
        ln_kept *k = job->instance->kept[step->kept];
        if (is_current(k, version)) continue;
        pack(job->session, job->instance, step);
        atomic_fetch_add_explicit(&ln_store_keeper(job->session->store)->made, 1, memory_order_relaxed);
        atomic_store_explicit(&k->version, version, memory_order_release);
    }
}

static void refresh(linnet_session *s, const ln_instance *instance) {
    const ln_program *p = instance->program;
    uint64_t bytes = 0;
    for (int32_t i = 0; p->n_kept > 0 && i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->kept >= 0 && !is_current(instance->kept[step->kept], version_of(s, step)))
            bytes += step->call.packed_bytes;
    }
    if (bytes > 0) {
        ln_keeper *keeper = ln_store_keeper(s->store);
        ln_lock_exclusive(&keeper->lock);
        packing job = {.session = s, .instance = instance, .parts = 1};
        if (bytes >= PARALLEL_BYTES && s->parallel) job.parts = (int32_t)ln_min(s->plan->threads, p->n_kept);
        if (job.parts == 1)
            pack_part(&job, 0);
        else if (s->parallel_for != NULL)
            s->parallel_for(s->parallel_context, pack_part, &job, job.parts);
        else
            ln_threads_run(s->threads, pack_part, &job, job.parts, NULL, NULL);
        ln_unlock(&keeper->lock);
    }
    for (int32_t i = 0; i < p->n_bodies; ++i) refresh(s, &instance->bodies[i]);
}

void ln_kept_refresh(linnet_session *s, ln_instance *instance) {
    const uint64_t now = s->snapshot != NULL ? ln_snapshot_commit(s->snapshot) : ln_store_writes(s->store);
    if (instance->seen == now) return;
    refresh(s, instance);
    instance->seen = now;
}
