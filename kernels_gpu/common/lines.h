/* lines.h - shared by kernels that combine the elements of each line of a tensor (reduce, softmax, norms, cumsum,
 * top_k). A line is the elements that are combined with each other, such as those along the axis of a softmax. This
 * file chooses whether a work item or a work group computes a line, and sets the range. lines.inc has the kernels'
 * part. */
#ifndef LG_LINES_H
#define LG_LINES_H

#include "kernels_gpu/common/gpu.h"

/* Tells whether a work group should compute each line. This pays if there are few lines and they are long, because one
 * work item per line would then leave most of the machine idle. It also pays if the lines are very long. It never pays
 * on a processor, where the work items of a group run one after another. `name` is the name of the kernel; tests can
 * force the choice by lg_machine.prefer. */
bool lg_lines_in_groups(const lg_step *s, const char *name, int64_t lines, int64_t length);
/* Sets the range of a kernel that has a work item per line. */
void lg_range_items(lg_launch *launch, const lg_step *s, int64_t lines);
/* Defines GROUP, the number of work items per line (1 unless `grouped`), and sets the range. */
void lg_range_lines(lg_launch *launch, const lg_step *s, int64_t lines, int64_t length, bool grouped);
/* Tells whether all operands and the result have fewer than 2^31 elements, and operand 0 and the result are not empty.
 */
bool lg_lines_fit(const lg_step *s);

#endif
