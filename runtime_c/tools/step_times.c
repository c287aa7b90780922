/* step_times.c - collects the times of steps run by run, and computes their medians.
 * A session only keeps sums over its runs, so the time of a run is the difference between two readings. */
#include "step_times.h"

#include <stdlib.h>
#include <string.h>

bool step_times_start(step_times *t, int steps, int room) {
    *t = (step_times){.steps = steps, .room = room};
    t->ns = calloc((size_t)steps * 2 * (size_t)room + 1, sizeof *t->ns);
    t->before = calloc((size_t)steps * 3 + 1, sizeof *t->before);
    t->counts = calloc((size_t)steps + 1, sizeof *t->counts);
    return t->ns && t->before && t->counts;
}

void step_times_free(step_times *t) {
    free(t->ns);
    free(t->before);
    free(t->counts);
    *t = (step_times){0};
}

void step_times_add(step_times *t, int i, const linnet_step_info *info) {
    uint64_t *before = t->before + 3 * (size_t)i, *ns = t->ns + 2 * (size_t)i * (size_t)t->room;
    if (info->runs > before[0] && t->counts[i] < t->room) {
        const int run = t->counts[i]++;
        ns[run] = info->total_ns - before[1];
        ns[t->room + run] = info->device_ns - before[2];
    }
    before[0] = info->runs;
    before[1] = info->total_ns;
    before[2] = info->device_ns;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_size);
    return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

void step_times_put(step_times *t, int i, linnet_step_info *info) {
    uint64_t *ns = t->ns + 2 * (size_t)i * (size_t)t->room;
    info->runs = t->counts[i] > 0;
    info->total_ns = t->counts[i] > 0 ? median(ns, t->counts[i]) : 0;
    info->device_ns = t->counts[i] > 0 ? median(ns + t->room, t->counts[i]) : 0;
}

double step_times_own(const linnet_step_info *info, double *left) {
    const double ns = (double)(info->device_ns > 0 ? info->device_ns : info->total_ns);
    const bool waits = info->kernel && strcmp(info->kernel, "wait") == 0;
    const double off = !waits ? 0 : ns < *left ? ns : *left;
    *left -= off;
    return ns - off;
}

double step_times_sum(const linnet_step_info *steps, int count, double *left) {
    double device = 0, sum = 0;
    for (int i = 0; i < count; i++) device += (double)steps[i].device_ns;
    *left = device;
    for (int i = 0; i < count; i++) sum += step_times_own(&steps[i], left);
    *left = device;
    return sum;
}
