/* posix_host.h - system services for the cores of servers and workers: a clock, and random numbers for nonces. */
#ifndef LN_SYNC_POSIX_HOST_H
#define LN_SYNC_POSIX_HOST_H

#include "sync/common/host.h"

ln_sync_host ln_sync_posix_host(void);

#endif
