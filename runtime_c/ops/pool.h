/* pool.h - a planned pool for the SIMD kernels, with channels innermost; made once in pool_plan.c.
 * The loops are in fast/tail/pool.inc.c. */
#ifndef LN_POOL_H
#define LN_POOL_H

#include "kernel/common/window.h"

#define LN_POOL_CHUNK 256         /* channels per work item */
#define LN_POOL_GRADIENT_CHUNK 64 /* channels per work item of a gradient, whose items are whole images */

typedef struct ln_pool_plan {
    ln_window window;
    ln_window_strides x, y, dx; /* dx: only for a gradient, where y describes the output */
    int64_t channels, chunks;
    int64_t x_image, dx_image; /* for a gradient: elements of one image, if an image is contiguous */
    int kind;
    bool count_include_pad;
    int32_t zero; /* for quantized integers: the value of padding */
    float least;  /* the start value of a maximum */
} ln_pool_plan;

#endif
