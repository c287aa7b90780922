/* pool.h - a planned pool for the SIMD kernels, whose channels lie innermost; made once in pool_plan.c.
 * The loops are in simd/pool.inc.c. */
#ifndef LN_POOL_H
#define LN_POOL_H

#include "ops/window.h"

#define LN_POOL_CHUNK 256         /* channels per work item */
#define LN_POOL_GRADIENT_CHUNK 64 /* the same of a gradient, whose items are whole images */

typedef struct ln_pool_plan {
    ln_window window;
    ln_window_strides x, y, dx; /* dx: of a gradient, where y is the output's */
    int64_t channels, chunks;
    int64_t x_image, dx_image; /* of a gradient: elements of one image, when it is one run of memory */
    int kind;
    bool count_include_pad;
    int32_t zero; /* of quantized integers: what padding is worth */
    float least;  /* what a maximum begins with */
} ln_pool_plan;

bool ln_pool_supports(const ln_call *call);
linnet_status ln_pool_configure(ln_call *call);
bool ln_pool_gradient_supports(const ln_call *call);
linnet_status ln_pool_gradient_configure(ln_call *call);
/* What the average of one output position divides by. */
int64_t ln_pool_count(const ln_pool_plan *p, int64_t oz, int64_t oy, int64_t ox, int64_t inside);

#endif
