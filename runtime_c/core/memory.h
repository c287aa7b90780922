/* memory.h - allocation through the host's allocator, counted; pools that are freed at once; reference counts. */
#ifndef LN_MEMORY_H
#define LN_MEMORY_H

#include "core/types.h"

/* An allocator and what has been taken through it. Not thread safe: one owner. */
typedef struct ln_memory {
    linnet_allocator allocator;
    size_t bytes;
} ln_memory;

void ln_memory_init(ln_memory *memory, const linnet_allocator *allocator); /* NULL: malloc */
void *ln_memory_alloc(ln_memory *memory, size_t size);                     /* 64-byte aligned, not zeroed, or NULL */
void ln_memory_free(ln_memory *memory, void *pointer, size_t size);
/* The same, all zeros, where pages that nothing has been written to take no memory yet: malloc's are left alone, a host
 * allocator's are written only where they are not zero. Freed with ln_memory_free_zeroed. */
void *ln_memory_alloc_zeroed(ln_memory *memory, size_t size);
void ln_memory_free_zeroed(ln_memory *memory, void *pointer, size_t size);
bool ln_is_zero(const void *data, size_t size);
/* memcpy that writes no page which is zero in both. */
void ln_copy_sparse(void *to, const void *from, size_t bytes);

/* OUT_OF_MEMORY, with both numbers, when so many bytes more are not to be had: where memory is lent before it is there,
 * malloc gives what the process is later killed for. A host's own allocator is taken at its word, and small sizes are
 * not looked into. */
linnet_status ln_memory_check(const ln_memory *memory, uint64_t bytes, linnet_error *error);

/* Bump allocator in growing blocks; all is freed together. */
typedef struct ln_pool_block ln_pool_block;
typedef struct ln_pool {
    ln_memory *memory;
    ln_pool_block *blocks;
    size_t used, capacity; /* of the newest block */
} ln_pool;

void ln_pool_init(ln_pool *pool, ln_memory *memory);
void *ln_pool_alloc(ln_pool *pool, size_t size); /* 16-byte aligned, zeroed, or NULL */
void *ln_pool_array(ln_pool *pool, int64_t count,
                    size_t size); /* the same with overflow check; count 0 gives non-NULL */
char *ln_pool_text(ln_pool *pool, const char *text, size_t length);
void ln_pool_free(ln_pool *pool);

#endif
