/* server_core.h - the logic of a server, without sockets, files, clocks and threads. It reads streams and makes
 * updates. Its owner (posix_server.c, or a simulator) moves bytes between streams and peers, and passes the time in
 * ns. */
#ifndef LN_SYNC_SERVER_CORE_H
#define LN_SYNC_SERVER_CORE_H

#include "sync/server/server.h"

/* Keeps a reference to the manifest, which the caller frees; copies the rest. */
linnet_status ln_sync_server_new(const ln_sync_manifest *manifest, const ln_sync_server_config *config,
                                 const ln_sync_apply *apply, const ln_sync_storage *storage, const ln_sync_host *host,
                                 ln_sync_server **out, linnet_error *error);
void ln_sync_server_release(ln_sync_server *server);

/* Stores the number of incomplete bytes at the end of the journal, for the status. */
void ln_sync_server_left_out(ln_sync_server *server, uint64_t bytes);

/* Handles leases and time-outs. Returns the latest time of the next call. Call it after received bytes were
 * processed. */
uint64_t ln_sync_server_tick(ln_sync_server *server, uint64_t now);

uint64_t ln_sync_server_version(const ln_sync_server *server); /* number of updates, over all starts */
uint64_t ln_sync_server_puts(const ln_sync_server *server); /* values that clients have put since the start; they count
                                                              as updates in the version */

#endif
