/* plan_create.h - makes plans, and makes them again. */
#ifndef LN_PLAN_PLAN_CREATE_H
#define LN_PLAN_PLAN_CREATE_H

#include "plan/plan.h"

/* Makes the plan again without the steps that devices have refused while a session was created. Errors: those of
 * linnet_plan_create. */
linnet_status ln_plan_again(const linnet_plan *plan, struct ln_refusals *refusals, linnet_plan **out,
                            linnet_error *error);
linnet_plan *ln_plan_retain(linnet_plan *plan);

#endif
