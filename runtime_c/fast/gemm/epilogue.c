/* epilogue.c - applies a map to tiles of an op's f32 result before the tiles are stored (kernel/map.h). The interpreter
 * of maps runs on the tile instead of a whole tensor, strip by strip. Nothing but the output and the stack is written.
 */
#include "fast/gemm/epilogue.h"

#include "base/layout.h"
#include "kernel/common/index.h"
#include "map/map_epilogue.h"
#include "map/map_kernel.h"

#include <math.h>

/* Converts and stores the op's own result, for calls without a map. */
static void store_plain(const ln_call *call, void *output, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        const float *tile, int64_t tile_stride) {
    const ln_tensor *y = &call->outputs[0];
    int64_t all = y->rank > 0 ? y->dims[ln_inner_axis(y)] : 1, size = (int64_t)ln_dtype_size(y->dtype);
    const ln_map_isa *isa = ln_map_isa_for(call->features);
    if (ln_is_half(y->dtype)) {
        isa->half_sum(y->dtype, tile, tile_stride, NULL, (uint16_t *)output + row * all + column, all, rows, columns,
                      -INFINITY, INFINITY);
        return;
    }
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
    const ln_epilogue_plan *q = e->program;
    const ln_map_program *p = q->program;
    int64_t origin = row * q->columns + column; /* offset of the tile in any matrix operand */
    if (e->clamp_only) {
        q->isa->clamp(tile, tile_stride, (float *)b->outputs[0] + origin, q->columns, rows, columns, e->low, e->high);
        return;
    }
    if (q->activation != NULL) {
        q->isa->activate(q->activation, tile, tile_stride, (float *)b->outputs[0] + origin, q->columns, rows, columns);
        return;
    }
    if (e->half_sum) {
        const uint16_t *added = e->half_added == 0 ? NULL : (const uint16_t *)b->inputs[e->half_added] + origin;
        q->isa->half_sum(call->outputs[0].dtype, tile, tile_stride, added, (uint16_t *)b->outputs[0] + origin,
                         q->columns, rows, columns, e->low, e->high);
        return;
    }
    ln_map_view views[LN_EPILOGUE_VIEWS];
    char *bases[LN_EPILOGUE_VIEWS], *row_bases[LN_EPILOGUE_VIEWS];
    int64_t row_bytes[LN_EPILOGUE_VIEWS];
    _Alignas(64) char scratch[LN_EPILOGUE_BYTES + 1024];
    char **registers = ln_map_registers(p, scratch);
    /* There are three cases. If all operands are contiguous from row to row, the tile is one long row. Otherwise a wide
       tile is processed one row at a time, which often needs no copies, and a strip of a narrow tile has several rows.
     */
    bool flat = q->columns == columns && tile_stride == columns;
    for (int v = 0; v < p->n_views; v++) flat = flat && q->kinds[v] != LN_EPILOGUE_COLUMN;
    bool by_rows = columns >= 64 && rows > 1 && !flat;
    for (int v = 0; v < p->n_views; v++) {
        ln_map_view *w = &views[v];
        int64_t size = (int64_t)ln_dtype_size(p->views[v].dtype), across = 1, down = 0;
        w->dtype = p->views[v].dtype;
        w->iota = false;
        char *base = q->inputs[v] == -1   ? b->outputs[0]
                     : q->inputs[v] == -2 ? (char *)(uintptr_t)p->views[v].data
                                          : (char *)(uintptr_t)b->inputs[q->inputs[v]];
        switch (q->kinds[v]) {
        case LN_EPILOGUE_SCALAR: across = 0; break;
        case LN_EPILOGUE_COLUMN: base += column * size; break;
        case LN_EPILOGUE_MATRIX:
            base += origin * size;
            down = q->columns;
            break;
        case LN_EPILOGUE_TILE:
            base = (char *)(uintptr_t)tile;
            down = tile_stride;
            break;
        default: /* the view of a table stays as planned */
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
