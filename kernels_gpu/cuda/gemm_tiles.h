/* gemm_tiles.h - the description of a matrix product by tiles, and the choice of its tile. */
#ifndef LG_CUDA_GEMM_TILES_H
#define LG_CUDA_GEMM_TILES_H

#include "kernels_gpu/common/gpu.h"
#include "kernels_gpu/common/window.h"

/* How panels are loaded (A_LOAD and B_LOAD in gemm.inc), and how they are multiplied (MATH): by multiply-adds, by mma,
 * by wgmma, or by wgmma in gemm_tma.inc. The numbers are those in gemm_parts.inc and gemm.inc. */
enum { LG_LOAD_CHUNKS, LG_LOAD_WORDS, LG_LOAD_GATHER, LG_LOAD_TURNED };
enum { LG_BY_ADDING, LG_BY_WARPS, LG_BY_GROUPS, LG_BY_COPIES };

/* The dtypes of the operands. LG_KIND_F32 means multiply-adds; the other numbers are those in mma.inc. */
enum { LG_KIND_F32, LG_KIND_F16, LG_KIND_BF16, LG_KIND_TF32, LG_KIND_S8S8, LG_KIND_U8S8, LG_KIND_S8U8, LG_KIND_U8U8 };

typedef struct lg_tile {
    int tm, tn, tk; /* rows, columns, and bytes along the sum of a panel */
    int warps_m, warps_n, stages, math, blocks;
} lg_tile;

typedef struct lg_gemm {
    int64_t m, n, depth, z;
    int64_t a_m, a_k, b_n, b_k; /* strides in elements: to the next row of A, along the sum in A, to the next column of
                                   B, along the sum in B */
    int a_load, b_load;
    int kind; /* LG_KIND_... */
    int size; /* bytes of an element of A and B */
    bool row_sums, fill;
    bool packs; /* the weights are constant and will be packed */
    bool turns; /* the weights are not constant; a launch before the product arranges them in scratch memory in
                   the order of packed weights */
    int64_t w_n, w_c, w_z;   /* `turns`: strides of the weights in elements, to the next column, input channel, group */
    bool mirrors, by_taps;   /* `turns`: the order of the taps is reversed; channels are inside taps (otherwise taps are
                                inside channels) */
    int64_t turned;          /* `turns`: offset of the arranged weights in scratch memory, in elements */
    bool dense;              /* A is [z][m][depth] and B [z][n][depth], so tensor maps can describe them */
    const lg_window *window; /* NULL: not a convolution */
    bool gathers;            /* a convolution that reads A tap by tap (CONV in gemm.inc) */
    int64_t groups;
    int64_t a_z, b_z; /* strides in elements from a group to the next */
    lg_tile tile;
    int split;
    bool cluster;
    int64_t packed_b, table, terms; /* offsets in packed memory; -1: there is none */
} lg_gemm;

/* Chooses `tile`, `split` and `cluster` by modelled time. Returns false if no tile fits the machine. */
bool lg_gemm_choose(lg_gemm *g, const lg_machine *machine);
/* Returns the bytes of shared memory that a work group needs. */
size_t lg_gemm_shared(const lg_tile *tile, bool cluster);

#endif
