/* launch.h - builds launches. A `build` function calls lg_add; then the functions that define names, pass arguments and
 * set the range; then lg_put_file or lg_put for the text of the kernel. Arguments are passed in the order of the
 * kernel's parameters. These functions do not fail: lack of memory sets `failed` in the plan or in a text. */
#ifndef LG_LAUNCH_H
#define LG_LAUNCH_H

#include "kernels_gpu/common/gpu.h"

/* Frees the launches and packed data of a plan, which is then empty. */
void lg_plan_free(lg_plan *plan);
/* Adds a launch of a kernel of this name to the plan, with an empty text, the range 1 and groups of 64 work items.
 * Returns NULL if out of memory. The pointer is valid until the next launch is added. */
lg_launch *lg_add(lg_plan *plan, const char *kernel);
/* Set the number of work items that are needed, and the number of work items of a group. */
void lg_range(lg_launch *launch, int64_t x, int64_t y, int64_t z);
void lg_local(lg_launch *launch, size_t x, size_t y, size_t z);
/* Pass an argument: an operand, scratch or packed memory; an integer, of which the kernel gets the low 32 bits (`can`
 * has checked that it fits); a real; or a tensor map. */
void lg_pass(lg_launch *launch, lg_kind kind, int index);
void lg_pass_integer(lg_launch *launch, int64_t value);
void lg_pass_real(lg_launch *launch, double value);
void lg_pass_map(lg_launch *launch, const lg_tensor_map *map);
/* Passes an integer as a parameter of LG_EXTRAS, and returns the number k of the parameter, whose name is lg_n<k>. A
 * value that is passed is not part of the text, so steps with other values need no further program. Call this after the
 * kernel's own arguments are passed. */
int lg_number(lg_launch *launch, int64_t value);
/* Does the same for a real. The name of the parameter is lg_r<k>. */
int lg_real_number(lg_launch *launch, double value);
/* Writes "#define NAME value" to the text. */
void lg_define(lg_launch *launch, const char *name, int64_t value);
/* Defines NAME_T, the type in memory; NAME_GET(p, i), which reads an element as a float or an integer; and NAME_PUT(p,
 * i, value), which stores one. */
void lg_define_operand(lg_launch *launch, const char *name, int dtype);
/* Appends bytes to packed memory, aligned to 16, and returns their offset. */
size_t lg_pack(lg_plan *plan, const void *bytes, size_t size);

/* Reserves two numbers in packed memory, where a kernel reports an index that is out of range (checks.h). `size` is the
 * size of the axis, for the message. The caller must pass packed memory and the offset plan->status to the kernel. */
void lg_check_indices(lg_plan *plan, int64_t size);

/* Appends the text of a file of kernels_gpu/common, by its name without the ending. */
void lg_put_file(lg_launch *launch, const char *name);

#endif
