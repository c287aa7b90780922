/* posix_storage.h - a server's folder: `lock`, `epoch`, `snapshot.lnt` and `journal`.
 * The lock is held as long as the storage lives: two servers cannot be masters of one folder. */
#ifndef LN_SYNC_POSIX_STORAGE_H
#define LN_SYNC_POSIX_STORAGE_H

#include "sync/server_core.h"

#include "linnet_sync.h"

typedef struct ln_sync_folder ln_sync_folder;

/* Takes the folder (made if need be) and raises its epoch. Errors: SUPERSEDED (another process holds it), WRITE_FAILED,
 * CORRUPT. */
linnet_status ln_sync_folder_open(const char *path, linnet_sync_durability durability, linnet_store *store,
                                  const linnet_model *model, ln_sync_folder **out, linnet_error *error);
/* An epoch above `last`: the time in ms, unless the clock went back. */
uint64_t ln_sync_fresh_epoch(uint64_t last);
void ln_sync_folder_free(ln_sync_folder *folder);
uint64_t ln_sync_folder_epoch(const ln_sync_folder *folder);
/* Loads the snapshot into the store, and makes the updates of the journal again; a torn end of it is cut. Nothing to do
 * when the folder is new. repair: a damaged journal is kept aside, and what stands before the damage counts.
 * Errors: OTHER_MODEL, CORRUPT, those of updates. */
linnet_status ln_sync_folder_restore(ln_sync_folder *folder, ln_sync_server *server, bool repair, linnet_error *error);
ln_sync_storage ln_sync_folder_storage(ln_sync_folder *folder);
/* Bytes of the journal: it is time for a snapshot when it is much larger than that. */
uint64_t ln_sync_folder_journal(const ln_sync_folder *folder);

#endif
