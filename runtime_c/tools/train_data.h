/* train_data.h - the examples of one signature. */
#ifndef LN_TOOLS_TRAIN_DATA_H
#define LN_TOOLS_TRAIN_DATA_H

#include "train.h"

/* Finds the array of every input and checks it against the signature. Returns TOOL_OK, or prints the error. */
int data_open(dataset *d, const char *option, const data_options *options, const linnet_model *model, int signature);
void data_close(dataset *d);
/* Returns the batch size that the signature fixes, or 0. */
long long data_fixed_batch(const dataset *d);
/* Stores the shapes of a batch. Returns how many there are. */
int data_shapes(const dataset *d, long long batch, linnet_shape shapes[MOST_INPUTS]);
/* Copies example `rows[i]` into row i of the session's inputs. */
int data_fill(const dataset *d, const linnet_plan *plan, linnet_session *session, const long long *rows,
              long long count);

#endif
