/* host.h - the services that the cores of servers and workers, which make no system calls, get from their owner: the
 * time, and random bytes. Simulators pass a virtual clock and a seeded generator. */
#ifndef LN_SYNC_HOST_H
#define LN_SYNC_HOST_H

#include <stddef.h>
#include <stdint.h>

#define LN_SYNC_MS UINT64_C(1000000) /* ns */

typedef struct ln_sync_host {
    void *context;                                           /* the first argument of both functions */
    uint64_t (*clock)(void *context);                        /* returns a monotonic time in ns */
    void (*random)(void *context, void *bytes, size_t size); /* fills the bytes; they must be unpredictable, because
                                                                nonces are made from them */
} ln_sync_host;

#endif
