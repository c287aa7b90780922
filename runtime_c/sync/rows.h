/* rows.h - sums of rows by their numbers: what a worker does with the rows of its batch before it pushes them, and a
 * server with those of its workers. The order of additions is fixed, so results are the same bits as those of
 * accumulated gradients. */
#ifndef LN_SYNC_ROWS_H
#define LN_SYNC_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of one source: numbers in any order, repeats allowed; rows [count][width], f32 or f64. */
typedef struct ln_sync_rows_part {
    const int64_t *ids;
    const void *rows;
    size_t count;
    double weight; /* its rows count so many times */
} ln_sync_rows_part;

/* Where a row lies; scratch for sorting. */
typedef struct ln_sync_rows_place {
    int64_t id;
    uint32_t part;
    uint32_t row;
} ln_sync_rows_place;

/* ids, rows: each number once, ascending, with the sum of its rows: from 0, part after part, in each part in order;
 * then divided by `divisor` where that is not 1. Weights are left out of the arithmetic where all are 1. Room for the
 * sum of all counts; `places` for twice as many; none of these may overlap the parts. Returns how many numbers there
 * are. */
size_t ln_sync_rows_sum(const ln_sync_rows_part *parts, size_t part_count, size_t width, bool f64, double divisor,
                        ln_sync_rows_place *places, int64_t *ids, void *rows);

#endif
