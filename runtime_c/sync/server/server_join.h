/* server_join.h - the handshake with a client. */
#ifndef LN_SYNC_SERVER_JOIN_H
#define LN_SYNC_SERVER_JOIN_H

#include "sync/server/server.h"

/* Queues WELCOME, then as many TENSORS as the stream has room for. It is called again until all are queued. */
void ln_sync_announce(sync_connection *c);

/* Handle the messages HELLO and READY. server_connections.c says when these functions are called. */
ln_net_refusal ln_sync_take_hello(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_take_ready(sync_connection *c, const ln_net_header *header, const void *payload);

#endif
