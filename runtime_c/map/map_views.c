/* map_views.c - orders the axes of a map's iteration, and makes the views of its operands (map_views.h).
 * A view has one stride per axis of the iteration; the stride is 0 where the operand broadcasts. */
#include "map/map_views.h"

#include <string.h>

void ln_map_order_axes(ln_map_order *order, const ln_tensor *shape) {
    order->shape = shape;
    order->rank = 0;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dims[d] != 1) order->axes[order->rank++] = d;
    for (int i = 1; i < order->rank; i++) {
        for (int j = i; j > 0; j--) {
            int64_t a = shape->strides[order->axes[j - 1]], b = shape->strides[order->axes[j]];
            if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) break;
            int t = order->axes[j];
            order->axes[j] = order->axes[j - 1];
            order->axes[j - 1] = t;
        }
    }
}

/* Makes a view from one stride per axis of the shape, and joins axes that are contiguous. */
static void make_view(const ln_map_order *order, ln_map_view *v, const int64_t *strides) {
    int n = 0;
    for (int i = 0; i < order->rank; i++) {
        int64_t size = order->shape->dims[order->axes[i]], stride = strides[order->axes[i]];
        if (n > 0 && v->strides[n - 1] == stride * size) {
            v->dims[n - 1] *= size;
            v->strides[n - 1] = stride;
        } else {
            v->dims[n] = size;
            v->strides[n++] = stride;
        }
    }
    if (n == 0) {
        v->dims[0] = 1;
        v->strides[0] = 0;
        n = 1;
    }
    if (n == 1 && v->dims[0] == 1) v->strides[0] = 1;
    v->rank = (uint8_t)n;
}

void ln_map_view_tensor(const ln_map_order *order, ln_map_view *v, const ln_tensor *t) {
    int64_t strides[LN_MAX_RANK];
    const int rank = order->shape->rank;
    for (int d = 0; d < rank; d++) {
        int own = d - (rank - t->rank);
        strides[d] = own < 0 || t->dims[own] == 1 ? 0 : t->strides[own];
    }
    make_view(order, v, strides);
}

void ln_map_view_axis(const ln_map_order *order, ln_map_view *v, const ln_tensor *t, const float *values) {
    int64_t strides[LN_MAX_RANK] = {0};
    int axis = ln_axis(t->quant->axis, t->rank);
    memset(v, 0, sizeof *v);
    v->operand = -1;
    v->dtype = LINNET_F32;
    v->data = values;
    if (t->dims[axis] != 1) strides[order->shape->rank - t->rank + axis] = 1;
    make_view(order, v, strides);
}

void ln_map_view_iota(const ln_map_order *order, ln_map_view *v, int64_t axis) {
    int64_t strides[LN_MAX_RANK] = {0};
    strides[axis] = order->shape->dims[axis] == 1 ? 0 : 1;
    v->operand = -1;
    v->iota = true;
    v->dtype = LINNET_I64;
    make_view(order, v, strides);
}
