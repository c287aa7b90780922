/* winograd.h - a planned 3 x 3 convolution by Winograd's minimal filtering, which the SIMD kernels of every ISA read.
 * winograd_plan.c computes it, winograd_pack.c packs constant weights, and the loops are in winograd.inc.c. */
#ifndef LN_WINOGRAD_H
#define LN_WINOGRAD_H

#include "fast/gemm/gemm.h"
#include "kernel/common/window.h"
#include "kernel/map.h"

/* Output pixels along a side of the largest tile. A tile has two more input pixels, whose 36 transformed values are 36
 * matrix products. Tiles of 6 x 6 would take 0.8 of the products, but four times the rounding error. Tiles of 2 x 2
 * have 16 products, and their weights take less than half the memory: they pay for pictures of few pixels. */
enum { LN_WINOGRAD_MOST = 4 };

typedef struct ln_winograd {
    const ln_gemm_set *set;
    ln_window window;
    ln_window_strides x, y;
    int64_t in, out; /* channels of a group */
    /* Weights: floats to the first tap, and from one output channel, input channel, group, line and column of taps to
     * the next. A transposed convolution is a convolution with the taps in reverse order. */
    int64_t w_first, w_out, w_in, w_group, w_line, w_tap;
    bool packs;             /* the weights are not constant: phase 0 transforms them into scratch, panel by panel */
    int64_t tile, products; /* side of a tile's outputs; its number of products */
    int64_t down, across;   /* tiles of one image */
    int64_t group, groups;  /* tiles that are computed at once, and the number of such groups */
    int64_t columns, parts; /* output channels of a work item, and the number of such parts */
    int64_t panels, panel_bytes, matrix_bytes; /* of a group's weights for one of the products */
    int64_t in_step, out_step; /* floats from one product to the next, of transformed inputs and of results */
    size_t bias;               /* offset in the packed memory */
    /* Offsets in a thread's scratch: transformed inputs, results, packed rows, a tile with its padding, finished lines.
     */
    struct {
        size_t in, out, packed, edge, lines;
    } scratch;
    bool direct; /* results are written directly to the output */
    float low, high;
} ln_winograd;
/* Where the weights of a panel of a group begin in the packed memory, for the first product. */
static inline size_t ln_winograd_panel(const ln_winograd *p, int64_t group, int64_t panel) {
    return (size_t)(group * p->products * p->matrix_bytes + panel * p->panel_bytes);
}

#endif
