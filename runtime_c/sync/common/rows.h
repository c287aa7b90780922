/* rows.h - sums rows by their row numbers. A worker sums the rows of its batch before it pushes them; a server sums the
 * rows of its workers. The order of additions is fixed, so the result has the same bits as accumulated gradients. */
#ifndef LN_SYNC_ROWS_H
#define LN_SYNC_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of one source: `count` row numbers, in any order and with repeats, and rows [count][width] of f32 or f64. */
typedef struct ln_sync_rows_part {
    const int64_t *ids;
    const void *rows;
    size_t count;
    double weight; /* factor by which its rows are multiplied */
} ln_sync_rows_part;

/* Says where a row is: row number `row` of part number `part` has the row number `id`. Scratch space for sorting. */
typedef struct ln_sync_rows_place {
    int64_t id;
    uint32_t part;
    uint32_t row;
} ln_sync_rows_place;

/* Writes each row number once, ascending, to `ids`, and the sum of its rows to `rows`. A sum starts from 0 and adds the
 * rows of one part after the other, in their order. Each sum is divided by `divisor`, unless `divisor` is 1. If all
 * weights are 1, nothing is multiplied. `ids` and `rows` need room for as many rows as all parts have together, and
 * `places` needs room for twice as many entries. None of the three arrays may overlap the parts. Returns the number of
 * different row numbers. */
size_t ln_sync_rows_sum(const ln_sync_rows_part *parts, size_t part_count, size_t width, bool f64, double divisor,
                        ln_sync_rows_place *places, int64_t *ids, void *rows);

#endif
