/* conv_transpose_plan.h - a planned transposed conv with channels innermost, which the SIMD kernels of every ISA read.
 * The loops are in fast/tail/conv_transpose.inc.c. Planning and packing are in conv_transpose_plan.c and do not depend
 * on the ISA. */
#ifndef LN_CONV_TRANSPOSE_PLAN_H
#define LN_CONV_TRANSPOSE_PLAN_H

#include "kernel/common/requant.h"
#include "kernel/common/window.h"

#define LN_TRANSPOSE_TAPS 256 /* the largest kernel that the SIMD kernels take */
#define LN_TRANSPOSE_LANES 16 /* packed weights pad the output channels of a group to a multiple of this number */

/* Phase 0 packs the weights if they are not constant. It also converts x to f32 or i32 (zero point subtracted) if x is
   stored in another dtype. Phase 1 computes rows of the output. */
typedef struct ln_transpose_plan {
    ln_window window;
    ln_window_strides x, y;              /* x: of the widened copy if there is one */
    int64_t in_group, out_group, padded; /* channels per group; `padded` is out_group rounded up, or 1 for one channel
                                            that is a sum over vectors of input channels */
    bool integer, constant, widen, direct;
    ln_requant requant;
    ln_window_strides x_stored;
    size_t weights_bytes, bias_bytes; /* of one part */
    int parts; /* 2: weights have 16 bits. High bytes and low bytes are packed and summed apart */
} ln_transpose_plan;

bool ln_transpose_can(const ln_call *call);
/* How many times slower than the packed product, where that does no useless work: more than one step between sets of
   vectors, because the product of integers may be compiled for a narrower set. */
enum { LN_TRANSPOSE_SLOW = 4 };
/* Gathering is as fast as its vectors for floats with a stride, and for integers with few channels on one side.
   (Measured: gathering is faster for 24 to 24 and 24 to 1 channels, the product for 128 to 64.) */
void ln_transpose_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_transpose_configure(ln_call *call);
/* Packed: weights [group][tap][in_group][padded], then bias [group][padded]; f32, or i32 with the zero point
 * subtracted. A second part follows. */
void ln_transpose_pack(const ln_call *call, void *packed);
void ln_transpose_pack_run(const ln_call *call, const ln_buffers *b);
const void *ln_transpose_weights(const ln_call *call, const ln_buffers *b);
/* The x that phase 1 reads: the tensor or its converted copy. */
const void *ln_transpose_input(const ln_call *call, const ln_buffers *b);

#endif
