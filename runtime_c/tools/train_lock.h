/* train_lock.h - the lock of a checkpoint. */
#ifndef LN_TOOLS_TRAIN_LOCK_H
#define LN_TOOLS_TRAIN_LOCK_H

#include "train.h"

/* Locks --checkpoint against other processes of linnet-train. If another process has the lock, prints an error that
 * names this process, and returns an exit status that is not TOOL_OK. */
int trainer_lock(trainer *t);
void trainer_unlock(trainer *t);

#endif
