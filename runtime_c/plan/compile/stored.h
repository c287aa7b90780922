/* stored.h - constants that the file holds packed. */
#ifndef LN_PLAN_COMPILE_STORED_H
#define LN_PLAN_COMPILE_STORED_H

#include "plan/compile/program.h"

/* Returns the constants of the step, packed in the model's file and not damaged; -1 if there are none. Its call must be
 * configured. */
int32_t ln_stored_find(const linnet_model *model, const ln_step *step);
/* Returns step number *i among the steps (also of bodies) that pack constants with a key, and writes the key. Returns
 * NULL if there are fewer steps. */
const ln_step *ln_stored_step(const ln_program *program, int *i, char key[LN_STORED_KEY]);

#endif
