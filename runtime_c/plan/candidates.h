/* candidates.h - the kernels that could run a step. */
#ifndef LN_PLAN_CANDIDATES_H
#define LN_PLAN_CANDIDATES_H

#include "plan/plan.h"

/* Logs for how many steps the tuning file names a kernel that cannot run them. */
void ln_report_tuning(const linnet_plan *plan);

#endif
