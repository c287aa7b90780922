/* server_join.h - announces the manifest to a client; its HELLO and READY are messages (server_messages.h). */
#ifndef LN_SYNC_SERVER_JOIN_H
#define LN_SYNC_SERVER_JOIN_H

#include "sync/server/server.h"

void ln_sync_announce(sync_connection *c); /* WELCOME, TENSORS */

#endif
