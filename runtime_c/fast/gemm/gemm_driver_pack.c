/* gemm_driver_pack.c - rearranges B into panels and computes the start values of sums.
 * The same code packs constants at plan time and, as phase 0, operands that are known only at run time. */
#include "fast/gemm/gemm_driver_pack.h"

#include "fast/gemm/gemm_driver_fold.h"
#include "fast/gemm/gemm_state.h"

#include <string.h>

void ln_gemm_convert_any(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype, int dst_dtype) {
    for (int64_t i = 0; i < n; i++) switch (dst_dtype) {
        case LINNET_F32:
            ((float *)dst)[i] = src_dtype == LINNET_F32   ? ((const float *)src)[i * stride]
                                : src_dtype == LINNET_F16 ? ln_f16_to_f32(((const uint16_t *)src)[i * stride])
                                                          : ln_bf16_to_f32(((const uint16_t *)src)[i * stride]);
            break;
        case LINNET_I16:
            ((int16_t *)dst)[i] = src_dtype == LINNET_I16  ? ((const int16_t *)src)[i * stride]
                                  : src_dtype == LINNET_I8 ? ((const int8_t *)src)[i * stride]
                                                           : ((const uint8_t *)src)[i * stride];
            break;
        default: ((uint8_t *)dst)[i] = ((const uint8_t *)src)[i * stride];
        }
}

static int64_t panel_k(const ln_gemm *g, int64_t tap, int64_t c) {
    return tap / g->k.run * g->k.padded + tap % g->k.run * g->k.kc + c;
}

enum {
    PACK_BLOCK = 16
}; /* channels that are read together, to use all of a cache line of the source while the line is in the cache */

enum { COLUMN_BLOCK = 16 }; /* columns that are written together: one cache line of floats */

void ln_gemm_pack_transposed(const float *from, int64_t stride, int64_t k, int64_t columns, int64_t width, float *to) {
    int64_t n = 0;
    for (; n + COLUMN_BLOCK <= columns; n += COLUMN_BLOCK)
        for (int64_t c = 0; c < k; c++)
            for (int i = 0; i < COLUMN_BLOCK; i++) to[c * width + n + i] = from[(n + i) * stride + c];
    for (; n < columns; n++)
        for (int64_t c = 0; c < k; c++) to[c * width + n] = from[n * stride + c];
}

/* Copies elements of `size` bytes unchanged. */
static inline void pack_same(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                             int64_t size, char *out) {
    if (g->b.n == 1) {
        for (int64_t tap = 0; tap < g->k.taps; tap++)
            for (int64_t c = 0; c < g->k.kc; c++)
                memcpy(out + panel_k(g, tap, c) * width * size, source + (first + tap * g->b.tap + c * g->b.c) * size,
                       (size_t)(columns * size));
        return;
    }
    for (int64_t block = 0; block < g->k.kc; block += PACK_BLOCK) {
        const int64_t length = ln_min(PACK_BLOCK, g->k.kc - block);
        for (int64_t tap = 0; tap < g->k.taps; tap++) {
            const char *from = source + (first * g->b.n + tap * g->b.tap + block * g->b.c) * size;
            char *to = out + panel_k(g, tap, block) * width * size; /* the channels of a tap follow each other */
            for (int64_t n = 0; n < columns; n++)
                for (int64_t c = 0; c < length; c++)
                    memcpy(to + (c * width + n) * size, from + (n * g->b.n + c * g->b.c) * size, (size_t)size);
        }
    }
}

/* Packs float weights into a folded panel. */
static void pack_folded(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                        char *out) {
    const int64_t from_size = (int64_t)ln_dtype_size(g->b.dtype), size = (int64_t)ln_dtype_size(g->b.panel_dtype);
    memset(out, 0, (size_t)(g->k.segments * g->k.padded * width * size));
    for (int64_t tap = 0; tap < g->k.taps; tap++)
        for (int64_t n = 0; n < columns; n++) {
            const int64_t at = ln_gemm_fold_at(g, first + n, tap);
            for (int64_t c = 0; c < g->k.kc && at >= 0; c++) {
                const char *from = source + (at + c * g->b.c) * from_size;
                char *to = out + (panel_k(g, tap, c) * width + n) * size;
                if (from_size == size)
                    memcpy(to, from, (size_t)size);
                else
                    ln_gemm_convert_any(to, from, 1, 1, g->b.dtype, LINNET_F32);
            }
        }
}

/* Packs weights for the products of bf16 matrices, which read `depth` elements of a column together. */
static void pack_deep(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                      uint16_t *out) {
    const int64_t depth = g->set->depth, size = (int64_t)ln_dtype_size(g->b.dtype);
    memset(out, 0, (size_t)(g->k.segments * g->k.padded * width) * sizeof *out);
    for (int64_t tap = 0; tap < g->k.taps; tap++)
        for (int64_t n = 0; n < columns; n++) {
            const int64_t at = ln_gemm_at(g, first + n, tap);
            for (int64_t c = 0; c < g->k.kc && at >= 0; c++) {
                const int64_t k = panel_k(g, tap, c);
                const char *from = source + (at + c * g->b.c) * size;
                uint16_t *to = out + (k - k % depth) * width + n * depth + k % depth;
                if (size == 2)
                    memcpy(to, from, sizeof *to);
                else
                    *to = ln_f32_to_bf16(*(const float *)(const void *)from);
            }
        }
}

static void pack_floats(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width,
                        char *out) {
    int64_t size = (int64_t)ln_dtype_size(g->b.panel_dtype);
    if (g->set->depth > 1) {
        pack_deep(g, source, first, columns, width, (uint16_t *)(void *)out);
        return;
    }
    if (g->fold != NULL) {
        pack_folded(g, source, first, columns, width, out);
        return;
    }
    if (columns < width) memset(out, 0, (size_t)(g->k.segments * g->k.padded * width * size));
    if (g->b.dtype == LINNET_F32 && g->k.taps == 1 && g->b.c == 1) {
        ln_gemm_pack_transposed((const float *)(const void *)source + first * g->b.n, g->b.n, g->k.kc, columns, width,
                                (float *)(void *)out);
    } else if (g->b.dtype == LINNET_F32) {
        pack_same(g, source, first, columns, width, 4, out);
    } else if (g->b.dtype == g->b.panel_dtype) {
        pack_same(g, source, first, columns, width, 2, out);
    } else {
        for (int64_t tap = 0; tap < g->k.taps; tap++)
            for (int64_t c = 0; c < g->k.kc; c++)
                g->set->convert(out + panel_k(g, tap, c) * width * size,
                                source + (first * g->b.n + tap * g->b.tap + c * g->b.c) * 2, g->b.n, columns,
                                g->b.dtype);
    }
}

/* Writes `count` bytes of a column to their places in a panel, `depth` bytes at a time. */
static inline void place(uint8_t *out, const uint8_t *column, int64_t count, int64_t width, const size_t depth) {
    int64_t k = 0;
    for (; k + (int64_t)depth <= count; k += (int64_t)depth, out += width * (int64_t)depth)
        memcpy(out, column + k, depth);
    for (int64_t i = 0; k + i < count; i++) out[i] = column[k + i];
}

static void place_column(uint8_t *out, const uint8_t *column, int64_t count, int64_t width, int64_t depth) {
    if (depth == 8)
        place(out, column, count, width, 8);
    else if (depth == 4)
        place(out, column, count, width, 4);
    else if (depth == 2)
        place(out, column, count, width, 2);
    else
        place(out, column, count, width, 1);
}

/* Extracts the high bytes (part 0) or the low bytes (part 1) of 16-bit weights that are `step` elements apart. */
static void take_part(const ln_gemm *g, const uint8_t *from, int64_t step, int64_t count, int part, uint8_t *to) {
    const int added = g->b.shift + (part == 0 ? 128 : 0), down = part == 0 ? 8 : 0;
    for (int64_t i = 0; i < count; i++, from += 2 * step) {
        int16_t v;
        memcpy(&v, from, sizeof v);
        to[i] = (uint8_t)((v + added) >> down);
    }
}

/* Packs bytes; i8 and u8 differ only in b.shift. Columns and k past the end become 0. If every tap begins at a whole
 * group of `depth`, a block of channels at one tap is collected for each column and then placed. Otherwise single
 * channels are placed. */
static void pack_bytes(const ln_gemm *g, const uint8_t *source, int64_t first, int64_t columns, int64_t width, int part,
                       uint8_t *out) {
    enum { BLOCK = 256 };
    const int64_t depth = g->set->depth, taps = g->k.taps, kc = g->k.kc; /* depth: 1, 2, 4 or 8 */
    const int64_t size = g->b.parts;
    const bool as_is = g->b.c == 1 && g->b.shift == 0 && size == 1, aligned = taps == 1 || kc % depth == 0;
    const int64_t most = aligned ? BLOCK : 1;
    uint8_t collected[BLOCK];
    memset(out, 0, (size_t)(g->k.segments * g->k.padded * width));
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t c = 0; c < kc; c += most) {
            const int64_t count = ln_min(most, kc - c), k = panel_k(g, tap, c), in_group = k & (depth - 1);
            uint8_t *to = out + (k - in_group) * width + in_group;
            for (int64_t n = 0; n < columns; n++, to += depth) {
                const int64_t at = ln_gemm_at(g, first + n, tap);
                const uint8_t *from = source + (at + c * g->b.c) * size, *column = from;
                if (at < 0) { /* no weight: the zero point, or a part of it */
                    const int zero = size == 1 ? g->b.zero : g->b.zero + (part == 0 ? 128 : 0);
                    memset(collected, zero >> (size == 2 && part == 0 ? 8 : 0), (size_t)count);
                    column = collected;
                } else if (size == 2) {
                    take_part(g, from, g->b.c, count, part, collected);
                    column = collected;
                } else if (!as_is) {
                    for (int64_t i = 0; i < count; i++) collected[i] = (uint8_t)(from[i * g->b.c] + g->b.shift);
                    column = collected;
                }
                place_column(to, column, count, width, depth);
            }
        }
}

/* Packs integers as 16-bit numbers, for sets of depth 1. */
static void pack_words(const ln_gemm *g, const char *source, int64_t first, int64_t columns, int64_t width, int part,
                       int16_t *out) {
    const int64_t size = (int64_t)ln_dtype_size(g->b.dtype), step = g->b.c * size;
    memset(out, 0, (size_t)(g->k.segments * g->k.padded * width) * sizeof *out);
    for (int64_t block = 0; block < g->k.kc; block += PACK_BLOCK)
        for (int64_t tap = 0; tap < g->k.taps; tap++) {
            int16_t *to = out + panel_k(g, tap, block) * width;
            const int64_t count = ln_min(PACK_BLOCK, g->k.kc - block);
            for (int64_t n = 0; n < columns; n++) {
                const int64_t at = ln_gemm_at(g, first + n, tap);
                const char *from = source + (at < 0 ? 0 : at * size + block * step);
                int16_t column[PACK_BLOCK];
                for (int64_t i = 0; i < count; i++, from += step) {
                    if (at < 0)
                        column[i] = (int16_t)g->b.zero;
                    else if (g->b.dtype == LINNET_I16)
                        memcpy(&column[i], from, sizeof column[i]);
                    else
                        column[i] = g->b.dtype == LINNET_I8 ? *(const int8_t *)from : *(const uint8_t *)from;
                }
                for (int64_t i = 0; i < count; i++)
                    to[i * width + n] = g->b.parts == 1 ? column[i] : (int16_t)ln_part_of(column[i], part);
            }
        }
}

void ln_gemm_pack_panel(const ln_gemm *g, const void *source, int64_t matrix, int64_t panel, void *panels) {
    char *out = (char *)panels + matrix * g->b.matrix_bytes + panel * g->b.panel_bytes;
    const char *from = (const char *)source + g->b.matrix_offset[matrix] * (int64_t)ln_dtype_size(g->b.dtype);
    int64_t first = panel * g->set->width, width = ln_gemm_panel_width(g, panel);
    int64_t columns = ln_min(width, g->n - first);
    if (g->c.integer && g->set->b_dtype == LINNET_I16)
        for (int part = 0; part < g->b.parts; part++)
            pack_words(g, from, first, columns, width, part,
                       (int16_t *)(void *)(out + part * ln_gemm_part_bytes(g, panel)));
    else if (g->c.integer)
        for (int part = 0; part < g->b.parts; part++)
            pack_bytes(g, (const uint8_t *)from, first, columns, width, part,
                       (uint8_t *)out + part * ln_gemm_part_bytes(g, panel));
    else
        pack_floats(g, from, first, columns, width, out);
}

/* Returns the sum of n bytes, each of which is XORed with `turn`. Eight bytes are added at a time, as four sums of 16
 * bits. */
static int64_t sum_of_run(const uint8_t *v, int64_t n, int turn) {
    enum { MOST = 128 }; /* 16-bit sums grow by at most 2 x 255 per step */
    const uint64_t all = UINT64_C(0x0101010101010101) * (uint64_t)turn, low = UINT64_C(0x00ff00ff00ff00ff);
    int64_t sum = 0, i = 0;
    while (i + 8 <= n) {
        uint64_t four = 0;
        for (int left = MOST; left > 0 && i + 8 <= n; left--, i += 8) {
            uint64_t word;
            memcpy(&word, v + i, sizeof word);
            word ^= all;
            four += (word & low) + (word >> 8 & low);
        }
        for (; four != 0; four >>= 16) sum += (int64_t)(four & 0xffff);
    }
    for (; i < n; i++) sum += v[i] ^ turn;
    return sum;
}

/* Returns the start value of column n without the bias. With the zero points za of A and zb of B, the result is
 * sum((a - za) * (b - zb)) = sum(a * b) - za * sum(b) + K * za * zb - zb * sum(a).
 * All terms except the first and the last depend only on the column; they are the start value. */
static int64_t integer_init(const ln_gemm *g, const uint8_t *source, int64_t matrix, int64_t n) {
    const uint8_t *from =
        source + (g->b.matrix_offset[matrix] + (g->fold == NULL ? n * g->b.n : 0)) * (int64_t)ln_dtype_size(g->b.dtype);
    const int64_t x_zero = g->c.requant.x_zero - (ln_gemm_splits(g->set) ? 128 : 0), count = g->k.taps * g->k.kc;
    const int turn = g->b.dtype == LINNET_I8 ? 128 : 0; /* turns an i8 into the u8 that is larger by 128 */
    if (x_zero == 0) return 0;
    int64_t sum = count * (g->b.shift - turn);
    if (g->fold != NULL) {
        for (int64_t tap = 0; tap < g->k.taps; tap++) {
            const int64_t at = ln_gemm_fold_at(g, n, tap);
            for (int64_t c = 0; c < g->k.kc; c++)
                sum += turn + (at < 0 ? g->b.zero - g->b.shift : ln_load_i64(from, g->b.dtype, at + c * g->b.c));
        }
    } else if (g->b.dtype == LINNET_I16) {
        for (int64_t c = 0; c < g->k.kc; c++)
            for (int64_t tap = 0; tap < g->k.taps; tap++)
                sum += ln_load_i64(from, LINNET_I16, tap * g->b.tap + c * g->b.c);
    } else if (g->b.c == (g->k.taps == 1 ? 1 : g->k.taps) && g->b.tap == (g->k.taps == 1 ? g->b.tap : 1)) {
        sum += sum_of_run(from, count, turn);
    } else {
        for (int64_t c = 0; c < g->k.kc; c++)
            for (int64_t tap = 0; tap < g->k.taps; tap++) sum += from[tap * g->b.tap + c * g->b.c] ^ turn;
    }
    return g->k.taps * g->k.kc * x_zero * g->b.zero - x_zero * sum;
}

void ln_gemm_make_init(const ln_gemm *g, const void *source, const void *bias, int64_t matrix, int64_t first,
                       int64_t last, void *init) {
    for (int64_t n = first; n < last; n++) {
        int64_t at = matrix * g->b.parts * g->init.width + n,
                bias_at = matrix * g->init.matrix + ln_gemm_channel(g, n) * g->init.n;
        bool inside = n < g->n;
        if (!g->c.integer) {
            ((float *)init)[at] =
                inside && bias != NULL && !g->c.turned ? (float)ln_load_f64(bias, g->init.dtype, bias_at) : 0;
            continue;
        }
        int64_t v = inside ? integer_init(g, source, matrix, n) : 0;
        if (inside && bias != NULL) v = ln_wrapped_sum(v, ln_load_i64(bias, g->init.dtype, bias_at));
        for (int part = 0; part < g->b.parts; part++, at += g->init.width) {
            const int64_t own = g->b.parts == 1 ? v : ln_part_of(v, part);
            if (g->set->c_dtype == LINNET_I64)
                ((int64_t *)init)[at] = own;
            else
                ((int32_t *)init)[at] = (int32_t)(uint32_t)own; /* 32-bit sums wrap */
        }
    }
}
