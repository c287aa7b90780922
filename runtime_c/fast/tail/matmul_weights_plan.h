/* matmul_weights_plan.h - the plan of a product by quantized weights that stay narrow (matmul_weights.inc.c). */
#ifndef LN_FAST_TAIL_MATMUL_WEIGHTS_PLAN_H
#define LN_FAST_TAIL_MATMUL_WEIGHTS_PLAN_H

#include "ops/matmul.h"

enum {
    LN_WEIGHT_PANEL = 32,
    LN_WEIGHT_LANES = 16
}; /* LN_WEIGHT_PANEL: the largest number of columns that are unpacked together. LN_WEIGHT_LANES: floats in the widest
      vector */

/* The plan, in call->state. */
typedef struct ln_weights {
    ln_matmul_view view;
    int64_t panel;       /* columns that are unpacked together, a multiple of 4 */
    int64_t padded;      /* k, rounded up to whole vectors */
    int64_t bias_stride; /* 0 if the bias has one element */
} ln_weights;

bool ln_weights_can(const ln_call *call);
linnet_status ln_weights_configure(ln_call *call);

#endif
