/* snapshot.h - a copy of the variables that a signature reads, for sessions that must not wait for training runs. The
 * store has a copy of the last committed state (store.c). At the start of a run, the session refreshes its snapshot,
 * which then copies the variables that have changed. A snapshot is not thread-safe, but sessions that never run at the
 * same time may share one. */
#ifndef LN_SNAPSHOT_H
#define LN_SNAPSHOT_H

#include "model/store.h"

typedef struct ln_snapshot ln_snapshot;

/* Sets reads[i] for every variable i that the function, or a function that it calls, reads. `seen` is scratch space
 * with one entry per function, all false. The caller sets all entries of `reads` to false before. */
void ln_snapshot_reads(const linnet_model *model, int32_t function, bool *seen, bool *reads);
/* Returns the number of bytes that ln_snapshot_create will allocate. */
size_t ln_snapshot_bytes_for(const linnet_model *model, const bool *reads);

/* Creates a snapshot with one reference, and waits for the store's current run. `reads` has one entry per variable; the
 * snapshot contains the variables whose entry is true. Errors: OUT_OF_MEMORY, and those of ln_store_fetch. */
linnet_status ln_snapshot_create(linnet_store *store, const bool *reads, const linnet_allocator *allocator,
                                 ln_snapshot **out, linnet_error *error);
/* Add and release a reference. */
ln_snapshot *ln_snapshot_retain(ln_snapshot *snapshot);
void ln_snapshot_free(ln_snapshot *snapshot);
/* Tells whether the snapshot belongs to this store and contains these variables. */
bool ln_snapshot_fits(const ln_snapshot *snapshot, const linnet_store *store, const bool *reads);
/* Updates the snapshot to the last commit. Waits for a commit that is being copied, but never for a run. */
void ln_snapshot_refresh(ln_snapshot *snapshot);
/* Returns the value of variable i, which the snapshot must contain. The address stays the same. */
void *ln_snapshot_data(const ln_snapshot *snapshot, int i);
/* Returns the version of the snapshot's value of variable i: what ln_store_version returned for it when that value was
 * committed. */
uint64_t ln_snapshot_version(const ln_snapshot *snapshot, int i);
/* Returns a number that changes whenever one of these versions changes. */
uint64_t ln_snapshot_commit(const ln_snapshot *snapshot);

#endif
