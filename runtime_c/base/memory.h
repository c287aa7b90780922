/* memory.h - counted allocation through the host's allocator, pools that are freed at once, and reference counts. */
#ifndef LN_MEMORY_H
#define LN_MEMORY_H

#include "base/types.h"

/* A limit on the bytes that one or more ln_memory hold together. An allocation beyond it fails. */
typedef struct ln_memory_limit {
    size_t held, most;
    size_t refused; /* the bytes that would have been held with the last allocation that failed; 0: none has failed */
} ln_memory_limit;

/* An allocator and the number of bytes allocated through it. Not thread-safe: it has one owner. */
typedef struct ln_memory {
    linnet_allocator allocator;
    size_t bytes;
    ln_memory_limit *limit; /* NULL: none */
} ln_memory;

void ln_memory_init(ln_memory *memory, const linnet_allocator *allocator); /* NULL: malloc */
void *ln_memory_alloc(ln_memory *memory, size_t size);                     /* 64-byte aligned, not zeroed, or NULL */
void ln_memory_free(ln_memory *memory, void *pointer, size_t size);
/* The same, but zeroed. A page takes no memory until something is written to it. Pages from malloc are not touched
   here. Pages from a host allocator are written only where they are not zero. Free it with ln_memory_free_zeroed. */
void *ln_memory_alloc_zeroed(ln_memory *memory, size_t size);
void ln_memory_free_zeroed(ln_memory *memory, void *pointer, size_t size);
bool ln_is_zero(const void *data, size_t size);
/* Like memcpy, but does not write pages that are zero in both buffers. */
void ln_copy_sparse(void *to, const void *from, size_t bytes);

/* Fails with OUT_OF_MEMORY when `bytes` more bytes are not available. The message gives both numbers. On systems that
 * overcommit memory, malloc succeeds and the process is killed later. A host's own allocator is trusted, and small
 * sizes are not checked. */
linnet_status ln_memory_check(const ln_memory *memory, uint64_t bytes, linnet_error *error);

/* A bump allocator with growing blocks. All its memory is freed together. */
typedef struct ln_pool_block ln_pool_block;
typedef struct ln_pool {
    ln_memory *memory;
    ln_pool_block *blocks;
    size_t used, capacity; /* of the newest block */
    size_t total;          /* of all blocks */
    struct {
        char *at;
        size_t size;
    } spare[4];  /* the largest remainders of other blocks, for small items */
    bool exact;  /* a block per item: smaller items never take more memory together, which shared blocks may */
    bool failed; /* an allocation has returned NULL: after several, this is the one thing to ask */
} ln_pool;

void ln_pool_init(ln_pool *pool, ln_memory *memory);
void *ln_pool_alloc(ln_pool *pool, size_t size); /* 16-byte aligned, zeroed, or NULL */
void *ln_pool_array(ln_pool *pool, int64_t count,
                    size_t size); /* the same with overflow check; count 0 gives non-NULL */
char *ln_pool_text(ln_pool *pool, const char *text, size_t length);
void ln_pool_free(ln_pool *pool);

#endif
