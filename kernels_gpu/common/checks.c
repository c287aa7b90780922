/* checks.c - claims whose kernels look for an index that is out of range. */
#include "kernels_gpu/common/checks.h"

#include <stdio.h>

void lg_check_add(lg_index_check **list, lg_index_check *check, int32_t *found, const linnet_host *host,
                  const linnet_work *work, const lg_plan *plan) {
    found[0] = found[1] = 0;
    check->found = found;
    check->status = work->packed;
    check->status.offset += plan->status;
    check->size = plan->check_size;
    snprintf(check->name, sizeof check->name, "%s", host->step_name(work->steps[0]));
    check->next = *list;
    *list = check;
}

void lg_check_remove(lg_index_check **list, const lg_index_check *check) {
    for (; *list != NULL; list = &(*list)->next)
        if (*list == check) {
            *list = check->next;
            return;
        }
}

const lg_index_check *lg_check_take(lg_index_check *list) {
    while (list != NULL && list->found[0] == 0) list = list->next;
    if (list != NULL) list->found[0] = 0;
    return list;
}

int lg_check_failure(lg_failures *failures, const lg_index_check *check) {
    return lg_failure(failures, "'%s': the index %lld is out of range for an axis of size %lld", check->name,
                      (long long)check->found[1], (long long)check->size);
}
