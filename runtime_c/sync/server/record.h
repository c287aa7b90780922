/* record.h - the contents of the journal's records, and the table of a snapshot. */
#ifndef LN_SYNC_RECORD_H
#define LN_SYNC_RECORD_H

#include "sync/server/server.h"

/* Restores steps, members and outcomes from the table of a snapshot. The snapshot's variables must already be loaded.
 * Call this before ln_sync_server_replay and before connections exist. Errors: CORRUPT, OUT_OF_MEMORY. */
linnet_status ln_sync_server_restore(ln_sync_server *server, const char *table, linnet_error *error);
/* Repeats the update or the put of a record, or skips it if the snapshot already contains it. Errors: CORRUPT (the
 * record does not fit the state), OUT_OF_MEMORY, and those of the update. */
linnet_status ln_sync_server_replay(ln_sync_server *server, const void *record, size_t size, linnet_error *error);
/* Writes a snapshot now. Errors: INVALID_ARGUMENT (no storage), those of the storage. */
linnet_status ln_sync_server_save(ln_sync_server *server, linnet_error *error);

/* The next functions append a record to the journal; they do nothing if there is no journal. The first is for the open
 * step of the group; without `update`, the step closes without changing values. */
linnet_status ln_sync_append_record(ln_sync_server *server, sync_group *group, bool update, linnet_error *error);
/* Appends the put of a value; `number` is the number of the put of this process. */
linnet_status ln_sync_append_put(ln_sync_server *server, uint64_t incarnation, uint64_t number, uint32_t tensor,
                                 const void *value, linnet_error *error);
/* Makes `step` the group's open step. The record is needed because a restarted server must know of skipped steps. */
linnet_status ln_sync_skip_to(ln_sync_server *server, sync_group *group, uint64_t step, linnet_error *error);

#endif
