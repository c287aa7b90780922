/* gemm_driver_packed.c - packs a block of A tile by tile, for sets of micro-kernels that read it as [k][row].
 * Plain rows are packed from where they are. Rows of a window are packed through pointers, or from a copy of a few
 * rows.
 */
#include "fast/gemm/gemm_driver_packed.h"

#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_state.h"

static void pack_plain(const ln_gemm *g, const char *at, int64_t count, int64_t length, char *out) {
    const void *rows[LN_GEMM_MAX_ROWS];
    const int64_t stride = g->a.row * g->a.size;
    for (int64_t n; count > 0; count -= n, out += n * length * g->a.copy_size) {
        n = ln_gemm_tile_rows(g->set, count);
        for (int64_t i = 0; i < n; i++, at += stride) rows[i] = at;
        g->set->pack_rows(rows, 1, n, length, out);
    }
}

static void pack_gathered(const ln_gemm *g, const char *copy, int64_t count, int64_t length, char *out) {
    const void *rows[LN_GEMM_MAX_ROWS];
    for (int64_t n; count > 0; count -= n, out += n * length * g->a.copy_size) {
        n = ln_gemm_tile_rows(g->set, count);
        for (int64_t i = 0; i < n; i++, copy += g->a.copy_stride) rows[i] = copy;
        g->set->pack_rows(rows, 1, n, length, out);
    }
}

void ln_gemm_pack_block(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part,
                        int64_t segments, int64_t length, char *scratch) {
    char *out = scratch + g->scratch.packed, *copy = scratch + g->scratch.a;
    if (g->a.gather) {
        for (int64_t done = 0, n; done < count; done += n) {
            n = ln_min(count - done, LN_GEMM_GATHERED);
            ln_gemm_gather(g, base, first + done, n, part, copy);
            pack_gathered(g, copy, n, length, out + done * length * g->a.copy_size);
        }
        return;
    }
    if (g->a.plain) {
        pack_plain(g, (const char *)base + (first * g->a.row + part.begin) * g->a.size, count, length, out);
        return;
    }
    const void **rows = (const void **)(void *)scratch;
    ln_gemm_rows(g, base, first, count, part, copy, rows);
    for (int64_t done = 0, n; done < count; done += n) {
        n = ln_gemm_tile_rows(g->set, count - done);
        g->set->pack_rows(rows + done * segments, segments, n, length, out + done * segments * length * g->a.copy_size);
    }
}
