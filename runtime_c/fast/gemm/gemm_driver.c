/* gemm_driver.c - runs a planned matrix product, which is divided into blocks of rows, panels of columns, and tiles.
 * The epilogue follows while the result is in the cache. K is split only if it is very long: L2 delivers a panel fast
 * enough, and without a split, sums need not be stored and loaded again. */
#include "fast/gemm/gemm_driver.h"

#include "fast/gemm/epilogue.h"
#include "fast/gemm/gemm_driver_fold.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_driver_packed.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_driver_widen.h"

#include <string.h>

#define ROW_SUMS(NAME, TYPE)                                                                                           \
    void NAME(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {                           \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            int64_t sum = 0;                                                                                           \
            for (int64_t t = 0; t < taps; t++) {                                                                       \
                const TYPE *row = a[t * rows + i];                                                                     \
                for (int64_t k = 0; k < kc; k++) sum += row[k];                                                        \
            }                                                                                                          \
            sums[i] = (int32_t)sum;                                                                                    \
        }                                                                                                              \
    }
ROW_SUMS(ln_gemm_row_sums_i8, int8_t)
ROW_SUMS(ln_gemm_row_sums_u8, uint8_t)
ROW_SUMS(ln_gemm_row_sums_i16, int16_t)

void ln_gemm_store_row(const ln_requant *r, int64_t channel, const void *sums, int64_t n, void *y) {
    if (!r->wide && r->output_dtype == LINNET_I32) {
        memcpy(y, sums, (size_t)n * sizeof(int32_t));
        return;
    }
    const int32_t *narrow = sums, *low = (const int32_t *)(const void *)((const char *)sums + r->low_at);
    for (int64_t i = 0; i < n; i++) {
        const int64_t sum = r->low_at != 0 ? ln_joined_parts(narrow[i], low[i])
                            : r->wide      ? ((const int64_t *)sums)[i]
                                           : narrow[i];
        ln_requant_store(r, channel + i, sum, y, i);
    }
}

void ln_gemm_store_any(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                       int64_t n, void *y, int64_t y_stride) {
    for (int64_t i = 0; i < rows; i++)
        ln_gemm_store_row(r, channel, (const char *)sums + i * sums_stride, n, (char *)y + i * y_stride);
}

void ln_gemm_pack(const ln_call *call, void *packed) {
    const ln_gemm *g = call->state;
    if (!g->b.constant) return;
    const void *source = call->inputs[g->b.operand].data;
    const void *bias = g->init.operand < 0 ? NULL : call->inputs[g->init.operand].data;
    for (int64_t matrix = 0; matrix < g->n_matrices; matrix++) {
        for (int64_t panel = 0; panel < g->b.panels; panel++) ln_gemm_pack_panel(g, source, matrix, panel, packed);
        if (g->init.constant)
            ln_gemm_make_init(g, source, bias, matrix, 0, g->init.width, (char *)packed + g->init.offset);
    }
}

/* Phase 0, for operands that are not constant. A work item packs one panel and its start values, or a whole matrix. */
static void prepare(const ln_gemm *g, const ln_buffers *b, int64_t item) {
    const void *source = b->inputs[g->b.operand];
    const void *bias = g->init.operand < 0 ? NULL : b->inputs[g->init.operand];
    char *init = (char *)b->scratch + g->init.offset;
    if (g->b.constant || g->b.as_is) {
        ln_gemm_make_init(g, source, bias, item, 0, g->init.width, init);
        if (g->b.matrix_bytes > 0 && g->b.as_is) ln_gemm_pack_panel(g, source, item, g->b.panels - 1, b->scratch);
        return;
    }
    int64_t matrix = item / g->b.panels, panel = item % g->b.panels, width = g->set->width;
    ln_gemm_pack_panel(g, source, matrix, panel, b->scratch);
    ln_gemm_make_init(g, source, bias, matrix, panel * width, (panel + 1) * width, init);
}

/* One block of rows for one chunk of K, prepared for the micro-kernels. */
typedef struct row_block {
    int64_t product, first, count, chunk;
    int64_t segments, length,
        skipped; /* like the fields of ln_gemm_depth, for this chunk; skipped: elements of K before the chunk */
    const void **rows;
    int32_t *sums; /* sums of the rows of A, multiplied by -b.zero if B has one part; NULL: not needed */
} row_block;

static void make_rows(const ln_gemm *g, const ln_buffers *b, char *scratch, row_block *block) {
    const ln_gemm_product *p = &g->products[block->product];
    const bool widened = g->a.widened != LINNET_NONE;
    const char *base =
        (const char *)b->inputs[g->a.operand] + p->a * (widened && !ln_gemm_splits(g->set) ? 1 : g->a.size);
    if (widened) base = ln_gemm_widen(g, base, block->first, block->count, scratch + g->scratch.widened);
    int64_t most = g->a.plain ? g->k.kc : g->k.taps, unit = g->a.plain ? 1 : g->k.kc;
    ln_gemm_range part = {block->chunk * g->k.chunk, ln_min((block->chunk + 1) * g->k.chunk, most)};
    block->segments = g->k.segments, block->length = g->k.length;
    block->skipped = part.begin * unit;
    if (g->k.chunks > 1) {
        bool merged = g->a.gather || g->a.plain;
        block->segments = merged ? 1 : part.end - part.begin;
        block->length = merged ? (part.end - part.begin) * unit : g->k.kc;
    }
    block->rows = (const void **)(void *)scratch;
    if (g->set->strip != NULL) {
        ln_gemm_pack_block(g, base, block->first, block->count, part, block->segments, block->length, scratch);
    } else if (g->a.gather) {
        char *copy = scratch + g->scratch.a;
        ln_gemm_gather(g, base, block->first, block->count, part, copy);
        for (int64_t i = 0; i < block->count; i++) block->rows[i] = copy + i * g->a.copy_stride;
        for (int64_t i = 0; i < block->count && ln_gemm_splits(g->set) && !widened; i++)
            g->set->convert((char *)block->rows[i], block->rows[i], 1, g->k.padded, g->a.dtype);
    } else {
        ln_gemm_rows(g, base, block->first, block->count, part, scratch + g->scratch.a, block->rows);
    }
    block->sums = NULL;
    if (g->b.zero == 0) return;
    block->sums = (int32_t *)(void *)(scratch + g->scratch.rows);
    for (int64_t done = 0; done < block->count;) {
        int64_t n = ln_gemm_tile_rows(g->set, block->count - done);
        g->set->row_sums(block->rows + done * g->k.segments, g->k.segments, n, g->k.length, block->sums + done);
        done += n;
    }
    for (int64_t i = 0; i < block->count && g->b.parts == 1; i++)
        block->sums[i] = (int32_t)((uint32_t)block->sums[i] * (uint32_t)-g->b.zero);
}

/* Where the results of a block go before the epilogue. */
typedef struct target {
    char *c;
    int64_t ldc;
} target;

static int64_t stored_size(const ln_gemm *g) { return g->c.halves ? 2 : (int64_t)ln_dtype_size(g->set->c_dtype); }

static target target_of(const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column, int64_t columns,
                        char *scratch) {
    const ln_gemm_product *p = &g->products[block->product];
    if (g->c.tiled) return (target){scratch + g->scratch.c, 0};
    if (!g->c.direct) return (target){scratch + g->scratch.c, columns};
    int64_t at = (p->row + block->first) * g->c.ldc + p->column + column;
    return (target){(char *)b->outputs[0] + at * stored_size(g), g->c.ldc};
}

/* Computes the tiles of one panel of floats, and stores each tile as f16 or bf16 as soon as it is computed. */
static void compute_halves(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block,
                           int64_t at, int64_t width, ln_gemm_tile *tile) {
    const ln_gemm_product *p = &g->products[block->product];
    const ln_gemm_ukernel *kernels = width == g->set->width ? g->set->full : g->set->half;
    const int64_t n = tile->columns;
    tile->columns = tile->ldc = width;
    for (int64_t done = 0, height; done < block->count; done += height) {
        height = ln_gemm_tile_rows(g->set, block->count - done);
        tile->a = block->rows + done * block->segments;
        kernels[height](tile);
        ln_epilogue_apply(call, b, p->row + block->first + done, height, p->column + at, n, tile->c, width);
    }
}

/* Computes the tiles of one panel of integers, and stores each tile as soon as it is computed. */
static void compute_stored(const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t at, int64_t width,
                           ln_gemm_tile *tile) {
    const ln_gemm_set *set = g->set;
    const ln_gemm_product *p = &g->products[block->product];
    const ln_gemm_ukernel *kernels = width == set->width ? set->full : set->half;
    const int64_t y_size = (int64_t)ln_dtype_size(g->c.sum != NULL ? g->c.sum->y_dtype : g->c.requant.output_dtype),
                  stride = g->c.ldc * y_size;
    const int64_t n = tile->columns, channel = p->column + at;
    int64_t to = (p->row + block->first) * stride + channel * y_size;
    char *y = b->outputs[0];
    const char *residual = g->c.sum != NULL && g->c.sum->input != 0 ? b->inputs[g->c.sum->input] : NULL;
    tile->columns = tile->ldc = width;
    tile->a = block->rows;
    tile->row_sum = block->sums;
    for (int64_t left = block->count; left > 0;) {
        const int64_t height = ln_gemm_tile_rows(set, left);
        tile->tiles = ln_max(1, ln_min(left / height, set->tiles));
        const int64_t rows = height * tile->tiles;
        kernels[height](tile);
        if (g->c.sum != NULL)
            set->store_sum(&g->c.requant, g->c.sum, channel, tile->c, rows, width, n,
                           residual == NULL ? NULL : residual + to / y_size * (int64_t)ln_dtype_size(g->c.sum->dtype),
                           y + to, stride);
        else
            set->store_tile(&g->c.requant, channel, tile->c, rows, width, n, y + to, stride);
        tile->a += rows * block->segments;
        if (tile->row_sum != NULL) tile->row_sum += rows;
        to += rows * stride;
        left -= rows;
    }
}

/* Computes and stores whole panels of a single row of integers, many at a time. Returns the number of columns. */
static int64_t compute_row(const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column,
                           int64_t columns, ln_gemm_tile *tile) {
    const ln_gemm_set *set = g->set;
    const ln_gemm_product *p = &g->products[block->product];
    const int64_t y_size = (int64_t)ln_dtype_size(g->c.requant.output_dtype),
                  room = set->rows * set->tiles * set->width;
    const int64_t whole = ln_min(columns, g->n - column) / set->width * set->width, channel = p->column + column;
    char *y = (char *)b->outputs[0] + ((p->row + block->first) * g->c.ldc + channel) * y_size;
    tile->a = block->rows;
    tile->row_sum = block->sums;
    for (int64_t done = 0; done < whole; done += tile->columns) {
        tile->columns = ln_min(whole - done, room);
        set->row(tile, g->b.panel_bytes);
        set->store(&g->c.requant, channel + done, tile->c, 0, 1, tile->columns, y + done * y_size, 0);
        tile->b = (const char *)tile->b + tile->columns / set->width * g->b.panel_bytes;
        tile->init = (const int32_t *)tile->init + tile->columns;
    }
    return whole;
}

/* Returns the residual that belongs to the sums at c, which have the same dtype. */
static const void *residual_at(const ln_gemm *g, const ln_buffers *b, const void *c) {
    return (const char *)b->inputs[g->c.residual] + ((const char *)c - (const char *)b->outputs[0]);
}

static void compute(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column,
                    int64_t columns, target to, char *scratch) {
    const ln_gemm_set *set = g->set;
    const ln_gemm_product *p = &g->products[block->product];
    int64_t c_size = (int64_t)ln_dtype_size(set->c_dtype), b_size = (int64_t)ln_dtype_size(set->b_dtype);
    const char *panels = (const char *)(g->b.constant ? b->packed : b->scratch) + p->matrix * g->b.matrix_bytes;
    const char *whole = (const char *)b->inputs[g->b.operand] + g->b.matrix_offset[p->matrix] * b_size;
    const char *init = (const char *)(g->init.constant ? b->packed : b->scratch) + g->init.offset +
                       p->matrix * g->b.parts * g->init.width * c_size;
    ln_gemm_tile tile = {.taps = block->segments,
                         .kc = block->length,
                         .a_step = 1,
                         .ldc = to.ldc,
                         .low = -INFINITY,
                         .high = INFINITY,
                         .wide = set->c_dtype == LINNET_I64,
                         .rounded = g->c.requant.rounded,
                         .bounded = g->k.bounded,
                         .chained = g->k.chained};
    if (block->chunk == g->k.chunks - 1 && !g->c.turned) tile.low = g->c.low, tile.high = g->c.high;
    int64_t begin = column;
    if (g->c.tiled && g->c.integer && g->c.sum == NULL && block->count == 1 && set->row != NULL) {
        tile.b = panels + column / set->width * g->b.panel_bytes;
        tile.init = init + column * c_size;
        tile.c = to.c;
        begin += compute_row(g, b, block, column, columns, &tile);
    }
    for (int64_t at = begin; at < column + columns; at += set->width) {
        int64_t panel = at / set->width, width = ln_gemm_panel_width(g, panel);
        tile.columns = ln_min(set->width, g->n - at);
        if (g->b.as_is && tile.columns == set->width) {
            tile.b_step = g->b.step;
            tile.b = whole + at * b_size;
        } else {
            tile.b_step = width * (int64_t)ln_dtype_size(g->b.panel_dtype);
            tile.b = panels + panel * g->b.panel_bytes;
        }
        tile.b = (const char *)tile.b + block->skipped * tile.b_step;
        if (g->b.panel_dtype != set->b_dtype) {
            char *widened = scratch + g->scratch.b;
            set->convert(widened, tile.b, 1, block->segments * block->length * width, g->b.panel_dtype);
            tile.b = widened;
            tile.b_step = width * b_size;
        }
        tile.init = block->chunk == 0 ? init + at * c_size : NULL;
        if (set->strip != NULL) {
            tile.packed = scratch + g->scratch.packed;
            tile.c = to.c + (at - column) * stored_size(g);
            tile.halves = g->c.halves;
            if (g->c.residual != 0) tile.residual = residual_at(g, b, tile.c);
            const int64_t several = set->row_panels * width;
            if (block->count == 1 && set->row != NULL && g->c.residual == 0 && at + several <= column + columns &&
                g->n - at >= several && g->b.panel_dtype == set->b_dtype) {
                set->row(&tile, g->b.panel_bytes);
                at += several - width;
            } else {
                set->strip(&tile, block->count, width);
            }
            continue;
        }
        if (g->c.tiled) {
            tile.c = to.c;
            if (g->c.integer)
                compute_stored(g, b, block, at, width, &tile);
            else
                compute_halves(call, g, b, block, at, width, &tile);
            continue;
        }
        const ln_gemm_ukernel *kernels = width == set->width ? set->full : set->half;
        for (int part = 0; part < g->b.parts; part++) {
            for (int64_t done = 0; done < block->count;) {
                int64_t n = ln_gemm_tile_rows(set, block->count - done);
                tile.a = block->rows + done * block->segments;
                tile.c = to.c + part * g->c.part_bytes + (done * to.ldc + at - column) * c_size;
                if (g->c.residual != 0) tile.residual = residual_at(g, b, tile.c);
                tile.ahead = done == 0 && !g->b.as_is && g->b.panel_dtype == set->b_dtype ? g->b.panel_bytes : 0;
                tile.row_sum = block->sums == NULL || g->b.parts > 1 ? NULL : block->sums + done;
                kernels[n](&tile);
                done += n;
            }
            if (g->b.parts == 1) break;
            tile.b = (const char *)tile.b + ln_gemm_part_bytes(g, panel);
            tile.init = (const char *)tile.init + g->init.width * c_size;
        }
    }
}

/* Writes a block of a transposed product to the rows of the output, with bias and clamp. */
static void finish_turned(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block,
                          int64_t column, int64_t columns, target from, char *scratch) {
    const void *bias = g->init.operand < 0 ? NULL : b->inputs[g->init.operand];
    const float *tile = (const float *)(void *)from.c;
    float *rows = (float *)(void *)(scratch + g->scratch.turned), *y = (float *)b->outputs[0] + block->first;
    for (int64_t i = 0; i < block->count; i++) {
        const float add = bias == NULL ? 0 : (float)ln_load_f64(bias, g->init.dtype, (block->first + i) * g->init.n);
        for (int64_t j = 0; j < columns; j++) {
            const float v = tile[i * from.ldc + j] + add;
            rows[j * block->count + i] = v < g->c.low ? g->c.low : v > g->c.high ? g->c.high : v;
        }
    }
    if (g->c.apply) ln_epilogue_apply(call, b, column, columns, block->first, block->count, rows, block->count);
    for (int64_t j = 0; j < columns && !g->c.apply; j++)
        memcpy(y + (column + j) * g->c.ldc, rows + j * block->count, (size_t)block->count * sizeof *y);
}

/* Joins the sums of the two parts of B to 64-bit sums, in place. */
static void join_parts(const ln_gemm *g, const row_block *block, int64_t columns, target from) {
    for (int64_t i = 0; i < block->count; i++) {
        int64_t *high = (int64_t *)(void *)from.c + i * from.ldc;
        const int64_t *low = (const int64_t *)(const void *)((const char *)high + g->c.part_bytes);
        const int64_t row = block->sums == NULL ? 0 : (int64_t)block->sums[i] * -g->b.zero;
        for (int64_t n = 0; n < columns; n++) high[n] = ln_wrapped_sum(ln_joined_parts(high[n], low[n]), row);
    }
}

static void finish(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column,
                   int64_t columns, target from, char *scratch) {
    const ln_gemm_product *p = &g->products[block->product];
    int64_t row = p->row + block->first, at = p->column + column;
    int64_t c_size = (int64_t)ln_dtype_size(g->set->c_dtype);
    if (g->c.tiled) return;
    if (g->b.parts == 2 && g->c.requant.low_at == 0) join_parts(g, block, columns, from);
    if (ln_gemm_unfolds(g)) {
        ln_gemm_unfold(call, g, b, (ln_gemm_range){row, row + block->count}, (ln_gemm_range){at, at + columns}, from.c,
                       from.ldc, scratch + g->scratch.turned);
        return;
    }
    if (g->c.integer) {
        int64_t y_size = (int64_t)ln_dtype_size(g->c.requant.output_dtype);
        /* With an epilogue, the f32 values overwrite the sums, which have at least as many bits. */
        void *y = g->c.apply ? from.c : (char *)b->outputs[0] + (row * g->c.ldc + at) * y_size;
        g->set->store(&g->c.requant, at, from.c, from.ldc * c_size, block->count, columns, y,
                      g->c.apply ? from.ldc * c_size : g->c.ldc * y_size);
    }
    if (!g->c.apply) return;
    const float *tile = (const float *)(void *)from.c;
    int64_t stride = from.ldc * c_size / (int64_t)sizeof *tile;
    if (!g->c.flat) ln_epilogue_apply(call, b, row, block->count, at, columns, tile, stride);
    for (int64_t i = 0; i < block->count && g->c.flat; i++)
        ln_epilogue_apply(call, b, (row + i) * g->c.ldc + at, columns, 0, 1, tile + i * stride, 1);
}

linnet_status ln_gemm_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    const ln_gemm *g = call->state;
    if (call->phases == 2 && phase == 0) {
        for (int64_t item = begin; item < end; item++) prepare(g, b, item);
        return LINNET_OK;
    }
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    row_block block = {.product = -1};
    for (int64_t item = begin; item < end; item++) {
        const ln_gemm_blocks *blocks = &g->blocks;
        const int64_t across = item % blocks->n_count, rest = item / blocks->n_count;
        const int64_t product = blocks->rows_first ? rest % g->n_products : rest / blocks->m_count;
        const int64_t down = blocks->rows_first ? rest / g->n_products : rest % blocks->m_count;
        const int64_t first = ln_gemm_boundary(down, blocks->m_count, g->set->rows, g->m);
        const int64_t last = ln_gemm_boundary(down + 1, blocks->m_count, g->set->rows, g->m);
        const int64_t column = ln_gemm_boundary(across, blocks->n_count, g->set->width, g->n);
        const int64_t columns = ln_gemm_boundary(across + 1, blocks->n_count, g->set->width, g->n) - column;
        target to = {NULL, 0};
        for (int64_t chunk = 0; chunk < g->k.chunks; chunk++) {
            if (block.product != product || block.first != first || block.chunk != chunk) {
                block = (row_block){.product = product, .first = first, .chunk = chunk};
                block.count = last - first;
                make_rows(g, b, scratch, &block);
            }
            to = target_of(g, b, &block, column, columns, scratch);
            compute(call, g, b, &block, column, columns, to, scratch);
        }
        if (g->c.turned)
            finish_turned(call, g, b, &block, column, columns, to, scratch);
        else if (g->c.integer || g->c.apply || ln_gemm_unfolds(g))
            finish(call, g, b, &block, column, columns, to, scratch);
    }
    return LINNET_OK;
}
