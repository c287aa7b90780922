/* attention_tiles.c - attention without stored scores. A work item has some queries of one matrix and processes tiles
 * of keys one after the other. The products with a tile become weights relative to the largest score so far. When a
 * larger score appears, the sums so far are corrected (Milakov and Gimelshein 2018; Dao et al. 2022). */
#include "fast/tail/attention_tiles.h"
#include "kernel/step.h"

#include <math.h>
#include <string.h>

/* The sizes of the call, and the offsets of the parts of a thread's scratch memory in floats. */
typedef struct plan {
    ln_attention_view view;
    int64_t rows, blocks; /* queries per item, and items per matrix */
    int64_t size;         /* floats in a row of the result: whole panels */
    int64_t query, keys, values, panel, scores, mask, result, top, sum;
} plan;

/* A work item. */
typedef struct item {
    const ln_attention_vectors *vectors;
    const ln_call *call;
    const ln_buffers *b;
    const plan *p;
    float *scratch;
    int64_t matrix, row, rows, total; /* total: number of keys that count (ln_attention_part) */
    const void *queries[LN_ATTENTION_ROWS], *weights[LN_ATTENTION_ROWS];
} item;

/* An f32 matrix: an operand in place, or a copy of a part of an operand. */
typedef struct matrix {
    const float *data;
    int64_t row, column;
} matrix;

bool ln_attention_can(const ln_call *call) {
    ln_attention_view v;
    ln_attention_view_of(call, &v);
    return v.y.column == 1 && v.depth > 0 && v.size > 0;
}

static int64_t reserve(ln_call *call, int64_t floats) {
    const int64_t at = (int64_t)(call->scratch_thread / sizeof(float));
    call->scratch_thread += ln_round_up((size_t)floats * sizeof(float), 64);
    return at;
}

linnet_status ln_attention_configure(ln_call *call, const ln_attention_vectors *vectors) {
    plan *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    ln_attention_view *v = &p->view;
    ln_attention_view_of(call, v);
    const ln_gemm_set *set = vectors->set;
    p->blocks = ln_ceil_div(v->m, LN_ATTENTION_ROWS);
    if (v->matrices > 0 && v->matrices * p->blocks < 2 * call->threads)
        p->blocks = ln_max(p->blocks, ln_min(ln_ceil_div(2 * call->threads, v->matrices), v->m / (2 * set->rows)));
    p->rows = ln_ceil_div(v->m, ln_max(1, p->blocks));
    p->blocks = ln_ceil_div(v->m, ln_max(1, p->rows));
    p->size = ln_ceil_div(v->size, set->width) * set->width;
    p->query = reserve(call, p->rows * v->depth);
    p->keys = reserve(call, LN_ATTENTION_KEYS * v->depth);
    p->values = reserve(call, LN_ATTENTION_KEYS * v->size);
    p->panel = reserve(call, set->width * ln_max(v->depth, LN_ATTENTION_KEYS));
    p->scores = reserve(call, p->rows * LN_ATTENTION_KEYS);
    p->mask = reserve(call, LN_ATTENTION_KEYS);
    p->result = reserve(call, p->rows * p->size);
    p->top = reserve(call, p->rows), p->sum = reserve(call, p->rows);
    call->work[0] = v->matrices * p->blocks;
    const double macs = (double)(v->m * v->matrices) * (double)(v->n + v->past) * (double)(v->depth + v->size);
    call->flops = (uint64_t)(2 * macs);
    call->grain = (int64_t)(65536 / (1 + macs / (double)ln_max(1, call->work[0]))) + 1;
    return LINNET_OK;
}

/* ---- operands ---- */

/* Returns where row `row` of an operand begins. */
static const char *operand_at(const item *t, int operand, int64_t row) {
    const ln_attention_matrix *o = &t->p->view.operand[operand];
    return (const char *)t->b->inputs[operand] + (ln_attention_offset(&t->p->view, o, t->matrix) + row * o->row) *
                                                     (int64_t)ln_dtype_size(t->call->inputs[operand].dtype);
}

/* Returns rows of an operand as f32, with contiguous rows (or, with `either`, contiguous columns). The rows stay in
 * place if possible; otherwise they are copied to `to`. */
static matrix widened(const item *t, int operand, int64_t first, int64_t rows, int64_t columns, bool either,
                      float *to) {
    const ln_attention_matrix *o = &t->p->view.operand[operand];
    const int dtype = t->call->inputs[operand].dtype;
    const char *from = operand_at(t, operand, first);
    const int64_t size = (int64_t)ln_dtype_size(dtype);
    if (dtype == LINNET_F32 && (o->column == 1 || columns == 1 || (either && o->row == 1)))
        return (matrix){(const float *)(const void *)from, o->row, columns == 1 ? 1 : o->column};
    if (either && o->row == 1 && o->column != 1) {
        for (int64_t c = 0; c < columns; ++c)
            t->vectors->set->convert(to + c * rows, from + c * o->column * size, 1, rows, dtype);
        return (matrix){to, 1, rows};
    }
    for (int64_t r = 0; r < rows; ++r)
        t->vectors->set->convert(to + r * columns, from + r * o->row * size, o->column, columns, dtype);
    return (matrix){to, columns, 1};
}

/* Returns the mask of a query for n keys as f32; NULL: there is none. */
static const float *mask_line(const item *t, int64_t row, int64_t slot, int64_t n, float *line) {
    if (!ln_attention_has(t->call, LN_ATTENTION_MASK)) return NULL;
    const int dtype = t->call->inputs[LN_ATTENTION_MASK].dtype;
    const int64_t step = t->p->view.operand[LN_ATTENTION_MASK].column;
    const char *from = operand_at(t, LN_ATTENTION_MASK, row) + slot * step * (int64_t)ln_dtype_size(dtype);
    if (dtype == LINNET_F32 && step == 1) return (const float *)(const void *)from;
    if (dtype != LINNET_BOOL)
        t->vectors->set->convert(line, from, step, n, dtype);
    else
        for (int64_t i = 0; i < n; ++i) line[i] = from[i * step] != 0 ? 0.0f : -INFINITY;
    return line;
}

/* ---- products ---- */

/* Computes the products c of rows of a and a panel, or adds them to c if init is NULL. The rows of c have room for
 * whole panels. */
static void multiply(const item *t, const void *const *a, int64_t a_step, int64_t depth, const float *panel,
                     int64_t panel_step, int64_t width, const float *init, float *c, int64_t ldc) {
    const ln_gemm_set *set = t->vectors->set;
    ln_gemm_tile tile = {.taps = 1,
                         .kc = depth,
                         .a_step = a_step,
                         .b = panel,
                         .b_step = panel_step * (int64_t)sizeof *panel,
                         .ldc = ldc,
                         .columns = width,
                         .init = init,
                         .low = -INFINITY,
                         .high = INFINITY};
    for (int64_t done = 0; done < t->rows;) {
        const int64_t rows = ln_gemm_tile_rows(set, t->rows - done);
        tile.a = a + done, tile.c = c + done * ldc;
        (width == set->width ? set->full : set->half)[rows](&tile);
        done += rows;
    }
}

/* Returns the columns of a matrix [depth][n] as a panel of `width` columns: in place if the panel is whole, else
 * copied. */
static const float *panel_of(const matrix *m, int64_t depth, int64_t columns, int64_t width, float *panel) {
    if (columns == width) return m->data;
    memset(panel, 0, (size_t)(depth * width) * sizeof *panel);
    for (int64_t k = 0; k < depth; ++k)
        memcpy(panel + k * width, m->data + k * m->row, (size_t)columns * sizeof *panel);
    return panel;
}

/* Computes the products of the item's queries and keys [first, first + n) of a part (ln_attention_part). */
static void score(const item *t, const matrix *queries, int key, int64_t first, int64_t n) {
    static const _Alignas(64) float zeros[64];
    const int64_t depth = t->p->view.depth;
    const ln_gemm_set *set = t->vectors->set;
    float *scores = t->scratch + t->p->scores, *panel = t->scratch + t->p->panel;
    const matrix keys = widened(t, key, first, n, depth, true, t->scratch + t->p->keys);
    if (t->rows < LN_ATTENTION_FEW && keys.column == 1) {
        for (int64_t r = 0; r < t->rows; ++r)
            t->vectors->dots(t->queries[r], keys.data, keys.row, n, depth, scores + r * LN_ATTENTION_KEYS);
        return;
    }
    for (int64_t at = 0; at < n;) {
        const int64_t width = ln_gemm_width(set, n - at), columns = ln_min(width, n - at);
        const matrix turned = {keys.data + at, keys.column, 1}; /* the keys as a matrix [depth][n], if they lie side by
                                                                   side */
        const float *b = panel;
        int64_t step = width;
        if (keys.column == 1) {
            if (columns < width) memset(panel, 0, (size_t)(depth * width) * sizeof *panel);
            t->vectors->pack(keys.data + at * keys.row, keys.row, depth, columns, width, panel);
        } else {
            b = panel_of(&turned, depth, columns, width, panel);
            step = b == panel ? width : keys.column;
        }
        multiply(t, t->queries, queries->column, depth, b, step, width, zeros, scores + at, LN_ATTENTION_KEYS);
        at += columns;
    }
}

/* Adds the values [first, first + n) of a part, times the weights, to the result. */
static void add_values(const item *t, int value, int64_t first, int64_t n) {
    const plan *p = t->p;
    const ln_gemm_set *set = t->vectors->set;
    const matrix values = widened(t, value, first, n, p->view.size, false, t->scratch + p->values);
    for (int64_t at = 0; at < p->view.size;) {
        const int64_t width = ln_gemm_width(set, p->view.size - at), columns = ln_min(width, p->view.size - at);
        const matrix right = {values.data + at, values.row, 1};
        const float *b = panel_of(&right, n, columns, width, t->scratch + p->panel);
        multiply(t, t->weights, 1, n, b, b == right.data ? values.row : width, width, NULL, t->scratch + p->result + at,
                 p->size);
        at += columns;
    }
}

/* ---- a work item ---- */

/* Turns the scores of a tile into weights. Its first key is at `slot` of the mask and at `position` of the keys. */
static void weigh(const item *t, int64_t slot, int64_t position, int64_t n) {
    const ln_attention_attributes *a = t->call->attributes;
    const plan *p = t->p;
    float *top = t->scratch + p->top, *sum = t->scratch + p->sum, *result = t->scratch + p->result;
    ln_attention_row row = {.n = n, .scale = (float)p->view.scale, .cap = (float)a->cap};
    for (int64_t r = 0; r < t->rows; ++r) {
        int64_t low, high;
        ln_attention_visible(a, p->view.m, t->total, t->row + r, &low, &high);
        row.low = ln_max(0, ln_min(n, low - position)), row.high = ln_max(0, ln_min(n, high - position));
        row.scores = t->scratch + p->scores + r * LN_ATTENTION_KEYS;
        if (r == 0 || p->view.operand[LN_ATTENTION_MASK].row != 0)
            row.mask = mask_line(t, t->row + r, slot, n, t->scratch + p->mask);
        const float factor = t->vectors->weigh(&row, &top[r], &sum[r]);
        if (factor != 1) t->vectors->scale(factor, result + r * p->size, p->size, LINNET_F32, result + r * p->size);
    }
}

static void walk(const item *t, const matrix *queries, const ln_attention_part *part) {
    const ln_attention_attributes *a = t->call->attributes;
    int64_t low, high, ignored;
    ln_attention_visible(a, t->p->view.m, t->total, t->row, &low, &ignored);
    ln_attention_visible(a, t->p->view.m, t->total, t->row + t->rows - 1, &ignored, &high);
    /* No query sees a key before `begin` or from `end` on. */
    const int64_t begin = ln_max(0, low - part->position), end = ln_min(part->count, high - part->position);
    for (int64_t first = begin; first < end; first += LN_ATTENTION_KEYS) {
        const int64_t n = ln_min(LN_ATTENTION_KEYS, end - first);
        score(t, queries, part->key, first, n);
        weigh(t, part->slot + first, part->position + first, n);
        add_values(t, part->value, first, n);
    }
}

static linnet_status run_item(item *t) {
    const plan *p = t->p;
    ln_attention_part parts[2];
    const int count = ln_attention_parts(t->call, &p->view, t->b, t->matrix, parts);
    if (count < 0) return LINNET_INDEX_OUT_OF_RANGE;
    t->total = parts[count - 1].position + parts[count - 1].count;
    const matrix queries = widened(t, LN_ATTENTION_QUERY, t->row, t->rows, p->view.depth, false, t->scratch + p->query);
    float *result = t->scratch + p->result, *top = t->scratch + p->top, *sum = t->scratch + p->sum;
    memset(result, 0, (size_t)(t->rows * p->size) * sizeof *result);
    for (int64_t r = 0; r < t->rows; ++r) {
        t->queries[r] = queries.data + r * queries.row;
        t->weights[r] = t->scratch + p->scores + r * LN_ATTENTION_KEYS;
        top[r] = -INFINITY, sum[r] = 0;
    }
    for (int i = 0; i < count; ++i) walk(t, &queries, &parts[i]);
    const int dtype = t->call->outputs[0].dtype;
    const int64_t y = ln_attention_offset(&p->view, &p->view.y, t->matrix);
    for (int64_t r = 0; r < t->rows; ++r)
        t->vectors->scale(sum[r] == 0 ? 0 : 1 / sum[r], result + r * p->size, p->view.size, dtype,
                          (char *)t->b->outputs[0] +
                              (y + (t->row + r) * p->view.y.row) * (int64_t)ln_dtype_size(dtype));
    return LINNET_OK;
}

linnet_status ln_attention_run(const ln_attention_vectors *vectors, const ln_call *call, const ln_buffers *b,
                               int64_t begin, int64_t end, int thread) {
    const plan *p = call->state;
    item t = {.vectors = vectors, .call = call, .b = b, .p = p};
    t.scratch = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t i = begin; i < end; ++i) {
        t.matrix = i / p->blocks, t.row = i % p->blocks * p->rows;
        t.rows = ln_min(p->rows, p->view.m - t.row);
        const linnet_status status = run_item(&t);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}
