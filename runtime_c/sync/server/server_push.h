/* server_push.h - receives the gradients of workers. server_connections.c says when these functions are called. */
#ifndef LN_SYNC_SERVER_PUSH_H
#define LN_SYNC_SERVER_PUSH_H

#include "sync/server/server.h"

/* IDS, PUSH and COMMIT. */
ln_net_refusal ln_sync_place_ids(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_place_push(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_take_ids(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_take_push(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_take_commit(sync_connection *c, const ln_net_header *header, const void *payload);

#endif
