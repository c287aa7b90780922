/* train_loop.h - the steps and evaluations of a training. */
#ifndef LN_TOOLS_TRAIN_LOOP_H
#define LN_TOOLS_TRAIN_LOOP_H

#include "train.h"

/* Runs one step. Steps count from 0, and the number decides which examples the step takes. Returns TOOL_OK, or prints
 * the error. */
int trainer_step(trainer *t, long long step);
/* Checks that the loss of the last step is finite and, if requested, that the variables are finite. Otherwise prints
 * the error and the op that caused it. */
int trainer_check(trainer *t, bool variables);
int trainer_eval(trainer *t);
void trainer_report(trainer *t);

#endif
