/* server_put.h - receives values that clients put. server_connections.c says when these functions are called. */
#ifndef LN_SYNC_SERVER_PUT_H
#define LN_SYNC_SERVER_PUT_H

#include "sync/server/server.h"

/* Handle the message PUT: the first returns the memory for a payload, and the second is called when a frame is complete
 * (ln_net_handler). */
ln_net_refusal ln_sync_place_put(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_take_put(sync_connection *c, const ln_net_header *header, const void *payload);

#endif
