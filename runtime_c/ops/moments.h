/* moments.h - planned statistics per channel. The positions are divided into parts. Each part is summed by itself, and
 * the sums are combined in order. The loops are in fast/tail/moments.inc.c; ops/moments.c has the rest. */
#ifndef LN_MOMENTS_H
#define LN_MOMENTS_H

#include "kernel/kernel.h"

/* The plan, in call->state. A part has `part` positions, which are x_row and g_row elements apart. Values are summed
   relative to a centre, which keeps cancellation small. The centre is the mean if it is an operand; for statistics, it
   is the first values of the part. With `products`, sums of g and of g * (x - centre) are computed instead of
   statistics. */
typedef struct ln_moments {
    bool products;
    int64_t channels, positions, x_row, g_row, parts, part;
} ln_moments;

/* The functions of the kernel. Phase 0, in the fast kernel, leaves three lines of `channels` floats per part in
 * scratch: the centre; the sum of x - centre, or of g; the sum of (x - centre)^2, or of g * (x - centre). */
bool ln_moments_can(const ln_call *call);
linnet_status ln_moments_configure(ln_call *call);
/* Phase 1: combines the parts and stores the results of channels [begin, end). */
void ln_moments_finish(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

#endif
