/* memory.c - counted allocation through the host's allocator, and bump pools that are freed at once.
 * Nothing else in the library calls malloc. */
#include "base/memory.h"

#include "base/error.h"
#include "base/platform_machine.h"

#include <stdlib.h>
#include <string.h>

struct ln_pool_block {
    ln_pool_block *next; /* the block that was allocated before */
    size_t size;         /* bytes of the whole block */
};

/* A new block has a 64th of the pool's size, a large item gets a block of its own, and small items fill the remainders
 * of other blocks. Thus only a small part of a pool is unused. */
enum { BLOCK_HEADER = 16, LEAST_BLOCK = 512, SPARES = 4 };

static void *default_alloc(void *context, size_t size, size_t alignment) {
    (void)context;
    const size_t page = ln_memory_large_page();
    if (page == 0 || size < 2 * page || size > SIZE_MAX - page)
        return aligned_alloc(alignment, size);                 /* ln_memory_alloc rounds the size up to the alignment */
    void *data = aligned_alloc(page, ln_round_up(size, page)); /* the bytes that rounding adds are never touched */
    if (data) ln_memory_use_large_pages(data, size / page * page);
    return data;
}

static void default_free(void *context, void *pointer, size_t size) {
    (void)context;
    (void)size;
    free(pointer);
}

void ln_memory_init(ln_memory *memory, const linnet_allocator *allocator) {
    static const linnet_allocator standard = {NULL, default_alloc, default_free};
    memory->allocator = allocator && allocator->alloc && allocator->free ? *allocator : standard;
    memory->bytes = 0;
    memory->limit = NULL;
}

void *ln_memory_alloc(ln_memory *memory, size_t size) {
    void *pointer;
    if (size > SIZE_MAX - 2 * LN_ALIGNMENT) return NULL;
    size = ln_round_up(size ? size : 1, LN_ALIGNMENT);
    ln_memory_limit *limit = memory->limit;
    if (limit && size > limit->most - limit->held) {
        limit->refused = limit->held + size;
        return NULL;
    }
    pointer = memory->allocator.alloc(memory->allocator.context, size, LN_ALIGNMENT);
    if (pointer) memory->bytes += size;
    if (pointer && limit) limit->held += size;
    return pointer;
}

void ln_memory_free(ln_memory *memory, void *pointer, size_t size) {
    if (!pointer) return;
    size = ln_round_up(size ? size : 1, LN_ALIGNMENT);
    memory->bytes -= size;
    if (memory->limit) memory->limit->held -= size;
    memory->allocator.free(memory->allocator.context, pointer, size);
}

linnet_status ln_memory_check(const ln_memory *memory, uint64_t bytes, linnet_error *error) {
    enum { LEAST_CHECKED = 64 << 20 }; /* the query takes 30 us; touching this much memory takes 1,000 times as long */
    const bool addressable = bytes <= SIZE_MAX / 2;
    if (addressable && (bytes < LEAST_CHECKED || memory->allocator.alloc != default_alloc)) return LINNET_OK;
    const uint64_t available = addressable ? ln_memory_available() : SIZE_MAX / 2;
    if (bytes <= available) return LINNET_OK;
    ln_fail(error, LINNET_OUT_OF_MEMORY,
            addressable ? "a run needs more memory than the machine has left"
                        : "a run needs more memory than a process on this machine can address");
    ln_expected(error, "at most %llu bytes%s", (unsigned long long)available,
                addressable ? " (swap included, within the cgroup limits)" : "");
    ln_got(error, "%llu bytes", (unsigned long long)bytes);
    return ln_hint(
        error,
        "use smaller shapes, such as a smaller batch; linnet_plan_get_info reports the required memory before a run");
}

enum { PAGE = 4096 };

bool ln_is_zero(const void *data, size_t size) {
    const char *bytes = data;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Reading a page that was never written takes no memory, because the system maps its shared page of zeros; writing
   allocates a page. This function therefore writes only bytes that are not zero. */
static void clear(char *data, size_t size) {
    for (size_t at = 0; at < size; at += PAGE) {
        const size_t part = size - at < PAGE ? size - at : PAGE;
        if (!ln_is_zero(data + at, part)) memset(data + at, 0, part);
    }
}

/* calloc knows which pages are new and therefore zero, without reading them, but it does not align. The original
 * pointer is stored in front of the aligned block. */
static void *standard_zeroed(size_t size) {
    char *raw = size < SIZE_MAX - LN_ALIGNMENT ? calloc(1, size + LN_ALIGNMENT) : NULL, *pointer;
    if (!raw) return NULL;
    pointer = raw + (LN_ALIGNMENT - (uintptr_t)raw % LN_ALIGNMENT);
    memcpy(pointer - sizeof raw, &raw, sizeof raw); /* the pointer fits, because calloc's alignment leaves a gap of at
                                                       least one pointer */
    return pointer;
}

void *ln_memory_alloc_zeroed(ln_memory *memory, size_t size) {
    const bool standard = memory->allocator.alloc == default_alloc;
    void *pointer;
    if (!standard) {
        if ((pointer = ln_memory_alloc(memory, size)) != NULL) clear(pointer, size);
        return pointer;
    }
    if (size > SIZE_MAX - 2 * LN_ALIGNMENT) return NULL;
    size = ln_round_up(size ? size : 1, LN_ALIGNMENT);
    if ((pointer = standard_zeroed(size)) != NULL) memory->bytes += size;
    return pointer;
}

void ln_memory_free_zeroed(ln_memory *memory, void *pointer, size_t size) {
    char *raw;
    if (!pointer || memory->allocator.alloc != default_alloc) {
        ln_memory_free(memory, pointer, size);
        return;
    }
    memcpy(&raw, (char *)pointer - sizeof raw, sizeof raw);
    memory->bytes -= ln_round_up(size ? size : 1, LN_ALIGNMENT);
    free(raw);
}

void ln_copy_sparse(void *to, const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        const size_t part = bytes - at < PAGE ? bytes - at : PAGE;
        const char *source = (const char *)from + at;
        if (!ln_is_zero(source, part))
            memcpy((char *)to + at, source, part);
        else
            clear((char *)to + at, part);
    }
}

void ln_pool_init(ln_pool *pool, ln_memory *memory) {
    memset(pool, 0, sizeof *pool);
    pool->memory = memory;
}

/* Stores the unused end of the newest block in place of the smallest spare, if the end is larger. */
static void keep_rest(ln_pool *pool) {
    const size_t left = pool->blocks && !pool->exact ? pool->capacity - pool->used : 0;
    int least = 0;
    for (int i = 1; i < SPARES; i++)
        if (pool->spare[i].size < pool->spare[least].size) least = i;
    if (left <= pool->spare[least].size) return;
    pool->spare[least].at = (char *)pool->blocks + pool->used;
    pool->spare[least].size = left;
}

static void *from_spare(ln_pool *pool, size_t size) {
    for (int i = 0; i < SPARES; i++) {
        if (pool->spare[i].size < size) continue;
        pool->spare[i].size -= size;
        pool->spare[i].at += size;
        return pool->spare[i].at - size;
    }
    return NULL;
}

void *ln_pool_alloc(ln_pool *pool, size_t size) {
    void *result;
    if (size > SIZE_MAX / 2) goto fail;
    size = ln_round_up(size ? size : 1, 16);
    if ((result = from_spare(pool, size)) != NULL) goto clear;
    if (!pool->blocks || size > pool->capacity - pool->used) {
        size_t wanted = pool->total / 64 & ~(size_t)(LN_ALIGNMENT - 1);
        if (wanted < LEAST_BLOCK) wanted = LEAST_BLOCK;
        if (pool->exact) wanted = 0;
        const bool own = pool->blocks && size >= wanted / 2;
        if (own || wanted < size + BLOCK_HEADER) wanted = size + BLOCK_HEADER;
        ln_pool_block *block = ln_memory_alloc(pool->memory, wanted);
        if (!block) goto fail;
        block->size = wanted;
        pool->total += wanted;
        if (own) { /* goes behind the newest block in the list, so that the rest of the newest block stays in use */
            block->next = pool->blocks->next;
            pool->blocks->next = block;
            result = (char *)block + BLOCK_HEADER;
            goto clear;
        }
        keep_rest(pool);
        block->next = pool->blocks;
        pool->blocks = block;
        pool->used = BLOCK_HEADER;
        pool->capacity = wanted;
    }
    result = (char *)pool->blocks + pool->used;
    pool->used += size;
clear:
    memset(result, 0, size);
    return result;
fail:
    pool->failed = true;
    return NULL;
}

void *ln_pool_array(ln_pool *pool, int64_t count, size_t size) {
    const bool fits = count >= 0 && (uint64_t)count <= SIZE_MAX / (size ? size : 1);
    return ln_pool_alloc(pool, fits ? (size_t)count * size : SIZE_MAX);
}

char *ln_pool_text(ln_pool *pool, const char *text, size_t length) {
    char *copy = length < SIZE_MAX / 2 ? ln_pool_alloc(pool, length + 1) : NULL;
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

void ln_pool_free(ln_pool *pool) {
    while (pool->blocks) {
        ln_pool_block *next = pool->blocks->next;
        ln_memory_free(pool->memory, pool->blocks, pool->blocks->size);
        pool->blocks = next;
    }
    pool->used = pool->capacity = pool->total = 0;
    memset(pool->spare, 0, sizeof pool->spare);
}
