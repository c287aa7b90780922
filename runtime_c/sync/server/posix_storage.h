/* posix_storage.h - a server's folder: `lock`, `epoch`, `snapshot.lnt` and `journal`.
 * The lock is held while the ln_sync_folder exists, so two servers cannot use the same folder. */
#ifndef LN_SYNC_POSIX_STORAGE_H
#define LN_SYNC_POSIX_STORAGE_H

#include "sync/server/server.h"

#include "linnet_sync.h"

typedef struct ln_sync_folder ln_sync_folder;

/* Creates the folder if it does not exist, locks it, and raises its epoch. The folder saves the variables of `store`.
 * Errors: SUPERSEDED (another process has the lock), WRITE_FAILED, CORRUPT. */
linnet_status ln_sync_folder_open(const char *path, linnet_sync_durability durability, linnet_store *store,
                                  const linnet_model *model, ln_sync_folder **out, linnet_error *error);
/* Returns an epoch that is greater than `last`: the time in ms since 1970, or, if the clock was set back, last + 1. */
uint64_t ln_sync_fresh_epoch(uint64_t last);
/* Releases the lock. The files stay. */
void ln_sync_folder_free(ln_sync_folder *folder);
/* Returns the epoch of this start. */
uint64_t ln_sync_folder_epoch(const ln_sync_folder *folder);
/* Loads the snapshot into the store, and repeats the updates of the journal. Call this once, before the server serves.
 * An incomplete record at the end of the journal is cut off. Does nothing if the folder is new. With `repair`, a
 * damaged journal is copied, and the records before the damage are used. Errors: OTHER_MODEL, CORRUPT, and the errors
 * of updates. */
linnet_status ln_sync_folder_restore(ln_sync_folder *folder, ln_sync_server *server, bool repair, linnet_error *error);
/* Returns the functions for the server's core. They are valid until the folder is freed. */
ln_sync_storage ln_sync_folder_storage(ln_sync_folder *folder);
/* Returns the size of the journal in bytes. The server makes a snapshot when the journal has become large. */
uint64_t ln_sync_folder_journal(const ln_sync_folder *folder);

#endif
