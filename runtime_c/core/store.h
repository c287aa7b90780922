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

void ln_store_lock(linnet_store *store, bool exclusive);
/* false, and no lock: `give_up`, which is asked every few milliseconds, said so. */
bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context);
void ln_store_unlock(linnet_store *store);

/* Variable i (of the model): 64-byte aligned, dense, in its declared dtype and shape. */
void *ln_store_data(linnet_store *store, int i);
/* Counts the writes to variable i; whoever writes bumps it under the exclusive lock. Packed copies compare it. */
uint64_t ln_store_version(const linnet_store *store, int i);
void ln_store_bump(linnet_store *store, int i);
/* Variable i becomes what variable v of that model is, which may be a checkpoint. Under the exclusive lock. */
void ln_store_take(linnet_store *store, int i, const linnet_model *from, const ln_variable *v);

#endif
