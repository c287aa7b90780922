/* store.h - the values of a model's variables, as sessions see them. Unless a comment says otherwise, the caller of a
 * function has the store's lock: shared to read values, exclusive to write them. The address of a value stays the same
 * while the store exists. */
#ifndef LN_STORE_H
#define LN_STORE_H

#include "model/store_types.h"

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

/* Returns the memory of variable i: 64-byte aligned, dense, in its declared dtype and shape. If a holder
 * (store_holders.h) has the value, the memory has an old value. */
void *ln_store_data(linnet_store *store, int i);
/* ln_store_version returns the number of writes to variable i. A writer calls ln_store_bump, which increments this
 * number, under the exclusive lock. The number tells whether a packed copy of the variable is current. */
uint64_t ln_store_version(const linnet_store *store, int i);
void ln_store_bump(linnet_store *store, int i);
/* Returns the number of writes to all variables. If this number has not changed, no version has changed. */
uint64_t ln_store_writes(const linnet_store *store);

/* Returns the store's cache of packed copies. Needs no lock. */
ln_packed_cache *ln_store_packed_cache(linnet_store *store);

/* Tells whether the store has more than one reference. Needs no lock. */
bool ln_store_is_shared(const linnet_store *store);
/* Sets variable i to the initial value that `from` has for its variable `v`. `from` may be a checkpoint. If a session
 * keeps values on its devices, and the store does not have the old value, the new one stays in the file until it is
 * needed. Needs the exclusive lock. */
void ln_store_take(linnet_store *store, int i, linnet_model *from, const ln_variable *v);

#endif
