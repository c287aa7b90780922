/* host_trace.h - when the steps of a piece ran, for clients that trace their runs. */
#ifndef LN_REMOTE_HOST_TRACE_H
#define LN_REMOTE_HOST_TRACE_H

#include "remote/host_state.h"

/* The trace of a piece whose session has this many steps: free ends it. NULL: out of memory. */
struct host_trace *ln_host_trace_new(const linnet_session *session);
/* Around a run of the piece. */
void ln_host_trace_begin(host_connection *connection, const host_piece *piece);
void ln_host_trace_end(const host_piece *piece);
/* What TIMES and STEPS answer, of `count` steps. Steps that there are not are zeros. */
void ln_host_trace_times(const host_piece *piece, uint64_t first, int count, unsigned char *to);
void ln_host_trace_steps(const host_piece *piece, uint64_t first, int count, unsigned char *to);

#endif
