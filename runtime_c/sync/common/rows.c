/* rows.c - sums rows by their row numbers. Uses a stable merge sort, which is faster on parts that are already
 * ascending. The arithmetic is defined in docs/protocol.md, "Aggregation": it allows no fused multiply-add and no other
 * order. */
#include "sync/common/rows.h"

#include <string.h>

/* Merges the sorted arrays a and b into out. If elements are equal, the elements of a come first. */
static void merge(const ln_sync_rows_place *a, size_t na, const ln_sync_rows_place *b, size_t nb,
                  ln_sync_rows_place *out) {
    while (na && nb) {
        if (b->id < a->id) {
            *out++ = *b++;
            nb--;
        } else {
            *out++ = *a++;
            na--;
        }
    }
    if (na) memcpy(out, a, na * sizeof *a);
    if (nb) memcpy(out, b, nb * sizeof *b);
}

/* Returns the length of the ascending run that begins at `place`. */
static size_t run_of(const ln_sync_rows_place *place, size_t count) {
    size_t n = count ? 1 : 0;
    while (n < count && place[n - 1].id <= place[n].id) n++;
    return n;
}

/* Sorts by row number; equal numbers keep their order. `from` and `to` alternate as the destination. Returns the one
 * that is sorted. */
static ln_sync_rows_place *sort(ln_sync_rows_place *from, ln_sync_rows_place *to, size_t count) {
    while (run_of(from, count) < count) { /* merges neighbouring runs */
        ln_sync_rows_place *swap = from;
        for (size_t at = 0; at < count;) {
            const size_t a = run_of(from + at, count - at), b = run_of(from + at + a, count - at - a);
            merge(from + at, a, from + at + a, b, to + at);
            at += a + b;
        }
        from = to;
        to = swap;
    }
    return from;
}

#define ADD_ROWS(T)                                                                                                    \
    static void add_##T(T *restrict total, const T *restrict row, size_t width, bool weighted, double weight) {        \
        const T w = (T)weight;                                                                                         \
        if (weighted)                                                                                                  \
            for (size_t i = 0; i < width; i++) total[i] += w * row[i];                                                 \
        else                                                                                                           \
            for (size_t i = 0; i < width; i++) total[i] += row[i];                                                     \
    }                                                                                                                  \
    static void divide_##T(T *total, size_t count, double divisor) {                                                   \
        const T d = (T)divisor;                                                                                        \
        for (size_t i = 0; i < count; i++) total[i] /= d;                                                              \
    }
ADD_ROWS(float)
ADD_ROWS(double)

size_t ln_sync_rows_sum(const ln_sync_rows_part *parts, size_t part_count, size_t width, bool f64, double divisor,
                        ln_sync_rows_place *places, int64_t *ids, void *rows) {
    const size_t size = width * (f64 ? sizeof(double) : sizeof(float));
    size_t count = 0, found = 0;
    bool weighted = false;
    for (size_t p = 0; p < part_count; p++) {
        weighted |= parts[p].weight != 1;
        for (size_t i = 0; i < parts[p].count; i++)
            places[count++] = (ln_sync_rows_place){parts[p].ids[i], (uint32_t)p, (uint32_t)i};
    }
    if (count == 0) return 0;
    places = sort(places, places + count, count);
    for (size_t i = 0; i < count; i++) {
        const ln_sync_rows_part *part = &parts[places[i].part];
        const char *row = (const char *)part->rows + places[i].row * size;
        char *total;
        if (!i || places[i].id != ids[found - 1]) {
            ids[found] = places[i].id;
            memset((char *)rows + found++ * size, 0, size);
        }
        total = (char *)rows + (found - 1) * size;
        if (f64)
            add_double((double *)(void *)total, (const double *)(const void *)row, width, weighted, part->weight);
        else
            add_float((float *)(void *)total, (const float *)(const void *)row, width, weighted, part->weight);
    }
    if (divisor != 1 && f64) divide_double(rows, found * width, divisor);
    if (divisor != 1 && !f64) divide_float(rows, found * width, divisor);
    return found;
}
