/* sets.h - disjoint sets (union-find). An item begins with the number of another item of its set, as an int32_t; the
 * root of a set has its own number. */
#ifndef LN_SETS_H
#define LN_SETS_H

#include <stddef.h>
#include <stdint.h>

/* Returns the root of the set of item i, in an array of items of `size` bytes. Halves the path to the root. */
static inline int32_t ln_root(void *items, size_t size, int32_t i) {
    char *base = items;
    int32_t *parent = (int32_t *)(void *)(base + (size_t)i * size);
    while (*parent != i) {
        *parent = *(int32_t *)(void *)(base + (size_t)*parent * size);
        i = *parent;
        parent = (int32_t *)(void *)(base + (size_t)i * size);
    }
    return i;
}

#endif
