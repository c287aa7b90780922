/* depthwise.h - a planned depthwise conv (each output channel reads one input channel), which the SIMD kernels of every
 * ISA read. Geometry, packing and memory do not depend on the ISA; depthwise_plan.c computes them once. */
#ifndef LN_DEPTHWISE_H
#define LN_DEPTHWISE_H

#include "kernel/common/requant.h"
#include "kernel/common/window.h"
#include "kernel/map.h"

#define LN_DEPTHWISE_ROWS 64  /* the largest number of rows of taps (kernel depth * height) */
#define LN_DEPTHWISE_BLOCK 64 /* the most channels that are mixed at a time (depthwise_lanes.inc.c) */
#define LN_DEPTHWISE_LANES 16 /* channels are padded to a multiple of this number, the widest vector */

/* What a kernel for integer inputs (ln_depthwise_configure_narrow) stores: sums, which requant_row converts later, or
 * results that the kernel requantizes in registers: bytes by float_rne or by tflite, or 16-bit integers by float_rne.
 */
enum { LN_NARROW_NONE, LN_NARROW_SUMS, LN_NARROW_FLOAT, LN_NARROW_FIXED, LN_NARROW_WORDS };

/* Computes pixels of one or two output rows of a 3 x 3 convolution on ARM (depthwise_slide.inc.c). `count` pixels from
 * pixel `begin` on, and a vector of channels from channel c on. */
typedef struct ln_depthwise_span ln_depthwise_span;
typedef void ln_depthwise_slide(const ln_depthwise_span *s, int64_t c, int64_t begin, int64_t count, int64_t left,
                                int64_t right);

typedef struct ln_depthwise {
    ln_window window;
    ln_window_strides x, y;
    int64_t channels, padded; /* of the output */
    int64_t multiplier;       /* output channels per input channel */
    bool transposed;          /* the op is conv_transpose; f32 only */
    bool swapped;             /* axes y and x are exchanged in `window`, x, y and the weights */
    bool constant;            /* weights and bias are packed; otherwise phase 0 packs them into scratch */
    bool widen; /* x is not f32, or has fewer channels than the output, so each thread copies the rows that it needs,
                   as f32 and with the channels of the output */
    bool apply; /* ln_epilogue_apply stores (in place, with floats.direct) */
    bool integer;
    size_t row_bytes; /* bytes of the result row, with which the thread's scratch begins; the widened rows follow */
    /* How many rows the packed taps have: one per row of the kernel or, with lanes, one per group of rows. */
    struct {
        int64_t rows, rows_per_plane; /* in all, and in one plane of the kernel, which is one position along its
                                         depth */
    } taps;
    /* For floats. Integers have direct = false and no clamp range. */
    struct {
        float low, high;               /* clamp range */
        bool direct;                   /* f32 rows are computed directly in the output */
        bool halves;                   /* x and y are f16, and f16_slide reads and writes them as they are */
        ln_depthwise_slide *f16_slide; /* sums of f16, 8 channels at a time; NULL: sums of f32 */
    } floats;
    /* Valid if `integer`; floats have one part. */
    struct {
        int parts;     /* 2: weights have 16 bits, and 32 bits may not hold their sums. Their high bytes and their low
                          bytes have taps and sums of their own */
        bool sums_fit; /* the constants prove that sum and bias fit in 32 bits; else the bias is added in 64 bits */
        bool x_u8;
        ln_requant requant;
    } quantized;
    /* For the kernels that multiply in 16 bits (ln_depthwise_configure_narrow). */
    struct {
        int stores; /* LN_NARROW_NONE: the kernel widens x to 32 bits, and the weights are not packed as i16 */
        int size;   /* bytes of an element of x */
        const ln_quantized_sum *sum; /* LN_NARROW_WORDS: the results are also limited and quantized by this; NULL: they
                                        are not */
        bool in_place;  /* the kernel reads rows of the input itself: they are signed and without padding */
        int8_t padding; /* the zero point of x as i8; set for all integers */
    } narrow;
    /* For depthwise_lanes.inc.c (integers on x86). Other kernels have group = 0 and do not set the other fields. */
    struct {
        int group; /* the number of input rows whose elements share a lane of 32 bits: two of 16 bits or four of 8.
                      Elements are unsigned: 128 is added to i8. The packed bias corrects the result for this and for
                      the zero point */
        int rows;  /* output rows that are computed from the same lanes, each with taps of its own: 1 or 2 */
        int64_t taps_high;           /* number of input rows that these output rows read in one plane of the kernel */
        int64_t block, span;         /* channels and output pixels whose lanes are in L1 at a time */
        int64_t row;                 /* distance in sums from one row of results to the next, and from one part to the
                                        next */
        bool wide;                   /* x is i16 */
        bool finished;               /* tiles convert sums to results, which then only have to be copied */
        int stored;                  /* dtype of the results that tiles convert */
        const ln_quantized_sum *sum; /* tiles also limit and quantize by this; NULL: they do not */
        bool exact;      /* results are f32, and the biases, which do not fit in 32 bits, are packed as f64 */
        int x_zero_byte; /* the zero point of 8-bit x, as an unsigned byte */
        int32_t padding; /* what a lane holds outside the picture */
    } lanes;
} ln_depthwise;

/* What the packed memory holds: the weights, and then the bias.
 * Weights are [tap][padded]: f32 for floats. For integers, they are weights minus their zero points, as i32 or, for
 * `narrow`, as i16. With two parts, the taps of the second part follow those of the first. With lanes, weights are
 * lanes instead: [part][output row][group][kx][padded].
 * For integers with `quantized.sums_fit`, the bias is i32, [part][padded]. For floats and all other integers, the bias
 * takes two rows of `padded` 64-bit cells.
 * The first row is used as 32-bit numbers, which are the start values of the sums: the f32 bias, or zeros for integers.
 * In the second row, integers have their bias, as i64 or f64. Floats use only its first cell, which is 1 if all weights
 * are finite. Then taps in the padding may be multiplied by zero like other taps. */
typedef struct ln_depthwise_weights {
    const void *taps, *bias;
    const int64_t *wide_bias; /* the second row; NULL: there is none */
} ln_depthwise_weights;

/* One or two output rows. Distances are in bytes. An input row that lies in the padding is one vector of zeros, which
 * is read at every pixel, because its step is 0. */
struct ln_depthwise_span {
    const ln_depthwise *d;
    const ln_depthwise_weights *parts;
    const char *rows[4];
    int64_t steps[4];
    char *out[2];
    int64_t x_pixel, y_pixel;
};

/* Returns the number of pixels of a line, from the first on, whose columns are all inside the input, except that the
 * first may lack its first column. At most one more pixel may follow. Returns 0 for lines that a slide cannot compute.
 */
static inline int64_t ln_depthwise_inside(const ln_window *w) {
    const int64_t stride = w->stride[2], pad = w->pad_begin[2], pixels = w->out[2];
    const int64_t inside = w->in[2] - 3 + pad < 0 ? 0 : ln_min(pixels, (w->in[2] - 3 + pad) / stride + 1);
    const bool fits = w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && w->dilation[2] == 1 &&
                      stride <= 2 && pad <= 1 && inside + 1 >= pixels && (pixels - 1) * stride - pad + 2 <= w->in[2];
    return fits ? inside : 0;
}

/* A planned weight gradient. The lines of g, the gradient of the output, are divided into parts of `part` lines. Each
 * part has its own sums in scratch: [part][tap][padded]. */
typedef struct ln_depthwise_gradient {
    ln_window window;
    ln_window_strides x, g;
    int64_t channels, padded, parts, part;
} ln_depthwise_gradient;

#endif
