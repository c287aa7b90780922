/* record.h - the contents of journal and snapshots. */
#ifndef LN_SYNC_RECORD_H
#define LN_SYNC_RECORD_H

#include "sync/server/server.h"

/* Restores the state in the table of a snapshot. The snapshot's variables must already be loaded. */
linnet_status ln_sync_server_restore(ln_sync_server *server, const char *table, linnet_error *error);
/* Repeats an update of the journal, or skips it if the snapshot already contains it. */
linnet_status ln_sync_server_replay(ln_sync_server *server, const void *record, size_t size, linnet_error *error);
/* Writes a snapshot now. Errors: INVALID_ARGUMENT (no storage), those of the storage. */
linnet_status ln_sync_server_save(ln_sync_server *server, linnet_error *error);

linnet_status ln_sync_append_record(ln_sync_server *server, sync_group *group, bool update, linnet_error *error);
linnet_status ln_sync_append_put(ln_sync_server *server, uint64_t incarnation, uint64_t number, uint32_t tensor,
                                 const void *value, linnet_error *error);
linnet_status ln_sync_skip_to(ln_sync_server *server, sync_group *group, uint64_t step, linnet_error *error);

#endif
