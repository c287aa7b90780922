/* server_peers.h - what all files of a server do to connections: wake, pause, tell, refuse. The first three functions
 * are for the server's owner. */
#ifndef LN_SYNC_SERVER_PEERS_H
#define LN_SYNC_SERVER_PEERS_H

#include "sync/server/server.h"

/* Returns the next stream that has got something to send, is to be closed, or may read again. Each such stream is
 * returned once. Returns NULL if there are no more. */
ln_net_stream *ln_sync_server_woken(ln_sync_server *server);
/* Returns LINNET_OK while the server works. Otherwise the server cannot continue, because it was superseded, or because
 * an update or the journal failed; `error` says why. */
linnet_status ln_sync_server_failure(const ln_sync_server *server, linnet_error *error);
/* Refuses all peers, because the server ends. `over` says that the job is finished; otherwise workers try again later.
 */
void ln_sync_server_shut(ln_sync_server *server, bool over);

/* Adds the connection to the list from which ln_sync_server_woken takes, or removes it from this list. */
void ln_sync_wake(sync_connection *c);
void ln_sync_unwake(sync_connection *c);
/* Stops reading from the peer, which waits for memory. */
void ln_sync_pause_peer(sync_connection *c);
/* Lets all paused peers try again. Call this when memory was freed. */
void ln_sync_resume_peers(ln_sync_server *server);
/* Queues a control frame. Returns false if the stream has no room now. */
bool ln_sync_tell(sync_connection *c, uint8_t type, uint64_t step, const void *payload, size_t size);
/* End a connection: the first with a REFUSE to the peer, the second at once. The owner then closes the transport. */
void ln_sync_refuse_peer(sync_connection *c, ln_net_refusal why, uint32_t detail, const char *format, ...);
void ln_sync_drop_peer(sync_connection *c);
/* Stores why the server cannot continue, and refuses all peers. */
void ln_sync_fail_server(ln_sync_server *server, const linnet_error *error);
/* Returns the first 8 bytes of the job's identifier, as headers carry them. */
uint64_t ln_sync_job_number(const ln_sync_server *server);

#endif
