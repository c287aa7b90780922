/* map_epilogue.c - a map applied to tiles of a heavy op's f32 result before they are stored (core/map.h).
 * Uses the strip interpreter with views that are laid over the tile; nothing but the stack is written besides. */
#include "ops/convert.h"
#include "ops/index.h"
#include "ops/map_shape.h"
#include "simd/map_program.h"

#include <math.h>
#include <string.h>

#define MOST_INSTRUCTIONS 96 /* keeps the strips of any program that fits on the stack */
#define MOST_VIEWS 24
#define STACK_BYTES 16384

/* How an operand lies over the matrix of the result. */
enum kind { SCALAR, COLUMN, MATRIX, TILE, FIXED, UNFIT };

typedef struct prepared {
    ln_map_program *program;
    const ln_map_isa *isa;
    int64_t columns; /* of the whole result */
    uint8_t kinds[MOST_VIEWS];
    int16_t inputs[MOST_VIEWS]; /* index into b->inputs; -1: output, -2: fixed data */
} prepared;

/* The axis that is the columns: the innermost of the layout. */
static int column_axis(const ln_tensor *inner) {
    return inner->layout == LN_LAYOUT_CHANNELS_LAST && inner->rank >= 3 ? 1 : inner->rank - 1;
}

static int kind_of(const ln_tensor *t, const ln_tensor *inner) {
    if (ln_count(t) == 1) return SCALAR;
    if (t->rank > inner->rank) return UNFIT;
    int shift = inner->rank - t->rank, axis = column_axis(inner) - shift;
    bool column = axis >= 0 && t->strides[axis] == 1, matrix = t->rank == inner->rank;
    for (int d = 0; d < t->rank; d++) {
        column = column && t->dims[d] == (d == axis ? inner->dims[d + shift] : 1);
        matrix = matrix && t->dims[d] == inner->dims[d] && (t->dims[d] == 1 || t->strides[d] == inner->strides[d]);
    }
    return matrix ? MATRIX : column ? COLUMN : UNFIT;
}

bool ln_epilogue_fits(const ln_map_attributes *map, const ln_tensor *inputs, int n_inputs, int tile_input,
                      const ln_tensor *inner, const ln_tensor *output) {
    int64_t n = map->program.n / LN_MAP_WORDS;
    int views = 0, stores = 0;
    if (n > MOST_INSTRUCTIONS || map->dtypes.n != 1 || inner->rank < 1 || n_inputs > LN_MAX_OPERANDS ||
        inner->dtype != LINNET_F32)
        return false;
    if (kind_of(output, inner) != MATRIX && !(ln_count(output) == 1 && ln_count(inner) == 1)) return false;
    /* The matrix must have no gaps: row r begins at r * columns. */
    int64_t columns = inner->dims[column_axis(inner)];
    if ((columns != 1 && inner->strides[column_axis(inner)] != 1) ||
        !(ln_is_dense(inner) || ln_is_channels_last(inner)))
        return false;
    for (int i = 0; i < n_inputs; i++) {
        if (i == tile_input || inputs[i].dtype == LINNET_NONE || !ln_map_broadcasts(map, i)) continue;
        if (kind_of(&inputs[i], inner) == UNFIT) return false;
    }
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = map->program.v + k * LN_MAP_WORDS;
        switch (in[0]) {
        case LN_MAP_IOTA: return false;
        case LN_MAP_LOAD_DEQUANTIZED:
            if (in[2] == tile_input) return false;
            views++;
            break;
        case LN_MAP_TABLE:
            if (in[3] == tile_input) return false;
            views++;
            break;
        case LN_MAP_LOAD: views++; break;
        case LN_MAP_STORE:
        case LN_MAP_STORE_QUANTIZED:
            views += 2;
            stores++;
            break;
        default: break;
        }
    }
    ln_map_source source = {.map = map,
                            .inputs = inputs,
                            .n_inputs = n_inputs,
                            .outputs = output,
                            .n_outputs = 1,
                            .tile_input = tile_input,
                            .column_axis = column_axis(inner),
                            .most_bytes = STACK_BYTES};
    return views <= MOST_VIEWS && stores == 1 && ln_map_compilable(&source);
}

/* Whether the program is load, then min and max with constants on the right, then a store of f32. */
static void find_clamp(ln_epilogue *e, const ln_tensor *inputs, const ln_tensor *output) {
    const int64_t *program = e->map->program.v;
    int64_t n = e->map->program.n / LN_MAP_WORDS, value = -1;
    e->low = -INFINITY;
    e->high = INFINITY;
    e->clamp_only = false;
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = program + k * LN_MAP_WORDS;
        if (in[1] != LINNET_F32) return;
        if (in[0] == LN_MAP_CONST) continue;
        if (in[0] == LN_MAP_LOAD) {
            if (in[2] != e->tile_input) {
                const ln_tensor *t = &inputs[in[2]];
                if (!t->data || ln_count(t) != 1) return;
            } else if (value >= 0) {
                return;
            } else {
                value = k;
            }
            continue;
        }
        if (in[0] == LN_MAP_STORE) {
            e->clamp_only = in[2] == value && k == n - 1 && output->dtype == LINNET_F32;
            return;
        }
        if ((in[0] != LN_MAP_MIN && in[0] != LN_MAP_MAX) || in[2] != value) return;
        const int64_t *bound = program + in[3] * LN_MAP_WORDS;
        float c = 0.0f;
        if (bound[0] == LN_MAP_CONST)
            c = (float)e->map->floats.v[bound[2]];
        else if (bound[0] == LN_MAP_LOAD && bound[2] != e->tile_input)
            c = (float)ln_load_f64(inputs[bound[2]].data, inputs[bound[2]].dtype, 0);
        else
            return;
        if (!(c == c)) return;
        if (in[0] == LN_MAP_MAX) {
            e->low = c > e->low ? c : e->low;
            e->high = c > e->high ? c : e->high;
        } else {
            e->low = c < e->low ? c : e->low;
            e->high = c < e->high ? c : e->high;
        }
        value = k;
    }
}

linnet_status ln_epilogue_prepare(ln_epilogue *e, ln_call *call) {
    ln_tensor *inputs = ln_call_state(call, (size_t)ln_max(1, e->n_inputs) * sizeof *inputs);
    prepared *q = ln_call_state(call, sizeof *q);
    if (!inputs || !q) return LINNET_OUT_OF_MEMORY;
    for (int i = 0; i < e->n_inputs; i++)
        inputs[i] = i == e->tile_input ? *call->inner : call->inputs[call->n_inputs + e->operand[i]];
    inputs[e->tile_input].dtype = LINNET_F32;
    inputs[e->tile_input].data = NULL;
    ln_map_source source = {.map = e->map,
                            .inputs = inputs,
                            .n_inputs = e->n_inputs,
                            .outputs = call->outputs,
                            .n_outputs = 1,
                            .tile_input = e->tile_input,
                            .column_axis = column_axis(call->inner),
                            .most_bytes = STACK_BYTES};
    linnet_status status = ln_map_compile(&source, call, &q->program);
    if (status) return status;
    find_clamp(e, inputs, &call->outputs[0]);
    q->isa = ln_map_isa_for(call->isa);
    q->columns = call->inner->dims[column_axis(call->inner)];
    for (int i = 0; i < q->program->n_steps; i++) {
        const ln_map_step *s = &q->program->steps[i];
        const ln_map_view *v = &q->program->views[s->view];
        int at = s->view;
        if (s->code == LN_MAP_STORE || s->code == LN_MAP_STORE_QUANTIZED) {
            q->kinds[at] = MATRIX;
            q->inputs[at] = -1;
        } else if (s->code == LN_MAP_TABLE) {
            q->kinds[at] = FIXED;
            q->inputs[at] = (int16_t)(call->n_inputs + e->operand[v->operand]);
        } else if (s->code == LN_MAP_LOAD || s->code == LN_MAP_LOAD_DEQUANTIZED) {
            if (v->operand < 0) {
                q->kinds[at] = COLUMN; /* scales per channel */
                q->inputs[at] = -2;
            } else if (v->operand == e->tile_input) {
                q->kinds[at] = TILE;
                q->inputs[at] = -2;
            } else {
                q->kinds[at] = (uint8_t)kind_of(&inputs[v->operand], call->inner);
                q->inputs[at] = (int16_t)(call->n_inputs + e->operand[v->operand]);
            }
        }
    }
    e->program = q;
    return LINNET_OK;
}

/* No map: the op's own result, converted. */
static void store_plain(const ln_call *call, void *output, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        const float *tile, int64_t tile_stride) {
    const ln_tensor *y = &call->outputs[0];
    int64_t all = y->rank > 0 ? y->dims[column_axis(y)] : 1, size = (int64_t)ln_dtype_size(y->dtype);
    const ln_map_isa *isa = ln_map_isa_for(call->isa);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = tile + r * tile_stride;
        char *to = (char *)output + ((row + r) * all + column) * size;
        if (to != (const char *)from) isa->store(y->dtype, from, (int)columns, to);
    }
}

void ln_epilogue_apply(const ln_call *call, const ln_buffers *b, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const float *tile, int64_t tile_stride) {
    const ln_epilogue *e = call->epilogue;
    if (rows <= 0 || columns <= 0) return;
    if (!e) {
        store_plain(call, b->outputs[0], row, rows, column, columns, tile, tile_stride);
        return;
    }
    const prepared *q = e->program;
    const ln_map_program *p = q->program;
    int64_t origin = row * q->columns + column; /* of the tile in any matrix operand */
    if (e->clamp_only) {
        q->isa->clamp(tile, tile_stride, (float *)b->outputs[0] + origin, q->columns, rows, columns, e->low, e->high);
        return;
    }
    ln_map_view views[MOST_VIEWS];
    char *bases[MOST_VIEWS], *row_bases[MOST_VIEWS];
    int64_t row_bytes[MOST_VIEWS];
    _Alignas(64) char scratch[STACK_BYTES + 1024];
    char **registers = ln_map_registers(p, scratch);
    /* Narrow tiles: several rows to a strip. Wide ones: a row at a time, which can often do without copies. */
    bool by_rows = columns >= 64 && rows > 1;
    for (int v = 0; v < p->n_views; v++) {
        ln_map_view *w = &views[v];
        int64_t size = (int64_t)ln_dtype_size(p->views[v].dtype), across = 1, down = 0;
        w->dtype = p->views[v].dtype;
        w->iota = false;
        char *base = q->inputs[v] == -1   ? b->outputs[0]
                     : q->inputs[v] == -2 ? (char *)(uintptr_t)p->views[v].data
                                          : (char *)(uintptr_t)b->inputs[q->inputs[v]];
        switch (q->kinds[v]) {
        case SCALAR: across = 0; break;
        case COLUMN: base += column * size; break;
        case MATRIX:
            base += origin * size;
            down = q->columns;
            break;
        case TILE:
            base = (char *)(uintptr_t)tile;
            down = tile_stride;
            break;
        default: /* a table lies as it was planned */
            *w = p->views[v];
            bases[v] = base;
            row_bytes[v] = 0;
            continue;
        }
        bases[v] = base;
        row_bytes[v] = down * size;
        if (by_rows || rows == 1 || down == columns * across) {
            w->rank = 1;
            w->dims[0] = columns * rows;
            w->strides[0] = across;
        } else {
            w->rank = 2;
            w->dims[0] = rows;
            w->dims[1] = columns;
            w->strides[0] = down;
            w->strides[1] = across;
        }
    }
    if (!by_rows) {
        int64_t count = rows * columns;
        for (int64_t start = 0; start < count; start += p->strip)
            q->isa->strip(p, views, bases, start, (int)ln_min(p->strip, count - start), registers);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int v = 0; v < p->n_views; v++) row_bases[v] = bases[v] + r * row_bytes[v];
        for (int64_t start = 0; start < columns; start += p->strip)
            q->isa->strip(p, views, row_bases, start, (int)ln_min(p->strip, columns - start), registers);
    }
}
