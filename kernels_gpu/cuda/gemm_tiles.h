/* gemm_tiles.h - what a product by tiles is, and how its tile is chosen. */
#ifndef LG_CUDA_GEMM_TILES_H
#define LG_CUDA_GEMM_TILES_H

#include "kernels_gpu/common/gpu.h"
#include "kernels_gpu/common/window.h"

/* As in gemm_parts.inc and mma.inc. */
enum { LG_LOAD_CHUNKS, LG_LOAD_WORDS, LG_LOAD_GATHER, LG_LOAD_TURNED };
enum { LG_BY_ADDING, LG_BY_WARPS, LG_BY_GROUPS, LG_BY_COPIES }; /* MATH: multiply-adds, mma, wgmma; gemm_tma.inc */

/* Kinds of mma.inc, and 0. */
enum { LG_KIND_F32, LG_KIND_F16, LG_KIND_BF16, LG_KIND_TF32, LG_KIND_S8S8, LG_KIND_U8S8, LG_KIND_S8U8, LG_KIND_U8U8 };

typedef struct lg_tile {
    int tm, tn, tk; /* rows, columns, and bytes along the sum of a panel */
    int warps_m, warps_n, stages, math, blocks;
} lg_tile;

typedef struct lg_gemm {
    int64_t m, n, depth, z;
    int64_t a_m, a_k, b_n, b_k; /* elements to the next row, column, and along the sum */
    int a_load, b_load;
    int kind; /* of mma.inc; 0: f32 by multiply-adds */
    int size; /* bytes of an element */
    bool row_sums, fill;
    bool packs;              /* the weights are constant and will be packed */
    bool turns;              /* a launch of its own arranges them in scratch, as packed ones are */
    int64_t w_n, w_c, w_z;   /* `turns`: elements of the weights from a column, an input channel, a group to the next */
    bool mirrors, by_taps;   /* `turns`: the taps are reversed; channels inside taps, not taps inside channels */
    int64_t turned;          /* `turns`: the place in scratch, in elements */
    bool dense;              /* A is [z][m][depth] and B [z][n][depth], so tensor maps can describe them */
    const lg_window *window; /* NULL: no convolution */
    bool gathers;            /* a convolution whose A is read by taps: CONV */
    int64_t groups;
    int64_t a_z, b_z; /* elements from a group to the next */
    lg_tile tile;
    int split;
    bool cluster;
    int64_t packed_b, table, terms; /* places in packed memory; -1: none */
} lg_gemm;

/* Chooses tile, split and cluster by modelled time; false: none fits. */
bool lg_gemm_choose(lg_gemm *g, const lg_machine *machine);
size_t lg_gemm_shared(const lg_tile *tile, bool cluster);

#endif
