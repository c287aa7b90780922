/* copy_rectangles.h - runs the rectangles of a planned copy. */
#ifndef LN_OPS_COPY_RECTANGLES_H
#define LN_OPS_COPY_RECTANGLES_H

#include "ops/copy_plan.h"

/* Transposes a block: target[p][q] = source[q][p] for p < rows and q < columns. Strides are in bytes; `size` is that of
 * an element. */
typedef void (*ln_copy_transpose)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows,
                                  int64_t columns, size_t size);
/* An ln_copy_transpose in plain C, for elements of any size and for the edges of larger blocks. */
void ln_copy_corner(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows, int64_t columns,
                    size_t size);
/* Runs items [begin, end) of the plan in call->state, which is not `flat`. Uses `transpose` for rectangles of the shape
 * LN_COPY_TRANSPOSE. */
void ln_copy_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, ln_copy_transpose transpose);

#endif
