/* memory.h - allocation through the host's allocator, which counts the allocated bytes; and pools, whose memory is
 * freed all together. */
#ifndef LN_MEMORY_H
#define LN_MEMORY_H

#include "base/types.h"

/* A limit on the bytes that one or more ln_memory have allocated together. An allocation that would exceed the limit
 * fails. Memory from ln_memory_alloc_zeroed counts only with a host's allocator. */
typedef struct ln_memory_limit {
    size_t held, most; /* bytes that are allocated now; the limit */
    size_t refused;    /* bytes that would be allocated if the last allocation had not failed; 0: none has failed */
} ln_memory_limit;

/* An allocator, and the number of bytes that are allocated through it now. It has one owner and is not thread-safe. */
typedef struct ln_memory {
    linnet_allocator allocator;
    size_t bytes;
    ln_memory_limit *limit; /* NULL: none */
} ln_memory;

/* Begins without a limit. `allocator` is copied. If it is NULL or lacks a function, malloc is used. */
void ln_memory_init(ln_memory *memory, const linnet_allocator *allocator);
/* Returns memory that is 64-byte aligned and not zeroed; NULL if there is no memory or the limit is reached. */
void *ln_memory_alloc(ln_memory *memory, size_t size);
/* Frees memory of ln_memory_alloc. `size` must be the size that was allocated. A NULL pointer does nothing. */
void ln_memory_free(ln_memory *memory, void *pointer, size_t size);
/* Returns zeroed memory, or NULL. A page takes no physical memory until something is written to it. Therefore pages
 * from the system are not touched, and pages from a host's allocator are written only where they are not zero. The
 * memory must be freed with ln_memory_free_zeroed, with the same size. */
void *ln_memory_alloc_zeroed(ln_memory *memory, size_t size);
void ln_memory_free_zeroed(ln_memory *memory, void *pointer, size_t size);
/* Tells whether all bytes are 0. */
bool ln_is_zero(const void *data, size_t size);
/* Copies like memcpy, but does not write pages that are zero in both buffers, so that they need no physical memory. */
void ln_copy_sparse(void *to, const void *from, size_t bytes);

/* Fails with OUT_OF_MEMORY if the machine does not have `bytes` more bytes. Call this before a large allocation: on
 * systems that overcommit memory, malloc succeeds, and the system kills the process later. With a host's allocator, and
 * for less than 64 MiB, the function checks nothing but the range of an address. */
linnet_status ln_memory_check(const ln_memory *memory, uint64_t bytes, linnet_error *error);

/* A pool allocates items from growing blocks, and frees all of them together. It is not thread-safe. */
typedef struct ln_pool_block ln_pool_block;
typedef struct ln_pool {
    ln_memory *memory;
    ln_pool_block *blocks;
    size_t used, capacity; /* bytes of the newest block: those in use, and all */
    size_t total;          /* bytes of all blocks */
    struct {
        char *at;
        size_t size;
    } spare[4]; /* the largest unused ends of other blocks, for small items */
    /* True: each item has a block of its own, so that no part of a block is unused and smaller items never need more
     * memory. */
    bool exact;
    /* An allocation has returned NULL. A caller may make several allocations and check this once after them. */
    bool failed;
} ln_pool;

/* Makes an empty pool, which allocates from `memory`. */
void ln_pool_init(ln_pool *pool, ln_memory *memory);
/* Returns memory that is 16-byte aligned and zeroed; NULL if out of memory. Size 0 gives memory, too. */
void *ln_pool_alloc(ln_pool *pool, size_t size);
/* Returns memory for `count` items of `size` bytes; NULL also if the product overflows or `count` is negative. */
void *ln_pool_array(ln_pool *pool, int64_t count, size_t size);
/* Copies `length` bytes and adds a NUL. Returns NULL if out of memory. */
char *ln_pool_text(ln_pool *pool, const char *text, size_t length);
/* Frees all items. The pool is then empty and may be used again. */
void ln_pool_free(ln_pool *pool);

#endif
