/* train_keep.h - checkpoints of a training. */
#ifndef LN_TOOLS_TRAIN_KEEP_H
#define LN_TOOLS_TRAIN_KEEP_H

#include "train.h"

/* Saves the step to --checkpoint, unless it is saved, and keeps the last --keep checkpoints. */
int trainer_save(trainer *t);
/* Saves to FILE.best if the value of --best among the means of an evaluation is the best so far. */
int trainer_keep_best(trainer *t, const double *values);
/* Fails if --checkpoint could not be written at the end. Finds the best value of an earlier part of this training. */
int trainer_check_checkpoint(trainer *t);

#endif
