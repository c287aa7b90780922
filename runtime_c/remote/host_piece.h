/* host_piece.h - pieces on a host: finds the file of a piece, plans it, and binds it to buffers of its client. */
#ifndef LN_REMOTE_HOST_PIECE_H
#define LN_REMOTE_HOST_PIECE_H

#include "remote/host_state.h"

/* What PREPARE says. `spans` are as in its message: the buffer, offset and bytes of each input, then of each output. */
typedef struct host_prepare {
    uint64_t id;
    unsigned char digest[LN_SHA256];
    int precision, input_count, output_count;
    bool traced;
    const unsigned char *spans;
} host_prepare;

/* Returns LN_REMOTE_MISSING if the host has no file of this digest and the connection has sent none. */
int ln_host_prepare(host_connection *connection, const host_prepare *prepare, linnet_error *error);
/* Ends a piece; an unknown number does nothing. */
void ln_host_unprepare(ln_host *host, host_client *client, uint64_t id);
void ln_host_unprepare_all(ln_host *host, host_client *client);
/* A user of a model less. */
void ln_host_drop_model(ln_host *host, host_model *model);
/* NULL: the client has no such piece. */
host_piece *ln_host_find_piece(host_client *client, uint64_t id, linnet_error *error);
/* Runs it once, within the host's time limit, or until the host is stopped. */
linnet_status ln_host_run_piece(host_connection *connection, uint64_t id, linnet_error *error);

#endif
