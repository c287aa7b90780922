/* store_state.h - what a store is made of, for store.c and store_holders.c. */
#ifndef LN_STORE_STATE_H
#define LN_STORE_STATE_H

#include "model/store_types.h"

/* A file that has the value of a variable: the model's own, or a checkpoint. Stays until a writer replaces it, so a
 * reader with the shared lock may use the address. */
typedef struct ln_store_source {
    const void *data; /* NULL: in the store's own model */
    linnet_model *file;
    const struct linnet_device *device; /* of a value that a device keeps */
} ln_store_source;

struct linnet_store {
    ln_memory memory;
    ln_references references;
    linnet_model *model;
    ln_lock lock;
    char *block;
    size_t block_bytes;
    size_t *offsets; /* [variable]: place in the block; this array and the others lie in the struct's allocation */
    uint64_t *versions;
    /* For snapshots, see store.h. */
    ln_lock committed_lock;
    char **committed; /* [variable]: its value at the last commit; NULL: no snapshot reads it */
    uint64_t *committed_versions;
    atomic_size_t committed_bytes;
    atomic_int followers;
    atomic_uint_least64_t commits;
    atomic_bool pending; /* a caller has written through linnet_store_data, and this is not committed yet */
    bool writing;        /* a thread holds the exclusive lock */
    uint64_t writes;     /* the sum of versions */
    ln_packed_cache packed_cache;
    /* Values that the store does not have. `holders` changes under the exclusive lock, or under the shared lock and
       fetch_lock. */
    ln_lock fetch_lock;         /* also protects `possible_holders` */
    int possible_holders;       /* sessions that may hold values */
    ln_holder **holders;        /* [variable]: who has its value; NULL: the store has it */
    ln_holder lost;             /* the holder of values that do not exist any more; its fetch fails */
    ln_holder unread;           /* the holder of values that are still only in a file; changes under fetch_lock */
    ln_store_source *sources;   /* [variable]; NULL: all values that are in a file are in that of the model */
    ln_holder kept;             /* the holder of values that devices keep (run/kept_variables.c) */
    ln_store_recall *recall;    /* fetches them */
    atomic_uint_least64_t left; /* how often a value was left in a file */
    atomic_int away;            /* number of entries of `holders` that are not NULL */
    atomic_bool *exposed;       /* [variable]: linnet_store_data has given its address to a caller */
};

static inline void *ln_store_value(linnet_store *store, int32_t i) { return store->block + store->offsets[i]; }

#endif
