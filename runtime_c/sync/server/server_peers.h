/* server_peers.h - what the files of a server do to connections: wake, pause, tell, refuse. */
#ifndef LN_SYNC_SERVER_PEERS_H
#define LN_SYNC_SERVER_PEERS_H

#include "sync/server/server.h"

/* Returns the next stream that has something to send, is to be closed, or may read again since the last call. Returns
 * NULL if there is none. */
ln_net_stream *ln_sync_server_woken(ln_sync_server *server);
/* Not OK if the server cannot continue (superseded, or an update or the journal failed); `error` says why. */
linnet_status ln_sync_server_failure(const ln_sync_server *server, linnet_error *error);
/* Tells all peers that the server ends. over: the job is finished. */
void ln_sync_server_shut(ln_sync_server *server, bool over);

void ln_sync_wake(sync_connection *c);
void ln_sync_unwake(sync_connection *c);
void ln_sync_pause_peer(sync_connection *c);       /* it waits for memory */
void ln_sync_resume_peers(ln_sync_server *server); /* called when memory was freed */
bool ln_sync_tell(sync_connection *c, uint8_t type, uint64_t step, const void *payload, size_t size);
/* These functions end a connection: the first with a REFUSE to the peer, the second at once. */
void ln_sync_refuse_peer(sync_connection *c, ln_net_refusal why, uint32_t detail, const char *format, ...);
void ln_sync_drop_peer(sync_connection *c);
void ln_sync_fail_server(ln_sync_server *server, const linnet_error *error);
uint64_t ln_sync_job_number(const ln_sync_server *server);

#endif
