/* store.h - the values of a model's variables, as sessions see them. Unless a comment says otherwise, the caller of a
 * function has the store's lock: shared to read values, exclusive to write them. The address of a value stays the same
 * while the store exists. */
#ifndef LN_STORE_H
#define LN_STORE_H

#include "base/platform_locks.h"
#include "model/graph.h"

/* Adds a reference and returns the store. linnet_store_free releases a reference. Needs no lock. */
linnet_store *ln_store_retain(linnet_store *store);
const linnet_model *ln_store_model(const linnet_store *store);
const linnet_allocator *ln_store_allocator(const linnet_store *store);
/* Returns the index of the variable of this name. If there is none, returns -1 with UNKNOWN_NAME in `error`; for a NULL
 * argument, with INVALID_ARGUMENT. `function` is the public function to name in that error. Needs no lock. */
int32_t ln_store_find(const linnet_store *store, const char *function, const char *name, linnet_error *error);

/* Returns the number of bytes that linnet_store_create will allocate for this model. linnet_store_bytes returns it for
 * an existing store. */
size_t ln_store_bytes_for(const linnet_model *model);
/* Returns the number of bytes that ln_store_follow will allocate for these variables the first time. */
size_t ln_store_committed_bytes_for(const linnet_model *model, const bool *reads);

/* Waits for the lock. Before that, commits what callers wrote through linnet_store_data. */
void ln_store_lock(linnet_store *store, bool exclusive);
/* Does the same, but calls `give_up` every few milliseconds while it waits. When `give_up` returns true, this function
 * returns false and the caller does not have the lock. */
bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context);
/* Releases the lock. If it was exclusive, first commits the variables for which ln_store_bump was called. */
void ln_store_unlock(linnet_store *store);

/* For snapshots: from now on the store has a second copy of these variables, in the state of the last commit. A run
 * that assigns these variables copies the changes when it ends. The second copy has a lock of its own, which only such
 * runs and snapshots take, while they copy. The caller must not have the store's lock. On an error, the call has no
 * effect. Errors: OUT_OF_MEMORY, DEVICE_FAILED. */
linnet_status ln_store_follow(linnet_store *store, const bool *reads, linnet_error *error);
/* Ends what a successful ln_store_follow has begun. When nobody follows the store any more, the next commit frees the
 * second copy. Needs no lock. */
void ln_store_unfollow(linnet_store *store);
/* Returns a number that changes with each commit of variables that are followed. Needs no lock. */
uint64_t ln_store_commit_number(const linnet_store *store);
/* For each variable i with data[i] not NULL whose last committed version differs from versions[i], copies that value to
 * data[i] and updates versions[i]. Returns the number of the commit. Needs no lock. */
uint64_t ln_store_copy_committed(linnet_store *store, char *const *data, uint64_t *versions);

/* Returns the memory of variable i: 64-byte aligned, dense, in its declared dtype and shape. If a holder (see below)
 * has the value, the memory has an old value. */
void *ln_store_data(linnet_store *store, int i);
/* ln_store_version returns the number of writes to variable i. A writer calls ln_store_bump, which increments this
 * number, under the exclusive lock. The number tells whether a packed copy of the variable is current. */
uint64_t ln_store_version(const linnet_store *store, int i);
void ln_store_bump(linnet_store *store, int i);
/* Returns the number of writes to all variables. If this number has not changed, no version has changed. */
uint64_t ln_store_writes(const linnet_store *store);

/* The packed copies of variables that sessions of this store share (run/packed_variables.c). */
typedef struct ln_packed_cache {
    ln_lock lock;              /* protects the list, the copies and `memory` */
    struct ln_instance *first; /* the instances whose steps read packed copies */
    ln_memory memory;
    atomic_size_t bytes;        /* memory.bytes, for readers without the lock */
    atomic_uint_least64_t made; /* how often a variable was packed */
} ln_packed_cache;
/* Returns the store's cache of packed copies. Needs no lock. */
ln_packed_cache *ln_store_packed_cache(linnet_store *store);

/* A holder has current values of variables that the store does not have: a session whose device has computed them
 * (run/device_variables.c). Before its first step, a run fetches the values that other sessions hold. So while a run is
 * in progress, no other session holds a value. */
typedef struct ln_holder {
    /* Copies the value of variable i to the store, or of all variables that this holder has if i is -1, and calls
     * ln_store_release for each. Called under the store's lock, and by one thread at a time. */
    linnet_status (*fetch)(struct ln_holder *holder, int32_t i, linnet_error *error);
    atomic_int count; /* number of variables that it holds, plus 1 during `fetch`; 0: nobody uses the holder any more */
} ln_holder;

/* Tells whether a run may leave the new value of variable i with a holder. It may not if a caller of linnet_store_data
 * can read the store's memory directly, or if a snapshot follows the variable. Needs the exclusive lock. */
bool ln_store_may_hold(const linnet_store *store, int32_t i);
/* Says that `holder` has the value of variable i from now on. Needs the exclusive lock. */
void ln_store_hold(linnet_store *store, int32_t i, ln_holder *holder);
/* Says that the value of variable i does not exist any more. Until the variable is written, ln_store_fetch fails with
 * DEVICE_FAILED. Needs the exclusive lock. */
void ln_store_lose(linnet_store *store, int32_t i);
/* Returns the holder of variable i; NULL if the store has the value. */
const ln_holder *ln_store_holder(const linnet_store *store, int32_t i);
/* Says that the store has the value of variable i, or is about to get a new value. The caller has the exclusive lock,
 * or is a holder's `fetch`. */
void ln_store_release(linnet_store *store, int32_t i);
/* Adds `change` to the number of sessions that may hold values: 1 for a new session, -1 when a session ends. Needs no
 * lock. */
void ln_store_add_possible_holders(linnet_store *store, int change);
/* Tells whether the store has more than one reference. Needs no lock. */
bool ln_store_is_shared(const linnet_store *store);
/* Fetches the value of variable i into the store, or of all variables if i is -1. Values that the holder `own` has stay
 * there; `own` may be NULL. A shared lock is enough. Errors: DEVICE_FAILED. */
linnet_status ln_store_fetch(linnet_store *store, int32_t i, const ln_holder *own, linnet_error *error);

/* Sets variable i to the initial value that `from` has for its variable `v`. `from` may be a checkpoint. Needs the
 * exclusive lock. */
void ln_store_take(linnet_store *store, int i, const linnet_model *from, const ln_variable *v);

#endif
