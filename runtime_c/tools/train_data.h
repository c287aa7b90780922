/* train_data.h - the examples of one signature. */
#ifndef LN_TOOLS_TRAIN_DATA_H
#define LN_TOOLS_TRAIN_DATA_H

#include "train.h"

/* Finds the array of every input and checks that the array fits the signature. `option` is the option's name for
 * errors. Returns TOOL_OK, or another exit status after printing the error. Call data_close in both cases. */
int data_open(dataset *d, const char *option, const data_options *options, const linnet_model *model, int signature);
void data_close(dataset *d);
/* Returns the batch size that the signature fixes, or 0. */
long long data_fixed_batch(const dataset *d);
/* Stores the shapes of the inputs for this batch size. Returns the number of shapes. */
int data_shapes(const dataset *d, long long batch, linnet_shape shapes[MOST_INPUTS]);
/* Copies example rows[i] into row i of the session's inputs, for i in [0, count). Returns TOOL_OK, or another exit
 * status after printing the error. */
int data_fill(const dataset *d, const linnet_plan *plan, linnet_session *session, const long long *rows,
              long long count);

#endif
