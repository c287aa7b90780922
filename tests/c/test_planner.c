/* test_planner.c - the memory planner against its definition: buffers that are alive at the same time never overlap,
 * and the reported figures are right. Random lifetimes from a fixed seed, and cases with a known optimum. */
#include "plan/graph/planner.h"

#include <stdio.h>
#include <stdlib.h>

static int failures;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            ++failures;                                                                                                \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                     \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

static uint64_t state = 88172645463325252u;

static uint32_t random_below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % limit);
}

static uint64_t rounded(uint64_t size) { return (size + LN_ALIGNMENT - 1) / LN_ALIGNMENT * LN_ALIGNMENT; }

/* Checks byte intervals and figures, pair by pair. */
static ln_memory_plan check(ln_lifetime *b, int n, const char *what) {
    ln_memory memory;
    ln_memory_init(&memory, NULL);
    ln_memory_plan plan;
    linnet_error error;
    CHECK(ln_plan_memory(&memory, b, n, &plan, &error) == LINNET_OK, "%s", what);
    CHECK(memory.bytes == 0, "%s: %zu bytes not given back", what, memory.bytes);
    uint64_t top = 0, naive = 0, bound = 0;
    for (int i = 0; i < n; ++i) {
        CHECK(b[i].offset % LN_ALIGNMENT == 0, "%s: buffer %d at %llu", what, i, (unsigned long long)b[i].offset);
        if (b[i].offset + rounded(b[i].size) > top) top = b[i].offset + rounded(b[i].size);
        naive += rounded(b[i].size);
        for (int j = 0; j < i; ++j) {
            const int together = b[i].first <= b[j].last && b[j].first <= b[i].last;
            const int meet = b[i].offset < b[j].offset + b[j].size && b[j].offset < b[i].offset + b[i].size;
            CHECK(!together || !meet, "%s: buffers %d and %d overlap", what, i, j);
        }
    }
    for (int step = 0; step < 1000; ++step) {
        uint64_t alive = 0;
        for (int i = 0; i < n; ++i)
            if (b[i].first <= step && step <= b[i].last) alive += rounded(b[i].size);
        if (alive > bound) bound = alive;
    }
    CHECK(plan.reached == top, "%s: %llu, really %llu", what, (unsigned long long)plan.reached,
          (unsigned long long)top);
    CHECK(plan.naive == naive, "%s", what);
    CHECK(plan.lower_bound == bound, "%s: %llu, really %llu", what, (unsigned long long)plan.lower_bound,
          (unsigned long long)bound);
    CHECK(plan.reached >= plan.lower_bound && plan.reached <= plan.naive, "%s", what);
    return plan;
}

int main(void) {
    check(NULL, 0, "nothing");

    /* A chain of any length needs only two neighbours at the same time. */
    ln_lifetime chain[50];
    for (int i = 0; i < 50; ++i) chain[i] = (ln_lifetime){.size = 1000, .first = i, .last = i + 1};
    ln_memory_plan plan = check(chain, 50, "chain");
    CHECK(plan.reached == 2 * 1024, "%llu", (unsigned long long)plan.reached);

    /* A long-lived small buffer must not split the space of the big ones. */
    ln_lifetime residual[] = {{64, 0, 9, 0},   {6400, 0, 1, 0}, {3200, 1, 2, 0},
                              {6400, 2, 3, 0}, {3200, 3, 4, 0}, {0, 0, 9, 0}};
    plan = check(residual, 6, "residual");
    CHECK(plan.reached == plan.lower_bound, "%llu of %llu", (unsigned long long)plan.reached,
          (unsigned long long)plan.lower_bound);

    double worst = 0, sum = 0;
    for (int round = 0; round < 60; ++round) {
        ln_lifetime random[120];
        const int n = 2 + (int)random_below(118);
        for (int i = 0; i < n; ++i) {
            const int first = (int)random_below(200);
            random[i] = (ln_lifetime){.size = random_below(4) ? random_below(5000) : random_below(200000),
                                      .first = first,
                                      .last = first + (int)random_below(random_below(5) ? 6 : 60)};
        }
        plan = check(random, n, "random");
        const double over = plan.lower_bound ? (double)plan.reached / (double)plan.lower_bound : 1;
        if (over > worst) worst = over;
        sum += over;
    }
    CHECK(sum / 60 < 1.03, "mean %f", sum / 60);
    CHECK(worst < 1.25, "worst %f", worst);

    ln_lifetime huge[] = {{UINT64_MAX - 5, 0, 1, 0}};
    ln_memory memory;
    ln_memory_init(&memory, NULL);
    linnet_error error;
    CHECK(ln_plan_memory(&memory, huge, 1, &plan, &error) == LINNET_TOO_LARGE, "overflow");
    ln_lifetime many[6]; /* each is small enough, but their sum overflows */
    for (int i = 0; i < 6; ++i) many[i] = (ln_lifetime){.size = (uint64_t)1 << 62, .first = i, .last = i};
    CHECK(ln_plan_memory(&memory, many, 6, &plan, &error) == LINNET_TOO_LARGE, "overflow of the sum");
    printf("planner: reached / lower bound: mean %.4f, worst %.4f\n", sum / 60, worst);
    return failures != 0;
}
