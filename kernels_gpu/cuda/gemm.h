/* gemm.h - products by tiles: the launches of gemm.inc. */
#ifndef LG_CUDA_GEMM_H
#define LG_CUDA_GEMM_H

#include "kernels_gpu/cuda/gemm_tiles.h"

/* The kind of a step's dtypes; -1: none. `adds`: f32 by multiply-adds. */
int lg_gemm_kind(const lg_step *s, bool adds);
/* Packs the constant weights, n of them of each group, as [n][padded depth]: element (row, k) is at row * b_n + k *
 * b_k, or at places[k] if that is not NULL. Sets packed_b, b_n, b_k and b_load. */
void lg_gemm_pack(lg_gemm *g, lg_plan *plan, const lg_step *s, const int64_t *places);
/* Packs what zero points add to sums, and sets row_sums. False: the weights are not known. */
bool lg_gemm_can_zeros(const lg_step *s);
void lg_gemm_zeros(lg_gemm *g, lg_plan *plan, const lg_step *s);
/* Adds the launches. `put` defines A_OFFSET, B_OFFSET, CHANNEL, PLACE, Y_STEP and BIAS_AT with lg_number. */
void lg_gemm_launch(const lg_gemm *g, lg_plan *plan, const lg_step *s,
                    void (*put)(const lg_gemm *g, lg_launch *launch, const lg_step *s));

#endif
