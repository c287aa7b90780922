/* host.h - the services that code without I/O gets from its caller: the time, and random bytes.
 * Simulators pass a virtual clock and a seeded generator. */
#ifndef LN_SYNC_HOST_H
#define LN_SYNC_HOST_H

#include <stddef.h>
#include <stdint.h>

#define LN_SYNC_MS UINT64_C(1000000) /* ns */

typedef struct ln_sync_host {
    void *context;
    uint64_t (*clock)(void *context);                        /* ns, monotonic */
    void (*random)(void *context, void *bytes, size_t size); /* for nonces, so it must be unpredictable */
} ln_sync_host;

#endif
