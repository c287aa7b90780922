/* resize.c - shape rule, tap tables and scalar reference of resize (ONNX Resize, opset 19).
 * Coordinates are exact if sizes are given, and computed in f64 from scales, as by ONNX's reference. */
#include "ops/resize.h"

#include "kernel/cost.h"
#include "kernel/infer.h"
#include "kernel/step.h"
#include "ops/resize_place.h"

#include <math.h>

enum resize_operand { OPERAND_X, OPERAND_SCALES, OPERAND_SIZES, OPERAND_ROI };

typedef struct resize_plan {
    int n_axes;
    int axes[LN_MAX_RANK];
    bool known, by_scale;
    double scale[LN_MAX_RANK]; /* per axis of x; 1 if the axis is not resized */
    int64_t up, down;          /* the scale of all axes as a fraction, if given sizes keep the aspect ratio; else 0 */
    int64_t out[LN_MAX_RANK];  /* -1: not known yet */
} resize_plan;

/* Returns optional operand i; NULL if it is absent or an empty list, which is ONNX's older way of leaving an operand
 * out. */
static const ln_tensor *operand(const ln_tensor *inputs, int n_inputs, int i) {
    if (i >= n_inputs || inputs[i].dtype == LINNET_NONE || (inputs[i].rank == 1 && inputs[i].dims[0] == 0)) return NULL;
    return &inputs[i];
}

static linnet_status wrong_length(const char *name, int64_t n, int64_t expected, linnet_error *error) {
    ln_fail(error, LINNET_BAD_ATTRIBUTE, "%s has the wrong length", name);
    ln_expected(error, "%lld values, one per resized axis", (long long)expected);
    return ln_got(error, "%lld", (long long)n);
}

static linnet_status take_axes(const ln_resize_attributes *a, const ln_tensor *x, resize_plan *p, linnet_error *error) {
    p->n_axes = a->axes.n == 0 ? x->rank : (int)ln_min(a->axes.n, LN_MAX_RANK + 1);
    if (p->n_axes > x->rank) return wrong_length("axes", a->axes.n, x->rank, error);
    for (int i = 0; i < p->n_axes; i++) {
        int axis = a->axes.n == 0 ? i : ln_axis(a->axes.v[i], x->rank);
        bool twice = false;
        for (int j = 0; j < i; j++) twice |= p->axes[j] == axis;
        if (axis < 0 || twice) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "axes has a value that is out of range or listed twice");
            ln_expected(error, "distinct values from %d to %d", -x->rank, x->rank - 1);
            return ln_got(error, "%lld", (long long)a->axes.v[i]);
        }
        p->axes[i] = axis;
    }
    return LINNET_OK;
}

static linnet_status bad_size(int axis, const char *text, linnet_error *error) {
    ln_fail(error, LINNET_BAD_ATTRIBUTE, "the new size of axis %d %s", axis, text);
    ln_expected(error, "0 to %d, from a positive finite scale; an empty axis stays empty", INT32_MAX);
    return LINNET_BAD_ATTRIBUTE;
}

static linnet_status apply_scale(const ln_tensor *x, int axis, double value, resize_plan *p, linnet_error *error) {
    const float scale = (float)value;
    p->scale[axis] = (double)scale;
    if (!(value > 0) || !isfinite(scale)) return bad_size(axis, "comes from a scale that is out of range", error);
    if (x->dims[axis] < 0) return LINNET_OK;
    float size = floorf(scale * (float)x->dims[axis]); /* in f32, as ONNX's shape inference */
    if (!(size < 2147483648.0f)) return bad_size(axis, "is too large", error);
    p->out[axis] = (int64_t)size;
    return LINNET_OK;
}

/* Tells whether a / b < c / d. Exact for sizes below 2^31. */
static bool below(int64_t a, int64_t b, int64_t c, int64_t d) {
    return b <= INT32_MAX && d <= INT32_MAX ? a * d < c * b : (double)a / (double)b < (double)c / (double)d;
}

static linnet_status apply_sizes(const ln_resize_attributes *a, const ln_tensor *x, const int64_t *sizes,
                                 resize_plan *p, linnet_error *error) {
    bool all_known = true;
    for (int i = 0; i < p->n_axes; i++) {
        int axis = p->axes[i];
        int64_t in = x->dims[axis];
        if (sizes[i] < 0 || sizes[i] > INT32_MAX || (in == 0 && sizes[i] > 0))
            return bad_size(axis, "is out of range", error);
        p->out[axis] = sizes[i];
        all_known &= in >= 0;
        if (in <= 0) continue;
        p->scale[axis] = (double)sizes[i] / (double)in;
        if (p->down == 0 || (a->aspect == LN_RESIZE_ASPECT_NOT_LARGER ? below(sizes[i], in, p->up, p->down)
                                                                      : below(p->up, p->down, sizes[i], in)))
            p->up = sizes[i], p->down = in;
    }
    if (a->aspect == LN_RESIZE_ASPECT_STRETCH) return LINNET_OK;
    for (int i = 0; i < p->n_axes; i++) {
        const int axis = p->axes[i];
        const int64_t in = x->dims[axis];
        const double scale = p->down > 0 ? (double)p->up / (double)p->down : p->scale[axis];
        const double size = all_known ? floor(scale * (double)in + 0.5) : -1;
        if (!(size < 2147483648.0)) return bad_size(axis, "is too large", error);
        p->out[axis] = (int64_t)size;
        if (size > 0 && in <= INT32_MAX && p->down <= INT32_MAX) { /* computes the size exactly, in integers */
            const int64_t part = in % p->down * p->up, rest = part % p->down;
            p->out[axis] = in / p->down * p->up + part / p->down + (rest >= p->down - rest);
        }
        p->scale[axis] = scale;
    }
    p->by_scale = true;
    return LINNET_OK;
}

static linnet_status resolve(const ln_resize_attributes *a, const ln_tensor *inputs, int n_inputs, resize_plan *p,
                             linnet_error *error) {
    const ln_tensor *x = &inputs[0];
    const ln_tensor *scales = operand(inputs, n_inputs, OPERAND_SCALES),
                    *sizes = operand(inputs, n_inputs, OPERAND_SIZES);
    *p = (resize_plan){.known = true};
    linnet_status status = take_axes(a, x, p, error);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < x->rank; i++) p->scale[i] = 1, p->out[i] = x->dims[i];
    for (int i = 0; i < p->n_axes; i++) p->out[p->axes[i]] = -1;
    if (a->sizes.n > 0) {
        if (a->sizes.n != p->n_axes) return wrong_length("sizes", a->sizes.n, p->n_axes, error);
        return apply_sizes(a, x, a->sizes.v, p, error);
    }
    if (sizes != NULL) {
        int64_t v[2 * LN_MAX_RANK];
        int n = ln_int_operand(sizes, v);
        if (n == -1) {
            p->known = false;
            return LINNET_OK;
        }
        return n != p->n_axes ? wrong_length("sizes", n, p->n_axes, error) : apply_sizes(a, x, v, p, error);
    }
    int64_t n = a->scales.n;
    if (n == 0 && scales == NULL) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "neither sizes nor scales are given");
        return ln_hint(error, "give one of them, as an attribute or an operand");
    }
    if (n == 0) {
        n = ln_count(scales);
        if (scales->data == NULL || n < 0) {
            p->known = false;
            return LINNET_OK;
        }
    }
    if (n != p->n_axes) return wrong_length("scales", n, p->n_axes, error);
    p->by_scale = true;
    for (int i = 0; i < p->n_axes && status == LINNET_OK; i++)
        status = apply_scale(x, p->axes[i],
                             a->scales.n > 0 ? a->scales.v[i] : ln_load_f64(scales->data, scales->dtype, i), p, error);
    return status;
}

linnet_status ln_infer_resize(const ln_infer *infer) {
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    y->dtype = x->dtype;
    y->rank = x->rank;
    if (x->rank < 0) return LINNET_OK;
    resize_plan p;
    linnet_status status = resolve(infer->attributes, infer->inputs, infer->n_inputs, &p, infer->error);
    for (int i = 0; i < x->rank && status == LINNET_OK; i++) y->dims[i] = p.out[i];
    return status;
}

/* Counts operations per element: linear interpolation combines two neighbours per axis, cubic interpolation four. */
void ln_count_resize(const ln_call *call, ln_counts *counts) {
    static const double of[] = {3, 4, 14};
    const int64_t mode = ((const ln_resize_attributes *)call->attributes)->mode;
    counts->work[LN_RATE_MAP] += of[mode < 3 ? mode : 2] * (double)ln_count(&call->outputs[0]);
}

static const ln_tensor *roi_of(const ln_call *call) { return operand(call->inputs, call->n_inputs, OPERAND_ROI); }

bool ln_resize_known(const ln_call *call) {
    const ln_resize_attributes *a = call->attributes;
    resize_plan p;
    if (resolve(a, call->inputs, call->n_inputs, &p, NULL) != LINNET_OK || !p.known) return false;
    if (a->coordinates != LN_RESIZE_COORDINATES_TF_CROP_AND_RESIZE) return true;
    const ln_tensor *roi = roi_of(call);
    return roi != NULL && roi->data != NULL && ln_count(roi) == 2 * p.n_axes;
}

static double cubic(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double triangle(double x) { return fmax(0, 1 - fabs(x)); }

/* Sets the extent of the filter: its taps are at first ... first + taps - 1 relative to the left neighbour.
 * Antialiasing widens the filter by the factor 1 / scale. */
static void filter_extent(const ln_resize_attributes *a, double scale, int *first, int *taps) {
    double radius = a->mode == LN_RESIZE_MODE_CUBIC ? 2 : 1, shrink = a->antialias ? fmin(scale, 1) : 1;
    *first = (int)floor(-radius / shrink) + 1;
    *taps = 2 - 2 * *first;
    if (a->mode == LN_RESIZE_MODE_NEAREST) *first = 0, *taps = 1;
}

static void fill_weights(const ln_resize_attributes *a, place at, double scale, int first, int taps, int64_t in,
                         int32_t *index, float *weight) {
    /* The left neighbour is strictly below the position, so that the distance to it is in (0, 1]. */
    const int64_t left = at.part > 0 ? at.below : at.below - 1;
    const double ratio = at.part > 0 ? at.part : 1, shrink = a->antialias ? fmin(scale, 1) : 1;
    double sum = 0;
    for (int t = 0; t < taps; t++) {
        int64_t i = left + first + t;
        double distance = ((double)(first + t) - ratio) * shrink;
        weight[t] =
            (float)(a->mode == LN_RESIZE_MODE_CUBIC ? cubic(distance, a->cubic_coefficient) : triangle(distance));
        if (a->exclude_outside && (i < 0 || i >= in)) weight[t] = 0;
        sum += (double)weight[t];
        index[t] = (int32_t)ln_max(0, ln_min(i, in - 1));
    }
    bool normalize = (a->exclude_outside || shrink < 1) && sum != 0;
    for (int t = 0; t < taps && normalize; t++) weight[t] = (float)((double)weight[t] / sum);
}

/* Tells whether the mode is plain linear interpolation between the two neighbours of the coordinate, which are clamped
 * to the input. */
static bool plain_linear(const ln_resize_attributes *a) {
    return a->mode == LN_RESIZE_MODE_LINEAR && !a->antialias && !a->exclude_outside;
}

static void fill_linear(place at, int64_t in, int32_t *index, float *weight) {
    const double part = at.below < 0 ? 0 : at.part;
    index[0] = (int32_t)ln_max(0, ln_min(at.below, in - 1));
    index[1] = (int32_t)ln_min(index[0] + 1, in - 1);
    weight[0] = index[0] == index[1] ? 0.5f : (float)(1 - part);
    weight[1] = index[0] == index[1] ? 0.5f : (float)part;
}

static bool crops(const ln_resize_attributes *a) { return a->coordinates == LN_RESIZE_COORDINATES_TF_CROP_AND_RESIZE; }

/* Tells whether axis i of p->axes needs resampling. Every mode maps o to o if the size does not change and no scale
 * differs from 1. */
static bool moves(const ln_call *call, const resize_plan *p, int i) {
    int axis = p->axes[i];
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0], *roi = roi_of(call);
    bool whole = !crops(call->attributes) ||
                 (ln_load_f64(roi->data, roi->dtype, i) == 0 && ln_load_f64(roi->data, roi->dtype, i + p->n_axes) == 1);
    return x->dims[axis] != y->dims[axis] || !whole || (p->by_scale && p->scale[axis] != 1);
}

/* For images, ONNX Runtime interpolates linearly along height and width together, even if only one of them changes. */
static bool is_active(const ln_call *call, const resize_plan *p, int i) {
    int axis = p->axes[i], rank = call->inputs[0].rank;
    bool beside = false, image = (rank == 4 || rank == 2) && axis >= rank - 2 && plain_linear(call->attributes);
    if (moves(call, p, i)) return true;
    for (int j = 0; j < p->n_axes && image; j++) {
        if (!moves(call, p, j)) continue;
        if (p->axes[j] < rank - 2) return false;
        beside = true;
    }
    return beside;
}

unsigned ln_resize_active(const ln_call *call) {
    resize_plan p;
    unsigned active = 0;
    if (resolve(call->attributes, call->inputs, call->n_inputs, &p, NULL) == LINNET_OK && p.known)
        for (int i = 0; i < p.n_axes; i++) active |= (unsigned)is_active(call, &p, i) << p.axes[i];
    return active;
}

linnet_status ln_resize_prepare(ln_call *call, ln_resize_tables *tables) {
    const ln_resize_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0], *roi = roi_of(call);
    bool crop = crops(a);
    resize_plan p;
    linnet_status status = resolve(a, call->inputs, call->n_inputs, &p, NULL);
    if (status != LINNET_OK) return status;
    *tables = (ln_resize_tables){.n_active = 0};
    for (int i = 0; i < x->rank; i++) tables->axis[i] = (ln_resize_axis){.in = x->dims[i], .out = y->dims[i]};
    for (int i = 0; i < p.n_axes; i++) {
        int axis = p.axes[i];
        ln_resize_axis *t = &tables->axis[axis];
        double range[2] = {0, 1};
        if (crop) {
            range[0] = ln_load_f64(roi->data, roi->dtype, i);
            range[1] = ln_load_f64(roi->data, roi->dtype, i + p.n_axes);
        }
        if (!is_active(call, &p, i)) continue;
        const resize_scale scale = {p.scale[axis], p.by_scale, p.up, p.down};
        int first, taps;
        if (a->antialias && !(p.scale[axis] > 0x1p-20)) /* the filter would have too many taps to count */
            return LINNET_TOO_LARGE;
        filter_extent(a, p.scale[axis], &first, &taps);
        int32_t *index = ln_call_state(call, (size_t)(t->out * taps + 1) * sizeof *index);
        float *weight = ln_call_state(call, (size_t)(t->out * taps + 1) * sizeof *weight);
        uint8_t *outside = crop ? ln_call_state(call, (size_t)t->out + 1) : NULL;
        if (index == NULL || weight == NULL || (crop && outside == NULL)) return LINNET_OUT_OF_MEMORY;
        for (int64_t o = 0; o < t->out; o++) {
            const place at = source(a, o, t->in, t->out, &scale, range);
            if (crop) outside[o] = !(at.below >= 0 && at.below + (at.part > 0) <= t->in - 1);
            if (a->mode == LN_RESIZE_MODE_NEAREST) {
                index[o] = (int32_t)ln_max(0, ln_min(nearest(at, a->nearest), t->in - 1));
                weight[o] = 1;
            } else if (plain_linear(a)) {
                fill_linear(at, t->in, index + o * taps, weight + o * taps);
            } else {
                fill_weights(a, at, p.scale[axis], first, taps, t->in, index + o * taps, weight + o * taps);
            }
        }
        t->taps = taps, t->index = index, t->weight = weight, t->outside = outside;
    }
    for (int i = 0; i < x->rank; i++)
        if (tables->axis[i].taps > 0) tables->active[tables->n_active++] = i;
    tables->joint = plain_linear(a) && tables->n_active > 1;
    return LINNET_OK;
}

static bool reference_can(const ln_call *call) {
    return call->inputs[0].dtype == call->outputs[0].dtype && ln_resize_known(call);
}

static linnet_status reference_configure(ln_call *call) {
    ln_resize_tables *tables = call->state = ln_call_state(call, sizeof *tables);
    if (tables == NULL) return LINNET_OUT_OF_MEMORY;
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = 1024;
    call->flops = (uint64_t)call->work[0];
    return ln_resize_prepare(call, tables);
}

/* The operands of a run, for the recursion over active axes. */
typedef struct resize_run {
    const ln_resize_tables *tables;
    const ln_tensor *x;
    const void *data;
    int64_t at[LN_MAX_RANK]; /* output coordinates */
} resize_run;

static float interpolate(const resize_run *r, int depth, int64_t offset) {
    if (depth == r->tables->n_active) return (float)ln_load_f64(r->data, r->x->dtype, offset);
    int d = r->tables->active[depth];
    const ln_resize_axis *t = &r->tables->axis[d];
    int64_t first = r->at[d] * t->taps;
    float sum = t->weight[first] * interpolate(r, depth + 1, offset + t->index[first] * r->x->strides[d]);
    for (int i = 1; i < t->taps; i++)
        sum += t->weight[first + i] * interpolate(r, depth + 1, offset + t->index[first + i] * r->x->strides[d]);
    return sum;
}

static float interpolate_joint(const resize_run *r, int64_t offset) {
    const ln_resize_tables *t = r->tables;
    float sum = 0;
    for (int corner = 0; corner < 1 << t->n_active; corner++) {
        float weight = 1;
        int64_t at = offset;
        for (int depth = t->n_active - 1; depth >= 0; depth--) {
            int d = t->active[depth];
            int64_t tap = 2 * r->at[d] + (corner >> (t->n_active - 1 - depth) & 1);
            weight *= t->axis[d].weight[tap]; /* the first product is with 1, so it is exact */
            at += t->axis[d].index[tap] * r->x->strides[d];
        }
        float value = weight * (float)ln_load_f64(r->data, r->x->dtype, at);
        sum = corner == 0 ? value : sum + value;
    }
    return sum;
}

/* Interpolates in f64, for values of f64 and i32, which f32 cannot hold. */
static double interpolate_wide(const resize_run *r, int depth, int64_t offset) {
    if (depth == r->tables->n_active) return ln_load_f64(r->data, r->x->dtype, offset);
    int d = r->tables->active[depth];
    const ln_resize_axis *t = &r->tables->axis[d];
    double sum = 0;
    for (int64_t i = r->at[d] * t->taps; i < (r->at[d] + 1) * t->taps; i++)
        sum += (double)t->weight[i] * interpolate_wide(r, depth + 1, offset + t->index[i] * r->x->strides[d]);
    return sum;
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_resize_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    resize_run r = {.tables = call->state, .x = x, .data = b->inputs[0]};
    bool wide = x->dtype == LINNET_F64 || x->dtype == LINNET_I32, is_float = ln_dtype_is_float(x->dtype);
    for (int64_t item = begin; item < end; item++) {
        int64_t in = 0, out = 0, rest = item;
        bool outside = false;
        for (int d = y->rank - 1; d >= 0; d--) {
            const ln_resize_axis *t = &r.tables->axis[d];
            r.at[d] = rest % y->dims[d];
            rest /= y->dims[d];
            out += r.at[d] * y->strides[d];
            in += t->taps == 0 ? r.at[d] * x->strides[d] : 0;
            outside |= t->outside != NULL && t->outside[r.at[d]];
        }
        double value = outside           ? a->extrapolation_value
                       : wide            ? interpolate_wide(&r, 0, in)
                       : r.tables->joint ? (double)interpolate_joint(&r, in)
                                         : (double)interpolate(&r, 0, in);
        ln_store_f64(b->outputs[0], y->dtype, out, is_float ? value : rint(value));
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_resize = {
    .can = reference_can, .configure = reference_configure, .run = reference_run};
