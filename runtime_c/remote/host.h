/* host.h - a host: lends its memory and its processors to clients, which send it pieces of models. */
#ifndef LN_REMOTE_HOST_H
#define LN_REMOTE_HOST_H

#include "remote/host_config.h"

/* Listens. *out is NULL after an error. */
linnet_status ln_host_create(const ln_host_config *config, ln_host **out, linnet_error *error);
/* Returns the address, with the port that the system chose. Call it before ln_host_run. */
const char *ln_host_address(const ln_host *host);
/* Serves clients until ln_host_stop, each connection on a thread of its own. */
linnet_status ln_host_run(ln_host *host, linnet_error *error);
/* Ends ln_host_run. May be called by a signal handler. */
void ln_host_stop(ln_host *host);
/* Call it after ln_host_run has returned, or if it was never called. NULL does nothing. */
void ln_host_free(ln_host *host);

#endif
