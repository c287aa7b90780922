/* server_status.h - the status of a server as text. */
#ifndef LN_SYNC_SERVER_STATUS_H
#define LN_SYNC_SERVER_STATUS_H

#include "sync/server/server.h"

/* Writes the status as JSON; docs/protocol.md, REPORT, lists the keys. Returns the length of the whole text without its
 * NUL, as snprintf does, even if the text does not fit into `size` bytes. */
size_t ln_sync_server_status(ln_sync_server *server, char *text, size_t size);
/* Does the same in Prometheus' text format. */
size_t ln_sync_server_metrics(ln_sync_server *server, char *text, size_t size);

#endif
