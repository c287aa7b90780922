/* test_sync_share.c - the number of examples that each worker gets. It is in proportion to speed, at least one, and the
 * same on every machine; all examples are distributed. */
#include "check.h"
#include "sync/server/server_core.h"
#include "sync/server/share.h"

#include <math.h>

enum { MOST = 300 };

static uint64_t state = 1;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void check_shares(const double *speed, uint32_t n, uint64_t batch) {
    uint64_t examples[MOST], sum = 0;
    double total = 0, known = 0;
    for (uint32_t i = 0; i < n; i++)
        if (speed[i] > 0) total += speed[i], known++;
    const double mean = known > 0 ? total / known : 1;
    total += mean * (n - known);
    ln_sync_share(speed, n, batch, examples);
    for (uint32_t i = 0; i < n; i++) {
        const double due = (double)batch * ((speed[i] > 0 ? speed[i] : mean) / total);
        sum += examples[i];
        if (batch >= n) CHECK(examples[i] >= 1);
        if (batch >= n && due >= 1) CHECK((double)examples[i] < due + 1);
        /* Workers whose share is below one take examples only from the largest shares. */
        if (batch >= (uint64_t)n * 100 && due >= 1 && due < (double)batch / n) CHECK((double)examples[i] > due - 1);
        for (uint32_t k = 0; k < i; k++) /* a faster worker never gets less, except for rounding */
            if (speed[k] > 0 && speed[i] > speed[k]) CHECK(examples[i] + 1 >= examples[k]);
    }
    CHECK(sum == batch);
}

int main(void) {
    uint64_t examples[4];
    ln_sync_share((const double[]){100, 50}, 2, 24, examples);
    CHECK(examples[0] == 16 && examples[1] == 8); /* half the speed, half the examples */
    ln_sync_share((const double[]){10, 0, 30}, 3, 60, examples);
    CHECK(examples[0] == 10 && examples[1] == 20 && examples[2] == 30); /* unknown speed: counts as average */
    ln_sync_share((const double[]){0, 0, 0}, 3, 8, examples);
    CHECK(examples[0] + examples[1] + examples[2] == 8 && examples[0] <= 3 && examples[1] <= 3 && examples[2] <= 3);
    ln_sync_share((const double[]){1e9, 1}, 2, 10, examples);
    CHECK(examples[0] == 9 && examples[1] == 1);
    ln_sync_share((const double[]){1, 1, 1}, 3, 2, examples);
    CHECK(examples[0] + examples[1] + examples[2] == 2);
    ln_sync_share(NULL, 0, 5, examples);
    for (int round = 0; round < 2000; round++) {
        double speed[MOST];
        const uint32_t n = 1 + (uint32_t)(next() % (round < 1900 ? 12 : MOST));
        for (uint32_t i = 0; i < n; i++) speed[i] = next() % 5 ? pow(10, (double)(next() % 600) / 100 - 3) : 0;
        check_shares(speed, n, next() % (round % 2 ? 64 : 100000));
    }
    return check_end("test_sync_share");
}
