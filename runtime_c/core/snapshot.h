/* snapshot.h - a copy of the variables that a signature reads, for sessions that do not wait for those that train.
 * The store keeps what was committed last (store.c); a snapshot takes from it, at the start of a run, what has changed.
 */
#ifndef LN_SNAPSHOT_H
#define LN_SNAPSHOT_H

#include "core/store.h"

typedef struct ln_snapshot ln_snapshot;

/* Sets reads[i] for every variable that the function, or one that it calls, reads. `seen`: one false per function. */
void ln_snapshot_reads(const linnet_model *model, int32_t function, bool *seen, bool *reads);
/* What ln_snapshot_create will take. */
size_t ln_snapshot_bytes_for(const linnet_model *model, const bool *reads);

/* Waits for the run of the store that is on. OUT_OF_MEMORY. */
linnet_status ln_snapshot_create(linnet_store *store, const bool *reads, const linnet_allocator *allocator,
                                 ln_snapshot **out, linnet_error *error);
ln_snapshot *ln_snapshot_retain(ln_snapshot *snapshot);
void ln_snapshot_free(ln_snapshot *snapshot);
/* Whether it is of that store, and has those variables. */
bool ln_snapshot_fits(const ln_snapshot *snapshot, const linnet_store *store, const bool *reads);
/* Brings it to what was committed last. Waits for a commit that is being copied, never for a run. */
void ln_snapshot_refresh(ln_snapshot *snapshot);
/* Variable i, which it reads; it never moves. */
void *ln_snapshot_data(const ln_snapshot *snapshot, int i);

#endif
