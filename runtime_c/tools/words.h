/* words.h - steps and tensors as text that fits into a line. */
#ifndef LN_TOOLS_WORDS_H
#define LN_TOOLS_WORDS_H

#include "linnet.h"

/* Returns the name of a step and of the steps fused into it. If the name has more than `width` characters,
 * "..." replaces its middle. */
const char *tool_step_name(const linnet_step_info *step, size_t width, char *text, size_t size);
/* Returns a text such as "f32 [1, 3, 224, 224]". */
const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size);

#endif
