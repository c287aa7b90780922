/* test_step_times.c - the medians of linnet-bench: an interruption, a step that a run leaves out, times on a device. */
#include "tools/step_times.c"

#include "check.h"

static linnet_step_info reading(uint64_t runs, uint64_t total, uint64_t device) {
    return (linnet_step_info){
        .struct_size = sizeof(linnet_step_info), .runs = runs, .total_ns = total, .device_ns = device};
}

/* Step 0 is interrupted in the third run. Step 1 runs in two of five runs, on a device. Step 2 never runs. */
static void test_medians(void) {
    static const uint64_t totals[2][5] = {{10, 22, 90022, 90033, 90045}, {100, 100, 100, 300, 300}};
    static const uint64_t runs[2][5] = {{1, 2, 3, 4, 5}, {1, 1, 1, 2, 2}};
    step_times t;
    CHECK(step_times_start(&t, 3, 5));
    for (int run = 0; run < 5; run++)
        for (int i = 0; i < 3; i++) {
            const linnet_step_info info =
                i < 2 ? reading(runs[i][run], totals[i][run], i * 2 * totals[i][run]) : reading(0, 0, 0);
            step_times_add(&t, i, &info);
        }
    linnet_step_info steps[3] = {{.runs = 5}, {.runs = 2}, {.runs = 9}};
    for (int i = 0; i < 3; i++) step_times_put(&t, i, &steps[i]);
    CHECK(steps[0].runs == 1 && steps[0].total_ns == 12 && steps[0].device_ns == 0);
    CHECK(steps[1].runs == 1 && steps[1].total_ns == 150 && steps[1].device_ns == 300);
    CHECK(steps[2].runs == 0 && steps[2].total_ns == 0);
    step_times_free(&t);
}

/* The host waits 70 for a device that computed for 50: together they took 12 + 50 + 20. */
static void test_waits(void) {
    const linnet_step_info steps[3] = {
        {.runs = 1, .total_ns = 12, .kernel = "conv"},
        {.runs = 1, .total_ns = 3, .device_ns = 50, .kernel = "device"},
        {.runs = 1, .total_ns = 70, .kernel = "wait"},
    };
    double left;
    CHECK(step_times_sum(steps, 3, &left) == 82 && left == 50);
    CHECK(step_times_own(&steps[2], &left) == 20 && left == 0);
}

int main(void) {
    test_medians();
    test_waits();
    return check_end("step_times");
}
