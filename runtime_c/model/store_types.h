/* store_types.h - what sessions and their store share: holders of values, and packed copies of variables. */
#ifndef LN_STORE_TYPES_H
#define LN_STORE_TYPES_H

#include "base/platform_locks.h"
#include "model/graph.h"

/* A holder has current values of variables that the store does not have: a session whose device has computed them
 * (run/device_variables.c). Before its first step, a run fetches the values that other sessions hold. So while a run is
 * in progress, no other session holds a value. */
typedef struct ln_holder {
    /* Copies the value of variable i to the store, or of all variables that this holder has if i is -1, and calls
     * ln_store_release for each. Called under the store's lock, and by one thread at a time. */
    linnet_status (*fetch)(struct ln_holder *holder, int32_t i, linnet_error *error);
    /* Copies bytes of the value of variable i to `to`, and goes on holding it. NULL: `fetch` must be called. */
    linnet_status (*read)(struct ln_holder *holder, int32_t i, uint64_t offset, size_t bytes, void *to,
                          linnet_error *error);
    atomic_int count; /* number of variables that it holds, plus 1 during `fetch`; 0: nobody uses the holder any more */
} ln_holder;

/* Fetches the value of variable i from what the device has kept. */
typedef linnet_status ln_store_recall(linnet_store *store, int32_t i, const struct linnet_device *device,
                                      linnet_error *error);

/* The packed copies of variables that sessions of this store share (run/packed_variables.c). */
typedef struct ln_packed_cache {
    ln_lock lock;              /* protects the list, the copies and `memory` */
    struct ln_instance *first; /* the instances whose steps read packed copies */
    ln_memory memory;
    atomic_size_t bytes;        /* memory.bytes, for readers without the lock */
    atomic_uint_least64_t made; /* how often a variable was packed */
} ln_packed_cache;

#endif
