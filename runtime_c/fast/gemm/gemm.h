/* gemm.h - the interface of micro-kernels for matrix products, and the set of micro-kernels (ln_gemm_set) that an ISA
 * provides. The driver (gemm_driver*.c) turns matmul and conv calls into micro-kernel calls. */
#ifndef LN_GEMM_H
#define LN_GEMM_H

#include "kernel/common/inline.h"
#include "kernel/common/requant.h"
#include "kernel/kernel.h"
#include "kernel/map.h"

#define LN_GEMM_MAX_ROWS 16
#define LN_GEMM_BOUNDED 16

/* The arguments of a micro-kernel, which computes one tile:
 *   C[rows][columns] = init + sum over taps t and k < kc of A[t][row][k] * B[t][k][column].
 * a: taps * rows pointers, tap by tap. Exactly kc contiguous elements are read from each pointer.
 * b: one packed panel, [tap][k / depth][width][depth], 64-byte aligned. k is padded with zeros to a multiple of depth.
 * c: rows that are ldc elements apart. Only `columns` (1 to width) elements of each row are written.
 * The pointers to rows let one kernel compute both matrix products (taps = 1) and convolutions; the method is from
 * Dukhan, "The Indirect Convolution Algorithm", 2019. */
typedef struct ln_gemm_tile {
    const void *const *a;
    int64_t taps, kc;
    int64_t a_step; /* floats: elements of A from one k to the next: 1, or the row length of a transposed matrix */
    const void *b;
    int64_t b_step; /* floats: bytes from one k to the next: width elements in a panel, more in an unpacked matrix */
    int64_t ahead;  /* x86, floats: bytes from b to the B of the next tile, which is prefetched into L2; 0: nothing */
    void *c;
    int64_t ldc;
    int64_t columns;
    int64_t tiles;          /* how many tiles below each other to compute, at most set->tiles; 0: one */
    const void *init;       /* the `width` start values of every row; NULL (floats only): the start values are in c */
    const int32_t *row_sum; /* 32-bit sums: for each row, a number that is added to all its elements; NULL: nothing is
                               added */
    bool wide;              /* 64-bit sums: init and c are int64_t */
    bool rounded;           /* 64-bit sums: c is f32, whole rows of the panel's width are written, and the sums have at
                               most 53 bits */
    int64_t bounded; /* 64-bit sums, if b_dtype is I16: as many blocks of LN_GEMM_BOUNDED k have sums of 32 bits */
    const float *residual; /* floats: numbers that are added to the sums before the clamp, in rows that are ldc
                              elements apart; NULL: nothing is added. Only for `strip` and for sets with `adds` */
    bool halves;           /* `strip` of sets with `stores_halves`: c and residual are f16 */
    const void *packed;    /* `strip`: A, packed by `pack_rows` */
    bool chained;          /* floats: one sum over all products, instead of one sum per block of K */
    float low, high;       /* floats: limits of the stored values; NaN stays NaN */
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

/* Packs the kc elements at each of taps * rows pointers as [tap][k][row]. `rows` is the height of the tile. */
typedef void (*ln_gemm_pack_rows)(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed);
/* Computes `rows` rows of a panel of `width` columns from packed tiles of A. */
typedef void (*ln_gemm_strip)(const ln_gemm_tile *tile, int64_t rows, int64_t width);
/* Computes one row of several panels, which are panel_bytes apart: of set->row_panels panels, or of integer sums, as
 * many as tile->columns says, which are all whole. */
typedef void (*ln_gemm_row)(const ln_gemm_tile *tile, int64_t panel_bytes);
/* Stores a tile of 32-bit sums, at most a panel wide, as ln_gemm_store stores rows. Rows of sums are `width` (a whole
 * or a half panel) apart. Only the first n columns are stored, but the function may read all of them, because the sums
 * of the other columns are initialized, too. */
typedef void ln_gemm_store_tile(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                                int64_t n, void *y, int64_t y_stride);

/* Stores a tile as ln_gemm_store_tile does, with the epilogue `sum`: the sums become the op's own result (f32 or 8-bit
 * integers), the residual is added, and the total is quantized. The residual has the strides of y; NULL: there is
 * none. */
typedef void ln_gemm_store_sum(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                               int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride);

/* The functions of one ISA for one kind of product. Panels are `width` columns wide; the last panel is half as wide if
   that is enough. full[r] computes tiles of r rows, 1 <= r <= rows, of a whole panel, and half[r] of a half panel. Both
   are NULL if there is no kernel for r; there is always one for r = 1. */
typedef struct ln_gemm_set {
    uint8_t a_dtype; /* the dtype of A that the kernel reads; the driver converts other dtypes first (gather) */
    uint8_t b_dtype; /* the dtype of B in panels: F32, I8, U8, I16 */
    uint8_t c_dtype; /* the dtype of sums: F32, I32, I64 */
    bool halves; /* constant panels of f16 and bf16 stay narrow, because `convert` is fast enough to widen them at each
                    use */
    bool adds;   /* `full` and `half` add a residual */
    bool stores_halves;         /* `strip` can store results as f16, and add a residual of f16 */
    uint8_t rows, width, depth; /* rows and width of the largest tile; depth: how many successive k lie together in a
                                   panel */
    uint8_t tiles; /* with `store_tile`: how many tiles below each other full[rows] can compute at once; 0: one */
    uint8_t unit;  /* the last panel has a multiple of this number of columns; 0: of half the width */
    uint16_t takes, takes_b; /* the supported dtypes of x or a, and of w or b: bit d stands for linnet_dtype d */
    const ln_gemm_ukernel *full;
    const ln_gemm_ukernel *half;
    /* Functions for A packed in tiles of `rows` rows. The remaining rows are in tiles whose heights are powers of two.
     * If these functions are set, full and half are NULL. */
    ln_gemm_pack_rows pack_rows;
    ln_gemm_strip strip;
    ln_gemm_row row;                    /* NULL: none */
    int row_panels;                     /* the number of whole panels that `row` computes at a time */
    const struct ln_gemm_set *in_order; /* the set for cores that execute in order; NULL: this set */
    const struct ln_gemm_set *in_place; /* the set for products that are too small for packing A to pay off; NULL: this
                                           set */
    ln_gemm_convert convert;
    ln_gemm_row_sums row_sums;      /* NULL for floats */
    ln_gemm_store store;            /* NULL for floats */
    ln_gemm_store_tile *store_tile; /* NULL: whole blocks are stored by `store` */
    ln_gemm_store_sum *store_sum;   /* only with store_tile; NULL: the epilogue adds a residual */
    bool words;                     /* `store_sum` also adds and stores 16-bit numbers */
    bool symmetric;                 /* no 8-bit weight may be -128 */
    bool split; /* ARM: `convert` splits elements of 16 bits, so that micro-kernels can multiply their bytes. They
                   compute products with x - 128 instead of x */
    bool whole; /* kc must be a multiple of depth; rows of another length are first copied (gather), which pads them */
    const struct ln_gemm_set *narrow; /* 64-bit sums: the set to use if the weights prove that 32 bits are enough */
} ln_gemm_set;

/* Tells whether elements of A are split. */
static inline bool ln_gemm_splits(const ln_gemm_set *set) {
#ifdef __aarch64__
    return set->split;
#else
    (void)set;
    return false;
#endif
}

/* Returns the width of the next panel when `left` columns remain. */
static inline int64_t ln_gemm_width(const ln_gemm_set *set, int64_t left) {
    const int64_t unit = set->unit != 0 ? set->unit : set->width / 2;
    return left >= set->width ? set->width : ln_ceil_div(left, unit) * unit;
}

/* Returns the rows of the next tile when `left` rows remain: the largest number for which there is a kernel, or fewer
 * if a tile of one or two rows would remain. */
static inline int64_t ln_gemm_tile_rows(const ln_gemm_set *set, int64_t left) {
    if (left > 2 * set->rows && set->full != NULL) return set->rows;
    int64_t n = ln_min(left, set->rows);
    while (set->full != NULL ? set->full[n] == NULL : (n & (n - 1)) != 0) n--;
    /* A tile of one or two rows takes as long as a tile of four, because it has too few sums to hide the latency of
     * additions. So two halves are faster than a full tile and such a rest. */
    if (set->rows <= 8 || n <= 4) return n;
    const bool halves = left - n == 1 || (left - n == 2 && n == set->rows && set->full[left / 2] != NULL);
    return halves ? left / 2 : n;
}
/* Declares every set of this architecture. */
#define LN_GEMM_UKERNEL(isa, symbol) extern const ln_gemm_set symbol##__##isa;
#if defined(__x86_64__) || defined(_M_X64)
#include "kernels_x86/gemm/gemm_ukernels.inc"
#elif defined(__aarch64__)
#include "kernels_arm/gemm/gemm_ukernels.inc"
extern const ln_gemm_set ln_gemm_f32_packed__neon; /* has `strip` instead of `full` and `half` */
extern const ln_gemm_set ln_gemm_f16_halves__fp16; /* for Winograd's method: A and C are f16 */
#elif defined(__arm__) && defined(__ARM_NEON)
#include "kernels_arm/v7/gemm/gemm_ukernels.inc"
extern const ln_gemm_set ln_gemm_f32_packed__neon32;
#endif
#undef LN_GEMM_UKERNEL

/* LN_GEMM_ROWS_n expands M(r) for the heights r of tiles of a set with at most n rows. There are only a few heights, to
 * keep the library small. */
#define LN_GEMM_ROWS_4(M) M(1) M(2) M(4)
#define LN_GEMM_ROWS_6(M) LN_GEMM_ROWS_4(M) M(6)
#define LN_GEMM_ROWS_8(M) LN_GEMM_ROWS_4(M) M(8)
#define LN_GEMM_ROWS_14(M) LN_GEMM_ROWS_4(M) M(7) M(14)

#endif
