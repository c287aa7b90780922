/* train_nan.h - finds where NaN and infinity come from. */
#ifndef LN_TOOLS_TRAIN_NAN_H
#define LN_TOOLS_TRAIN_NAN_H

#include "train.h"

/* Finds the first step of the last run whose result has NaN (or infinity, if `infinite` is set and there is no NaN).
 * Returns false if there is none. */
bool nan_find(const program *p, bool infinite, char *text, size_t size);
/* Finds the first example of the last run that contains NaN or infinity. `rows` has the examples' numbers in the
 * data. */
bool nan_in_inputs(const program *p, const long long *rows, char *text, size_t size);
/* Stores the name of the first variable that holds NaN or infinity. `room` is a buffer for the largest variable. */
bool nan_in_variables(const linnet_model *model, linnet_store *store, void *room, char *name, size_t size);

#endif
