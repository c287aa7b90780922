/* winograd.h - a planned 3 x 3 convolution by Winograd's minimal filtering, for the SIMD kernels of every ISA.
 * winograd_plan.c makes the plan, winograd_pack.c packs constant weights, and the loops are in winograd.inc.c. */
#ifndef LN_WINOGRAD_H
#define LN_WINOGRAD_H

#include "fast/gemm/gemm.h"
#include "kernel/common/window.h"
#include "kernel/map.h"

/* The number of output pixels along a side of the largest tile. Its inputs have two more pixels along each side; their
 * 36 transformed values take part in 36 matrix products. Tiles of 6 x 6 would need 0.8 of the multiplications, but have
 * four times the rounding error. Tiles of 2 x 2 have 16 matrix products, and their weights take less than half the
 * memory, so they are faster for pictures of few pixels. */
enum { LN_WINOGRAD_MOST = 4 };

typedef struct ln_winograd ln_winograd;
/* Transforms a tile of inputs. */
typedef void ln_winograd_in_tile(const ln_winograd *p, const void *x, int64_t line, int64_t pixel, float *out);
/* Transforms the products of a tile back, and adds the bias. */
typedef void ln_winograd_out_tile(const ln_winograd *p, const float *m, const float *bias, int64_t channels, void *y,
                                  int64_t line, int64_t pixel);
/* Transforms in f16, from and to f32, and from and to f16. Rows of transformed numbers are as far apart as rows of f32.
 */
typedef struct ln_winograd_f16 {
    ln_winograd_in_tile *in_tile[2];
    ln_winograd_out_tile *out_tile[2];
} ln_winograd_f16;

/* The plan, in call->state. It does not change in a run. */
struct ln_winograd {
    const ln_gemm_set *set;
    const ln_winograd_f16 *f16; /* NULL: transforms are in f32 */
    ln_window window;
    ln_window_strides x, y;
    int64_t in, out; /* channels of one group of the convolution */
    /* Where the weights are, in elements: w_first is the first tap; the others are the strides of output channels,
     * input channels, groups, and lines and columns of taps. A transposed convolution is a convolution with the taps in
     * reverse order, so its last two strides are negative. */
    int64_t w_first, w_out, w_in, w_group, w_line, w_tap;
    int64_t weight_bytes;   /* of an element of the packed weights: 4, or 2 if the products are of f16 */
    bool packs;             /* the weights are not constant: phase 0 transforms them into scratch, panel by panel */
    int64_t tile, products; /* output pixels along a side of a tile, and matrix products: (tile + 2)^2 */
    int64_t down, across;   /* tiles of one image, vertically and horizontally */
    int64_t group, groups;  /* number of tiles that are computed at once, and number of such groups of tiles */
    int64_t columns, parts; /* output channels of a work item, and the number of such parts */
    int64_t panels, panel_bytes, matrix_bytes; /* of the weights for one product of one group of channels */
    int64_t in_step, out_step; /* floats from one product to the next, in transformed inputs and in results */
    size_t bias;               /* offset in the packed memory */
    /* Offsets in a thread's scratch: transformed inputs, results of the products, packed rows, a tile that is copied
     * with its padding, and finished lines. */
    struct {
        size_t in, out, packed, edge, lines;
    } scratch;
    bool x_halves, y_halves; /* inputs are f16; results are f16 and written directly */
    bool direct;             /* results are written directly to the output */
    float low, high;
};
/* Returns where the weights of a panel of a channel group begin in the packed memory, for the first product. Those of
 * the next product are matrix_bytes further. */
static inline size_t ln_winograd_panel(const ln_winograd *p, int64_t group, int64_t panel) {
    return (size_t)(group * p->products * p->matrix_bytes + panel * p->panel_bytes);
}

#endif
