/* test_sync_rows.c - sums of rows by their numbers, compared with a loop over all numbers that does the same additions
 * one by one. */
#include "check.h"
#include "sync/common/rows.h"

#include <stdlib.h>

enum { PARTS = 5, ROOM = 64, WIDTH = 3, IDS = 40 };

static uint64_t state = 1;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* One case: random row numbers below `range`, either ascending and distinct within each part or unordered. */
static void sums(size_t range, bool ascending, bool weighted, bool f64, double divisor) {
    int64_t ids[PARTS][ROOM], out_ids[PARTS * ROOM];
    float rows[PARTS][ROOM * WIDTH];
    double wide[PARTS][ROOM * WIDTH], out[PARTS * ROOM * WIDTH];
    ln_sync_rows_part parts[PARTS];
    ln_sync_rows_place places[2 * PARTS * ROOM];
    size_t found = 0, at = 0;
    for (int p = 0; p < PARTS; p++) {
        size_t count = next() % (ascending && range < ROOM ? range : ROOM);
        int64_t id = -1;
        if (p == 2) count = 0;
        for (size_t i = 0; i < count; i++) {
            id = ascending ? id + 1 + (int64_t)(next() % (range / count)) : (int64_t)(next() % range);
            ids[p][i] = id;
            for (int k = 0; k < WIDTH; k++)
                wide[p][i * WIDTH + k] = rows[p][i * WIDTH + k] = (float)((double)next() * 1e-9 - 1);
        }
        parts[p] = (ln_sync_rows_part){ids[p], f64 ? (void *)wide[p] : (void *)rows[p], count, weighted ? p + 0.3 : 1};
    }
    found = ln_sync_rows_sum(parts, PARTS, WIDTH, f64, divisor, places, out_ids, out);
    for (int64_t id = 0; id < IDS * 100; id++) {
        float total[WIDTH] = {0};
        double sum[WIDTH] = {0};
        int seen = 0;
        for (int p = 0; p < PARTS; p++)
            for (size_t i = 0; i < parts[p].count; i++) {
                if (ids[p][i] != id) continue;
                seen = 1;
                for (int k = 0; k < WIDTH; k++) {
                    const float w = (float)parts[p].weight, r = rows[p][i * WIDTH + k], share = w * r;
                    const double product = parts[p].weight * wide[p][i * WIDTH + k];
                    total[k] += weighted ? share : r;
                    sum[k] += weighted ? product : wide[p][i * WIDTH + k];
                }
            }
        if (!seen) continue;
        CHECK_INT(out_ids[at], id);
        for (int k = 0; k < WIDTH; k++) {
            if (f64)
                CHECK(out[at * WIDTH + k] == (divisor == 1 ? sum[k] : sum[k] / divisor));
            else
                CHECK(((float *)out)[at * WIDTH + k] == (divisor == 1 ? total[k] : total[k] / (float)divisor));
        }
        at++;
    }
    CHECK_INT(found, at);
}

int main(void) {
    for (int i = 0; i < 200; i++) {
        sums(i % 2 ? IDS : IDS * 90, false, i & 2, i & 4, i & 8 ? 3 : 1);
        sums(IDS * 90, true, i & 2, i & 4, i & 8 ? 7 : 1);
    }
    CHECK_INT(ln_sync_rows_sum(NULL, 0, WIDTH, false, 2, NULL, NULL, NULL), 0);
    return check_end("test_sync_rows");
}
