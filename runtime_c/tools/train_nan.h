/* train_nan.h - finds where NaN and infinity come from, after a training step gave a loss that is not finite. */
#ifndef LN_TOOLS_TRAIN_NAN_H
#define LN_TOOLS_TRAIN_NAN_H

#include "train.h"

/* Finds the first step of the last run whose result has NaN (or infinity, if `infinite` is set and there is no NaN),
 * and writes a text about this step. The session must count special values. Returns false if there is no such step. */
bool nan_find(const program *p, bool infinite, char *text, size_t size);
/* Finds the first example of the last run that contains NaN or infinity, and writes a text about it. `rows` has the
 * numbers of the examples in the data. Returns false if there is no such example. */
bool nan_in_inputs(const program *p, const long long *rows, char *text, size_t size);
/* Stores the name of the first variable that contains NaN or infinity. `room` is a buffer that is large enough for any
 * variable. Returns false if there is no such variable. */
bool nan_in_variables(const linnet_model *model, linnet_store *store, void *room, char *name, size_t size);

#endif
