/* conv_transpose_plan.h - a planned transposed conv with channels innermost, for the SIMD kernels of every ISA. The
 * loops are in conv_transpose.inc.c. Planning and packing do not depend on the ISA; they are in conv_transpose_plan.c.
 */
#ifndef LN_CONV_TRANSPOSE_PLAN_H
#define LN_CONV_TRANSPOSE_PLAN_H

#include "kernel/common/requant.h"
#include "kernel/common/window.h"

#define LN_TRANSPOSE_TAPS 256 /* the largest number of taps that the SIMD kernels support */
#define LN_TRANSPOSE_LANES 16 /* packed weights pad the output channels of a group to a multiple of this number */

/* The plan, in call->state. There are two phases if `constant` is false or `widen` is true. The first packs weights
   that are not constant, and converts x to f32, or to i32 without its zero point. The last phase computes rows of the
   output.
   */
typedef struct ln_transpose_plan {
    ln_window window;
    ln_window_strides x, y;                      /* x: strides of the widened copy if there is one */
    int64_t groups, in_group, out_group, padded; /* channels per group; padded: out_group rounded up to whole vectors,
                                                    or 1 for a single channel, which is summed over vectors of input
                                                    channels */
    bool integer, constant, widen, direct;
    bool each; /* of integers with one channel per group: the channels are then those of one group, and each output
                  channel has a single input channel, its own */
    ln_requant requant;
    ln_window_strides x_stored;       /* strides of x itself */
    size_t weights_bytes, bias_bytes; /* of one part */
    int parts; /* 2: weights have 16 bits, and high and low bytes are packed and summed separately; 1: others */
} ln_transpose_plan;

LN_PLANNING bool ln_transpose_can(const ln_call *call);
/* How many times longer these kernels are said to take than the matrix product (gemm_driver_conv.c), where the latter
 * multiplies no zeros. The factor is larger than the ratio of two vector widths. So the matrix product is chosen even
 * if it is compiled for narrower vectors than these kernels, as the integer product may be. */
enum { LN_TRANSPOSE_SLOW = 4 };
/* The `cost` of the kernels, which gather the inputs of each output. They are fast for floats with a stride, and for
 * integers with few channels on one side. (Measured: gathering is faster for 24 to 24 and 24 to 1 channels, the matrix
 * product for 128 to 64.) */
LN_PLANNING void ln_transpose_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_transpose_configure(ln_call *call);
/* `pack` of the kernels: weights [group][tap][in_group][padded], then bias [group][padded], in f32, or in i32 with the
 * zero point subtracted. If there is a second part, it follows in the same order. ln_transpose_pack_run packs weights
 * that are not constant, to scratch. ln_transpose_weights returns the packed weights, wherever they are. */
void ln_transpose_pack(const ln_call *call, void *packed);
void ln_transpose_pack_run(const ln_call *call, const ln_buffers *b);
const void *ln_transpose_weights(const ln_call *call, const ln_buffers *b);
/* Returns the x that the last phase reads: the tensor, or its converted copy in scratch. */
const void *ln_transpose_input(const ln_call *call, const ln_buffers *b);

#endif
