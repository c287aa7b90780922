/* store.h - the variables of a model, as sessions see them. Locking is the caller's: shared to read, exclusive to
 * write. Data pointers never move while the store lives. */
#ifndef LN_STORE_H
#define LN_STORE_H

#include "core/graph.h"

linnet_store *ln_store_retain(linnet_store *store); /* released with linnet_store_free */
const linnet_model *ln_store_model(const linnet_store *store);
const linnet_allocator *ln_store_allocator(const linnet_store *store);
/* Number of the variable of that name; -1: none, said in `error` (UNKNOWN_NAME; INVALID_ARGUMENT for NULL). */
int32_t ln_store_find(const linnet_store *store, const char *function, const char *name, linnet_error *error);

/* What linnet_store_create will take through its allocator for this model: linnet_store_bytes before there is one. */
size_t ln_store_bytes_for(const linnet_model *model);
/* What ln_store_follow will take for these variables, the first time. */
size_t ln_store_committed_bytes_for(const linnet_model *model, const bool *reads);

void ln_store_lock(linnet_store *store, bool exclusive);
/* false, and no lock: `give_up`, which is asked every few milliseconds, said so. */
bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context);
/* After an exclusive lock: commits what was bumped. */
void ln_store_unlock(linnet_store *store);

/* For snapshots: from now on the store keeps a second copy of these variables, as they were committed last. A run that
 * assigns them copies what has changed into it at its end, under a lock of its own; nothing else takes that lock but
 * snapshots, while they copy. OUT_OF_MEMORY. */
linnet_status ln_store_follow(linnet_store *store, const bool *reads, linnet_error *error);
/* As often as it was followed: when nobody does any more, the next commit lets go of the copies. */
void ln_store_unfollow(linnet_store *store);
/* Another number after each commit. */
uint64_t ln_store_commit_number(const linnet_store *store);
/* Copies what was committed last to data[i], where that is not NULL and versions[i] is another. Gives the number. */
uint64_t ln_store_copy_committed(linnet_store *store, char *const *data, uint64_t *versions);

/* Variable i (of the model): 64-byte aligned, dense, in its declared dtype and shape. */
void *ln_store_data(linnet_store *store, int i);
/* Counts the writes to variable i; whoever writes bumps it under the exclusive lock. Packed copies compare it. */
uint64_t ln_store_version(const linnet_store *store, int i);
void ln_store_bump(linnet_store *store, int i);
/* Variable i becomes what variable v of that model is, which may be a checkpoint. Under the exclusive lock. */
void ln_store_take(linnet_store *store, int i, const linnet_model *from, const ln_variable *v);

#endif
