/* host_wait.h - how the work of a host waits for something that another host or another connection does: for a bounded
 * time, and not longer than everybody concerned is there. */
#ifndef LN_REMOTE_HOST_WAIT_H
#define LN_REMOTE_HOST_WAIT_H

#include "remote/host_state.h"

enum { LN_HOST_TICK_MS = 500 };

/* When a wait that begins now must end; `most_ms` 0: the host's time limit of a run. */
int64_t ln_host_wait_end(const host_connection *connection, int64_t most_ms);
/* Returns a failure if the wait must end: its time is over, the host is stopped, or whoever waits for the answer is
 * gone. Call it at least each LN_HOST_TICK_MS, without the client's lock. */
linnet_status ln_host_wait_look(host_connection *connection, int64_t end, linnet_error *error);
/* With the client's lock: waits until something has moved, for at most one tick, and not if the host is stopped. */
void ln_host_wait_moved(const host_connection *connection);
/* While a command waits, other connections of its client work. */
void ln_host_wait_begins(host_connection *connection);
void ln_host_wait_ends(host_connection *connection);

#endif
