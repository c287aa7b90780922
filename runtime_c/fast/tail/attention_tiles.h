/* attention_tiles.h - attention over tiles of scores that stay in the cache: written once (attention_tiles.c), on top
 * of the f32 products of an ISA and of the loops of attention.inc.c. */
#ifndef LN_ATTENTION_TILES_H
#define LN_ATTENTION_TILES_H

#include "fast/gemm/gemm.h"
#include "ops/attention.h"

enum {
    LN_ATTENTION_KEYS = 128, /* most keys of a tile of scores; rows of a tile are this far apart */
    LN_ATTENTION_ROWS = 128, /* most queries of a tile */
    LN_ATTENTION_FEW = 4     /* fewer queries are multiplied by the keys where they lie; more need packed panels */
};

/* One row of a tile: the products of a query and n keys, which become weights. `scores` has room up to a multiple
 * of 16. */
typedef struct ln_attention_row {
    float *scores;
    int64_t n, low, high; /* the keys [low, high) are seen */
    float scale, cap;     /* cap 0: none */
    const float *mask;    /* added to the scores; NULL: nothing */
} ln_attention_row;

/* What each ISA provides. */
typedef struct ln_attention_vectors {
    const ln_gemm_set *set; /* f32, with `full` and `half` */
    /* Turns scores into weights relative to *top, the largest score of the query so far, and adds them to *sum. Returns
       the factor that corrects what was computed with the old *top. */
    float (*weigh)(const ln_attention_row *row, float *top, float *sum);
    /* y [n] = x [depth] . each of n vectors, which are `stride` apart */
    void (*dots)(const float *x, const float *vectors, int64_t stride, int64_t n, int64_t depth, float *y);
    /* Writes x [n] * factor to y; both may be the same f32. */
    void (*scale)(float factor, const float *x, int64_t n, int dtype, void *y);
    /* Packs vectors of `depth` elements, `stride` apart, as the columns of a panel [depth][width]. */
    void (*pack)(const float *vectors, int64_t stride, int64_t depth, int64_t columns, int64_t width, float *panel);
} ln_attention_vectors;

LN_PLANNING bool ln_attention_can(const ln_call *call);
LN_PLANNING linnet_status ln_attention_configure(ln_call *call, const ln_attention_vectors *vectors);
linnet_status ln_attention_run(const ln_attention_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread);

#endif
