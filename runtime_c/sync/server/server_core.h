/* server_core.h - the logic of a server, without sockets, files, clocks and threads. The core reads streams and makes
 * updates. Its owner (posix_server.c, or a simulator) moves bytes between streams and peers, and passes the time in ns.
 * The core is not thread-safe. */
#ifndef LN_SYNC_SERVER_CORE_H
#define LN_SYNC_SERVER_CORE_H

#include "sync/server/server.h"

/* Creates a server. The manifest is not copied, and the caller frees it after the server. The other structs are copied,
 * but their contexts must stay valid. */
linnet_status ln_sync_server_new(const ln_sync_manifest *manifest, const ln_sync_server_config *config,
                                 const ln_sync_apply *apply, const ln_sync_storage *storage, const ln_sync_host *host,
                                 ln_sync_server **out, linnet_error *error);
/* Frees the server and all its connections. */
void ln_sync_server_release(ln_sync_server *server);

/* Stores the number of incomplete bytes at the end of the journal, for the status. */
void ln_sync_server_left_out(ln_sync_server *server, uint64_t bytes);

/* Handles leases and time limits. Returns the time at which it must be called again at the latest. Call it after the
 * bytes that have arrived were processed, so that no peer is lost whose bytes only waited. */
uint64_t ln_sync_server_tick(ln_sync_server *server, uint64_t now);

/* Returns the number of updates over all starts. A put counts as an update. */
uint64_t ln_sync_server_version(const ln_sync_server *server);
/* Returns the number of values that clients have put since this start. */
uint64_t ln_sync_server_puts(const ln_sync_server *server);

#endif
