/* device_steps.h - the steps of devices. */
#ifndef LN_PLAN_COMPILE_DEVICE_STEPS_H
#define LN_PLAN_COMPILE_DEVICE_STEPS_H

#include "plan/compile/program.h"

/* Turns a claim into a step. The call of its first node is already set. */
linnet_status ln_lower_claim(ln_work *w, ln_program *program, const ln_work_claim *claim, ln_step *step);
/* Notes that step number `step` downloads the value. */
void ln_note_download(ln_work *w, int32_t value, int32_t step);
/* Fills program->moves. */
linnet_status ln_lower_moves(ln_work *w, ln_program *program);

#endif
