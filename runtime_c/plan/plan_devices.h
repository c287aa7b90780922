/* plan_devices.h - reports the memory that a plan needs on devices, and the steps that no device took. */
#ifndef LN_PLAN_PLAN_DEVICES_H
#define LN_PLAN_PLAN_DEVICES_H

#include "plan/plan.h"

/* Fails with TOO_LARGE if the plan needs more than `most` bytes on a device; 0: no limit. */
linnet_status ln_check_devices(const linnet_plan *plan, uint64_t most, linnet_error *error);
/* Logs how many steps, in bodies too, run on the CPU because no device took them. */
void ln_report_fallback(const linnet_plan *plan);

#endif
