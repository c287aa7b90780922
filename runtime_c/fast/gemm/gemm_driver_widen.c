/* gemm_driver_widen.c - widens the 8-bit elements of A that a block of rows reads, for micro-kernels over 16 bits.
 * The elements are one run in memory, from the first pixel to the last one, so one call converts all of them. */
#include "fast/gemm/gemm_driver_widen.h"

#include "fast/gemm/gemm_state.h"

bool ln_gemm_widens(const ln_gemm *g) {
    const ln_gemm_a *a = &g->a;
    const ln_window *w = &a->window;
    if (a->step != 1) return false;
    if (ln_gemm_splits(g->set) ? g->k.kc % g->set->depth != 0
                               : g->set->a_dtype != LINNET_I16 || ln_dtype_size(a->dtype) != 1)
        return false;
    /* Rows that are a multiple of 2 KiB apart evict each other from the L1 cache, so they are copied (gather). */
    if (a->plain) return a->row == g->k.kc && g->k.kc % 1024 != 0;
    for (int i = 0; i < LN_SPATIAL; i++)
        if (a->lattice[i] != 1 || w->dilation[i] < 0) return false;
    const int64_t line = w->in[2] * g->k.kc;
    const bool dense =
        a->x.s[2] == g->k.kc && (w->in[1] == 1 || a->x.s[1] == line) && (w->batch == 1 || a->x.n == w->in[1] * line);
    return dense && w->group == 1 && w->in[0] == 1 && w->out[0] == 1 && g->k.taps > w->stride[1] * w->stride[2];
}

/* Returns the input coordinate of tap k along an axis for output position o, or the nearest one that is inside. */
static int64_t inside(const ln_window *w, int axis, int64_t o, int64_t k) {
    const int64_t at = o * w->stride[axis] - w->pad_begin[axis] + k * w->dilation[axis];
    return ln_max(0, ln_min(at, w->in[axis] - 1));
}

/* Returns the elements of A that rows [first, first + count) read. */
static ln_gemm_range elements(const ln_gemm *g, int64_t first, int64_t count) {
    const ln_window *w = &g->a.window;
    if (g->a.plain) return (ln_gemm_range){first * g->k.kc, (first + count) * g->k.kc};
    const int64_t last = first + count - 1, top = first / w->out[2], bottom = last / w->out[2];
    int64_t begin = top / w->out[1] * w->in[1] + inside(w, 1, top % w->out[1], 0);
    int64_t end = bottom / w->out[1] * w->in[1] + inside(w, 1, bottom % w->out[1], w->kernel[1] - 1);
    begin *= w->in[2], end = (end + 1) * w->in[2];
    if (top == bottom) { /* a part of one line, as in a convolution along one axis */
        begin += inside(w, 2, first % w->out[2], 0);
        end += inside(w, 2, last % w->out[2], w->kernel[2] - 1) + 1 - w->in[2];
    }
    return (ln_gemm_range){begin * g->k.kc, end * g->k.kc};
}

int64_t ln_gemm_widened_bytes(const ln_gemm *g) {
    int64_t most = 0;
    for (int64_t i = 0; i < g->blocks.m_count; i++) {
        const int64_t first = ln_gemm_boundary(i, g->blocks.m_count, g->set->rows, g->m);
        const int64_t last = ln_gemm_boundary(i + 1, g->blocks.m_count, g->set->rows, g->m);
        const ln_gemm_range part = elements(g, first, last - first);
        most = ln_max(most, part.end - part.begin);
    }
    return most * g->a.size;
}

const char *ln_gemm_widen(const ln_gemm *g, const char *base, int64_t first, int64_t count, char *out) {
    const ln_gemm_range part = elements(g, first, count);
    const int64_t size = ln_gemm_splits(g->set) ? g->a.size : 1;
    g->set->convert(out, base + part.begin * size, 1, part.end - part.begin, g->a.widened);
    return (const char *)((uintptr_t)out - (uintptr_t)(part.begin * g->a.size));
}
