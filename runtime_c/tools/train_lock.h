/* train_lock.h - the lock of a checkpoint. */
#ifndef LN_TOOLS_TRAIN_LOCK_H
#define LN_TOOLS_TRAIN_LOCK_H

#include "train.h"

/* Locks --checkpoint against other processes of linnet-train. Fails if another one has the lock, and names it. */
int trainer_lock(trainer *t);
void trainer_unlock(trainer *t);

#endif
