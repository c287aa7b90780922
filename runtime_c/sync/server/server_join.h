/* server_join.h - announces the manifest to a client; its HELLO and READY are messages (server_messages.h). */
#ifndef LN_SYNC_SERVER_JOIN_H
#define LN_SYNC_SERVER_JOIN_H

#include "sync/server/server.h"

/* Queues WELCOME, then as many TENSORS as the stream has room for. It is called again until all are queued. */
void ln_sync_announce(sync_connection *c);

#endif
