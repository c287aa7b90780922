/* store.c - the variables of a model in one aligned block, with a version for each and one readers-writer lock.
 * As soon as a snapshot follows the store, the store also has a copy of the last committed state. Sessions of several
 * plans may share a store. */
#include "model/store.h"
#include "model/store_holders.h"
#include "model/store_state.h"

#include "base/platform_locks.h"
#include "kernel/parts.h"
#include "model/model.h"
#include "linnet_ext.h"

#include <string.h>

static size_t struct_bytes(int32_t variables) {
    const size_t each =
        sizeof(size_t) + 2 * sizeof(uint64_t) + sizeof(char *) + sizeof(ln_holder *) + sizeof(atomic_bool);
    return sizeof(linnet_store) + (size_t)variables * each;
}

size_t ln_store_bytes_for(const linnet_model *model) {
    size_t total = 0;
    for (int32_t i = 0; i < model->n_variables; i++)
        total += ln_round_up((size_t)model->variables[i].bytes, LN_ALIGNMENT);
    return ln_round_up(struct_bytes(model->n_variables), LN_ALIGNMENT) + total;
}

static bool init_locks(linnet_store *store) {
    ln_lock *locks[] = {&store->lock, &store->committed_lock, &store->packed_cache.lock, &store->fetch_lock};
    for (int i = 0; i < 4; i++)
        if (!ln_lock_init(locks[i])) {
            while (i-- > 0) ln_lock_destroy(locks[i]);
            return false;
        }
    return true;
}

linnet_status linnet_store_create(linnet_model *model, const linnet_allocator *allocator, linnet_store **out,
                                  linnet_error *error) {
    ln_memory memory;
    linnet_store *store;
    size_t total = 0;
    if (!out) return ln_null_argument(error, "linnet_store_create", "out");
    *out = NULL;
    if (!model) return ln_null_argument(error, "linnet_store_create", "model");
    ln_memory_init(&memory, allocator ? allocator : &model->memory.allocator);
    store = ln_memory_alloc(&memory, struct_bytes(model->n_variables));
    if (!store) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a store");
    memset(store, 0, struct_bytes(model->n_variables));
    store->versions = (uint64_t *)(store + 1);
    store->committed_versions = store->versions + model->n_variables;
    store->offsets = (size_t *)(store->committed_versions + model->n_variables);
    store->committed = (char **)(store->offsets + model->n_variables);
    store->holders = (ln_holder **)(store->committed + model->n_variables);
    store->exposed = (atomic_bool *)(store->holders + model->n_variables);
    for (int32_t i = 0; i < model->n_variables; i++) {
        uint64_t bytes = model->variables[i].bytes;
        store->offsets[i] = total;
        if (bytes > SIZE_MAX / 2 - total - LN_ALIGNMENT) {
            ln_memory_free(&memory, store, struct_bytes(model->n_variables));
            return ln_fail(error, LINNET_TOO_LARGE, "the variables of this model do not fit in the address space");
        }
        total += ln_round_up((size_t)bytes, LN_ALIGNMENT);
    }
    store->block_bytes = total;
    store->block = total ? ln_memory_alloc_zeroed(&memory, total) : NULL;
    if (total && !store->block) {
        ln_memory_free(&memory, store, struct_bytes(model->n_variables));
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate %zu bytes for the variables of a model", total);
    }
    if (!init_locks(store)) {
        ln_memory_free_zeroed(&memory, store->block, total);
        ln_memory_free(&memory, store, struct_bytes(model->n_variables));
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot create the store's locks");
    }
    atomic_init(&store->references.count, 1);
    store->memory = memory;
    ln_memory_init(&store->packed_cache.memory, &memory.allocator);
    store->model = ln_model_retain(model);
    ln_store_holders_init(store);
    *out = store;
    return LINNET_OK;
}

static void forget_committed(linnet_store *store) {
    for (int32_t i = 0; i < store->model->n_variables; i++) {
        ln_memory_free_zeroed(&store->memory, store->committed[i], (size_t)store->model->variables[i].bytes);
        store->committed[i] = NULL;
    }
    store->committed_bytes = 0;
}

linnet_store *ln_store_retain(linnet_store *store) {
    atomic_fetch_add_explicit(&store->references.count, 1, memory_order_relaxed);
    return store;
}

void linnet_store_free(linnet_store *store) {
    ln_memory memory;
    linnet_model *model;
    if (!store || atomic_fetch_sub_explicit(&store->references.count, 1, memory_order_acq_rel) != 1) return;
    model = store->model;
    ln_store_holders_free(store);
    ln_lock_destroy(&store->lock);
    ln_lock_destroy(&store->committed_lock);
    ln_lock_destroy(&store->packed_cache.lock);
    ln_lock_destroy(&store->fetch_lock);
    forget_committed(store);
    memory = store->memory;
    ln_memory_free_zeroed(&memory, store->block, store->block_bytes);
    ln_memory_free(&memory, store, struct_bytes(model->n_variables));
    linnet_model_free(model);
}

const linnet_model *ln_store_model(const linnet_store *store) { return store->model; }

const linnet_allocator *ln_store_allocator(const linnet_store *store) { return &store->memory.allocator; }

/* ---- locking and committing ------------------------------------------------------------------------------------ */

/* Copies the variables that have changed since the last commit to the committed state, if a snapshot reads them. Called
 * under the store's lock, so that no write is in progress. */
static void commit(linnet_store *store) {
    bool begun = false;
    atomic_store(&store->pending, false);
    if (store->committed_bytes > 0 && atomic_load(&store->followers) == 0) forget_committed(store);
    for (int32_t i = 0; store->committed_bytes > 0 && i < store->model->n_variables; i++) {
        if (!store->committed[i] || store->committed_versions[i] == store->versions[i]) continue;
        if (!begun) ln_lock_exclusive(&store->committed_lock);
        begun = true;
        ln_copy_sparse(store->committed[i], ln_store_data(store, i), (size_t)store->model->variables[i].bytes);
        store->committed_versions[i] = store->versions[i];
    }
    if (!begun) return;
    atomic_fetch_add(&store->commits, 1);
    ln_unlock(&store->committed_lock);
}

/* Commits what callers have written through linnet_store_data. They have promised to finish before the store is locked
 * again. */
static void commit_pending(linnet_store *store) {
    if (!atomic_load_explicit(&store->pending, memory_order_relaxed)) return;
    ln_lock_exclusive(&store->lock);
    commit(store);
    ln_unlock(&store->lock);
}

bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context) {
    commit_pending(store);
    if (!ln_lock_unless(&store->lock, exclusive, give_up, context)) return false;
    if (exclusive) store->writing = true;
    return true;
}

void ln_store_lock(linnet_store *store, bool exclusive) { ln_store_lock_unless(store, exclusive, NULL, NULL); }

void ln_store_unlock(linnet_store *store) {
    if (store->writing) {
        commit(store);
        store->writing = false;
    }
    ln_unlock(&store->lock);
}

linnet_status linnet_store_publish(linnet_store *store, linnet_error *error) {
    if (!store) return ln_null_argument(error, "linnet_store_publish", "store");
    commit_pending(store);
    return LINNET_OK;
}

size_t ln_store_committed_bytes_for(const linnet_model *model, const bool *reads) {
    size_t total = 0;
    for (int32_t i = 0; i < model->n_variables; i++)
        if (reads[i]) total += ln_round_up((size_t)model->variables[i].bytes, LN_ALIGNMENT);
    return total;
}

linnet_status ln_store_follow(linnet_store *store, const bool *reads, linnet_error *error) {
    const linnet_model *model = store->model;
    linnet_status status = LINNET_OK;
    atomic_fetch_add(&store->followers, 1);
    /* When the lock is released, the commit copies every version that was never committed. */
    ln_store_lock(store, true);
    for (int32_t i = 0; i < model->n_variables && status == LINNET_OK; i++) {
        const size_t bytes = (size_t)model->variables[i].bytes;
        if (!reads[i] || store->committed[i] || !bytes) continue;
        status = ln_store_fetch(store, i, NULL, error);
        if (status != LINNET_OK) break;
        store->committed[i] = ln_memory_alloc_zeroed(&store->memory, bytes);
        store->committed_versions[i] = UINT64_MAX;
        if (store->committed[i])
            store->committed_bytes += ln_round_up(bytes, LN_ALIGNMENT);
        else
            status = ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the copy of a variable for snapshots");
    }
    ln_store_unlock(store);
    if (status != LINNET_OK) ln_store_unfollow(store);
    return status;
}

void ln_store_unfollow(linnet_store *store) { atomic_fetch_sub(&store->followers, 1); }

uint64_t ln_store_commit_number(const linnet_store *store) { return atomic_load(&store->commits); }

uint64_t ln_store_copy_committed(linnet_store *store, char *const *data, uint64_t *versions) {
    uint64_t number;
    ln_lock_shared(&store->committed_lock);
    number = atomic_load(&store->commits);
    for (int32_t i = 0; i < store->model->n_variables; i++) {
        if (!data[i] || !store->committed[i] || versions[i] == store->committed_versions[i]) continue;
        ln_copy_sparse(data[i], store->committed[i], (size_t)store->model->variables[i].bytes);
        versions[i] = store->committed_versions[i];
    }
    ln_unlock(&store->committed_lock);
    return number;
}

/* ---- variables ------------------------------------------------------------------------------------------------- */

void *ln_store_data(linnet_store *store, int i) { return ln_store_value(store, i); }

uint64_t ln_store_version(const linnet_store *store, int i) { return store->versions[i]; }

void ln_store_bump(linnet_store *store, int i) {
    store->versions[i]++;
    store->writes++;
}

void ln_store_take(linnet_store *store, int i, linnet_model *from, const ln_variable *v) {
    const bool elsewhere = LN_HAS_DEVICES && store->holders[i] != NULL && ln_store_may_hold(store, i);
    if (!(elsewhere && ln_store_may_be_held(store) && from->file_kind == LN_FILE_MAPPED &&
          ln_store_leave(store, i, from, v->tensor.data))) {
        ln_store_overwrite(store, i);
        ln_store_take_values(from, ln_store_data(store, i), v->tensor.data, (size_t)v->bytes);
    }
    ln_store_bump(store, i);
}

bool ln_store_is_shared(const linnet_store *store) {
    return atomic_load(&((linnet_store *)(uintptr_t)store)->references.count) > 1;
}

/* ---- variables, for callers -------------------------------------------------------------------------------------- */

uint64_t ln_store_writes(const linnet_store *store) { return store->writes; }

ln_packed_cache *ln_store_packed_cache(linnet_store *store) { return &store->packed_cache; }

uint64_t linnet_store_packs(const linnet_store *store) { return store ? atomic_load(&store->packed_cache.made) : 0; }

size_t linnet_model_store_bytes(const linnet_model *model) { return model ? ln_store_bytes_for(model) : 0; }

size_t linnet_store_bytes(const linnet_store *store) {
    return store ? ln_store_bytes_for(store->model) + store->committed_bytes + ln_store_source_bytes(store) +
                       atomic_load(&store->packed_cache.bytes)
                 : 0;
}

int32_t ln_store_find(const linnet_store *store, const char *function, const char *name, linnet_error *error) {
    const linnet_model *model = store->model;
    if (!name) {
        ln_null_argument(error, function, "name");
        return -1;
    }
    for (int32_t i = 0; i < model->n_variables; i++)
        if (!strcmp(model->variables[i].name, name)) return i;
    ln_fail(error, LINNET_UNKNOWN_NAME, "%s: the model has no variable of this name", function);
    ln_at_tensor(error, name);
    if (model->n_variables)
        ln_expected(error, "one of %d variables; the first is '%.40s'", (int)model->n_variables,
                    model->variables[0].name);
    else
        ln_expected(error, "a model with variables");
    ln_hint(error, "linnet_model_get_variable lists the variables of a model");
    return -1;
}

/* Returns the index of the variable of this name, which must have exactly `bytes` bytes. Otherwise returns -1 and fills
 * the error. */
static int32_t find(const linnet_store *store, const char *function, const char *name, const void *data, size_t bytes,
                    linnet_error *error) {
    int32_t i;
    if (!store || (!data && bytes)) {
        ln_null_argument(error, function, !store ? "store" : "data");
        return -1;
    }
    i = ln_store_find(store, function, name, error);
    if (i < 0 || store->model->variables[i].bytes == bytes) return i;
    ln_fail(error, LINNET_WRONG_SHAPE, "%s: the sizes of the buffer and the variable differ", function);
    ln_at_tensor(error, name);
    ln_expected(error, "%llu bytes", (unsigned long long)store->model->variables[i].bytes);
    ln_got(error, "%zu bytes", bytes);
    return -1;
}

static linnet_status status_of(const linnet_error *error) { return (linnet_status)error->code; }

linnet_status linnet_store_read(linnet_store *store, const char *name, void *data, size_t bytes, linnet_error *error) {
    LN_WANT_ERROR(error);
    int32_t i = find(store, "linnet_store_read", name, data, bytes, error);
    if (i < 0) return status_of(error);
    if (bytes == 0) return LINNET_OK;
    ln_store_lock(store, false);
    const linnet_status status = ln_store_fetch(store, i, NULL, error);
    if (status == LINNET_OK) memcpy(data, ln_store_data(store, i), bytes);
    ln_store_unlock(store);
    return status;
}

linnet_status linnet_store_write(linnet_store *store, const char *name, const void *data, size_t bytes,
                                 linnet_error *error) {
    LN_WANT_ERROR(error);
    int32_t i = find(store, "linnet_store_write", name, data, bytes, error);
    if (i < 0) return status_of(error);
    ln_store_lock(store, true);
    ln_store_overwrite(store, i);
    if (bytes) memcpy(ln_store_data(store, i), data, bytes);
    ln_store_bump(store, i);
    ln_store_unlock(store);
    return LINNET_OK;
}

void *linnet_store_data(linnet_store *store, const char *name, linnet_access access, linnet_error *error) {
    int32_t i;
    if (!store) return ln_null_argument(error, "linnet_store_data", "store"), NULL;
    i = ln_store_find(store, "linnet_store_data", name, error);
    if (i < 0) return NULL;
    linnet_status status = LINNET_OK;
    if (access == LINNET_WRITE || !ln_store_expose(store, i)) {
        ln_lock_exclusive(&store->lock);
        status = ln_store_fetch(store, i, NULL, error);
        atomic_store(&store->exposed[i], true);
        if (access == LINNET_WRITE) { /* The caller has written or is going to write. Neither these writes nor the
                        writes of others may be committed here. */
            ln_store_bump(store, i);
            atomic_store(&store->pending, true);
        }
        ln_unlock(&store->lock);
    }
    return status == LINNET_OK ? ln_store_data(store, i) : NULL;
}
