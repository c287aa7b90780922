/* resize_tables.c - the tables of resize (kernels_gpu/common/resize.h). Coordinates are computed as on the CPU
 * (runtime_c/ops/resize_place.h), so the tables are the same. */
#include "kernels_gpu/common/resize_tables.h"
#include "kernels_gpu/common/step.h"

#include <math.h>
#include <stdlib.h>

enum { SCALES = 1, SIZES = 2, ROI = 3 };                                  /* operands, docs/ops.md */
enum { NEAREST, LINEAR, CUBIC };                                          /* mode */
enum { HALF_PIXEL, SYMMETRIC, PYTORCH, ALIGN_CORNERS, ASYMMETRIC, CROP }; /* coordinates */
enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };                          /* nearest */
enum { STRETCH, NOT_LARGER, NOT_SMALLER };                                /* aspect */
enum { MOST_TABLE = 1 << 22 };                                            /* limit of the entries of a table */

/* The attributes, and the scale of each axis of x. */
typedef struct settings {
    int64_t mode, coordinates, nearest;
    bool exclude_outside, antialias, by_scale;
    double cubic;
    int n_axes, axes[LINNET_MAX_RANK];
    double scale[LINNET_MAX_RANK];
    int64_t up, down; /* up / down: the exact scale of all axes, if sizes are given and keep the aspect ratio; else 0 */
    double begin[LINNET_MAX_RANK], end[LINNET_MAX_RANK]; /* the region, by axis of x */
} settings;

static const linnet_device_tensor *operand(const lg_step *s, int i) {
    return lg_absent(s, i) || lg_count(&s->inputs[i]) == 0 ? NULL : &s->inputs[i];
}

/* Reads element i of a constant. Returns false if the value is not known or the dtype is not supported. */
static bool load(const linnet_device_tensor *t, int64_t i, double *out) {
    if (t->data == NULL || i >= lg_count(t)) return false;
    switch (t->dtype) {
    case LINNET_F32: *out = (double)((const float *)t->data)[i]; return true;
    case LINNET_F64: *out = ((const double *)t->data)[i]; return true;
    case LINNET_I32: *out = (double)((const int32_t *)t->data)[i]; return true;
    case LINNET_I64: *out = (double)((const int64_t *)t->data)[i]; return true;
    default: return false;
    }
}

/* Tells whether a / b < c / d, exactly for sizes below 2^31. */
static bool below(int64_t a, int64_t b, int64_t c, int64_t d) {
    return b <= INT32_MAX && d <= INT32_MAX ? a * d < c * b : (double)a / (double)b < (double)c / (double)d;
}

static bool take_sizes(const lg_step *s, settings *z) {
    const linnet_device_tensor *x = &s->inputs[0];
    const int64_t aspect = lg_integer(s, "aspect", STRETCH);
    for (int i = 0; i < z->n_axes; ++i) {
        const int axis = z->axes[i];
        double size = 0;
        if (lg_items(s, "sizes") > 0)
            size = (double)lg_item(s, "sizes", i, 0);
        else if (!load(operand(s, SIZES), i, &size))
            return false;
        const int64_t in = x->shape[axis], out = (int64_t)size;
        if (in <= 0) continue;
        z->scale[axis] = size / (double)in;
        if (z->down == 0 || (aspect == NOT_LARGER ? below(out, in, z->up, z->down) : below(z->up, z->down, out, in)))
            z->up = out, z->down = in;
    }
    for (int i = 0; i < z->n_axes && aspect != STRETCH && z->down > 0; ++i)
        z->scale[z->axes[i]] = (double)z->up / (double)z->down;
    z->by_scale = aspect != STRETCH;
    return true;
}

static bool take_scales(const lg_step *s, settings *z) {
    int n = 0;
    const double *scales = s->machine->host->step_floats(s->step, "scales", &n);
    for (int i = 0; i < z->n_axes; ++i) {
        double scale = 1;
        if (n > 0)
            scale = scales[i < n ? i : n - 1];
        else if (operand(s, SCALES) == NULL || !load(operand(s, SCALES), i, &scale))
            return false;
        z->scale[z->axes[i]] = (double)(float)scale;
    }
    z->by_scale = true;
    return true;
}

static bool read_settings(const lg_step *s, settings *z) {
    const int rank = s->inputs[0].rank, n = lg_items(s, "axes");
    *z = (settings){.mode = lg_integer(s, "mode", NEAREST),
                    .coordinates = lg_integer(s, "coordinates", HALF_PIXEL),
                    .nearest = lg_integer(s, "nearest", PREFER_FLOOR),
                    .exclude_outside = lg_integer(s, "exclude_outside", 0) != 0,
                    .antialias = lg_integer(s, "antialias", 0) != 0,
                    .cubic = lg_real(s, "cubic_coefficient", -0.75),
                    .n_axes = n > 0 ? n : rank};
    if (z->n_axes > rank) return false;
    for (int i = 0; i < rank; ++i) z->scale[i] = 1, z->end[i] = 1;
    for (int i = 0; i < z->n_axes; ++i) {
        z->axes[i] = n > 0 ? lg_axis(lg_item(s, "axes", i, 0), rank) : i;
        if (z->axes[i] < 0 || z->axes[i] >= rank) return false;
    }
    for (int i = 0; i < z->n_axes && z->coordinates == CROP; ++i) {
        const linnet_device_tensor *roi = operand(s, ROI);
        if (roi == NULL || !load(roi, i, &z->begin[z->axes[i]]) || !load(roi, i + z->n_axes, &z->end[z->axes[i]]))
            return false;
    }
    return lg_items(s, "sizes") > 0 || operand(s, SIZES) != NULL ? take_sizes(s, z) : take_scales(s, z);
}

static bool plain_linear(const settings *z) { return z->mode == LINEAR && !z->antialias && !z->exclude_outside; }

static bool moves(const lg_step *s, const settings *z, int axis) {
    const bool whole = z->coordinates != CROP || (z->begin[axis] == 0 && z->end[axis] == 1);
    return s->inputs[0].shape[axis] != s->result.shape[axis] || !whole || (z->by_scale && z->scale[axis] != 1);
}

/* Images are interpolated linearly along height and width together, even if only one of them changes. */
static bool is_active(const lg_step *s, const settings *z, int axis) {
    const int rank = s->inputs[0].rank;
    const bool image = (rank == 4 || rank == 2) && axis >= rank - 2 && plain_linear(z);
    bool beside = false;
    if (moves(s, z, axis)) return true;
    for (int i = 0; i < z->n_axes && image; ++i) {
        if (!moves(s, z, z->axes[i])) continue;
        if (z->axes[i] < rank - 2) return false;
        beside = true;
    }
    return beside;
}

/* Computes the range of the taps: from `first` to first + taps - 1, relative to the left neighbour of a coordinate. */
static void extent(const settings *z, double scale, int *first, int *taps) {
    const double radius = z->mode == CUBIC ? 2 : 1, shrink = z->antialias ? fmin(scale, 1) : 1;
    *first = (int)floor(-radius / shrink) + 1;
    *taps = 2 - 2 * *first;
    if (z->mode == NEAREST) *first = 0, *taps = 1;
}

bool lg_resize_open(lg_resize *out, const lg_step *s) {
    settings z;
    *out = (lg_resize){0};
    if (!read_settings(s, &z)) return false;
    for (int axis = 0; axis < s->inputs[0].rank; ++axis) {
        bool listed = false;
        int first, taps;
        for (int i = 0; i < z.n_axes; ++i) listed |= z.axes[i] == axis;
        if (!listed || !is_active(s, &z, axis)) continue;
        if (out->n == LG_MOST_ACTIVE || (z.antialias && !(z.scale[axis] > 0x1p-12))) return false;
        extent(&z, z.scale[axis], &first, &taps);
        const int64_t size = s->result.shape[axis];
        if (size * taps > MOST_TABLE) return false;
        out->axes[out->n++] = (lg_resize_axis){.axis = axis, .in = s->inputs[0].shape[axis], .out = size, .taps = taps};
    }
    out->joint = plain_linear(&z) && out->n > 1;
    return true;
}

/* A position on the input: below + part, with 0 <= part < 1. `half` has the sign of part - 1/2. */
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

/* Computes positions in integers. The scale is up / down. */
static place exact_source(const settings *a, int64_t o, int64_t in, int64_t out, int64_t up, int64_t down,
                          bool by_scale) {
    switch (a->coordinates) {
    case ALIGN_CORNERS:
        if (up * in == down) return place_of(0);
        return by_scale ? place_of_ratio(o * (in - 1) * down, up * in - down) : place_of_ratio(o * (in - 1), out - 1);
    case ASYMMETRIC: return place_of_ratio(o * down, up);
    case PYTORCH: return up * in > down ? place_of_ratio((2 * o + 1) * down - up, 2 * up) : place_of(0);
    case SYMMETRIC:
        if (by_scale) return place_of_ratio((2 * o + 1 - out) * down + (in - 1) * up, 2 * up);
        return place_of_ratio((2 * o + 1) * down - up, 2 * up);
    default: return place_of_ratio((2 * o + 1) * down - up, 2 * up);
    }
}

/* Returns the position on the input that corresponds to output coordinate o of an axis. If sizes are given, it is
 * exact. If scales are given, it is computed in f64, in the order of ONNX's reference. */
static place source(const settings *a, int64_t o, const lg_resize_axis *t) {
    const int64_t in = t->in, out = t->out;
    const double roi[] = {a->begin[t->axis], a->end[t->axis]};
    const int64_t most = a->by_scale ? 1 << 20 : 1 << 30; /* products fit into 63 bits */
    const int64_t up = a->by_scale ? a->up : out, down = a->by_scale ? a->down : in;
    const bool small = up > 0 && up <= most && down <= most && in <= most && out <= most;
    const double at = (double)o, size = (double)in, scale = a->scale[t->axis];
    const double resized = a->by_scale ? scale * size : (double)out;
    if (small && a->coordinates != CROP) return exact_source(a, o, in, out, up, down, a->by_scale);
    switch (a->coordinates) {
    case ALIGN_CORNERS: return place_of(resized == 1 ? 0 : at * (size - 1) / (resized - 1));
    case ASYMMETRIC: return place_of(at / scale);
    case PYTORCH: return place_of(resized > 1 ? (at + 0.5) / scale - 0.5 : 0);
    case SYMMETRIC: return place_of(size / 2 * (1 - (double)out / (scale * size)) + (at + 0.5) / scale - 0.5);
    case CROP:
        if (out == 1) return place_of((roi[1] - roi[0]) * (size - 1) / 2 + roi[0] * (size - 1));
        return place_of(at * (roi[1] - roi[0]) * (size - 1) / (double)(out - 1) + roi[0] * (size - 1));
    default: return place_of((at + 0.5) / scale - 0.5);
    }
}

static int64_t nearest(place at, int64_t mode) {
    const bool above = mode == CEIL || (mode == PREFER_FLOOR && at.half > 0) || (mode == PREFER_CEIL && at.half >= 0);
    return at.below + (at.part > 0 && above);
}

static double cubic(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static int32_t clamped(int64_t i, int64_t in) { return (int32_t)(i < 0 ? 0 : i < in ? i : in - 1); }

static void fill_weights(const settings *z, place at, double scale, const lg_resize_axis *t, int32_t *index,
                         float *weight) {
    /* The left neighbour is strictly below the position, so that the distance to it is in (0, 1]. */
    const int64_t left = at.part > 0 ? at.below : at.below - 1;
    const double ratio = at.part > 0 ? at.part : 1, shrink = z->antialias ? fmin(scale, 1) : 1;
    int first, taps;
    double sum = 0;
    extent(z, scale, &first, &taps);
    for (int k = 0; k < taps; ++k) {
        const int64_t i = left + first + k;
        const double distance = ((double)(first + k) - ratio) * shrink;
        weight[k] = (float)(z->mode == CUBIC ? cubic(distance, z->cubic) : fmax(0, 1 - fabs(distance)));
        if (z->exclude_outside && (i < 0 || i >= t->in)) weight[k] = 0;
        sum += (double)weight[k];
        index[k] = clamped(i, t->in);
    }
    const bool normalize = (z->exclude_outside || shrink < 1) && sum != 0;
    for (int k = 0; k < taps && normalize; ++k) weight[k] = (float)((double)weight[k] / sum);
}

static void fill_linear(place at, int64_t in, int32_t *index, float *weight) {
    const double part = at.below < 0 ? 0 : at.part;
    index[0] = clamped(at.below, in);
    index[1] = clamped(index[0] + 1, in);
    weight[0] = index[0] == index[1] ? 0.5f : (float)(1 - part);
    weight[1] = index[0] == index[1] ? 0.5f : (float)part;
}

bool lg_resize_fill(lg_resize *r, const lg_step *s) {
    settings z;
    if (!read_settings(s, &z)) return false;
    for (int i = 0; i < r->n; ++i) {
        lg_resize_axis *t = &r->axes[i];
        const size_t entries = (size_t)(t->out * t->taps);
        t->index = calloc(entries + 1, sizeof *t->index), t->weight = calloc(entries + 1, sizeof *t->weight);
        if (z.coordinates == CROP) t->outside = calloc((size_t)t->out + 1, sizeof *t->outside);
        if (t->index == NULL || t->weight == NULL || (z.coordinates == CROP && t->outside == NULL)) return false;
        for (int64_t o = 0; o < t->out; ++o) {
            int32_t *index = t->index + o * t->taps;
            float *weight = t->weight + o * t->taps;
            const place at = source(&z, o, t);
            if (t->outside != NULL) t->outside[o] = !(at.below >= 0 && at.below + (at.part > 0) <= t->in - 1);
            if (z.mode == NEAREST)
                index[0] = clamped(nearest(at, z.nearest), t->in), weight[0] = 1;
            else if (plain_linear(&z))
                fill_linear(at, t->in, index, weight);
            else
                fill_weights(&z, at, z.scale[t->axis], t, index, weight);
        }
    }
    return true;
}

void lg_resize_free(lg_resize *r) {
    for (int i = 0; i < r->n; ++i) {
        free(r->axes[i].index);
        free(r->axes[i].weight);
        free(r->axes[i].outside);
    }
    *r = (lg_resize){0};
}
