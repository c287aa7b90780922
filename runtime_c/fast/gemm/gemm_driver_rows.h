/* gemm_driver_rows.h - finds the rows of A, or copies them. */
#ifndef LN_FAST_GEMM_GEMM_DRIVER_ROWS_H
#define LN_FAST_GEMM_GEMM_DRIVER_ROWS_H

#include "fast/gemm/gemm_state.h"

/* ln_gemm_rows finds rows [first, first + count) of A where they are in the input, and writes pointers to their
 * segments: for each tile, [segment][row of the tile]. A segment that is a whole line of the kernel may lie partly in
 * the padding. Its elements are then put together in `copy`, and the pointer points there. ln_gemm_gather copies the
 * same rows to `out` instead, in the kernel's dtype, padded with zeros to g->k.padded elements and g->a.copy_stride
 * bytes apart. `base` is the start of the product's A, and `part` the part of K. */
void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, char *copy,
                  const void **rows);
void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, void *out);

/* Copies rows of `bytes` bytes; strides are in bytes. Micro-kernels use it for tiles at the edge, which they compute as
   whole tiles on the stack. */
void ln_gemm_copy_rows(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows, int64_t bytes);

#endif
