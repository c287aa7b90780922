/* gemm_driver.h - a planned matrix product: what configure leaves for pack and run.
 * gemm_driver_matmul.c and gemm_driver_conv.c fill in operands; gemm_driver_plan.c blocking; gemm_driver.c runs it. */
#ifndef LN_GEMM_DRIVER_H
#define LN_GEMM_DRIVER_H

#include "core/gemm.h"
#include "core/map.h"
#include "ops/window.h"

#include <math.h>

/* One matrix product of the call: a batch of matmul, a group of conv. Offsets in elements from the operands' begin. */
typedef struct ln_gemm_product {
    int64_t a;
    int64_t matrix;      /* which B */
    int64_t row, column; /* of the output seen as a matrix, where this product's result begins */
} ln_gemm_product;

typedef struct ln_gemm {
    const ln_gemm_set *set;
    int64_t n_products, n_matrices;
    const ln_gemm_product *products;
    int64_t m, n;        /* of one product */
    int64_t taps, kc;    /* K = taps * kc */
    bool gather;         /* A goes through a contiguous copy of the kernel's type, one segment of K elements a row */
    int64_t copy_stride; /* bytes from row to row of that copy */
    int64_t
        run; /* taps that are one run of A's memory, and one segment: 1, those of a kernel's line, or all (gather) */
    int64_t segments, length, padded; /* what the kernel sees: taps, elements read, elements in the panel per tap */
    int64_t chunk, chunks; /* a long K passes in chunks, of elements (plain) or taps; chunks > 1 for floats only */

    /* A. Plain rows lie a_row apart; those of a convolution are found through the window. */
    int a_operand, a_dtype;
    bool plain;
    int64_t a_row, a_k;
    ln_window window;            /* of a transposed convolution: turned into that of a convolution */
    int64_t lattice[LN_SPATIAL]; /* input coordinates are divided by it, and must be multiples; 1 for a convolution */
    ln_window_strides x;
    int64_t a_size, copy_size; /* bytes of an element, as it comes and as the kernel reads it */
    const void *padding;       /* kc elements of the zero point, in the caller's dtype or the kernel's (gather) */

    /* B: element (k = tap, c; n) at matrix_offset + n * b_n + tap * b_tap + c * b_c. */
    int b_operand, b_dtype,
        panel_dtype; /* as it comes, and in panels: the kernel's, or f16 or bf16, widened in scratch */
    int64_t b_n, b_tap, b_c;
    const int64_t *matrix_offset;
    int b_shift; /* added to every element when packed, so that it fits the panel's type */
    bool b_constant, init_constant;
    bool b_as_is;   /* whole panels are read from B itself; only a last narrower one is packed, in scratch */
    int64_t b_step; /* bytes from k to k in B as it is */
    int64_t panels, panel_bytes, matrix_bytes; /* panels of one B; the last may be half as wide */
    int bias_operand, bias_dtype;              /* operand -1: none */
    int64_t bias_n, bias_matrix;               /* strides of the bias by column, and from one B to the next (groups) */
    int64_t init_width;                        /* accumulators per B, padded */

    /* C */
    int64_t ldc;
    bool direct; /* tiles go right into the output */
    /* The result is computed transposed, from the transposed operands: rows of "A" are columns of the call's b, which
     * lie as they are, and the few rows of its a are packed. The bias is added when the result is turned. */
    bool turned;
    bool apply; /* ln_epilogue_apply stores (or finishes in place, with direct) */
    bool flat;  /* it sees the result as one column: the innermost axis of the layout has size 1 */
    float low, high;
    /* A filter over one channel (a signal): what cancels in it is part of the answer, and the order in which everybody
     * sums it, tap by tap, is kept. */
    bool chained;
    bool integer;
    ln_requant requant;
    int32_t b_zero; /* zero point of B as packed; 0: row sums are not needed */

    /* Blocks: m_block rows by n_block columns are one work item. */
    int64_t m_block, n_block, m_blocks, n_blocks;
    size_t init_offset; /* in packed, or in scratch */
    size_t rows_offset, a_offset, b_offset, c_offset,
        turned_offset; /* in the thread's scratch: row sums, gathered A, a widened panel, result */
} ln_gemm;

/* The set that serves this call's dtypes, or NULL. */
const ln_gemm_set *ln_gemm_find_set(const ln_gemm_set *const *sets, int n, const ln_tensor *a, const ln_tensor *b,
                                    const ln_tensor *bias, const ln_tensor *inner, int w_axis, int64_t channels,
                                    int mode);
/* Whether the output can be stored: dense rows, or rows any distance apart when tiles go right into it; and whether its
 * columns are those of an epilogue. */
bool ln_gemm_output_ok(const ln_call *call, int64_t ldc, int64_t columns);
/* After operands are described: integers, layout of panels, blocks, memory. */
linnet_status ln_gemm_plan(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels, int mode);

static inline int64_t ln_gemm_panel_width(const ln_gemm *g, int64_t panel) {
    int64_t left = g->n - panel * g->set->width;
    return left <= g->set->width / 2 ? g->set->width / 2 : g->set->width;
}

/* Whether positions (batch, z, y, x) lie evenly, *step apart (fallback: when there is one). Axes of size 1 do not
 * matter.
 */
bool ln_gemm_linear(const ln_window_strides *s, int64_t batch, const int64_t *size, int64_t fallback, int64_t *step);

/* gemm_driver_pack.c */
void ln_gemm_pack_panel(const ln_gemm *g, const void *source, int64_t matrix, int64_t panel, void *panels);
void ln_gemm_make_init(const ln_gemm *g, const void *source, const void *bias, int64_t matrix, int64_t first,
                       int64_t last, void *init);
/* Part of K: elements of plain rows, otherwise taps. */
typedef struct ln_gemm_range {
    int64_t begin, end;
} ln_gemm_range;
/* gemm_driver_rows.c: pointers to rows [first, first + count), tile by tile as [segment][row of the tile], with lines
 * that reach into the padding put together in `copy`; the same rows copied to `out`, padded with zeros to g->padded
 * elements, g->copy_stride bytes apart. base: where the product's A begins. */
void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, char *copy,
                  const void **rows);
void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, void *out);

#endif
