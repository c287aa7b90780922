/* posix_loop.h - the loop of a linnet_server: one thread, any number of connections. */
#ifndef LN_SYNC_POSIX_LOOP_H
#define LN_SYNC_POSIX_LOOP_H

#include "sync/server/posix_server_state.h"

/* Returns a monotonic time in ns. */
uint64_t ln_sync_now(void);
/* Does one turn of the loop: waits for at most timeout_ms, then receives and sends. Each connection moves at most
 * LN_NET_TURN bytes in each direction. The caller has the server's mutex, which is released during the wait. */
void ln_sync_server_turn(linnet_server *server, int timeout_ms);
/* Closes a connection and frees its peer. */
void ln_sync_close_peer(linnet_server *server, posix_peer *peer);
/* Tells whether some connection has data that waits to be sent. */
bool ln_sync_server_busy(const linnet_server *server);

#endif
