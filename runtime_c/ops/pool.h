/* pool.h - a planned pool with channels innermost, for the SIMD kernels. pool_plan.c makes the plan, pool_gradient.c
 * the plan of a gradient. The loops are in fast/tail/pool.inc.c and pool_gradient.inc.c. */
#ifndef LN_POOL_H
#define LN_POOL_H

#include "kernel/common/window.h"

#define LN_POOL_CHUNK 256         /* channels per work item */
#define LN_POOL_GRADIENT_CHUNK 64 /* channels per work item of a gradient, whose items are whole images */

/* The taps of one output position that are inside the input. */
typedef struct ln_pool_span {
    const void *x;
    ptrdiff_t nz, ny, nx, xz, xy, xx; /* on 32 bits, in one register each */
    float start;                      /* start value: -infinity, or what the padding adds to a sum */
    float count;                      /* divisor of averages */
    int dtype;
} ln_pool_span;

/* The plan, in call->state. */
typedef struct ln_pool_plan {
    ln_window window;
    ln_window_strides x, y, dx; /* dx: only for a gradient, in which y stands for the gradient of the pool's output */
    int64_t channels, chunks;
    int64_t x_image, dx_image; /* for a gradient: elements of one image, if an image is contiguous */
    int kind;                  /* the attribute `kind` of the op */
    bool count_include_pad;
    int32_t zero; /* quantized integers: the stored integer that stands for padding */
    float least;  /* the start value of a maximum */
    /* Computes the maxima of `channels` channels of a pixel; NULL: the loops of the dtype do. Only on 64-bit ARM. */
    void (*maximum)(const ln_pool_span *s, int64_t channels, void *out);
} ln_pool_plan;

#endif
