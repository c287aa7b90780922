/* server_push.h - receives the gradients of workers. server_connections.c says when these functions are called. */
#ifndef LN_SYNC_SERVER_PUSH_H
#define LN_SYNC_SERVER_PUSH_H

#include "sync/server/server.h"

/* Handle the messages IDS, PUSH and COMMIT: `place` functions return the memory for a payload, and `take` functions are
 * called when a frame is complete (ln_net_handler). */
ln_net_refusal ln_sync_place_ids(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_place_push(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_take_ids(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_take_push(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_take_commit(sync_connection *c, const ln_net_header *header, const void *payload);

#endif
