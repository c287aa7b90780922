/* resize_place.h - where the elements of a resized axis lie on the input. Only resize.c includes this file. */
#ifndef LN_RESIZE_PLACE_H
#define LN_RESIZE_PLACE_H

#include "kernel/kernel.h"

#include <math.h>

/* The scale of an axis, from the operand sizes or scales. */
typedef struct resize_scale {
    double scale;
    bool by_scale;    /* false: the scale is the output size of this axis divided by its input size */
    int64_t up, down; /* with by_scale: the common scale of sizes that keep the aspect ratio, as the fraction up / down;
                       * 0: scales are given */
} resize_scale;

/* A position on the input: below + part, with 0 <= part < 1. `half` is the sign of part - 1/2: -1, 0 or 1. */
typedef struct place {
    int64_t below;
    double part;
    int half;
} place;

static place place_of(double at) {
    at = !(at > -1e9) ? -1e9 : at < 1e9 ? at : 1e9; /* keeps extreme crops within the range of the index type */
    const double below = floor(at), part = at - below;
    return (place){(int64_t)below, part, (part > 0.5) - (part < 0.5)};
}

/* Returns the exact position above / under. */
static place place_of_ratio(int64_t above, int64_t under) {
    if (under < 0) above = -above, under = -under;
    const int64_t rest = (above % under + under) % under;
    return (place){(above - rest) / under, (double)rest / (double)under, (2 * rest > under) - (2 * rest < under)};
}

/* Returns the exact position that corresponds to output coordinate o, for every mode except tf_crop_and_resize. The
 * scale is up / down. The caller has made sure that no product overflows. */
static place exact_source(const ln_resize_attributes *a, int64_t o, int64_t in, int64_t out, int64_t up, int64_t down,
                          bool by_scale) {
    switch (a->coordinates) {
    case LN_RESIZE_COORDINATES_ALIGN_CORNERS:
        if (up * in == down) return place_of(0);
        return by_scale ? place_of_ratio(o * (in - 1) * down, up * in - down) : place_of_ratio(o * (in - 1), out - 1);
    case LN_RESIZE_COORDINATES_ASYMMETRIC: return place_of_ratio(o * down, up);
    case LN_RESIZE_COORDINATES_PYTORCH_HALF_PIXEL:
        return up * in > down ? place_of_ratio((2 * o + 1) * down - up, 2 * up) : place_of(0);
    case LN_RESIZE_COORDINATES_HALF_PIXEL_SYMMETRIC:
        if (by_scale) return place_of_ratio((2 * o + 1 - out) * down + (in - 1) * up, 2 * up);
        return place_of_ratio((2 * o + 1) * down - up, 2 * up);
    default: return place_of_ratio((2 * o + 1) * down - up, 2 * up);
    }
}

/* Returns the position that corresponds to output coordinate o of an axis. It is exact if sizes are given and not
 * huge. Otherwise it is computed in f64, in the order of ONNX's reference. Only tf_crop_and_resize reads roi. */
static place source(const ln_resize_attributes *a, int64_t o, int64_t in, int64_t out, const resize_scale *p,
                    const double *roi) {
    const int64_t most = p->by_scale ? 1 << 20 : 1 << 30; /* products fit into 63 bits */
    const int64_t up = p->by_scale ? p->up : out, down = p->by_scale ? p->down : in;
    const bool small = up > 0 && up <= most && down <= most && in <= most && out <= most;
    const double at = (double)o, size = (double)in, scale = p->scale;
    const double resized = p->by_scale ? scale * size : (double)out;
    if (small && a->coordinates != LN_RESIZE_COORDINATES_TF_CROP_AND_RESIZE)
        return exact_source(a, o, in, out, up, down, p->by_scale);
    switch (a->coordinates) {
    case LN_RESIZE_COORDINATES_ALIGN_CORNERS: return place_of(resized == 1 ? 0 : at * (size - 1) / (resized - 1));
    case LN_RESIZE_COORDINATES_ASYMMETRIC: return place_of(at / scale);
    case LN_RESIZE_COORDINATES_PYTORCH_HALF_PIXEL: return place_of(resized > 1 ? (at + 0.5) / scale - 0.5 : 0);
    case LN_RESIZE_COORDINATES_HALF_PIXEL_SYMMETRIC:
        return place_of(size / 2 * (1 - (double)out / (scale * size)) + (at + 0.5) / scale - 0.5);
    case LN_RESIZE_COORDINATES_TF_CROP_AND_RESIZE:
        if (out == 1) return place_of((roi[1] - roi[0]) * (size - 1) / 2 + roi[0] * (size - 1));
        return place_of(at * (roi[1] - roi[0]) * (size - 1) / (double)(out - 1) + roi[0] * (size - 1));
    default: return place_of((at + 0.5) / scale - 0.5);
    }
}

/* Returns the input coordinate that nearest-neighbour interpolation takes for a position, before it is clamped. */
static int64_t nearest(place at, int64_t mode) {
    const bool above = mode == LN_RESIZE_NEAREST_CEIL ||
                       (mode == LN_RESIZE_NEAREST_ROUND_PREFER_FLOOR && at.half > 0) ||
                       (mode == LN_RESIZE_NEAREST_ROUND_PREFER_CEIL && at.half >= 0);
    return at.below + (at.part > 0 && above);
}

#endif
