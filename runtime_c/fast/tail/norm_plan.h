/* norm_plan.h - softmax and normalizations for the SIMD kernels: contiguous lines with a stride between them.
 * norm_plan.c decides once which calls qualify; the loops are in fast/tail/softmax.inc.c and fast/tail/norm.inc.c. */
#ifndef LN_FAST_TAIL_NORM_PLAN_H
#define LN_FAST_TAIL_NORM_PLAN_H

#include "kernel/kernel.h"

enum { LN_SOFTMAX_COLUMNS = 64 }; /* with ln_lines.across: adjacent lines in a work item */

/* The lines along one axis. The other dimensions enumerate the lines. If across is 0, the axis has stride 1. Otherwise
 * the axis has the strides x_step and y_step, and `across` lines are adjacent: element i of one is next to element i of
 * the other. */
typedef struct ln_lines {
    int64_t length;
    int64_t across, x_step, y_step;
    int n_dims;
    int64_t dims[LN_MAX_RANK], x_strides[LN_MAX_RANK], y_strides[LN_MAX_RANK];
} ln_lines;

/* Sets *x and *y to where line (or group of adjacent lines) number `item` begins, in elements. */
void ln_line_offsets(const ln_lines *lines, int64_t item, int64_t *x, int64_t *y);

/* `can` and `configure` of softmax; call->state is an ln_lines. */
bool ln_softmax_can(const ln_call *call);
linnet_status ln_softmax_configure(ln_call *call);

/* Layer and RMS normalization: x and y must be dense; scale and bias must be dense and have the full normalized shape.
 */
bool ln_layer_norm_can(const ln_call *call);
linnet_status ln_layer_norm_configure(ln_call *call);

/* Group and instance normalization: x and y must be dense, with channels at axis 1, so that a group is one contiguous
 * block. */
bool ln_group_norm_can(const ln_call *call);
linnet_status ln_group_norm_configure(ln_call *call);

/* Batch normalization sees x as a matrix that has one channel per row (channels before the spatial axes) or per column
 * (channels innermost). Phase 0 computes the factor and the shift of every channel (ln_batch_norm_factors); phase 1
 * applies them. */
typedef struct ln_batch_norm_plan {
    int64_t rows, columns, channels;
    bool channel_is_column;
} ln_batch_norm_plan;
bool ln_batch_norm_can(const ln_call *call);
linnet_status ln_batch_norm_configure(ln_call *call);
void ln_batch_norm_factors(const ln_call *call, const ln_buffers *b, float *factor, float *shift);

/* The plan of layer_norm and group_norm, in call->state. There are `lines` blocks of `length` elements. In group_norm,
 * a block has `channels` equal parts with one scale and one bias each. In layer_norm, channels is 0, and every element
 * has its own scale and bias. */
typedef struct ln_norm_plan {
    int64_t lines, length, channels, groups;
    double epsilon;
    bool rms;
} ln_norm_plan;

#endif
