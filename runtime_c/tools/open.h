/* open.h - opens the model of a tool. */
#ifndef LN_TOOLS_OPEN_H
#define LN_TOOLS_OPEN_H

#include "options.h"

/* Loads the user ops of a shared library into the config. `path` may be NULL. Returns false after printing an error. */
bool tool_user_ops(const char *tool, const char *path, linnet_model_config *config);
/* Tells whether the file is a checkpoint, which cannot be run, and prints an error if so. */
bool tool_is_checkpoint(const char *tool, const char *path, const linnet_model *model);
/* Prints that the model has no signature of this name, and which signatures it has. Returns TOOL_FAILED. */
int tool_no_signature(const tool_options *options, const linnet_model *model, const char *name, const char *option);
/* Opens the model, fills the plan's config from the options, and stores the number of the signature. Returns TOOL_OK,
 * or another exit status after printing the error. */
int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature);

#endif
