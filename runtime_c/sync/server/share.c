/* share.c - divides the examples of a global batch among the workers: a faster worker gets more.
 * Uses largest remainders (Hamilton's method): the shares add up to the batch, and each share differs from the exact
 * share by less than one example. */
#include "sync/server/share.h"

#include <math.h>

void ln_sync_share(const double *speed, uint32_t n, uint64_t batch, uint64_t *examples) {
    double total = 0, known = 0, mean;
    uint64_t given = 0;
    for (uint32_t i = 0; i < n; i++)
        if (speed[i] > 0) total += speed[i], known++;
    mean = known > 0 ? total / known : 1;
    total += mean * (n - known);
    for (uint32_t i = 0; i < n; i++) {
        examples[i] = (uint64_t)floor((double)batch * ((speed[i] > 0 ? speed[i] : mean) / total));
        if (examples[i] > batch - given) examples[i] = batch - given;
        given += examples[i];
    }
    while (n && given < batch) { /* fewer than n are left, except for rounding errors */
        uint32_t most = 0;
        double largest = -HUGE_VAL;
        for (uint32_t i = 0; i < n; i++) {
            const double due = (double)batch * ((speed[i] > 0 ? speed[i] : mean) / total) - (double)examples[i];
            if (due > largest) largest = due, most = i;
        }
        examples[most]++;
        given++;
    }
    for (uint32_t i = 0; batch >= n && i < n; i++) { /* gives every worker at least one example */
        uint32_t most = 0;
        if (examples[i]) continue;
        for (uint32_t k = 1; k < n; k++)
            if (examples[k] > examples[most]) most = k;
        examples[most]--;
        examples[i]++;
    }
}
