/* host_outbox.h - values that a host keeps for other hosts: SEND puts a value there, and TAKE of another host gets it,
 * whichever comes first. */
#ifndef LN_REMOTE_HOST_OUTBOX_H
#define LN_REMOTE_HOST_OUTBOX_H

#include "remote/host_state.h"

/* Copies bytes of a buffer to the outbox. If it is full, waits until another host has taken what was sent before. */
linnet_status ln_host_send(host_connection *connection, uint64_t channel, uint64_t number, uint64_t buffer,
                           uint64_t offset, uint64_t bytes, linnet_error *error);
/* Notes that a value will not be sent, and why: whoever waits for it fails. */
void ln_host_leave_out(host_connection *connection, uint64_t channel, uint64_t number, const linnet_error *why);
/* Notes that the last SUBMIT of the connection could not be read, or that the next one is there. */
void ln_host_note_lost(host_connection *connection, bool lost);
/* Waits for a value that connection `number_of` of the same client sends; `bytes` UINT64_MAX: of any size. The caller
 * gives *value to ln_host_value_free. */
linnet_status ln_host_take(host_connection *connection, uint64_t number_of, uint64_t channel, uint64_t number,
                           uint64_t bytes, host_value **value, linnet_error *error);
void ln_host_value_free(ln_host *host, host_value *value);
/* Frees the value, but not its memory, which it returns: `*room` bytes, with the value at LN_REMOTE_ANSWER_BYTES and
 * zeros behind it up to a multiple of 8. */
unsigned char *ln_host_value_end(host_value *value, size_t *room);
/* With the client's lock: frees all that the connection has sent. */
void ln_host_outbox_free(host_connection *connection);

#endif
