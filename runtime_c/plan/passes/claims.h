/* claims.h - the part of planning that makes steps and memory of devices out of claims (claims.c). Plans without
 * devices do not use it. */
#ifndef LN_CLAIMS_H
#define LN_CLAIMS_H

#include "plan/build/program.h"

/* Sets the offsets of all buffers on the device, and the sizes of its allocations. */
linnet_status ln_place_on_device(ln_work *w, ln_program *program, uint8_t place);
/* Turns a claim into a step. The call of its first node is already set. */
linnet_status ln_lower_claim(ln_work *w, ln_program *program, const ln_work_claim *claim, ln_step *step);
/* Fills program->moves. */
linnet_status ln_lower_moves(ln_work *w, ln_program *program);

#endif
