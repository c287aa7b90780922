/* server_pull.h - the values and rows that a server sends, and the messages that ask for them. */
#ifndef LN_SYNC_SERVER_PULL_H
#define LN_SYNC_SERVER_PULL_H

#include "sync/server/server.h"

/* Marks all tensors that the client has named in a PULL. ln_sync_answer_pulls then sends their values, or SAME. */
void ln_sync_want_held(sync_connection *c);
/* Queues the wanted values and rows, as far as the stream has room. Call this again when the stream has room. */
void ln_sync_answer_pulls(sync_connection *c);
/* Queues `bytes` bytes at `own` as a bulk message. Takes ownership of `own`, which is freed when it was sent. Returns
 * false if out of memory; `own` is then freed, too. */
bool ln_sync_reply(sync_connection *c, uint8_t type, uint8_t encoding, uint32_t tensor, void *own, uint64_t bytes);
/* Called by the stream when a message was sent or will never be sent: frees what the message used. */
void ln_sync_released(sync_send *send);
/* Frees everything about pulls of a connection whose stream was reset. */
void ln_sync_free_pulls(sync_connection *c);
/* Makes sure that no message reads the values of tensors [first, end) directly any more. Call this before these values
 * change. The function copies the old values for their readers, or, if memory is short, drops readers. */
void ln_sync_detach(ln_sync_server *server, uint32_t first, uint32_t end);

/* Handle the messages PULL and ROWS. server_connections.c says when these functions are called. */
ln_net_refusal ln_sync_take_pull(sync_connection *c, const ln_net_header *header, const void *payload);
ln_net_refusal ln_sync_place_rows(sync_connection *c, const ln_net_header *header, void **destination);
ln_net_refusal ln_sync_take_rows(sync_connection *c, const ln_net_header *header, const void *payload);

#endif
