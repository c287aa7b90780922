/* lines.h - what kernels share that combine the elements of lines (reduce, softmax, norms, cumsum, top_k): whether a
 * line is computed by a work item or by a work group, and their ranges. lines.inc is the part in the kernels. */
#ifndef LG_LINES_H
#define LG_LINES_H

#include "kernels_gpu/common/gpu.h"

/* Whether a line of `length` elements is worth a work group with local memory: there are few lines, so that a work item
 * for each leaves the machine idle. On a processor, the work items of a group run one after another. `name` is the
 * kernel's, which the machine may prefer. */
bool lg_lines_in_groups(const lg_step *s, const char *name, int64_t lines, int64_t length);
/* The range of a kernel with a work item per line. */
void lg_range_items(lg_launch *launch, const lg_step *s, int64_t lines);
/* Defines GROUP, the work items of a line's group, or 1, and sets the range. */
void lg_range_lines(lg_launch *launch, const lg_step *s, int64_t lines, int64_t length, bool grouped);
/* Whether operands and the result have less than 2^31 elements, and operand 0 and the result have any. */
bool lg_lines_fit(const lg_step *s);

#endif
