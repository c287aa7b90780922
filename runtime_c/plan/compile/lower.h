/* lower.h - builds the steps of a program. */
#ifndef LN_PLAN_COMPILE_LOWER_H
#define LN_PLAN_COMPILE_LOWER_H

#include "plan/compile/program.h"

/* Builds the steps of all ready nodes. */
linnet_status ln_lower_steps(ln_work *w);

#endif
