/* snapshot.h - a copy of the variables that a signature reads, for sessions that must not wait for training runs.
 * The store keeps the last committed state (store.c). At the start of a run, a snapshot copies what has changed. */
#ifndef LN_SNAPSHOT_H
#define LN_SNAPSHOT_H

#include "model/store.h"

typedef struct ln_snapshot ln_snapshot;

/* Sets reads[i] for every variable that the function or one of its callees reads. `seen` has one entry per function,
 * all false. */
void ln_snapshot_reads(const linnet_model *model, int32_t function, bool *seen, bool *reads);
/* Bytes that ln_snapshot_create will allocate. */
size_t ln_snapshot_bytes_for(const linnet_model *model, const bool *reads);

/* Waits for the store's current run. Errors: OUT_OF_MEMORY. */
linnet_status ln_snapshot_create(linnet_store *store, const bool *reads, const linnet_allocator *allocator,
                                 ln_snapshot **out, linnet_error *error);
ln_snapshot *ln_snapshot_retain(ln_snapshot *snapshot);
void ln_snapshot_free(ln_snapshot *snapshot);
/* Whether the snapshot belongs to this store and contains these variables. */
bool ln_snapshot_fits(const ln_snapshot *snapshot, const linnet_store *store, const bool *reads);
/* Updates the snapshot to the last commit. Waits for a commit that is being copied, but never for a run. */
void ln_snapshot_refresh(ln_snapshot *snapshot);
/* Variable i, which the snapshot must read. The pointer does not move. */
void *ln_snapshot_data(const ln_snapshot *snapshot, int i);
/* The store's version of the value that the snapshot has. */
uint64_t ln_snapshot_version(const ln_snapshot *snapshot, int i);
/* A number that changes whenever one of these versions changes. */
uint64_t ln_snapshot_commit(const ln_snapshot *snapshot);

#endif
