/* store.h - the variables of a model, as sessions see them.
 * Locking is up to the caller: shared to read, exclusive to write. Data pointers do not move while the store exists. */
#ifndef LN_STORE_H
#define LN_STORE_H

#include "base/platform_locks.h"
#include "model/graph.h"

linnet_store *ln_store_retain(linnet_store *store); /* released with linnet_store_free */
const linnet_model *ln_store_model(const linnet_store *store);
const linnet_allocator *ln_store_allocator(const linnet_store *store);
/* Index of the variable of this name, or -1 with the reason in `error` (UNKNOWN_NAME; INVALID_ARGUMENT for NULL). */
int32_t ln_store_find(const linnet_store *store, const char *function, const char *name, linnet_error *error);

/* Bytes that linnet_store_create will allocate for this model: linnet_store_bytes before a store exists. */
size_t ln_store_bytes_for(const linnet_model *model);
/* Bytes that ln_store_follow will allocate for these variables the first time. */
size_t ln_store_committed_bytes_for(const linnet_model *model, const bool *reads);

void ln_store_lock(linnet_store *store, bool exclusive);
/* Calls `give_up` every few milliseconds while it waits. Returns false, without the lock, once `give_up` returns
   true. */
bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context);
/* Releases the lock. After an exclusive lock it commits the variables that were bumped. */
void ln_store_unlock(linnet_store *store);

/* For snapshots: from now on the store keeps a second copy of these variables, in the state of the last commit. At its
 * end, a run that assigns them copies the changes into this copy. This copy has a lock of its own. Besides such a run,
 * only snapshots take this lock, while they copy. Errors: OUT_OF_MEMORY. */
linnet_status ln_store_follow(linnet_store *store, const bool *reads, linnet_error *error);
/* Call once per ln_store_follow. After the last call, the next commit frees the copies. */
void ln_store_unfollow(linnet_store *store);
/* A number that changes with each commit. */
uint64_t ln_store_commit_number(const linnet_store *store);
/* For each variable i, copies the last committed value to data[i] if data[i] is not NULL and versions[i] is not its
 * current version. Returns the commit number. */
uint64_t ln_store_copy_committed(linnet_store *store, char *const *data, uint64_t *versions);

/* Variable i of the model: 64-byte aligned, dense, in its declared dtype and shape. Its value may be held elsewhere
 * (below). */
void *ln_store_data(linnet_store *store, int i);
/* Number of writes to variable i. A writer increments it under the exclusive lock. Packed copies of the variable
   compare it to find out whether they are current. */
uint64_t ln_store_version(const linnet_store *store, int i);
void ln_store_bump(linnet_store *store, int i);
/* Number of writes to all variables. It has not changed only if no version has. */
uint64_t ln_store_writes(const linnet_store *store);

/* The packed copies of variables that sessions of this store share (run/kept.c). */
typedef struct ln_keeper {
    ln_lock lock;              /* of the list, the copies and `memory` */
    struct ln_instance *first; /* the instances whose steps read packed copies */
    ln_memory memory;
    atomic_size_t bytes;        /* of memory; for readers without the lock */
    atomic_uint_least64_t made; /* how often a variable was packed */
} ln_keeper;
ln_keeper *ln_store_keeper(linnet_store *store);

/* Who holds values of variables that the store does not have: a session whose device has computed them (run/held.c).
 * A run fetches the values that other sessions hold before its first step, so while it runs nobody else holds any. */
typedef struct ln_holder {
    /* Stores the value of variable i, or of all variables that it holds if i is -1, and calls ln_store_release for
       each. Called under the store's lock, and by one thread at a time. */
    linnet_status (*fetch)(struct ln_holder *holder, int32_t i, linnet_error *error);
    atomic_int count; /* of variables, and 1 more during `fetch`; 0: nobody uses the holder any more */
} ln_holder;

/* Whether a run may leave the new value of variable i with a holder: nobody reads the store's memory directly, and no
 * snapshot follows it. Needs the exclusive lock, and so do ln_store_hold and ln_store_lose. */
bool ln_store_may_hold(const linnet_store *store, int32_t i);
void ln_store_hold(linnet_store *store, int32_t i, ln_holder *holder);
/* The value does not exist any more: ln_store_fetch fails with DEVICE_FAILED until the variable is written. */
void ln_store_lose(linnet_store *store, int32_t i);
/* Who holds variable i; NULL: the store has the value. Needs the lock. */
const ln_holder *ln_store_holder(const linnet_store *store, int32_t i);
/* The store has the value, or gets a new one. Needs the exclusive lock, or is called by `fetch`. */
void ln_store_release(linnet_store *store, int32_t i);
/* One more session may hold values (1), or one less (-1). */
void ln_store_keeps(linnet_store *store, int change);
/* Whether others than one session have the store. */
bool ln_store_is_shared(const linnet_store *store);
/* Gets the value of variable i into the store (-1: of all variables), except from the holder `own`. Needs the lock,
 * which may be shared. Errors: DEVICE_FAILED. */
linnet_status ln_store_fetch(linnet_store *store, int32_t i, const ln_holder *own, linnet_error *error);

/* Sets variable i to the value of variable v of `from`, which may be a checkpoint. Needs the exclusive lock. */
void ln_store_take(linnet_store *store, int i, const linnet_model *from, const ln_variable *v);

#endif
