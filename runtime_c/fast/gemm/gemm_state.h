/* gemm_state.h - a planned matrix product: the state that configure prepares for pack and run.
 * gemm_driver_matmul.c and gemm_driver_conv.c fill in the operands, gemm_driver_plan.c plans the blocking, and
 * gemm_driver.c runs the product. */
#ifndef LN_FAST_GEMM_GEMM_STATE_H
#define LN_FAST_GEMM_GEMM_STATE_H

#include "fast/gemm/gemm.h"
#include "kernel/common/window.h"
#include "kernel/map.h"

#include <math.h>

/* One matrix product of the call: an entry of a matmul's batch or a group of a conv. Offsets are in elements from the
 * start of the operands. */
typedef struct ln_gemm_product {
    int64_t a;
    int64_t matrix;      /* index of the product's B */
    int64_t row, column; /* offset in the output, as a matrix, at which this product's result starts */
} ln_gemm_product;

/* K, the dimension that is summed over: taps * kc numbers. A plain matrix has one tap. */
typedef struct ln_gemm_depth {
    int64_t taps, kc;
    int64_t run;      /* number of taps that are contiguous in A and form one segment: 1, the taps of a line, or all
                         (gather) */
    int64_t segments; /* number of segments that the kernel gets, which are runs of taps */
    int64_t length;   /* number of elements that the kernel reads per segment */
    int64_t padded;   /* elements per segment in a panel */
    int64_t chunk, chunks; /* a long K is summed in chunks of elements (plain) or taps; chunks > 1 for floats only */
    bool chained; /* a filter over one channel (a signal). Its result depends on cancellation, so it is summed tap by
                     tap, as in every other kernel */
} ln_gemm_depth;

/* A, whose rows are either plain or found through a window. */
typedef struct ln_gemm_a {
    int operand, dtype;
    int64_t size, copy_size; /* bytes of an element, as stored and as the kernel reads it */
    bool gather; /* rows are copied to contiguous memory in the kernel's type, with one segment of K elements each */
    int64_t copy_stride; /* bytes from row to row of that copy */
    bool plain;
    /* Plain rows: elements from row to row, and from k to k. */
    int64_t row, step;
    /* Rows of a convolution. For a transposed convolution, the window of the equivalent convolution. */
    ln_window window;
    int64_t lattice[LN_SPATIAL]; /* input coordinates must be multiples of this number and are divided by it; 1:
                                    convolution */
    ln_window_strides x;
    const void *padding; /* a segment of zero points, in the dtype of A, or (gather) a tap in that of the kernel */
} ln_gemm_a;

/* B: element (k = tap, c; n) is at matrix_offset + n * b.n + tap * b.tap + c * b.c. */
typedef struct ln_gemm_b {
    int operand, dtype;
    int64_t n, tap, c;
    const int64_t *matrix_offset;
    bool constant;
    /* Packed in panels. The last panel of a matrix may be half as wide. */
    /* 2: elements are 16 bits wide, and each is 256 * high + low, two signed bytes. A panel of high bytes is followed
     * by one of low bytes, and so are the sums. 1: others. */
    int parts;
    int panel_dtype; /* the kernel's dtype, or f16 or bf16, which is widened in scratch */
    int shift;       /* added to every element during packing, so that it fits the dtype of the panel */
    int32_t zero;    /* zero point of the packed B; 0: sums of A's rows are not needed */
    int64_t panels, panel_bytes, matrix_bytes; /* of one matrix */
    /* B is read in place as whole panels; only a narrower last panel is packed, in scratch. */
    bool as_is;
    int64_t step; /* bytes from k to k */
} ln_gemm_b;

/* The start values of sums. They are the bias, and for integers also the contribution of the zero points. */
typedef struct ln_gemm_init {
    int operand, dtype; /* the bias; operand -1: none */
    int64_t n, matrix;  /* strides of the bias per column, and from one B to the next (groups) */
    bool constant;
    int64_t width; /* accumulators per B and part of it, including padding */
    size_t offset; /* in packed, or in scratch */
} ln_gemm_init;

/* C, and the conversion of sums to results. */
typedef struct ln_gemm_c {
    int64_t ldc;
    bool direct; /* tiles are written directly to the output */
    bool tiled;  /* a tile of integer sums, or of floats that become f16 or bf16, is stored as soon as it is computed */
    /* The result is computed transposed, from the transposed operands. The rows of "A" are then the columns of the
     * call's b, which are read in place. The few rows of the call's a are packed. The bias is added when the result is
     * transposed back. */
    bool turned;
    bool apply; /* ln_epilogue_apply stores (or finishes in place, with direct) */
    bool flat;  /* the epilogue sees the result as one column, because the innermost axis of the layout has size 1 */
    float low, high;
    int residual;                /* the input that the micro-kernels add; 0: none */
    const ln_quantized_sum *sum; /* `tiled`: the residual that `store_sum` adds; NULL: none */
    bool integer;
    int64_t part_bytes; /* from sums of high bytes to those of low bytes; 0: b.parts is 1 */
    ln_requant requant;
} ln_gemm_c;

/* A transposed convolution with steps as a convolution without: a row of the product is a block of the output, as large
 * as a step, and its columns are (position in the block, channel). Kernel position p + j * step reaches position p of
 * the block that is j further, so there are kernel / step taps. The store moves runs of columns to lines of the output.
 */
typedef struct ln_gemm_fold {
    int64_t channels; /* of the output */
    int64_t step[LN_SPATIAL], kernel[LN_SPATIAL];
    int64_t crop[LN_SPATIAL], out[LN_SPATIAL]; /* positions of the first block in front of the output; its size */
    int64_t run;    /* columns that lie side by side in the output: a line of a block. 0: each product has only these,
                       for a line of the input, and is stored like other products */
    int64_t period; /* a multiple of `run`: that many elements of a line are requantized at a time */
} ln_gemm_fold;

/* Work items: at most m rows by n columns each. Blocks differ by one tile or panel at most. */
typedef struct ln_gemm_blocks {
    int64_t m, n, m_count, n_count;
    bool rows_first; /* products that share their rows are side by side: all of them for a block of rows, then the next
                        rows, as other steps go through the same tensors */
} ln_gemm_blocks;

/* The i-th of `count` boundaries between blocks, at multiples of `size`. The last one is the end. */
static inline int64_t ln_gemm_boundary(int64_t i, int64_t count, int64_t size, int64_t end) {
    return ln_min(i * ln_ceil_div(end, size) / count * size, end);
}

/* Offsets in a thread's scratch: row sums, gathered A, packed A, a widened panel, the result, the result before it is
 * transposed back. */
typedef struct ln_gemm_scratch {
    size_t rows, a, packed, b, c, turned; /* turned: also lines of a folded result */
} ln_gemm_scratch;

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
    ln_gemm_fold *fold; /* NULL: other calls */
    ln_gemm_blocks blocks;
    ln_gemm_scratch scratch;
} ln_gemm;

/* The sizes by which the time of products is modelled. */
typedef struct ln_gemm_size {
    int64_t products, rows, columns, depth; /* number of products; m, n and k of each */
    int64_t segments;                       /* pieces of k that are found through pointers */
    bool scattered;                         /* the elements of a row of A do not lie together */
    bool packs;                             /* B is packed in each run */
} ln_gemm_size;

static inline int64_t ln_gemm_panel_width(const ln_gemm *g, int64_t panel) {
    return ln_gemm_width(g->set, g->n - panel * g->set->width);
}
/* Whether the store moves runs of columns to lines of the output. */
static inline bool ln_gemm_unfolds(const ln_gemm *g) { return g->fold != NULL && g->fold->run != 0; }
/* The channel of the bias and of the scales. */
static inline int64_t ln_gemm_channel(const ln_gemm *g, int64_t n) {
    return g->fold == NULL ? n : n % g->fold->channels;
}

/* Bytes from a panel of high bytes to the one of low bytes. */
static inline int64_t ln_gemm_part_bytes(const ln_gemm *g, int64_t panel) {
    return ln_gemm_panel_width(g, panel) * g->k.segments * g->k.padded;
}

enum { LN_GEMM_GATHERED = 32 }; /* rows that are gathered at a time before they are packed */

/* Bytes of a row of the packed A, of one chunk of K. */
static inline int64_t ln_gemm_packed_row(const ln_gemm *g) {
    return (g->k.chunks > 1 ? g->k.chunk * (g->a.plain ? 1 : g->k.kc) : g->k.segments * g->k.length) * g->a.copy_size;
}
/* A part of K: elements of plain rows, otherwise taps. */
typedef struct ln_gemm_range {
    int64_t begin, end;
} ln_gemm_range;

#endif
