/* norm_plan.h - softmax and normalizations for the SIMD kernels: contiguous lines with a stride between them.
 * norm_plan.c decides once which calls qualify; the loops are in fast/tail/softmax.inc.c and fast/tail/norm.inc.c. */
#ifndef LN_FAST_TAIL_NORM_PLAN_H
#define LN_FAST_TAIL_NORM_PLAN_H

#include "kernel/kernel.h"

enum { LN_SOFTMAX_COLUMNS = 64 }; /* lines beside each other that a work item has */

/* Lines along one axis of stride 1. The other dimensions enumerate the lines. With `across`, the axis has other
 * strides, and that many lines lie beside each other. */
typedef struct ln_lines {
    int64_t length;
    int64_t across, x_step, y_step;
    int n_dims;
    int64_t dims[LN_MAX_RANK], x_strides[LN_MAX_RANK], y_strides[LN_MAX_RANK];
} ln_lines;

void ln_line_offsets(const ln_lines *lines, int64_t item, int64_t *x, int64_t *y);

bool ln_softmax_can(const ln_call *call);
linnet_status ln_softmax_configure(ln_call *call);

/* x and y must be dense, and the parameters dense and of the full normalized shape. */
bool ln_layer_norm_can(const ln_call *call);
linnet_status ln_layer_norm_configure(ln_call *call);

/* x and y must be dense, with channels at axis 1: a group is then one contiguous block. */
bool ln_group_norm_can(const ln_call *call);
linnet_status ln_group_norm_configure(ln_call *call);

/* A matrix of rows by columns, with one channel per row (dense, channels outside) or per column (channels innermost).
 * Phase 0 computes the factor and shift of every channel, phase 1 applies them. */
typedef struct ln_batch_norm_plan {
    int64_t rows, columns, channels;
    bool channel_is_column;
} ln_batch_norm_plan;
bool ln_batch_norm_can(const ln_call *call);
linnet_status ln_batch_norm_configure(ln_call *call);
void ln_batch_norm_factors(const ln_call *call, const ln_buffers *b, float *factor, float *shift);

/* Sizes for layer_norm and group_norm. There are `lines` blocks of `length` elements. For group_norm a block has
 * `channels` equal parts with one scale and bias each; for layer_norm (channels == 0) scale and bias are per element.
 */
typedef struct ln_norm_plan {
    int64_t lines, length, channels, groups;
    double epsilon;
    bool rms;
} ln_norm_plan;

#endif
