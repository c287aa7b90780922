/* server_connections.h - the connections of a server: created, filled with frames, ended. */
#ifndef LN_SYNC_SERVER_CONNECTIONS_H
#define LN_SYNC_SERVER_CONNECTIONS_H

#include "sync/server/server.h"

/* Returns a stream for a new connection; `peer` describes the peer for the status. The server owns the stream. Returns
 * NULL if there are already max_streams connections, or if out of memory. `now` is the time in ns, here and below. */
ln_net_stream *ln_sync_server_connect(ln_sync_server *server, const char *peer, uint64_t now);
/* Attach a pointer of the owner to a stream, and return it. */
void ln_sync_server_set_owner(ln_net_stream *stream, void *owner);
void *ln_sync_server_owner(const ln_net_stream *stream);
/* Call this when the connection has ended or failed. The function frees the stream. A member that loses its connection
 * may come back within its lease. */
void ln_sync_server_disconnect(ln_sync_server *server, ln_net_stream *stream, uint64_t now);
/* Call this when bytes have arrived, before ln_net_stream_received, which handles them. */
void ln_sync_server_heard(ln_sync_server *server, ln_net_stream *stream, uint64_t now);
/* Queues frames that are due on this stream. Call it before each call of ln_net_stream_pending, until
 * ln_net_stream_pending returns 0. */
void ln_sync_server_fill(ln_sync_server *server, ln_net_stream *stream);
/* Tells whether the owner is to close the connection when its stream is idle. */
bool ln_sync_server_closing(const ln_sync_server *server, const ln_net_stream *stream);
/* Returns true once when a paused stream may read again. Then call ln_net_stream_received(stream, 0). */
bool ln_sync_server_resumed(ln_sync_server *server, ln_net_stream *stream);
/* Tells the server how many bytes the transport has received and sent, for the status. */
void ln_sync_server_counted(ln_sync_server *server, ln_net_stream *stream, uint64_t received, uint64_t sent);

#endif
