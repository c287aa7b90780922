/* body_steps.h - programs for the bodies of a loop or a branch. */
#ifndef LN_PLAN_COMPILE_BODY_STEPS_H
#define LN_PLAN_COMPILE_BODY_STEPS_H

#include "plan/compile/program.h"

/* Builds programs for the bodies of a loop or a branch, and sizes the scratch that they run in. */
linnet_status ln_body_lower(ln_work *w, ln_program *program, const ln_work_node *node, ln_step *step);
/* Returns the bytes that a body needs for its inputs and outputs, its arena and its scratch. */
uint64_t ln_body_size(const ln_program *body, int threads);

#endif
