/* winograd_gradient.h - the planned weight gradient of a 3 x 3 convolution by Winograd's minimal filtering: tiles of
 * 4 x 4 gradients slide over tiles of 6 x 6 inputs. winograd_gradient.c plans, the loops are in *.inc.c. */
#ifndef LN_WINOGRAD_GRADIENT_H
#define LN_WINOGRAD_GRADIENT_H

#include "fast/gemm/gemm.h"
#include "kernel/common/window.h"

/* The plan, in call->state. A work item is a block of the result. */
typedef struct ln_winograd_gradient {
    const ln_gemm_set *set;
    ln_window window;
    ln_window_strides x, g;
    int64_t in, out;                    /* channels of one group of the convolution */
    int64_t down, across, tiles, chunk; /* numbers of tiles: down and across an image, in the batch, and in a chunk,
                                           whose tiles are transformed together */
    int64_t rows, columns;              /* channels of g and of x in a work item; the last item has a few more */
    int64_t row_items, column_items;    /* work items of a group, along the channels of g and of x */
    int64_t most_rows, most_columns;    /* of the largest work item */
    int64_t x_step, g_step, sum_step;   /* floats from one of the 36 products to the next */
    struct {
        size_t x, g, sum, edge; /* offsets in a thread's scratch */
    } scratch;
} ln_winograd_gradient;

/* The functions of the kernel's ln_kernel_code. They use one f32 set of micro-kernels. */
LN_PLANNING bool ln_winograd_gradient_can(const ln_call *call);
LN_PLANNING void ln_winograd_gradient_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_winograd_gradient_configure(ln_call *call, const ln_gemm_set *set);

#endif
