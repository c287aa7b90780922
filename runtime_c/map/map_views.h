/* map_views.h - the order in which a map program visits its elements, and the views of its operands in that order. Call
 * ln_map_order_axes first. A view joins axes that are contiguous in its operand, so that inner loops are long. */
#ifndef LN_MAP_VIEWS_H
#define LN_MAP_VIEWS_H

#include "map/map_program.h"

/* The order of iteration: the axes of `shape`, which is the first output, except axes of size 1. The axis of the
   largest stride comes first, so that inner loops run along memory. */
typedef struct ln_map_order {
    const ln_tensor *shape;
    int rank;
    int axes[LN_MAX_RANK];
} ln_map_order;

void ln_map_order_axes(ln_map_order *order, const ln_tensor *shape);
/* Fills the view of a tensor that broadcasts to the shape. */
void ln_map_view_tensor(const ln_map_order *order, ln_map_view *v, const ln_tensor *t);
/* Fills the view of the array `values`, which has one entry per index of the axis along which t is quantized. */
void ln_map_view_axis(const ln_map_order *order, ln_map_view *v, const ln_tensor *t, const float *values);
/* Fills the view of the indices along one axis, which are computed instead of read. */
void ln_map_view_iota(const ln_map_order *order, ln_map_view *v, int64_t axis);

#endif
