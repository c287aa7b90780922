/* step_times.h - the median time of each step over several traced runs. One interruption by another program changes a
 * mean, and then a step that takes little looks like the slowest one. It does not change a median. */
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

/* Makes room for `room` runs. Returns false if there is no memory; step_times_free is allowed then too. */
bool step_times_start(step_times *t, int steps, int room);
void step_times_free(step_times *t);
/* Takes what a session has measured so far of step i, once after each run. A run that left the step out adds no time.
 */
void step_times_add(step_times *t, int i, const linnet_step_info *info);
/* Replaces the times of step i by those of one run: the medians. A step that never ran keeps runs = 0. */
void step_times_put(step_times *t, int i, linnet_step_info *info);
/* Returns the nanoseconds of a step in a run: those that a device measured, if it did. A device runs steps after they
 * have been submitted, so its time is also in the waits: `left` of it is subtracted from them. */
double step_times_own(const linnet_step_info *info, double *left);
/* Returns the sum of the steps' own times. Sets `left` to the device time that is in the waits. */
double step_times_sum(const linnet_step_info *steps, int count, double *left);

#endif
