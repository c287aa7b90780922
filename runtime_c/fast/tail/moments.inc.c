/* moments.inc.c - sums per channel for batch normalization, with vectors over channels and one pass over memory.
 * Compiled per ISA. Planning, the last step and the reference are in ops/moments.c. */
#include "ops/moments.h"

enum { MOMENTS_BLOCK = 32 }; /* number of positions that are summed in registers */

/* Adds Q vectors of channels, at `count` positions, to the sums per channel `first` and `second`. With Q = 1, the
 * vector has n channels; otherwise vectors are full and n is not used. */
static LN_ALWAYS_INLINE void moments_add(const bool products, const int Q, const float *x, int64_t x_row,
                                         const float *g, int64_t g_row, int64_t count, const float *centre, int n,
                                         float *first, float *second) {
    vf middle[4], one[4], two[4];
    LN_UNROLL
    for (int q = 0; q < Q; q++) {
        middle[q] = Q > 1 ? vf_load(centre + q * VF_WIDTH) : vf_load_partial(centre, n);
        one[q] = two[q] = vf_zero();
    }
    for (int64_t i = 0; i < count; i++, x += x_row, g += g_row) LN_UNROLL
    for (int q = 0; q < Q; q++) {
        const vf v = vf_sub(Q > 1 ? vf_load(x + q * VF_WIDTH) : vf_load_partial(x, n), middle[q]);
        const vf w = !products ? v : Q > 1 ? vf_load(g + q * VF_WIDTH) : vf_load_partial(g, n);
        one[q] = vf_add(one[q], w);
        two[q] = vf_fma(v, w, two[q]);
    }
    LN_UNROLL
    for (int q = 0; q < Q; q++) {
        float *a = first + q * VF_WIDTH, *b = second + q * VF_WIDTH;
        if (Q > 1) {
            vf_store(a, vf_add(vf_load(a), one[q]));
            vf_store(b, vf_add(vf_load(b), two[q]));
        } else {
            vf_store_partial(a, n, vf_add(vf_load_partial(a, n), one[q]));
            vf_store_partial(b, n, vf_add(vf_load_partial(b, n), two[q]));
        }
    }
}

static LN_ALWAYS_INLINE void moments_part(const bool products, const ln_moments *p, const float *x, const float *g,
                                          int64_t count, const float *centre, float *first, float *second) {
    for (int64_t done = 0; done < count; done += MOMENTS_BLOCK) {
        const int64_t rows = ln_min(MOMENTS_BLOCK, count - done);
        int64_t c = 0;
        for (; c + 4 * VF_WIDTH <= p->channels; c += 4 * VF_WIDTH)
            moments_add(products, 4, x + c, p->x_row, g + c, p->g_row, rows, centre + c, VF_WIDTH, first + c,
                        second + c);
        for (; c < p->channels; c += VF_WIDTH)
            moments_add(products, 1, x + c, p->x_row, g + c, p->g_row, rows, centre + c,
                        (int)ln_min(VF_WIDTH, p->channels - c), first + c, second + c);
        x += rows * p->x_row, g += rows * p->g_row;
    }
}

static linnet_status moments_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                 int thread) {
    (void)thread;
    const ln_moments *p = call->state;
    if (phase == 1) {
        ln_moments_finish(call, b, begin, end);
        return LINNET_OK;
    }
    for (int64_t item = begin; item < end; item++) {
        float *centre = (float *)b->scratch + item * 3 * p->channels, *first = centre + p->channels,
              *second = first + p->channels;
        const int64_t start = item * p->part, count = ln_min(p->part, p->positions - start);
        const size_t line = (size_t)p->channels * sizeof *centre;
        const float *x = (const float *)b->inputs[0] + start * p->x_row;
        memcpy(centre, p->products ? (const float *)b->inputs[2] : x, line);
        memset(first, 0, 2 * line);
        if (p->products)
            moments_part(true, p, x, (const float *)b->inputs[1] + start * p->g_row, count, centre, first, second);
        else
            moments_part(false, p, x, x, count, centre, first, second);
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_moments) = {
    .can = ln_moments_can, .configure = ln_moments_configure, .run = moments_run};
