/* packed_variables.c - packed copies of variables. Sessions of one store share a copy if their kernels pack the same
 * variables in the same way. A copy has the version of the values that it was packed from, and is packed again when a
 * run needs it and the variables have been written since.
 *
 * Every run that reads a copy holds the store's lock, so versions do not change while a copy is in use, and nobody uses
 * a copy that is being packed under the cache's lock. Snapshots have versions of their own, and sessions that share a
 * snapshot do not run at the same time. */
#include "run/packed_variables.h"

#include "base/platform_locks.h"
#include "base/platform_threads.h"
#include "model/store.h"
#include "plan/compile/packed.h"
#include "run/operand.h"

#include <string.h>

enum { PARALLEL_BYTES = 1 << 16 }; /* fewer bytes are packed on one thread */

struct ln_packed_variable {
    size_t size; /* including this header */
    int32_t references;
    atomic_uint_least64_t version; /* sum of the versions of the variables that it was packed from */
};

static void *content(ln_packed_variable *k) { return (char *)k + LN_ALIGNMENT; }

void *ln_packed_variable_content(const ln_instance *instance, const ln_step *step) {
    return content(instance->packed_variables[step->packed_variable]);
}

/* Returns the sum of the versions of the step's variables. Versions only grow, so the sum is the same only if each
 * version is the same. */
static uint64_t version_of(const linnet_session *s, const ln_step *step) {
    uint64_t sum = 0;
    for (int i = 0; i < step->call.n_inputs; ++i)
        if (step->call.inputs[i].read_only)
            sum += s->snapshot != NULL ? ln_snapshot_version(s->snapshot, step->inputs[i].index)
                                       : ln_store_version(s->store, step->inputs[i].index);
    return sum;
}

static bool is_current(const ln_packed_variable *k, uint64_t version) {
    return atomic_load_explicit(&((ln_packed_variable *)(uintptr_t)k)->version, memory_order_acquire) == version;
}

/* ---- sharing --------------------------------------------------------------------------------------------------- */

static ln_packed_variable *find(const ln_packed_cache *cache, const ln_instance *instance, const ln_step *step) {
    for (const ln_instance *other = cache->first; other != NULL; other = other->next) {
        const ln_step *like = other->source == instance->source ? ln_packs_find(other->program, step) : NULL;
        if (like != NULL && other->packed_variables[like->packed_variable] != NULL)
            return other->packed_variables[like->packed_variable];
    }
    return NULL;
}

static ln_packed_variable *make(ln_packed_cache *cache, const ln_step *step) {
    const size_t size = (size_t)ln_packed_size(&step->call);
    ln_packed_variable *k = ln_memory_alloc(&cache->memory, size);
    if (k == NULL) return NULL;
    k->size = size;
    k->references = 0;
    atomic_init(&k->version, UINT64_MAX);
    return k;
}

/* Gives the instance and its bodies the packed copies that they need, shared or new. Returns false when out of memory.
 * Called under the cache's lock. */
static bool take(ln_packed_cache *cache, linnet_session *s, ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_instance *body = instance->bodies;
    instance->source = s->snapshot;
    instance->seen = UINT64_MAX;
    if (p->n_packed_variables > 0) {
        instance->next = cache->first;
        cache->first = instance;
    }
    for (int32_t i = 0; i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->packed_variable >= 0 && instance->packed_variables[step->packed_variable] == NULL) {
            ln_packed_variable *k = find(cache, instance, step);
            if (k == NULL && (k = make(cache, step)) == NULL) return false;
            ++k->references;
            instance->packed_variables[step->packed_variable] = k;
        }
        for (int b = 0; b < 2 && step->bodies[b] != NULL; ++b, ++body) {
            body->program = step->bodies[b];
            if (!take(cache, s, body)) return false;
        }
    }
    return true;
}

/* Gives up the packed copies of the instance and its bodies. Called under the cache's lock. A body that `take` has not
 * reached has no program. */
static void give_up(ln_packed_cache *cache, ln_instance *instance) {
    const ln_program *p = instance->program;
    ln_instance **at = &cache->first;
    while (*at != NULL && *at != instance) at = &(*at)->next;
    if (*at != NULL) *at = instance->next;
    for (int32_t i = 0; i < p->n_packed_variables; ++i) {
        ln_packed_variable *k = instance->packed_variables[i];
        if (k != NULL && --k->references == 0) ln_memory_free(&cache->memory, k, k->size);
        instance->packed_variables[i] = NULL;
    }
    for (int32_t i = 0; i < p->n_bodies; ++i)
        if (instance->bodies[i].program != NULL) give_up(cache, &instance->bodies[i]);
}

linnet_status ln_packed_variables_take(linnet_session *s, ln_instance *instance, size_t *bytes, linnet_error *error) {
    *bytes = 0;
    if (!instance->program->packs_variables) return LINNET_OK;
    ln_packed_cache *cache = ln_store_packed_cache(s->store);
    ln_lock_exclusive(&cache->lock);
    const size_t before = cache->memory.bytes;
    const bool done = take(cache, s, instance);
    *bytes = cache->memory.bytes - before;
    if (!done) give_up(cache, instance);
    atomic_store(&cache->bytes, cache->memory.bytes);
    ln_unlock(&cache->lock);
    if (done) return LINNET_OK;
    *bytes = 0;
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate packed copies of variables");
}

size_t ln_packed_variables_release(linnet_session *s, ln_instance *instance) {
    if (!instance->program->packs_variables || instance->packed_variables == NULL) return 0;
    ln_packed_cache *cache = ln_store_packed_cache(s->store);
    ln_lock_exclusive(&cache->lock);
    const size_t before = cache->memory.bytes;
    give_up(cache, instance);
    const size_t freed = before - cache->memory.bytes;
    atomic_store(&cache->bytes, cache->memory.bytes);
    ln_unlock(&cache->lock);
    return freed;
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

static void pack(linnet_session *s, const ln_instance *instance, const ln_step *step) {
    ln_tensor tensors[LN_MAX_OPERANDS];
    ln_call call = step->call;
    for (int i = 0; i < call.n_inputs; ++i) {
        tensors[i] = call.inputs[i];
        if (tensors[i].read_only) tensors[i].data = ln_instance_pointer(s, instance, &step->inputs[i]);
    }
    call.inputs = tensors;
    step->kernel->code->pack(&call, content(instance->packed_variables[step->packed_variable]));
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
        if (step->packed_variable < 0 || step->packed_variable % job->parts != part) continue;
        const uint64_t version = version_of(job->session, step);
        ln_packed_variable *k = job->instance->packed_variables[step->packed_variable];
        if (is_current(k, version)) continue;
        pack(job->session, job->instance, step);
        atomic_fetch_add_explicit(&ln_store_packed_cache(job->session->store)->made, 1, memory_order_relaxed);
        atomic_store_explicit(&k->version, version, memory_order_release);
    }
}

static void refresh(linnet_session *s, const ln_instance *instance) {
    const ln_program *p = instance->program;
    uint64_t bytes = 0;
    for (int32_t i = 0; p->n_packed_variables > 0 && i < p->n_steps; ++i) {
        const ln_step *step = &p->steps[i];
        if (step->packed_variable >= 0 &&
            !is_current(instance->packed_variables[step->packed_variable], version_of(s, step)))
            bytes += step->call.packed_bytes;
    }
    if (bytes > 0) {
        ln_packed_cache *cache = ln_store_packed_cache(s->store);
        ln_lock_exclusive(&cache->lock);
        packing job = {.session = s, .instance = instance, .parts = 1};
        if (bytes >= PARALLEL_BYTES && s->parallel)
            job.parts = (int32_t)ln_min(s->plan->threads, p->n_packed_variables);
        if (job.parts == 1)
            pack_part(&job, 0);
        else if (s->parallel_for != NULL)
            s->parallel_for(s->parallel_context, pack_part, &job, job.parts);
        else
            ln_threads_run(s->threads, pack_part, &job, job.parts, NULL, NULL);
        ln_unlock(&cache->lock);
    }
    for (int32_t i = 0; i < p->n_bodies; ++i) refresh(s, &instance->bodies[i]);
}

void ln_packed_variables_refresh(linnet_session *s, ln_instance *instance) {
    const uint64_t now = s->snapshot != NULL ? ln_snapshot_commit(s->snapshot) : ln_store_writes(s->store);
    if (instance->seen == now) return;
    refresh(s, instance);
    instance->seen = now;
}
