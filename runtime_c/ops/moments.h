/* moments.h - planned statistics per channel. Each part of the positions is summed by itself, and the sums are combined
 * in order. The loops are in fast/tail/moments.inc.c; ops/moments.c has the rest. */
#ifndef LN_MOMENTS_H
#define LN_MOMENTS_H

#include "kernel/kernel.h"

/* A part sums over `part` positions, which are x_row and g_row elements apart. Values are taken relative to a centre,
   so that cancellation is no larger than the deviation. The centre is the mean, or for statistics the first values of
   the part. */
typedef struct ln_moments {
    bool products;
    int64_t channels, positions, x_row, g_row, parts, part;
} ln_moments;

/* Phase 0 leaves three lines of `channels` floats per part in scratch: the centre; the sum of (x - centre) or of g; and
 * the sum of (x - centre)^2 or g * (x - centre). */
bool ln_moments_can(const ln_call *call);
linnet_status ln_moments_configure(ln_call *call);
/* Phase 1, for channels [begin, end). */
void ln_moments_finish(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

#endif
