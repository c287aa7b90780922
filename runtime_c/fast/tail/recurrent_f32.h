/* recurrent_f32.h - the f32 kernels of `recurrent`, written once on top of a few loops that each ISA provides. The
 * loops are in recurrent.inc.c. recurrent_gradient_f32.h is on top of the same loops. */
#ifndef LN_RECURRENT_F32_H
#define LN_RECURRENT_F32_H

#include "fast/gemm/gemm.h"
#include "ops/recurrent.h"

/* The loops of the f32 kernel that take most of the time. Each ISA provides them. Everything else is written once, in
   recurrent_f32.c. */
struct ln_recurrent_vectors {
    int64_t panel; /* number of columns of packed weights that are computed at once */
    /* y [columns] += x [n] . w, where w is packed as [columns / panel][n][panel]. */
    void (*multiply)(const float *w, int64_t columns, const float *x, int64_t n, float *y);
    /* For weights of 8 bits: packed as [columns / panel][n / 4][panel][4] (x86: 128 is added to each weight) or as
     * [columns / panel][n][panel] (ARM). n is a multiple of 4.
     * `round` replaces n numbers by integers, as the op defines, and returns their scale. After the numbers, there are
     * zeros up to the end of a vector.
     * y [columns] += (levels [n] . w) * scales [columns] * scale. */
    float (*round)(float *x, int64_t n);
    void (*multiply_levels)(const uint8_t *w, const float *scales, int64_t columns, const int16_t *levels, int64_t n,
                            float scale, float *y);
    int group;  /* weights of a column that are adjacent: 4 or 1 */
    int offset; /* added to each weight */
    /* Replaces n numbers by their tanh (tangent) or sigmoid. May also overwrite numbers after them, up to the end of a
     * vector. Numbers are first clipped to [-clip, clip]; clip 0: no clipping. */
    void (*activate)(bool tangent, float clip, float *x, int64_t n);
    const ln_gemm_set *set; /* the micro-kernels for whole batches */
};
/* The kernel with packable weights, which `pack` packs before the run (ln_recurrent_pack, in panels of `panel`
 * columns). Rows are computed one by one, or block by block of hidden units if there are fewer rows than threads. */
LN_PLANNING bool ln_recurrent_can(const ln_call *call);
LN_PLANNING void ln_recurrent_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING void ln_recurrent_pack(const ln_call *call, const ln_recurrent_vectors *vectors, void *out);
LN_PLANNING linnet_status ln_recurrent_packed_configure(ln_call *call, const ln_recurrent_vectors *vectors);
linnet_status ln_recurrent_packed_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                      int phase, int64_t begin, int64_t end, int thread);

/* The kernel with weights that are known only at run time, which computes all rows of a batch together. The first phase
   packs the weights. Each further phase computes one step, and its items are blocks of hidden units. */
LN_PLANNING bool ln_recurrent_batch_can(const ln_call *call);
LN_PLANNING void ln_recurrent_batch_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
LN_PLANNING linnet_status ln_recurrent_batch_configure(ln_call *call, const ln_recurrent_vectors *vectors);
linnet_status ln_recurrent_batch_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                     int phase, int64_t begin, int64_t end, int thread);

/* Tells whether every operand is dense f32. The bits in `others` are numbers of operands that are not checked. */
bool ln_recurrent_dense_f32(const ln_call *call, unsigned others);

#endif
