/* trace_hosts.h - the lanes of other machines in the trace of a run. */
#ifndef LINNET_TOOLS_TRACE_HOSTS_H
#define LINNET_TOOLS_TRACE_HOSTS_H

#include "linnet.h"

#include <stdio.h>

/* Writes what hosts did in the last run of the session, and arrows for the values that travelled. Times are in
 * microseconds from `start`, seconds of the monotonic clock. Returns false if out of memory. */
int trace_put_hosts(FILE *file, const linnet_session *session, double start);

#endif
