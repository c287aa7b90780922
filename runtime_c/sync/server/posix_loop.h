/* posix_loop.h - the loop of a linnet_server: one thread, any number of connections. */
#ifndef LN_SYNC_POSIX_LOOP_H
#define LN_SYNC_POSIX_LOOP_H

#include "sync/server/posix_server_state.h"

uint64_t ln_sync_now(void);
/* One turn of the loop: waits for at most timeout_ms, then receives and sends as many bytes as possible. */
void ln_sync_server_turn(linnet_server *server, int timeout_ms);
void ln_sync_close_peer(linnet_server *server, posix_peer *peer);
/* Tells whether data waits to be sent. */
bool ln_sync_server_busy(const linnet_server *server);

#endif
