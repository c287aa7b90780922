/* depthwise_plan.h - plans depthwise convolutions. */
#ifndef LN_FAST_TAIL_DEPTHWISE_PLAN_H
#define LN_FAST_TAIL_DEPTHWISE_PLAN_H

#include "fast/tail/depthwise.h"

ln_depthwise_weights ln_depthwise_weights_of(const ln_call *call, const ln_buffers *b);
LN_PLANNING void ln_depthwise_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING void ln_depthwise_cost_lanes(const ln_kernel *kernel, const ln_call *call,
                                         ln_counts *counts); /* integers on x86 */
LN_PLANNING bool ln_depthwise_can_float(const ln_call *call);
/* 3 x 3 taps of f16, in a plan that permits sums of f16 */
LN_PLANNING bool ln_depthwise_can_f16(const ln_call *call);
LN_PLANNING bool ln_depthwise_can_integer(const ln_call *call);
LN_PLANNING bool ln_depthwise_can_quads(const ln_call *call); /* 8-bit x, i8 weights whose zero points are 0, results
                                                     computed in floats */
LN_PLANNING bool ln_depthwise_can_transpose(const ln_call *call); /* conv_transpose */
LN_PLANNING linnet_status ln_depthwise_configure(ln_call *call);
/* `configure` of kernels that multiply 8-bit inputs in 16 bits where they can. */
LN_PLANNING linnet_status ln_depthwise_configure_narrow(ln_call *call);
/* `configure` of kernels that multiply and add two products of 16 bits at once, or four of 8 bits. */
LN_PLANNING linnet_status ln_depthwise_configure_pairs(ln_call *call);
LN_PLANNING linnet_status ln_depthwise_configure_quads(ln_call *call);
void ln_depthwise_pack(const ln_call *call, void *packed);
/* Packs weights that are not constant, in phase 0. */
void ln_depthwise_pack_run(const ln_call *call, const ln_buffers *b);

#if defined(__aarch64__)
extern const ln_kernel_code ln_depthwise_float__neon; /* also runs what the kernel for f16 has planned */
#endif

#endif
