/* copy_plan.h - a `copy` call as a list of strided rectangles, which the reference and the fast kernels run.
 * copy_plan.c derives the rectangles from kind, attributes and shapes at plan time. */
#ifndef LN_COPY_PLAN_H
#define LN_COPY_PLAN_H

#include "kernel/common/copy_kinds.h"
#include "kernel/kernel.h"

#define LN_COPY_MAX_DIMS (2 * LN_MAX_RANK) /* `tile` splits every axis in two */

/* One dim of a rectangle: its size, and its stride in the source and in the target, in elements. */
typedef struct ln_copy_dim {
    int64_t size, source, target;
} ln_copy_dim;

/* Copies a block of dims[0].size x dims[1].size x ... elements from element `source` of input number `input` to element
 * `target` of output number `output`. input -1: the elements get the fill value. */
typedef struct ln_copy_rectangle {
    int32_t input, output;
    int32_t rank;
    uint8_t shape; /* one of ln_copy_shape */
    int64_t source, target;
    const ln_copy_dim *dims;
    int64_t items, first_item; /* number of work items, and the number of the first one among all items of the plan */
    int64_t panels;            /* panels per row. A row is all of the inner dims, and a panel is a piece of it; a work
                                  item is one panel */
    int64_t panel;             /* size of a panel along dims[rank - 2] for transposes, along the last dim otherwise */
} ln_copy_rectangle;

/* How a rectangle is run. */
enum ln_copy_shape {
    LN_COPY_RUN,       /* inner stride 1 on both sides */
    LN_COPY_TRANSPOSE, /* stride 1 along the last dim of the target and along the second-to-last dim of the source */
    LN_COPY_STRIDED,   /* anything else */
    LN_COPY_FILL
};

/* The plan of a call, in call->state. It does not change in a run. */
typedef struct ln_copy_plan {
    int64_t count, n_dims; /* number of rectangles, and of all their dims */
    ln_copy_rectangle *rectangles;
    ln_copy_dim *dims;
    int64_t items;
    uint32_t size;          /* bytes of an element */
    int32_t value_input;    /* pad: the operand with the fill value; -1: the attribute */
    unsigned char value[8]; /* the fill value, if value_input is -1 */
    bool flat; /* a reshape between layouts that no rectangles describe: done element by element, without rectangles */
} ln_copy_plan;

/* Builds the plan in memory of ln_call_state. Precondition: ln_copy_can(call). Errors: OUT_OF_MEMORY. */
linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out);

#endif
