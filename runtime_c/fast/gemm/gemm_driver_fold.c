/* gemm_driver_fold.c - packs the weights of a folded transposed convolution, and stores its results. A row of the
 * product is a block of the output; the store writes each line of the block to its line of the output. */
#include "fast/gemm/gemm_driver_fold.h"

#include "fast/gemm/epilogue.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_state.h"
#include "kernel/step.h"

enum { SHORT_RUN = 32 }; /* sums of runs that are shorter than this are collected before they are converted */

int64_t ln_gemm_fold_at(const ln_gemm *g, int64_t n, int64_t tap) {
    const ln_gemm_fold *f = g->fold;
    const int64_t *taps = g->a.window.kernel;
    int64_t place = n / f->channels, at = 0, size = 1;
    for (int i = LN_SPATIAL - 1; i >= 0; i--) {
        const int64_t k = place % f->step[i] + (taps[i] - 1 - tap % taps[i]) * f->step[i];
        if (k >= f->kernel[i]) return -1;
        place /= f->step[i], tap /= taps[i];
        at += k * size, size *= f->kernel[i];
    }
    return n % f->channels * size + at;
}

linnet_status ln_gemm_fold_tables(ln_call *call, ln_gemm *g) {
    ln_requant *r = &g->c.requant;
    ln_gemm_fold *f = g->fold;
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

/* Requantizes n adjacent sums, which are whole pixels. y may be the memory of the sums. */
static void store_line(const ln_gemm *g, const char *sums, int64_t n, char *y, int64_t y_size) {
    const int64_t size = (int64_t)ln_dtype_size(g->set->c_dtype), period = g->fold->period, whole = n / period * period;
    g->set->store(&g->c.requant, 0, sums, period * size, n / period, period, y, period * y_size);
    if (n > whole)
        g->set->store(&g->c.requant, 0, sums + whole * size, period * size, 1, n - whole, y + whole * y_size,
                      period * y_size);
}

void ln_gemm_unfold(const ln_call *call, const ln_gemm *g, const ln_buffers *b, ln_gemm_range rows,
                    ln_gemm_range columns, const char *sums, int64_t ldc, char *lines) {
    const ln_gemm_fold *f = g->fold;
    const ln_requant *r = &g->c.requant;
    const int64_t *blocks = g->a.window.out, run = f->run, size = (int64_t)ln_dtype_size(g->set->c_dtype);
    const int64_t y_size = g->c.integer ? (int64_t)ln_dtype_size(r->output_dtype) : size;
    for (int64_t row = rows.begin, side; row < rows.end; row += side, sums += side * ldc * size) {
        const int64_t x = row % blocks[2], line = row / blocks[2], x_out = x * f->step[2] - f->crop[2];
        side = ln_min(rows.end - row, blocks[2] - x);
        /* A block that the edge of the output cuts is stored by itself. */
        if (x_out < 0)
            side = 1;
        else if (side > 1 && x_out + side * f->step[2] > f->out[2])
            side--;
        const int64_t low = ln_max(0, -x_out) * f->channels;
        const int64_t high = ln_min(f->step[2], f->out[2] - x_out) * f->channels;
        for (int64_t at = columns.begin, next; at < columns.end; at = next) {
            const int64_t in_block = at / run; /* number of the line in the block, counted over (z, y) */
            next = ln_min(columns.end, (in_block + 1) * run);
            const int64_t z = line / blocks[1] % blocks[0] * f->step[0] - f->crop[0] + in_block / f->step[1];
            const int64_t y = line % blocks[1] * f->step[1] - f->crop[1] + in_block % f->step[1];
            if (z < 0 || z >= f->out[0] || y < 0 || y >= f->out[1]) continue;
            const int64_t first = ln_max(at, in_block * run + low), n = ln_min(next, in_block * run + high) - first;
            if (n <= 0) continue;
            const int64_t batch = line / blocks[1] / blocks[0], y_line = (batch * f->out[0] + z) * f->out[1] + y;
            const int64_t to = (y_line * f->out[2] + x_out) * f->channels + first - in_block * run;
            const char *from = sums + (first - columns.begin) * size;
            char *out = (char *)b->outputs[0] + to * y_size;
            if (!g->c.apply && !g->c.integer) {
                ln_gemm_copy_rows(out, run * size, from, ldc * size, side, n * size);
                continue;
            }
            if (!g->c.apply && (n >= SHORT_RUN || n < run)) {
                g->set->store(r, first, from, ldc * size, side, n, out, run * y_size);
                continue;
            }
            ln_gemm_copy_rows(lines, n * size, from, ldc * size, side, n * size);
            if (r->low_at != 0)
                ln_gemm_copy_rows(lines + r->low_at, n * size, from + r->low_at, ldc * size, side, n * size);
            if (g->c.integer) store_line(g, lines, side * n, g->c.apply ? lines : out, y_size);
            if (!g->c.apply) continue;
            const float *tile = (const float *)(const void *)lines;
            if (g->c.flat)
                ln_epilogue_apply(call, b, to, side * n, 0, 1, tile, 1);
            else
                ln_epilogue_apply(call, b, to / f->channels, side * n / f->channels, 0, f->channels, tile, f->channels);
        }
    }
}
