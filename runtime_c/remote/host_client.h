/* host_client.h - who is connected to a host: clients, and other hosts that fetch values for them. */
#ifndef LN_REMOTE_HOST_CLIENT_H
#define LN_REMOTE_HOST_CLIENT_H

#include "remote/host_state.h"

/* Makes the connection one of the client with this token, which HELLO has sent; false: out of memory. */
bool ln_host_hello(host_connection *connection, const unsigned char token[LN_REMOTE_TOKEN]);
/* Makes it one of another host, which JOIN has sent; false: the host has no such client. */
bool ln_host_join(host_connection *connection, const unsigned char token[LN_REMOTE_TOKEN]);
/* Ends it. The last connection of its own takes a client's pieces and buffers along. */
void ln_host_leave(host_connection *connection);

#endif
