/* gemm.h - shared by the matrix-product kernels of every ISA: the micro-kernel interface, the table that an ISA
 * provides, and the blocking driver (gemm_driver*.c), which turns matmul and conv calls into micro-kernel calls. */
#ifndef LN_GEMM_H
#define LN_GEMM_H

#include "kernel/common/inline.h"
#include "kernel/common/requant.h"
#include "kernel/kernel.h"
#include "kernel/map.h"

#define LN_GEMM_MAX_ROWS 16

/* Computes one tile: C[rows][columns] = init + sum over taps t and k < kc of A[t][row][k] * B[t][k][column]. a: taps *
 * rows pointers, tap by tap; exactly kc contiguous elements are read from each. b: one packed panel, [tap][k /
 * depth][width][depth], 64-byte aligned, with k padded with zeros to a multiple of depth. c: rows that are ldc elements
 * apart; only `columns` (1..width) elements of each row are written. The indirection through row pointers is the method
 * of Dukhan, "The Indirect Convolution Algorithm", 2019. With it the same kernel computes a matrix product (taps = 1)
 * and a convolution. */
typedef struct ln_gemm_tile {
    const void *const *a;
    int64_t taps, kc;
    int64_t a_step; /* floats: elements of A from one k to the next: 1, or the row length of a transposed matrix */
    const void *b;
    int64_t b_step; /* floats: bytes from one k to the next: width elements in a panel, more in an unpacked matrix */
    int64_t ahead;  /* x86, floats: bytes from b to what the next tile reads, which is fetched into L2; 0: nothing */
    void *c;
    int64_t ldc;
    int64_t columns;
    int64_t tiles;          /* tiles below each other, as far as the set computes several; 0: one */
    const void *init;       /* the `width` initial accumulators of every row; NULL (floats): the initial values are in
                               c */
    const int32_t *row_sum; /* 32-bit sums: added to every element of the row; NULL: nothing is added */
    bool wide;              /* 64-bit sums: init and c are int64_t */
    const float *residual;  /* floats: added to the sums before the clamp, with the rows of c; NULL: nothing. `strip`
                               and sets with `adds` take it */
    const void *packed;     /* `strip`: A, packed by `pack_rows` */
    bool chained;           /* floats: one sum over all products, not one sum per block */
    float low, high;        /* floats: clamp on store; NaN stays NaN */
} ln_gemm_tile;

typedef void (*ln_gemm_ukernel)(const ln_gemm_tile *tile);

/* Converts n elements of A, `stride` elements apart in src and of dtype src_dtype, to the kernel's own type. */
typedef void (*ln_gemm_convert)(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype);
/* For each row, sums the kc elements at each of the row's pointers (taps * rows pointers in total). */
typedef void (*ln_gemm_row_sums)(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums);
/* Converts rows of n sums (of c_dtype), columns from `channel` on, to the stored integers or f32 at y, with the same
 * result as ln_requant_store. Strides are in bytes. y may be the memory of the sums. */
typedef void (*ln_gemm_store)(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                              int64_t n, void *y, int64_t y_stride);

/* Packs the kc elements at each of taps * rows pointers as [tap][k][row]. rows is the height of a tile. */
typedef void (*ln_gemm_pack_rows)(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed);
/* Computes `rows` rows of a panel of `width` columns from packed tiles of A. */
typedef void (*ln_gemm_strip)(const ln_gemm_tile *tile, int64_t rows, int64_t width);
/* Computes one row of several panels, which are panel_bytes apart. */
typedef void (*ln_gemm_row)(const ln_gemm_tile *tile, int64_t panel_bytes);
/* The same for tiles of 32-bit sums, at most a panel wide. Rows of sums are `width` (a whole or a half panel) apart;
 * n of them are stored, and those behind them are defined. */
typedef void (*ln_gemm_store_tile)(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows,
                                   int64_t width, int64_t n, void *y, int64_t y_stride);

/* The same, with a residual that has the strides of y, if there is any: the sums become f32, or the 8-bit integers of
 * the op's own result, `sum` adds to them and quantizes. */
typedef void (*ln_gemm_store_sum)(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel,
                                  const int32_t *sums, int64_t rows, int64_t width, int64_t n, const void *residual,
                                  void *y, int64_t y_stride);

/* The functions of one ISA for one kind of product. Panels are `width` columns wide; the last panel is half as wide if
   that is enough. full[r] and half[r] compute tiles of r rows, 1 <= r <= rows. They are NULL if there is no kernel for
   r; there always is a kernel for 1. */
typedef struct ln_gemm_set {
    uint8_t a_dtype; /* the dtype that the kernel reads; other dtypes are converted first (gather) */
    uint8_t b_dtype; /* the dtype in panels: F32, I8, U8 */
    uint8_t c_dtype; /* F32, I32, I64 */
    bool halves; /* constant f16 and bf16 panels are not widened in advance; `convert` is fast enough to widen them at
                    each use */
    bool adds;   /* `full` and `half` add a residual */
    uint8_t rows, width, depth;
    uint8_t tiles; /* `store_tile`: most tiles of `rows` rows that full[rows] computes below each other; 0: one */
    uint8_t unit;  /* the last panel has a multiple of this number of columns; 0: of half the width */
    uint16_t takes, takes_b; /* a bit per linnet_dtype of x (or a), and of w (or b), that this set supports */
    const ln_gemm_ukernel *full;
    const ln_gemm_ukernel *half;
    /* Instead of full and half: A is packed in tiles of `rows` rows, and the rest in tiles of powers of two. */
    ln_gemm_pack_rows pack_rows;
    ln_gemm_strip strip;
    ln_gemm_row row; /* row_panels whole panels at a time */
    int row_panels;
    const struct ln_gemm_set *in_order; /* the same with a schedule for cores that execute in order */
    const struct ln_gemm_set *in_place; /* the set for products that are too small for packing A */
    ln_gemm_convert convert;
    ln_gemm_row_sums row_sums;        /* NULL for floats */
    ln_gemm_store store;              /* NULL for floats */
    ln_gemm_store_tile store_tile;    /* NULL: blocks are stored by `store` */
    ln_gemm_store_sum store_sum;      /* with store_tile; NULL: a residual is added by the epilogue */
    bool words;                       /* `store_sum` stores and adds 16-bit numbers, too */
    bool symmetric;                   /* 8-bit weights: none may be -128 */
    bool whole;                       /* kc must be a multiple of depth: other rows are gathered, which pads them */
    const struct ln_gemm_set *narrow; /* for 64-bit sums: the set to use if the weights prove that 32 bits are enough */
} ln_gemm_set;

/* Columns of the next panel when `left` columns remain. */
static inline int64_t ln_gemm_width(const ln_gemm_set *set, int64_t left) {
    const int64_t unit = set->unit != 0 ? set->unit : set->width / 2;
    return left >= set->width ? set->width : ln_ceil_div(left, unit) * unit;
}

/* Number of rows of the next tile when `left` rows remain: the largest number for which there is a kernel. */
static inline int64_t ln_gemm_tile_rows(const ln_gemm_set *set, int64_t left) {
    int64_t n = ln_min(left, set->rows);
    while (set->full != NULL ? set->full[n] == NULL : (n & (n - 1)) != 0) n--;
    /* One row or two take as long as four, because they have too few sums to hide the latency of the additions. */
    if (set->rows <= 8 || n <= 4) return n;
    const bool halves = left - n == 1 || (left - n == 2 && n == set->rows && set->full[left / 2] != NULL);
    return halves ? left / 2 : n;
}
/* Every set of this architecture. */
#define LN_GEMM_UKERNEL(isa, symbol) extern const ln_gemm_set symbol##__##isa;
#if defined(__x86_64__) || defined(_M_X64)
#include "kernels_x86/gemm/gemm_ukernels.inc"
#elif defined(__aarch64__)
#include "kernels_arm/gemm/gemm_ukernels.inc"
extern const ln_gemm_set ln_gemm_f32_packed__neon; /* with `strip`, not with micro-kernels */
#endif
#undef LN_GEMM_UKERNEL

/* Expands M(r) for the row counts of tiles; only a few, to keep the library small. */
#define LN_GEMM_ROWS_4(M) M(1) M(2) M(4)
#define LN_GEMM_ROWS_6(M) LN_GEMM_ROWS_4(M) M(6)
#define LN_GEMM_ROWS_8(M) LN_GEMM_ROWS_4(M) M(8)
#define LN_GEMM_ROWS_14(M) LN_GEMM_ROWS_4(M) M(7) M(14)

#endif
