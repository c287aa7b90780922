/* test_memory.c - pools and counted allocation at the limits of their ranges: sizes that overflow, negative counts,
 * failing allocations, and memory that is freed. */
#include "check.h"

#include "base/memory.h"

#include <stdlib.h>

static size_t live;
static int refuse;

static void *count_alloc(void *context, size_t size, size_t alignment) {
    (void)context;
    if (refuse) return NULL;
    live += size;
    void *block = aligned_alloc(alignment, size);
    if (block) memset(block, 0xA5, size); /* detects code that relies on zeros */
    return block;
}

static void count_free(void *context, void *pointer, size_t size) {
    (void)context;
    live -= size;
    free(pointer);
}

static const linnet_allocator counting = {NULL, count_alloc, count_free};

static void counts(void) {
    ln_memory memory;
    ln_memory_init(&memory, &counting);
    void *a = ln_memory_alloc(&memory, 1), *b = ln_memory_alloc(&memory, LN_ALIGNMENT),
         *c = ln_memory_alloc(&memory, 0);
    CHECK(a && b && c);
    CHECK_INT(memory.bytes, 3 * LN_ALIGNMENT);
    CHECK_INT(memory.bytes, live);
    refuse = 1;
    CHECK(ln_memory_alloc(&memory, 1000) == NULL);
    refuse = 0;
    CHECK_INT(memory.bytes, live); /* failed allocations do not count */
    CHECK(ln_memory_alloc(&memory, SIZE_MAX) == NULL);
    CHECK(ln_memory_alloc(&memory, SIZE_MAX - LN_ALIGNMENT) == NULL);
    ln_memory_free(&memory, a, 1);
    ln_memory_free(&memory, b, LN_ALIGNMENT);
    ln_memory_free(&memory, c, 0);
    ln_memory_free(&memory, NULL, 10);
    CHECK_INT(memory.bytes, 0);
    CHECK_INT(live, 0);
}

static int all_zero(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return 0;
    return 1;
}

static void pools(void) {
    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, &counting);
    ln_pool_init(&pool, &memory);
    for (size_t size = 1; size < 200000; size = size * 3 / 2 + 1) {
        unsigned char *p = ln_pool_alloc(&pool, size);
        CHECK(p && (uintptr_t)p % 16 == 0 && all_zero(p, size));
        if (p) memset(p, 0xff, size); /* an overlapping block would be overwritten */
    }
    CHECK_INT(memory.bytes, live);
    CHECK(ln_pool_array(&pool, -1, 8) == NULL);
    CHECK(ln_pool_array(&pool, INT64_MAX, 8) == NULL);
    CHECK(ln_pool_array(&pool, ((int64_t)1 << 61) + 1, 8) == NULL); /* the number of bytes overflows to 8 */
    CHECK(ln_pool_array(&pool, ((int64_t)1 << 60) + 1, 16) == NULL);
    CHECK(ln_pool_alloc(&pool, SIZE_MAX) == NULL);
    CHECK(ln_pool_array(&pool, 0, 8) != NULL);
    const char *text = ln_pool_text(&pool, "linnet and more", 6);
    CHECK_TEXT(text, "linnet");
    ln_pool_free(&pool);
    CHECK_INT(memory.bytes, 0);
    CHECK_INT(live, 0);
}

int main(void) {
    counts();
    pools();
    return check_end("test_memory");
}
