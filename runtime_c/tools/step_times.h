/* step_times.h - the median time of each step over several traced runs. If another program interrupts one run, a mean
 * changes so much that a short step may look like the slowest one. A median does not change. */
#ifndef LINNET_TOOLS_STEP_TIMES_H
#define LINNET_TOOLS_STEP_TIMES_H

#include <stdbool.h>

#include "linnet.h"

typedef struct step_times {
    uint64_t *ns;     /* per step: `room` times, then as many times on a device */
    uint64_t *before; /* per step: runs, total_ns and device_ns of the last reading */
    int *counts;      /* per step: number of times */
    int steps, room;
} step_times;

/* Makes room for the times of `steps` steps in `room` runs. Returns false if out of memory. Call step_times_free in
 * both cases. */
bool step_times_start(step_times *t, int steps, int room);
void step_times_free(step_times *t);
/* Adds the time of step i in the last run. `info` has the session's sums over all runs, so call this once after each
 * run. A run that skipped the step adds no time. */
void step_times_add(step_times *t, int i, const linnet_step_info *info);
/* Replaces the times in `info` by the medians, as if there had been one run. A step that never ran still has runs = 0.
 */
void step_times_put(step_times *t, int i, linnet_step_info *info);
/* Returns the nanoseconds of a step in one run: those that a device has measured, if it has. A device runs steps after
 * they are submitted, so its time is also part of the waits. *left is the device time that must still be subtracted
 * from waits. */
double step_times_own(const linnet_step_info *info, double *left);
/* Returns the sum of the steps' own times. Sets `left` to the device time that is in the waits. */
double step_times_sum(const linnet_step_info *steps, int count, double *left);

#endif
