/* gemm_driver_pack.c - rearranges B into panels and prepares what accumulators begin with.
 * The same code packs constants at plan time and, as phase 0, what is known only while running. */
#include "ops/gemm_driver.h"

#include <string.h>

static int64_t panel_k(const ln_gemm *g, int64_t tap, int64_t c) {
    return tap / g->run * g->padded + tap % g->run * g->kc + c;
}

enum { PACK_BLOCK = 16 }; /* channels read together, so that a cache line of the source is used up while it is hot */

enum { LINE_BLOCK = 64 }; /* of a run of memory read at once: several cache lines, which the hardware fetches ahead */

void ln_gemm_pack_transposed(const float *from, int64_t stride, int64_t k, int64_t columns, int64_t width, float *to) {
    for (int64_t block = 0; block < k; block += LINE_BLOCK) {
        const int64_t length = ln_min(LINE_BLOCK, k - block);
        for (int64_t n = 0; n < columns; n++)
            for (int64_t c = block; c < block + length; c++) to[c * width + n] = from[n * stride + c];
    }
}

/* Elements of `size` bytes as they are. */
static inline void pack_same(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                             int64_t size, char *out) {
    if (g->b_n == 1) {
        for (int64_t tap = 0; tap < g->taps; tap++)
            for (int64_t c = 0; c < g->kc; c++)
                memcpy(out + panel_k(g, tap, c) * width * size, source + (first + tap * g->b_tap + c * g->b_c) * size,
                       (size_t)(columns * size));
        return;
    }
    for (int64_t block = 0; block < g->kc; block += PACK_BLOCK)
        for (int64_t n = 0; n < columns; n++)
            for (int64_t c = block; c < ln_min(block + PACK_BLOCK, g->kc); c++)
                for (int64_t tap = 0; tap < g->taps; tap++)
                    memcpy(out + (panel_k(g, tap, c) * width + n) * size,
                           source + ((first + n) * g->b_n + tap * g->b_tap + c * g->b_c) * size, (size_t)size);
}

static void pack_floats(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                        char *out) {
    int64_t size = (int64_t)ln_dtype_size(g->panel_dtype);
    if (columns < width) memset(out, 0, (size_t)(g->segments * g->padded * width * size));
    if (g->b_dtype == LINNET_F32 && g->taps == 1 && g->b_c == 1) {
        ln_gemm_pack_transposed((const float *)(const void *)source + first * g->b_n, g->b_n, g->kc, columns, width,
                                (float *)(void *)out);
    } else if (g->b_dtype == LINNET_F32) {
        pack_same(g, source, first, columns, width, 4, out);
    } else if (g->b_dtype == g->panel_dtype) {
        pack_same(g, source, first, columns, width, 2, out);
    } else {
        for (int64_t tap = 0; tap < g->taps; tap++)
            for (int64_t c = 0; c < g->kc; c++)
                ln_gemm_convert_any(out + panel_k(g, tap, c) * width * size,
                                    source + (first * g->b_n + tap * g->b_tap + c * g->b_c) * 2, g->b_n, columns,
                                    g->b_dtype, LINNET_F32);
    }
}

/* Bytes: i8 and u8 differ only in what b_shift makes of them. Columns past the end and k past the end are 0. */
static void pack_bytes(const ln_gemm *g, const uint8_t *source, int64_t first, int64_t columns, int64_t width,
                       uint8_t *out) {
    int64_t depth = g->set->depth; /* 1, 2 or 4 */
    int shift = depth == 4 ? 2 : (int)depth - 1;
    memset(out, 0, (size_t)(g->segments * g->padded * width));
    for (int64_t block = 0; block < g->kc; block += PACK_BLOCK)
        for (int64_t n = 0; n < columns; n++)
            for (int64_t c = block; c < ln_min(block + PACK_BLOCK, g->kc); c++)
                for (int64_t tap = 0; tap < g->taps; tap++) {
                    int64_t k = panel_k(g, tap, c);
                    out[(((k >> shift) * width + n) << shift) + (k & (depth - 1))] =
                        (uint8_t)(source[(first + n) * g->b_n + tap * g->b_tap + c * g->b_c] + g->b_shift);
                }
}

void ln_gemm_pack_panel(const ln_gemm *g, const void *source, int64_t matrix, int64_t panel, void *panels) {
    char *out = (char *)panels + matrix * g->matrix_bytes + panel * g->panel_bytes;
    const char *from = (const char *)source + g->matrix_offset[matrix] * (int64_t)ln_dtype_size(g->b_dtype);
    int64_t first = panel * g->set->width, width = ln_gemm_panel_width(g, panel);
    int64_t columns = ln_min(width, g->n - first);
    if (g->integer)
        pack_bytes(g, (const uint8_t *)from, first, columns, width, (uint8_t *)out);
    else
        pack_floats(g, from, first, columns, width, out);
}

/* sum((a - za) * (b - zb)) = sum(a * b) - za * sum(b) + K * za * zb - zb * sum(a): all but the first and the last term
 * depend on the column only. */
static int64_t integer_init(const ln_gemm *g, const uint8_t *source, int64_t matrix, int64_t n) {
    const uint8_t *from = source + g->matrix_offset[matrix] + n * g->b_n;
    int64_t sum = 0;
    for (int64_t c = 0; c < g->kc; c++)
        for (int64_t tap = 0; tap < g->taps; tap++) {
            uint8_t v = from[tap * g->b_tap + c * g->b_c];
            sum += (g->b_dtype == LINNET_I8 ? (int8_t)v : (int)v) + g->b_shift;
        }
    int64_t x_zero = g->requant.x_zero;
    return g->taps * g->kc * x_zero * g->b_zero - x_zero * sum;
}

void ln_gemm_make_init(const ln_gemm *g, const void *source, const void *bias, int64_t matrix, int64_t first,
                       int64_t last, void *init) {
    for (int64_t n = first; n < last; n++) {
        int64_t at = matrix * g->init_width + n, bias_at = matrix * g->bias_matrix + n * g->bias_n;
        bool inside = n < g->n;
        if (!g->integer) {
            ((float *)init)[at] =
                inside && bias != NULL && !g->turned ? (float)ln_load_f64(bias, g->bias_dtype, bias_at) : 0;
            continue;
        }
        int64_t v = inside ? integer_init(g, source, matrix, n) : 0;
        if (inside && bias != NULL) v += ln_load_i64(bias, g->bias_dtype, bias_at);
        if (g->set->c_dtype == LINNET_I64)
            ((int64_t *)init)[at] = v;
        else
            ((int32_t *)init)[at] = (int32_t)(uint32_t)v; /* 32-bit sums wrap */
    }
}
