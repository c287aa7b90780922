/* gemm.h - matrix products by tiles: the launches of gemm.inc. A kernel fills an lg_gemm, calls lg_gemm_choose, packs
 * what it can, and calls lg_gemm_launch. */
#ifndef LG_CUDA_GEMM_H
#define LG_CUDA_GEMM_H

#include "kernels_gpu/cuda/gemm_tiles.h"

/* Returns the LG_KIND_... of a step's dtypes; -1 if there is none. `adds` is for kernels that use multiply-adds of f32.
 */
int lg_gemm_kind(const lg_step *s, bool adds);
/* Packs the constant weights of each group as [n][padded depth]. Element (row, k) of the weights is at row * b_n + k *
 * b_k or, if `places` is not NULL, with places[k] in place of k * b_k. Sets packed_b, b_n, b_k and b_load. */
void lg_gemm_pack(lg_gemm *g, lg_plan *plan, const lg_step *s, const int64_t *places);
/* lg_gemm_zeros packs the terms that zero points add to sums, and sets row_sums and terms. lg_gemm_can_zeros tells
 * whether this is possible: it returns false if the zero points are not known, or if the terms need weights that are
 * not constant. */
bool lg_gemm_can_zeros(const lg_step *s);
void lg_gemm_zeros(lg_gemm *g, lg_plan *plan, const lg_step *s);
/* Adds the launches. It calls `put`, which defines A_OFFSET, B_OFFSET, CHANNEL, PLACE, Y_STEP and BIAS_AT and passes
 * the numbers in them by lg_number. */
void lg_gemm_launch(const lg_gemm *g, lg_plan *plan, const lg_step *s,
                    void (*put)(const lg_gemm *g, lg_launch *launch, const lg_step *s));

#endif
