/* posix_host.h - system services for the cores of servers and workers: a clock, and random numbers for nonces. */
#ifndef LN_SYNC_POSIX_HOST_H
#define LN_SYNC_POSIX_HOST_H

#include "sync/common/host.h"

/* Returns the services of this system. They have no state, need not be freed, and are thread-safe. */
ln_sync_host ln_sync_posix_host(void);

#endif
