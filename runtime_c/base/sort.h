/* sort.h - sorts pointers. qsort is not used, because it may allocate memory and may need quadratic time. */
#ifndef LN_SORT_H
#define LN_SORT_H

#include <stdbool.h>
#include <stdint.h>

/* Sorts `items` by heap sort, which is not stable. `before` tells whether item `a` must come before item `b`. */
void ln_sort(const void **items, int64_t count, bool (*before)(const void *a, const void *b));

#endif
