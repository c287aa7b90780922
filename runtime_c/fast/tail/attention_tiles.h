/* attention_tiles.h - attention over tiles of scores that stay in the cache. attention_tiles.c is written once; it
 * calls the f32 micro-kernels and the loops (attention.inc.c) of an ISA. */
#ifndef LN_ATTENTION_TILES_H
#define LN_ATTENTION_TILES_H

#include "fast/gemm/gemm.h"
#include "ops/attention.h"

enum {
    LN_ATTENTION_KEYS = 128, /* the largest number of keys in a tile of scores, and the distance of its rows */
    LN_ATTENTION_ROWS = 128, /* the largest number of queries in a tile */
    LN_ATTENTION_FEW = 4     /* fewer queries than this are multiplied by the keys in place, without packed panels */
};

/* One row of a tile: the products of a query and n keys, which `weigh` turns into weights in place. `scores` has room
 * for n, rounded up to a multiple of 16. */
typedef struct ln_attention_row {
    float *scores;
    int64_t n, low, high; /* the query sees keys [low, high) of the n keys */
    float scale, cap;     /* cap: the soft limit of scores; 0: none */
    const float *mask;    /* added to the scores; NULL: nothing */
} ln_attention_row;

/* The functions that each ISA provides. */
typedef struct ln_attention_vectors {
    const ln_gemm_set *set; /* an f32 set that has `full` and `half` */
    /* Turns scores into weights relative to *top, the largest score of the query so far, and adds them to *sum. Returns
       the factor that corrects what was computed with the old *top. */
    float (*weigh)(const ln_attention_row *row, float *top, float *sum);
    /* Sets y[i] = x . vector i, for n vectors of `depth` elements that are `stride` apart. */
    void (*dots)(const float *x, const float *vectors, int64_t stride, int64_t n, int64_t depth, float *y);
    /* Writes n products x[i] * factor to y, of the dtype. y may be x if the dtype is f32. */
    void (*scale)(float factor, const float *x, int64_t n, int dtype, void *y);
    /* Packs vectors of `depth` elements, `stride` apart, as the columns of a panel [depth][width]. */
    void (*pack)(const float *vectors, int64_t stride, int64_t depth, int64_t columns, int64_t width, float *panel);
} ln_attention_vectors;

/* The functions of the kernel's ln_kernel_code. */
LN_PLANNING bool ln_attention_can(const ln_call *call);
LN_PLANNING linnet_status ln_attention_configure(ln_call *call, const ln_attention_vectors *vectors);
linnet_status ln_attention_run(const ln_attention_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread);

#endif
