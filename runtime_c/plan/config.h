/* config.h - checks and copies the config of a plan. */
#ifndef LN_PLAN_CONFIG_H
#define LN_PLAN_CONFIG_H

#include "plan/plan.h"

/* Fails with INVALID_ARGUMENT if a value is out of range. */
linnet_status ln_check_plan_config(const linnet_plan_config *config, linnet_error *error);
/* Copies the config and all that it points to, except the devices and the allocator; NULL without memory. */
const linnet_plan_config *ln_copy_plan_config(ln_pool *pool, const linnet_plan_config *from);

#endif
