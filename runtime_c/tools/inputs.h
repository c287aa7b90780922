/* inputs.h - inputs that the user did not give: open batches, random values, and what to say about open shapes. */
#ifndef LN_TOOLS_INPUTS_H
#define LN_TOOLS_INPUTS_H

#include "options.h"

/* For each input whose only open dimension is the batch, adds a shape and prints it. Its batch is that of the given
 * inputs, or otherwise 1. */
void tool_take_batches(tool_options *options, const linnet_model *model, int signature, linnet_plan_config *config);
/* Prints why planning failed and, for an input of open shape, a shape that is likely to work. Returns TOOL_FAILED. */
int tool_not_planned(const tool_options *options, const linnet_model *model, int signature, const linnet_error *error);
/* Writes seeded random values: floats in [-1, 1), any value for bytes and quantized types, and 0 or 1 for other
 * integers, which may be indices. */
void tool_random(void *data, const linnet_tensor_info *info, unsigned long long *state);

#endif
