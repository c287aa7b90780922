/* server_pull.h - the values and rows that a server sends. */
#ifndef LN_SYNC_SERVER_PULL_H
#define LN_SYNC_SERVER_PULL_H

#include "sync/server/server.h"

void ln_sync_want_held(sync_connection *c);
void ln_sync_answer_pulls(sync_connection *c);
/* Queues bytes. Takes ownership of the bytes, and frees them when they are sent. */
bool ln_sync_reply(sync_connection *c, uint8_t type, uint8_t encoding, uint32_t tensor, void *own, uint64_t bytes);
void ln_sync_released(sync_send *send);
void ln_sync_free_pulls(sync_connection *c);
/* Makes sure that no message reads the values of tensors [first, end) directly any more: copies old values for their
 * readers, or drops the readers. */
void ln_sync_detach(ln_sync_server *server, uint32_t first, uint32_t end);

#endif
