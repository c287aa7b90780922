/* layout.c - layouts as data: the order of the axes and the block give the strides and the bytes of a tensor. A table
 * describes the layouts that have names. */
#include "base/layout.h"

#include <string.h>

/* A named layout is the logical order with one axis moved to the end. Tensors whose rank is too small are dense. */
enum { NONE_MOVED = LN_MAX_RANK };
static const struct {
    char name[15];
    uint8_t moved;
} named_layouts[LN_LAYOUTS] = {
    [LN_LAYOUT_DENSE] = {"dense", NONE_MOVED},
    [LN_LAYOUT_CHANNELS_LAST] = {"channels_last", 1},
};

const char *ln_layout_name(int layout) { return named_layouts[layout].name; }

static bool moves(int layout, int rank) { return rank >= 3 && named_layouts[layout].moved < rank; }

int ln_inner_axis(const ln_tensor *t) {
    return moves(t->layout, t->rank) ? named_layouts[t->layout].moved : t->rank - 1;
}

void ln_layout_of(int layout, int rank, linnet_layout *out) {
    const int moved = moves(layout, rank) ? named_layouts[layout].moved : NONE_MOVED;
    int n = 0;
    memset(out, 0, sizeof *out);
    for (int axis = 0; axis < rank; ++axis)
        if (axis != moved) out->order[n++] = axis;
    if (moved < rank) out->order[n] = moved;
}

void ln_layout_strides(const linnet_layout *layout, const ln_tensor *t, int64_t *strides) {
    const int64_t block = layout->block > 1 ? layout->block : 1;
    int64_t stride = block;
    for (int i = t->rank - 1; i >= 0; --i) {
        const int axis = layout->order[i];
        strides[axis] = stride;
        stride *= block > 1 && axis == layout->block_axis ? ln_ceil_div(t->dims[axis], block) : t->dims[axis];
    }
}

bool ln_layout_bytes(const linnet_layout *layout, const ln_tensor *t, uint64_t *bytes) {
    ln_tensor padded = *t;
    const int axis = layout->block_axis;
    if (layout->block > 1) padded.dims[axis] = ln_ceil_div(t->dims[axis], layout->block) * layout->block;
    return ln_bytes(&padded, bytes);
}

/* Computes the strides of a layout in which axis `moved` is the innermost one; NONE_MOVED: no axis is moved. */
static void strides_of(int moved, const ln_tensor *t, int64_t *strides) {
    int64_t stride = 1;
    if (moved < t->rank) {
        strides[moved] = 1;
        stride = t->dims[moved];
    }
    for (int axis = t->rank - 1; axis >= 0; --axis) {
        if (axis == moved) continue;
        strides[axis] = stride;
        stride *= t->dims[axis];
    }
}

void ln_set_layout(ln_tensor *t, int layout) {
    t->layout = moves(layout, t->rank) ? (uint8_t)layout : LN_LAYOUT_DENSE;
    strides_of(named_layouts[t->layout].moved, t, t->strides);
}

bool ln_has_layout(const ln_tensor *t, int layout) {
    int64_t ideal[LN_MAX_RANK];
    if (layout != LN_LAYOUT_DENSE && !moves(layout, t->rank)) return false;
    strides_of(named_layouts[layout].moved, t, ideal);
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != 1 && t->strides[i] != ideal[i]) return false;
    return true;
}

bool ln_is_dense(const ln_tensor *t) { return ln_has_layout(t, LN_LAYOUT_DENSE); }

bool ln_is_channels_last(const ln_tensor *t) { return ln_has_layout(t, LN_LAYOUT_CHANNELS_LAST); }
