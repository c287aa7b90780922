/* describe.h - describes the steps of a plan. */
#ifndef LN_PLAN_DESCRIBE_H
#define LN_PLAN_DESCRIBE_H

#include "plan/plan.h"

void ln_step_describe(const linnet_plan *plan, const ln_step *step, linnet_step_info *info);

#endif
