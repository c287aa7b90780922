/* depthwise_gradient.h - plans gradients of depthwise convolutions. */
#ifndef LN_FAST_TAIL_DEPTHWISE_GRADIENT_H
#define LN_FAST_TAIL_DEPTHWISE_GRADIENT_H

#include "fast/tail/depthwise.h"

LN_PLANNING bool ln_depthwise_gradient_can(const ln_call *call);
LN_PLANNING linnet_status ln_depthwise_gradient_configure(ln_call *call);
/* Phase 1: computes channels [begin, end) of the weights from their parts. */
void ln_depthwise_gradient_finish(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

#endif
