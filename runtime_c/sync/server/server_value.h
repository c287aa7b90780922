/* server_value.h - values that clients put: which puts were stored, and how a value is stored. */
#ifndef LN_SYNC_SERVER_VALUE_H
#define LN_SYNC_SERVER_VALUE_H

#include "sync/server/server.h"

/* Returns the last put of a process; NULL if the process has put nothing, or was forgotten. */
sync_putter *ln_sync_putter(ln_sync_server *server, uint64_t incarnation);
/* Stores that `number` is the last put of this process. May forget the process whose last put is the oldest. Returns
 * false if out of memory. */
bool ln_sync_note_put(ln_sync_server *server, uint64_t incarnation, uint64_t number);
/* Returns the class of a value that a client has put. If it is LARGE, the next update must be tried. */
ln_sync_size ln_sync_size_of_value(const ln_sync_variable *variable, const void *data);
/* Stores a value as a new version. The caller has checked the value and written the journal. */
void ln_sync_store_value(ln_sync_server *server, uint32_t tensor, const void *data);

#endif
