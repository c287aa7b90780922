/* server_value.h - values that clients put. */
#ifndef LN_SYNC_SERVER_VALUE_H
#define LN_SYNC_SERVER_VALUE_H

#include "sync/server/server.h"

/* Returns the last put of a process; NULL if it has put nothing, or was forgotten. */
sync_putter *ln_sync_putter(ln_sync_server *server, uint64_t incarnation);
bool ln_sync_note_put(ln_sync_server *server, uint64_t incarnation, uint64_t number); /* false: out of memory */
/* Classifies a value that a client has put. LARGE: the next update must be tried. */
ln_sync_size ln_sync_size_of_value(const ln_sync_variable *variable, const void *data);
void ln_sync_store_value(ln_sync_server *server, uint32_t tensor, const void *data);

#endif
