/* train_keep.h - saves checkpoints of a training. The functions return TOOL_OK, or another exit status after printing
 * the error. */
#ifndef LN_TOOLS_TRAIN_KEEP_H
#define LN_TOOLS_TRAIN_KEEP_H

#include "train.h"

/* Saves the state of the current step to --checkpoint, unless this step was saved already. Keeps only the last --keep
 * checkpoints. */
int trainer_save(trainer *t);
/* Saves a checkpoint to FILE.best if an evaluation gave the best value so far of the output that --best names. `values`
 * are the means of all outputs of the evaluation. */
int trainer_keep_best(trainer *t, const double *values);
/* Fails if --checkpoint cannot be written, so that this is known before the training. Reads the best value of an
 * earlier part of the same training. */
int trainer_check_checkpoint(trainer *t);

#endif
