/* sort.h - sorts pointers by a comparison. qsort may allocate memory, and has a bad worst case.
 */
#ifndef LN_SORT_H
#define LN_SORT_H

#include <stdbool.h>
#include <stdint.h>

/* Heap sort. `before` says whether the first item must come before the second one. */
void ln_sort(const void **items, int64_t count, bool (*before)(const void *a, const void *b));

#endif
