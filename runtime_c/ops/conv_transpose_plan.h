/* conv_transpose_plan.h - a planned transposed conv with channels innermost: what the SIMD kernels of every ISA read.
 * The loops are in simd/conv_transpose.inc.c; planning and packing, in conv_transpose_plan.c, do not depend on the ISA.
 */
#ifndef LN_CONV_TRANSPOSE_PLAN_H
#define LN_CONV_TRANSPOSE_PLAN_H

#include "ops/requant.h"
#include "ops/window.h"

#define LN_TRANSPOSE_TAPS 256 /* the largest kernel that the SIMD kernels take */
#define LN_TRANSPOSE_LANES 16 /* output channels of a group are padded to this many in packed weights */

/* Phase 0 makes what is not there yet: the weights, when they are not constant, and x in f32 or i32 (zero point
 * subtracted), when it is stored otherwise. Phase 1 computes rows of the output. */
typedef struct ln_transpose_plan {
    ln_window window;
    ln_window_strides x, y;              /* x: of the widened copy when there is one */
    int64_t in_group, out_group, padded; /* channels per group; out_group rounded up */
    bool integer, constant, widen, direct;
    ln_requant requant;
    ln_window_strides x_stored;
    size_t weights_bytes, bias_bytes;
} ln_transpose_plan;

bool ln_transpose_supports(const ln_call *call);
/* Those of them that the gather does better than the packed product: floats, and integers with few channels on a side
 * (measured: 24 to 24 and 24 to 1 channels here, 128 to 64 there). */
bool ln_transpose_preferred(const ln_call *call);
linnet_status ln_transpose_configure(ln_call *call);
/* Packed: weights [group][tap][in_group][padded], then bias [group][padded]; f32, or i32 with the zero point
 * subtracted. */
void ln_transpose_pack(const ln_call *call, void *packed);
void ln_transpose_pack_run(const ln_call *call, const ln_buffers *b);
const void *ln_transpose_weights(const ln_call *call, const ln_buffers *b);
/* x as phase 1 reads it. */
const void *ln_transpose_input(const ln_call *call, const ln_buffers *b);

#endif
