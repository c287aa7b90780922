/* checks.h - claims (steps that a device takes over) whose kernels check indices. A kernel that finds an index out of
 * range writes the index to packed memory; the backend reads this memory after each run. */
#ifndef LG_CHECKS_H
#define LG_CHECKS_H

#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/gpu.h"

/* The check of one claim. */
typedef struct lg_index_check {
    struct lg_index_check *next;
    linnet_span status; /* two i32 in packed memory: 1 and the index, if an index is out of range; otherwise 0 */
    int32_t *found;     /* the copy of these two numbers that the backend has read after a run */
    int64_t size;       /* size of the axis, for the message */
    char name[80];      /* name of the step, for the message */
} lg_index_check;

/* Fills *check for a claim whose plan has `checks`, and adds it to the list of a queue. `found` is memory of the host
 * for two numbers. `check` and `found` must stay valid until lg_check_remove. */
void lg_check_add(lg_index_check **list, lg_index_check *check, int32_t *found, const linnet_host *host,
                  const linnet_work *work, const lg_plan *plan);
/* Removes a check that may be in the list. */
void lg_check_remove(lg_index_check **list, const lg_index_check *check);
/* Returns the first check that has found an index out of range, and clears its result on the host; NULL if there is
 * none. Call this when the work has ended and `found` has been read. The caller clears the two numbers on the device.
 */
const lg_index_check *lg_check_take(lg_index_check *list);
/* Stores the text of the failure that the check has found, and returns the failure's code. */
int lg_check_failure(lg_failures *failures, const lg_index_check *check);

#endif
