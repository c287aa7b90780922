/* gemm_driver_fold.c - the store of a transposed convolution that is one product, because its windows do not overlap.
 * A row of the result has the pixels that one pixel of the input becomes; their lines go to lines of the output. */
#include "fast/gemm/gemm_driver.h"

enum { SHORT_RUN = 32 }; /* shorter runs are put together before they are converted */

linnet_status ln_gemm_fold_tables(ln_call *call, ln_gemm *g) {
    ln_requant *r = &g->c.requant;
    ln_gemm_fold *f = &g->fold;
    f->period = f->run * ln_max(1, 2 * SHORT_RUN / f->run);
    const int64_t n = ln_max(g->n, f->period) + LN_REQUANT_PADDING;
    const void *tables[3] = {r->scale, r->fixed, r->shift};
    for (int t = 0; t < 3; t++) {
        if (tables[t] == NULL) continue;
        uint32_t *longer = ln_call_state(call, (size_t)n * sizeof *longer);
        if (longer == NULL) return LINNET_OUT_OF_MEMORY;
        for (int64_t i = 0; i < n; i++) longer[i] = ((const uint32_t *)tables[t])[i % f->channels];
        tables[t] = longer;
    }
    r->scale = tables[0], r->fixed = tables[1], r->shift = tables[2];
    return LINNET_OK;
}

/* Requantizes n sums that lie together, of whole pixels. y may be their memory. */
static void store_line(const ln_gemm *g, const char *sums, int64_t n, char *y, int64_t y_size) {
    const int64_t size = (int64_t)ln_dtype_size(g->set->c_dtype), period = g->fold.period, whole = n / period * period;
    g->set->store(&g->c.requant, 0, sums, period * size, n / period, period, y, period * y_size);
    if (n > whole)
        g->set->store(&g->c.requant, 0, sums + whole * size, period * size, 1, n - whole, y + whole * y_size,
                      period * y_size);
}

void ln_gemm_unfold(const ln_call *call, const ln_gemm *g, const ln_buffers *b, ln_gemm_range rows,
                    ln_gemm_range columns, const char *sums, int64_t ldc, char *lines) {
    const ln_gemm_fold *f = &g->fold;
    const ln_requant *r = &g->c.requant;
    const int64_t *in = g->a.window.in, run = f->run, size = (int64_t)ln_dtype_size(g->set->c_dtype);
    const int64_t y_size = g->c.integer ? (int64_t)ln_dtype_size(r->output_dtype) : size;
    for (int64_t row = rows.begin, side; row < rows.end; row += side, sums += side * ldc * size) {
        const int64_t x = row % in[2], line = row / in[2];
        side = ln_min(rows.end - row, in[2] - x);
        for (int64_t at = columns.begin, n; at < columns.end; at += n) {
            const int64_t tap = at / run; /* line of the kernel, (z, y) */
            n = ln_min(columns.end, (tap + 1) * run) - at;
            const int64_t z = line / in[1] * f->kernel[0] + tap / f->kernel[1];
            const int64_t y = z * in[1] * f->kernel[1] + line % in[1] * f->kernel[1] + tap % f->kernel[1];
            const int64_t to = (y * in[2] + x) * run + at - tap * run;
            const char *from = sums + (at - columns.begin) * size;
            char *out = (char *)b->outputs[0] + to * y_size;
            if (!g->c.apply && !g->c.integer) {
                ln_gemm_copy_rows(out, run * size, from, ldc * size, side, n * size);
                continue;
            }
            if (!g->c.apply && (n >= SHORT_RUN || n < run)) {
                g->set->store(r, at, from, ldc * size, side, n, out, run * y_size);
                continue;
            }
            ln_gemm_copy_rows(lines, run * size, from, ldc * size, side, run * size);
            if (r->low_at != 0)
                ln_gemm_copy_rows(lines + r->low_at, run * size, from + r->low_at, ldc * size, side, run * size);
            if (g->c.integer) store_line(g, lines, side * run, g->c.apply ? lines : out, y_size);
            if (!g->c.apply) continue;
            const float *tile = (const float *)(const void *)lines;
            if (g->c.flat)
                ln_epilogue_apply(call, b, to, side * run, 0, 1, tile, 1);
            else
                ln_epilogue_apply(call, b, to / f->channels, side * f->kernel[2], 0, f->channels, tile, f->channels);
        }
    }
}
