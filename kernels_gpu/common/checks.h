/* checks.h - claims whose kernels look for an index that is out of range. They write it to packed memory. */
#ifndef LG_CHECKS_H
#define LG_CHECKS_H

#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/gpu.h"

typedef struct lg_index_check {
    struct lg_index_check *next;
    linnet_span status; /* of two i32 in packed memory: 1 and the index, if one is out of range */
    int32_t *found;     /* what the backend has read of them after a run */
    int64_t size;       /* of the axis */
    char name[80];      /* of the step */
} lg_index_check;

/* Adds the check of a claim to those of a queue. `found` is memory of the host for two numbers. */
void lg_check_add(lg_index_check **list, lg_index_check *check, int32_t *found, const linnet_host *host,
                  const linnet_work *work, const lg_plan *plan);
/* Removes a check that may be in the list. */
void lg_check_remove(lg_index_check **list, const lg_index_check *check);
/* The first claim that has found an index, after its work has ended; NULL: none has. Its next run begins anew; the
 * caller clears the numbers on the device. */
const lg_index_check *lg_check_take(lg_index_check *list);
/* The failure of such a claim. */
int lg_check_failure(lg_failures *failures, const lg_index_check *check);

#endif
