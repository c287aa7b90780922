/* gemm_state.h - a planned matrix product: the state that configure prepares for pack and run.
 * gemm_driver_matmul.c and gemm_driver_conv.c fill in the operands, gemm_driver_plan.c plans the blocking, and
 * gemm_driver.c runs the product. */
#ifndef LN_FAST_GEMM_GEMM_STATE_H
#define LN_FAST_GEMM_GEMM_STATE_H

#include "fast/gemm/gemm.h"
#include "kernel/common/window.h"
#include "kernel/map.h"

#include <math.h>

/* One matrix product of the call: an entry of a matmul's batch, or a group of a conv. Offsets are in elements. */
typedef struct ln_gemm_product {
    int64_t a;           /* where the product's A starts in its operand */
    int64_t matrix;      /* index of the product's B */
    int64_t row, column; /* where the product's result starts in the output, seen as a matrix */
} ln_gemm_product;

/* K, the dimension that is summed over: taps * kc numbers. A plain matrix has one tap. Micro-kernels see K as segments:
 * runs of taps that are contiguous in A. A line of the convolution's kernel is the taps that differ only along x, the
 * last axis. */
typedef struct ln_gemm_depth {
    int64_t taps, kc;
    int64_t run;           /* taps in a segment: 1, or the taps of a line of the kernel, or all taps (gather) */
    int64_t segments;      /* number of segments */
    int64_t length;        /* elements that the micro-kernel reads per segment */
    int64_t padded;        /* elements per segment in a panel: `length`, rounded up */
    int64_t chunk, chunks; /* a long K of floats is summed in `chunks` chunks of `chunk` elements (plain rows) or taps;
                              otherwise one chunk is all of K */
    int64_t bounded;       /* see ln_gemm_tile */
    bool chained; /* the convolution has one input channel per group. The result of such a filter may be a small
                     difference of large numbers, which shows every rounding. So it is summed tap by tap, in the same
                     order as in every other kernel */
} ln_gemm_depth;

/* A. Its rows are either plain (row r starts at r * row) or found through the window of a convolution. */
typedef struct ln_gemm_a {
    int operand, dtype;
    int64_t size, copy_size; /* bytes of an element: as stored, and as the micro-kernel reads it */
    bool gather; /* rows are first copied to contiguous memory in the micro-kernel's dtype, as one segment each */
    int64_t copy_stride; /* gather: bytes from row to row of the copy */
    int widened; /* the dtype as stored, if a block of A is first widened in one run (gemm_driver_widen.h). `dtype` and
                    `size` are then those of the widened A. LINNET_NONE: A is read as it is stored */
    bool plain;
    /* Plain rows: elements from row to row, and from k to k. */
    int64_t row, step;
    /* Rows of a convolution. For a transposed convolution, the window of the equivalent convolution. */
    ln_window window;
    int64_t lattice[LN_SPATIAL]; /* 1, or the stride of a transposed convolution. Then a coordinate of the window is
                                    divided by this number, and a coordinate that is not a multiple of it has no input
                                    element */
    ln_window_strides x;
    const void *padding; /* zero points, which are read where the window is in the padding: as many as a segment has
                            elements, in the dtype of A. With gather, as many as a tap has elements, in the
                            micro-kernel's dtype */
} ln_gemm_a;

/* B. Element c of tap `tap` in column n is at matrix_offset[matrix] + n * b.n + tap * b.tap + c * b.c of its operand.
 */
typedef struct ln_gemm_b {
    int operand, dtype;
    int64_t n, tap, c;
    const int64_t *matrix_offset;
    bool constant;
    /* The following fields describe B as it is packed in panels. The last panel of a matrix may be half as wide. */
    /* 2: elements have 16 bits, and each is split into 256 * high + low, two signed bytes (if panels have 16 bits, high
     * may be 128). A panel of high bytes is followed by a panel of low bytes, and the sums of a panel likewise. 1:
     * elements are not split. */
    int parts;
    int panel_dtype; /* the micro-kernel's dtype; or f16 or bf16, which is widened into scratch at each use */
    int shift;       /* is added to every element during packing, so that the element fits the dtype of the panel */
    int32_t zero;    /* zero point of the packed B; 0: sums of A's rows are not needed */
    int64_t panels, panel_bytes, matrix_bytes; /* number of panels of a matrix; bytes of a panel and of a matrix */
    /* Nothing is packed in advance: whole panels are read from B in place, and only a narrower last panel is packed, in
     * scratch. */
    bool as_is;
    int64_t step; /* as_is: bytes from one k to the next */
} ln_gemm_b;

/* The start values of sums: the bias and, for integers, the contribution of the zero points. */
typedef struct ln_gemm_init {
    int operand, dtype; /* of the bias; operand -1: there is none */
    int64_t n, matrix;  /* strides of the bias: per column, and from one B to the next (groups) */
    bool constant;      /* computed by `pack`; false: computed in each run */
    int64_t width;      /* start values per B and part, including padding */
    size_t offset;      /* where the start values are, in packed memory (constant) or in scratch */
} ln_gemm_init;

/* C, and the conversion of sums to results. */
typedef struct ln_gemm_c {
    int64_t ldc;
    bool direct; /* micro-kernels write tiles directly to the output; false: a block waits in scratch */
    bool tiled;  /* each tile of integer sums, or of floats that become f16 or bf16, is converted as soon as it is
                    computed, instead of a whole block at once */
    /* The product is computed transposed, from the transposed operands. The rows of A are then the columns of the
     * call's b, which are read in place, and the few rows of the call's a are packed as B. The bias is added when the
     * result is transposed back. */
    bool turned;
    bool apply;  /* ln_epilogue_apply stores the result or, with direct, finishes it in place */
    bool flat;   /* the epilogue sees the result as one column, because the innermost axis of the layout has size 1 */
    bool halves; /* micro-kernels store results as f16 */
    float low, high;
    int residual;                /* number of the input that the micro-kernels add to the result; 0: none */
    const ln_quantized_sum *sum; /* with `tiled`: the residual addition that `store_sum` does; NULL: there is none */
    bool integer;                /* sums are integers, and `requant` is set */
    int64_t part_bytes;          /* bytes from the sums over high bytes to the sums over low bytes; 0: b.parts is 1 */
    ln_requant requant;
} ln_gemm_c;

/* A folded transposed convolution: one with a stride, computed as a convolution without a stride. The output is divided
 * into blocks as large as the stride (`step`). A row of the product is a block, and its columns are (position in the
 * block, channel). Kernel position p + j * step contributes to position p of the block that is j blocks further, so
 * there are kernel / step taps. A block covers several lines of the output, so the store moves each line of a block (a
 * run of columns) to its place. */
typedef struct ln_gemm_fold {
    int64_t channels; /* of the output */
    int64_t step[LN_SPATIAL], kernel[LN_SPATIAL];
    int64_t crop[LN_SPATIAL],
        out[LN_SPATIAL]; /* crop: positions of the first block that lie before the output; out: size of the output */
    int64_t run;    /* columns of one line of a block, which are adjacent in the output. 0: there is one product per
                       line of the input and of the kernel, which is stored like other products */
    int64_t period; /* how many elements of a line are requantized at a time, a multiple of `run` */
} ln_gemm_fold;

/* The blocks of a product, which are the work items: at most m rows by n columns each. The sizes of blocks differ by at
 * most one tile or panel. */
typedef struct ln_gemm_blocks {
    int64_t m, n, m_count, n_count;
    bool rows_first; /* the products write the same rows of the output (the groups of a convolution). Then all products
                        of one block of rows are computed before the next block of rows, because the steps before and
                        after also go through the tensors row by row */
} ln_gemm_blocks;

/* Returns where block i of `count` blocks begins, a multiple of `size`. For i = count, it returns `end`. */
static inline int64_t ln_gemm_boundary(int64_t i, int64_t count, int64_t size, int64_t end) {
    return ln_min(i * ln_ceil_div(end, size) / count * size, end);
}

/* Offsets in a thread's scratch: row sums, widened A, gathered A, packed A, a widened or packed panel, a block of
 * results, and that block before it is transposed back. */
typedef struct ln_gemm_scratch {
    size_t rows, widened, a, packed, b, c, turned; /* turned: also lines of a folded result */
} ln_gemm_scratch;

/* A planned matrix product, in call->state. It does not change in a run. */
typedef struct ln_gemm {
    const ln_gemm_set *set;
    int64_t n_products, n_matrices;
    const ln_gemm_product *products;
    int64_t m, n; /* of one product */
    ln_gemm_depth k;
    ln_gemm_a a;
    ln_gemm_b b;
    ln_gemm_init init;
    ln_gemm_c c;
    ln_gemm_fold *fold; /* NULL: the call is not a folded transposed convolution */
    ln_gemm_blocks blocks;
    ln_gemm_scratch scratch;
} ln_gemm;

/* The sizes by which the time of products is modelled. */
typedef struct ln_gemm_size {
    int64_t products, rows, columns, depth; /* number of products; m, n and k of each */
    int64_t segments;                       /* pieces of k; the driver finds a pointer to each */
    int64_t run;    /* elements of x if they lie in one run that is widened at once (gemm_driver_widen.h); 0: they do
                       not */
    bool scattered; /* the elements of a row of A are not adjacent in memory */
    bool packs;     /* B is packed in each run */
} ln_gemm_size;

static inline int64_t ln_gemm_panel_width(const ln_gemm *g, int64_t panel) {
    return ln_gemm_width(g->set, g->n - panel * g->set->width);
}
/* Tells whether the store moves runs of columns to lines of the output. */
static inline bool ln_gemm_unfolds(const ln_gemm *g) { return g->fold != NULL && g->fold->run != 0; }
/* Returns the channel that column n belongs to: its index in the bias and in the scales. */
static inline int64_t ln_gemm_channel(const ln_gemm *g, int64_t n) {
    return g->fold == NULL ? n : n % g->fold->channels;
}

/* Returns the bytes from a panel of high bytes to its panel of low bytes. */
static inline int64_t ln_gemm_part_bytes(const ln_gemm *g, int64_t panel) {
    return ln_gemm_panel_width(g, panel) * g->k.segments * g->k.padded * (int64_t)ln_dtype_size(g->set->b_dtype);
}

enum { LN_GEMM_GATHERED = 32 }; /* rows that are gathered at a time before they are packed */

/* Returns the bytes of a row of the packed A, for one chunk of K. */
static inline int64_t ln_gemm_packed_row(const ln_gemm *g) {
    return (g->k.chunks > 1 ? g->k.chunk * (g->a.plain ? 1 : g->k.kc) : g->k.segments * g->k.length) * g->a.copy_size;
}
/* A range. A part of K is a range of elements if rows are plain, and a range of taps otherwise. */
typedef struct ln_gemm_range {
    int64_t begin, end;
} ln_gemm_range;

#endif
