/* gemm_driver.c - runs a planned matrix product: blocks of rows, panels of columns, tiles; then the epilogue while hot.
 * K is never cut: a panel streams from L2 at a few bytes a cycle, and sums never pass through memory. */
#include "ops/gemm_driver.h"

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

void ln_gemm_copy_rows(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                       int64_t bytes) {
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, (size_t)bytes);
}

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
    for (int64_t i = 0; i < n; i++)
        ln_requant_store(r, channel + i, r->wide ? ((const int64_t *)sums)[i] : ((const int32_t *)sums)[i], y, i);
}

void ln_gemm_store_any(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows,
                       int64_t n, void *y, int64_t y_stride) {
    for (int64_t i = 0; i < rows; i++)
        ln_gemm_store_row(r, channel, (const char *)sums + i * sums_stride, n, (char *)y + i * y_stride);
}

void ln_gemm_pack(const ln_call *call, void *packed) {
    const ln_gemm *g = call->state;
    if (!g->b_constant) return;
    const void *source = call->inputs[g->b_operand].data;
    const void *bias = g->bias_operand < 0 ? NULL : call->inputs[g->bias_operand].data;
    for (int64_t matrix = 0; matrix < g->n_matrices; matrix++) {
        for (int64_t panel = 0; panel < g->panels; panel++) ln_gemm_pack_panel(g, source, matrix, panel, packed);
        if (g->init_constant)
            ln_gemm_make_init(g, source, bias, matrix, 0, g->init_width, (char *)packed + g->init_offset);
    }
}

/* Phase 0, for operands that are not constant: item = one panel and its part of the init, or all there is to do for one
 * matrix. */
static void prepare(const ln_gemm *g, const ln_buffers *b, int64_t item) {
    const void *source = b->inputs[g->b_operand];
    const void *bias = g->bias_operand < 0 ? NULL : b->inputs[g->bias_operand];
    char *init = (char *)b->scratch + g->init_offset;
    if (g->b_constant || g->b_as_is) {
        ln_gemm_make_init(g, source, bias, item, 0, g->init_width, init);
        if (g->matrix_bytes > 0 && g->b_as_is) ln_gemm_pack_panel(g, source, item, g->panels - 1, b->scratch);
        return;
    }
    int64_t matrix = item / g->panels, panel = item % g->panels, width = g->set->width;
    ln_gemm_pack_panel(g, source, matrix, panel, b->scratch);
    ln_gemm_make_init(g, source, bias, matrix, panel * width, (panel + 1) * width, init);
}

/* One block of rows, and one chunk of K, made ready for the micro-kernels. */
typedef struct row_block {
    int64_t product, first, count, chunk;
    int64_t segments, length, skipped; /* as in ln_gemm, of this chunk; elements of K before it */
    const void **rows;
    int32_t *sums; /* already times -b_zero; NULL: not needed */
} row_block;

static void make_rows(const ln_gemm *g, const ln_buffers *b, char *scratch, row_block *block) {
    const ln_gemm_product *p = &g->products[block->product];
    const char *base = (const char *)b->inputs[g->a_operand] + p->a * g->a_size;
    int64_t most = g->plain ? g->kc : g->taps, unit = g->plain ? 1 : g->kc;
    ln_gemm_range part = {block->chunk * g->chunk, ln_min((block->chunk + 1) * g->chunk, most)};
    block->segments = g->segments, block->length = g->length;
    block->skipped = part.begin * unit;
    if (g->chunks > 1) {
        bool merged = g->gather || g->plain;
        block->segments = merged ? 1 : part.end - part.begin;
        block->length = merged ? (part.end - part.begin) * unit : g->kc;
    }
    block->rows = (const void **)(void *)scratch;
    if (g->gather) {
        char *copy = scratch + g->a_offset;
        ln_gemm_gather(g, base, block->first, block->count, part, copy);
        for (int64_t i = 0; i < block->count; i++) block->rows[i] = copy + i * g->copy_stride;
    } else {
        ln_gemm_rows(g, base, block->first, block->count, part, scratch + g->a_offset, block->rows);
    }
    block->sums = NULL;
    if (g->b_zero == 0) return;
    block->sums = (int32_t *)(void *)(scratch + g->rows_offset);
    for (int64_t done = 0; done < block->count;) {
        int64_t n = ln_gemm_tile_rows(g->set, block->count - done);
        g->set->row_sums(block->rows + done * g->segments, g->segments, n, g->length, block->sums + done);
        done += n;
    }
    for (int64_t i = 0; i < block->count; i++)
        block->sums[i] = (int32_t)((uint32_t)block->sums[i] * (uint32_t)-g->b_zero);
}

/* Where the results of a block go, before the epilogue. */
typedef struct target {
    char *c;
    int64_t ldc;
} target;

static target target_of(const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column, char *scratch) {
    const ln_gemm_product *p = &g->products[block->product];
    if (!g->direct) return (target){scratch + g->c_offset, g->n_block};
    int64_t at = (p->row + block->first) * g->ldc + p->column + column;
    return (target){(char *)b->outputs[0] + at * (int64_t)ln_dtype_size(g->set->c_dtype), g->ldc};
}

static void compute(const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column, int64_t columns,
                    target to, char *scratch) {
    const ln_gemm_set *set = g->set;
    const ln_gemm_product *p = &g->products[block->product];
    int64_t c_size = (int64_t)ln_dtype_size(set->c_dtype), b_size = (int64_t)ln_dtype_size(set->b_dtype);
    const char *panels = (const char *)(g->b_constant ? b->packed : b->scratch) + p->matrix * g->matrix_bytes;
    const char *whole = (const char *)b->inputs[g->b_operand] + g->matrix_offset[p->matrix] * b_size;
    const char *init =
        (const char *)(g->init_constant ? b->packed : b->scratch) + g->init_offset + p->matrix * g->init_width * c_size;
    ln_gemm_tile tile = {.taps = block->segments,
                         .kc = block->length,
                         .a_step = 1,
                         .ldc = to.ldc,
                         .low = -INFINITY,
                         .high = INFINITY,
                         .wide = set->c_dtype == LINNET_I64,
                         .chained = g->chained};
    if (block->chunk == g->chunks - 1 && !g->turned) tile.low = g->low, tile.high = g->high;
    for (int64_t at = column; at < column + columns; at += set->width) {
        int64_t panel = at / set->width, width = ln_gemm_panel_width(g, panel);
        const ln_gemm_ukernel *kernels = width == set->width ? set->full : set->half;
        tile.columns = ln_min(set->width, g->n - at);
        if (g->b_as_is && tile.columns == set->width) {
            tile.b_step = g->b_step;
            tile.b = whole + at * b_size;
        } else {
            tile.b_step = width * (int64_t)ln_dtype_size(g->panel_dtype);
            tile.b = panels + panel * g->panel_bytes;
        }
        tile.b = (const char *)tile.b + block->skipped * tile.b_step;
        if (g->panel_dtype != set->b_dtype) {
            char *widened = scratch + g->b_offset;
            set->convert(widened, tile.b, 1, block->segments * block->length * width, g->panel_dtype);
            tile.b = widened;
            tile.b_step = width * b_size;
        }
        tile.init = block->chunk == 0 ? init + at * c_size : NULL;
        for (int64_t done = 0; done < block->count;) {
            int64_t n = ln_gemm_tile_rows(set, block->count - done);
            tile.a = block->rows + done * block->segments;
            tile.c = to.c + (done * to.ldc + at - column) * c_size;
            tile.row_sum = block->sums == NULL ? NULL : block->sums + done;
            kernels[n](&tile);
            done += n;
        }
    }
}

/* A block of a turned product as rows of the output, with bias and limits. */
static void finish_turned(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block,
                          int64_t column, int64_t columns, target from, char *scratch) {
    const void *bias = g->bias_operand < 0 ? NULL : b->inputs[g->bias_operand];
    const float *tile = (const float *)(void *)from.c;
    float *rows = (float *)(void *)(scratch + g->turned_offset), *y = (float *)b->outputs[0] + block->first;
    for (int64_t i = 0; i < block->count; i++) {
        const float add = bias == NULL ? 0 : (float)ln_load_f64(bias, g->bias_dtype, (block->first + i) * g->bias_n);
        for (int64_t j = 0; j < columns; j++) {
            const float v = tile[i * from.ldc + j] + add;
            rows[j * block->count + i] = v < g->low ? g->low : v > g->high ? g->high : v;
        }
    }
    if (g->apply) ln_epilogue_apply(call, b, column, columns, block->first, block->count, rows, block->count);
    for (int64_t j = 0; j < columns && !g->apply; j++)
        memcpy(y + (column + j) * g->ldc, rows + j * block->count, (size_t)block->count * sizeof *y);
}

static void finish(const ln_call *call, const ln_gemm *g, const ln_buffers *b, const row_block *block, int64_t column,
                   int64_t columns, target from) {
    const ln_gemm_product *p = &g->products[block->product];
    int64_t row = p->row + block->first, at = p->column + column;
    int64_t c_size = (int64_t)ln_dtype_size(g->set->c_dtype);
    if (g->integer) {
        int64_t y_size = (int64_t)ln_dtype_size(g->requant.output_dtype);
        /* For an epilogue the f32 values take the place of the sums, which are never narrower. */
        void *y = g->apply ? from.c : (char *)b->outputs[0] + (row * g->ldc + at) * y_size;
        g->set->store(&g->requant, at, from.c, from.ldc * c_size, block->count, columns, y,
                      g->apply ? from.ldc * c_size : g->ldc * y_size);
    }
    if (!g->apply) return;
    const float *tile = (const float *)(void *)from.c;
    int64_t stride = from.ldc * c_size / (int64_t)sizeof *tile;
    if (!g->flat) ln_epilogue_apply(call, b, row, block->count, at, columns, tile, stride);
    for (int64_t i = 0; i < block->count && g->flat; i++)
        ln_epilogue_apply(call, b, (row + i) * g->ldc + at, columns, 0, 1, tile + i * stride, 1);
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
        int64_t product = item / (g->m_blocks * g->n_blocks), rest = item % (g->m_blocks * g->n_blocks);
        int64_t first = rest / g->n_blocks * g->m_block, column = rest % g->n_blocks * g->n_block;
        int64_t columns = ln_min(g->n_block, g->n - column);
        target to = {NULL, 0};
        for (int64_t chunk = 0; chunk < g->chunks; chunk++) {
            if (block.product != product || block.first != first || block.chunk != chunk) {
                block = (row_block){.product = product, .first = first, .chunk = chunk};
                block.count = ln_min(g->m_block, g->m - first);
                make_rows(g, b, scratch, &block);
            }
            to = target_of(g, b, &block, column, scratch);
            compute(g, b, &block, column, columns, to, scratch);
        }
        if (g->turned)
            finish_turned(call, g, b, &block, column, columns, to, scratch);
        else if (g->integer || g->apply)
            finish(call, g, b, &block, column, columns, to);
    }
    return LINNET_OK;
}
