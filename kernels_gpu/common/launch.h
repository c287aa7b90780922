/* launch.h - builds launches: definitions, arguments, ranges. */
#ifndef LG_LAUNCH_H
#define LG_LAUNCH_H

#include "kernels_gpu/common/gpu.h"

void lg_plan_free(lg_plan *plan);
/* A further launch of the kernel; NULL if there is no memory. Its text begins with the definitions that follow from the
 * dtypes, which the functions below write. The pointer is valid until the next launch is added. */
lg_launch *lg_add(lg_plan *plan, const char *kernel);
void lg_range(lg_launch *launch, int64_t x, int64_t y, int64_t z);
void lg_local(lg_launch *launch, size_t x, size_t y, size_t z);
void lg_pass(lg_launch *launch, lg_kind kind, int index); /* an operand, scratch or packed memory */
void lg_pass_integer(lg_launch *launch, int64_t value);   /* the low 32 bits: `can` has seen to it that it fits */
void lg_pass_real(lg_launch *launch, double value);
void lg_pass_map(lg_launch *launch, const lg_tensor_map *map);
/* Passes an integer as a parameter of LG_EXTRAS and returns its number k: its name is lg_n<k>. So the text is the same
 * for other values. After the kernel's own arguments. */
int lg_number(lg_launch *launch, int64_t value);
int lg_real_number(lg_launch *launch, double value); /* likewise a real, whose name is lg_r<k> */
/* #define NAME value */
void lg_define(lg_launch *launch, const char *name, int64_t value);
/* #define NAME_T type, NAME_GET(p, i), which gives a float or an integer, and NAME_PUT(p, i, value). */
void lg_define_operand(lg_launch *launch, const char *name, int dtype);
/* Appends bytes to packed memory, aligned to 16; returns their offset. */
size_t lg_pack(lg_plan *plan, const void *bytes, size_t size);

/* Reserves the two numbers by which a kernel says that an index is out of range. It passes nothing. */
void lg_check_indices(lg_plan *plan, int64_t size);

/* Appends the text of a file of kernels_gpu/common, by its name without the ending. */
void lg_put_file(lg_launch *launch, const char *name);

#endif
