/* recurrent_gradient_f32.h - gradients of recurrent layers in f32. */
#ifndef LN_FAST_TAIL_RECURRENT_GRADIENT_F32_H
#define LN_FAST_TAIL_RECURRENT_GRADIENT_F32_H

#include "fast/tail/recurrent_f32.h"

/* The functions of the kernel's ln_kernel_code. The kernel computes all rows of a batch together. */
LN_PLANNING bool ln_recurrent_gradient_can(const ln_call *call);
LN_PLANNING linnet_status ln_recurrent_gradient_configure(ln_call *call, const ln_recurrent_vectors *vectors);
linnet_status ln_recurrent_gradient_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                        int phase, int64_t begin, int64_t end, int thread);

#endif
