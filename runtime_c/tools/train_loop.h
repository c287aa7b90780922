/* train_loop.h - the steps and evaluations of a training. */
#ifndef LN_TOOLS_TRAIN_LOOP_H
#define LN_TOOLS_TRAIN_LOOP_H

#include "train.h"

/* Runs the step with this number, which counts from 0 and decides which examples the step takes. Returns TOOL_OK, or
 * another exit status after printing the error; so do the next two functions. */
int trainer_step(trainer *t, long long step);
/* Checks that the loss of the last step is finite and, if requested, that the variables are finite. Otherwise prints
 * the error and the op that caused it. */
int trainer_check(trainer *t, bool variables);
/* Evaluates all examples of --eval, and prints the means. */
int trainer_eval(trainer *t);
/* Prints a line about the steps since the last line. */
void trainer_report(trainer *t);

#endif
