/* copy_plan.h - a `copy` call as a list of strided rectangles, which the reference and the fast kernels run.
 * copy_plan.c derives them from kind, attributes and shapes at plan time. */
#ifndef LN_COPY_PLAN_H
#define LN_COPY_PLAN_H

#include "kernel/common/copy_kinds.h"
#include "kernel/kernel.h"

#define LN_COPY_MAX_DIMS (2 * LN_MAX_RANK) /* `tile` splits every axis in two */

/* One dim of a rectangle; strides are in elements. */
typedef struct ln_copy_dim {
    int64_t size, source, target;
} ln_copy_dim;

/* Copies dims[0].size x ... elements from input (or the fill value if input is -1) to output. Offsets are in elements.
 */
typedef struct ln_copy_rectangle {
    int32_t input, output;
    int32_t rank;
    uint8_t shape; /* ln_copy_shape */
    int64_t source, target;
    const ln_copy_dim *dims;
    int64_t items, first_item; /* for the runner */
    int64_t panels;            /* a work item is one panel (a piece of the inner dims) of one row (outer dims) */
    int64_t panel;             /* size of a panel along dims[rank - 2] for transposes, along the last dim otherwise */
} ln_copy_rectangle;

enum ln_copy_shape {
    LN_COPY_RUN,       /* inner stride 1 on both sides */
    LN_COPY_TRANSPOSE, /* stride 1 along the last dim of the target and along the second-to-last dim of the source */
    LN_COPY_STRIDED,   /* anything else */
    LN_COPY_FILL
};

typedef struct ln_copy_plan {
    int64_t count, n_dims; /* number of rectangles, and of all their dims */
    ln_copy_rectangle *rectangles;
    ln_copy_dim *dims;
    int64_t items;
    uint32_t size;       /* bytes of an element */
    int32_t value_input; /* pad: the operand with the fill value; -1: the attribute */
    unsigned char value[8];
    bool flat; /* a reshape between layouts that no rectangle describes, done element by element */
} ln_copy_plan;

/* Builds the plan in memory of ln_call_state. */
linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out);

#endif
