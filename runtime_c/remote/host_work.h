/* host_work.h - executes the commands of a SUBMIT, and writes the answer. */
#ifndef LN_REMOTE_HOST_WORK_H
#define LN_REMOTE_HOST_WORK_H

#include "remote/host_state.h"

/* Executes connection->work, and leaves the answer in connection->answer. Returns false if out of memory: the
 * connection cannot go on. */
bool ln_host_work(host_connection *connection);
/* Tells whether connection->work only asks whether the host is there, which needs nothing of the client. */
bool ln_host_is_asked(const host_connection *connection);

#endif
