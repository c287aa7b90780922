/* train_setup.h - opens a training, and closes it. */
#ifndef LN_TOOLS_TRAIN_SETUP_H
#define LN_TOOLS_TRAIN_SETUP_H

#include "train.h"

/* Opens model, data and programs within the memory limit, and continues from the checkpoint if there is one. Returns
 * TOOL_OK, or another exit status after printing the error. Call trainer_close in both cases. */
int trainer_open(trainer *t, const train_options *o);
void trainer_close(trainer *t);
/* Returns the options of the programs, without the signature. */
program_options trainer_options(const trainer *t);
/* Creates the sessions of all planned programs. `count_special` makes them count NaN and infinity per step. */
linnet_status trainer_start(trainer *t, bool count_special, linnet_error *error);

#endif
