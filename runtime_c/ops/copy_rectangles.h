/* copy_rectangles.h - runs the rectangles of a planned copy. */
#ifndef LN_OPS_COPY_RECTANGLES_H
#define LN_OPS_COPY_RECTANGLES_H

#include "ops/copy_plan.h"

/* target[p][q] = source[q][p] for p < rows, q < columns; strides in bytes. */
typedef void (*ln_copy_transpose)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows,
                                  int64_t columns, size_t size);
/* The same, element by element. */
void ln_copy_corner(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows, int64_t columns,
                    size_t size);
/* Runs items [begin, end) of the plan in call->state. */
void ln_copy_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, ln_copy_transpose transpose);

#endif
