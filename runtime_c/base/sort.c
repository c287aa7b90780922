/* sort.c - heap sort of pointers. */
#include "base/sort.h"

static void exchange(const void **a, const void **b) {
    const void *kept = *a;
    *a = *b;
    *b = kept;
}

/* Moves the root down until it no longer has to come before one of its children. */
static void sift_down(const void **items, int64_t root, int64_t count, bool (*before)(const void *, const void *)) {
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(items[child], items[child + 1])) ++child;
        if (!before(items[root], items[child])) return;
        exchange(&items[root], &items[child]);
    }
}

void ln_sort(const void **items, int64_t count, bool (*before)(const void *a, const void *b)) {
    for (int64_t i = count / 2; i-- > 0;) sift_down(items, i, count, before);
    for (int64_t n = count; n-- > 1;) {
        exchange(&items[0], &items[n]);
        sift_down(items, 0, n, before);
    }
}
