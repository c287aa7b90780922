/* resize.inc.c - resize with tap tables (nearest, linear, cubic, antialiased): along channels, or row by row. Compiled
 * per ISA by longtail__<isa>.c, without FMA: sums equal those of the reference bit by bit. fast/tail/resize_plan.c does
 * the planning. */
#include "ops/resize.h"
#include "fast/tail/any.inc.c"
#include "fast/tail/resize_plan.h"

/* The taps of one output position along the resized outer axes, which are the slots of the plan. Along a slot, there
 * are n taps with the given weights and input positions; `stride` is that of the axis in x. */
typedef struct resize_taps {
    int n[3];
    const float *weight[3];
    const int32_t *index[3];
    int64_t stride[3];
} resize_taps;

static LN_ALWAYS_INLINE vf resize_vector(const bool single, int dtype, const resize_taps *t, const void *x, int64_t at,
                                         int n) {
    vf a = vf_zero();
    for (int i = 0; i < t->n[0]; i++) {
        int64_t at_i = at + t->index[0][i] * t->stride[0];
        vf b = vf_zero();
        for (int j = 0; j < t->n[1]; j++) {
            int64_t at_j = at_i + t->index[1][j] * t->stride[1];
            vf c = vf_zero();
            for (int k = 0; k < t->n[2]; k++) {
                int64_t at_k = at_j + t->index[2][k] * t->stride[2];
                vf v = any_load(single, dtype, x, at_k, n);
                v = vf_mul(vf_set1(t->weight[2][k]), v);
                c = k == 0 ? v : vf_add(c, v);
            }
            c = vf_mul(vf_set1(t->weight[1][j]), c);
            b = j == 0 ? c : vf_add(b, c);
        }
        b = vf_mul(vf_set1(t->weight[0][i]), b);
        a = i == 0 ? b : vf_add(a, b);
    }
    return a;
}

/* Lists the weights and positions of the corners of one output position, in order. */
static int resize_corners(const resize_taps *t, float *weight, int64_t *place) {
    int n = 0;
    for (int i = 0; i < t->n[0]; i++)
        for (int j = 0; j < t->n[1]; j++)
            for (int k = 0; k < t->n[2]; k++, n++) {
                weight[n] = t->weight[2][k] * t->weight[1][j] * t->weight[0][i];
                place[n] =
                    t->index[0][i] * t->stride[0] + t->index[1][j] * t->stride[1] + t->index[2][k] * t->stride[2];
            }
    return n;
}

static LN_ALWAYS_INLINE void resize_joint(const bool single, int dtype, const resize_taps *t, const void *x, int64_t at,
                                          int64_t channels, void *y, int64_t to) {
    float weight[8];
    int64_t place[8];
    int corners = resize_corners(t, weight, place);
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        int n = (int)ln_min(VF_WIDTH, channels - c);
        vf sum = vf_mul(vf_set1(weight[0]), any_load(single, dtype, x, at + place[0] + c, n));
        for (int k = 1; k < corners; k++)
            sum = vf_add(sum, vf_mul(vf_set1(weight[k]), any_load(single, dtype, x, at + place[k] + c, n)));
        any_store(single, dtype, y, to + c, n, sum);
    }
}

static LN_ALWAYS_INLINE void resize_channels(const bool single, int dtype, const resize_taps *t, const void *x,
                                             int64_t at, int64_t channels, void *y, int64_t to) {
    int64_t c = 0;
    for (; c + VF_WIDTH <= channels; c += VF_WIDTH)
        any_store(single, dtype, y, to + c, VF_WIDTH, resize_vector(single, dtype, t, x, at + c, VF_WIDTH));
    if (c < channels) {
        int n = (int)(channels - c);
        any_store(single, dtype, y, to + c, n, resize_vector(single, dtype, t, x, at + c, n));
    }
}

static void resize_set(resize_taps *t, const ln_resize_plan *p, int slot, int64_t o, int64_t x_stride) {
    const ln_resize_axis *axis = &p->slot[slot];
    t->n[slot] = axis->taps;
    t->weight[slot] = axis->weight + o * axis->taps;
    t->index[slot] = axis->index + o * axis->taps;
    t->stride[slot] = x_stride;
}

/* Finds the position of work item `item` along the first n outer axes: the offsets, and the taps of the resized
   axes. */
static void resize_locate(const ln_resize_plan *p, int n, int64_t item, resize_taps *t, int64_t *in, int64_t *out) {
    *in = *out = 0;
    for (int slot = 0; slot < 3; slot++) resize_set(t, p, slot, 0, 0);
    for (int i = n - 1; i >= 0; i--) {
        const ln_resize_outer *outer = &p->outer[i];
        int64_t o = item % outer->out;
        item /= outer->out;
        *out += o * outer->y_stride;
        if (outer->slot < 0)
            *in += o * outer->x_stride;
        else
            resize_set(t, p, outer->slot, o, outer->x_stride);
    }
}

static linnet_status resize_channels_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                         int64_t end, int thread) {
    (void)phase, (void)thread;
    const ln_resize_plan *p = call->state;
    static const ln_resize_outer single = {1, 0, 0, -1};
    const ln_resize_outer *last = p->n_outer > 0 ? &p->outer[p->n_outer - 1] : &single;
    int64_t channels = call->outputs[0].dims[p->inner];
    int dtype = call->inputs[0].dtype;
    for (int64_t item = begin; item < end; item++) {
        resize_taps t;
        int64_t in, out;
        resize_locate(p, p->n_outer - 1, item, &t, &in, &out);
        for (int64_t o = 0; o < last->out; o++) {
            int64_t at = in + (last->slot < 0 ? o * last->x_stride : 0);
            if (last->slot >= 0) resize_set(&t, p, last->slot, o, last->x_stride);
            if (p->tables.joint && dtype == LINNET_F32)
                resize_joint(true, dtype, &t, b->inputs[0], at, channels, b->outputs[0], out + o * last->y_stride);
            else if (p->tables.joint)
                resize_joint(false, dtype, &t, b->inputs[0], at, channels, b->outputs[0], out + o * last->y_stride);
            else if (dtype == LINNET_F32)
                resize_channels(true, dtype, &t, b->inputs[0], at, channels, b->outputs[0], out + o * last->y_stride);
            else
                resize_channels(false, dtype, &t, b->inputs[0], at, channels, b->outputs[0], out + o * last->y_stride);
        }
    }
    return LINNET_OK;
}

/* Interpolates along a row of single elements: out[o] = sum of weight * x[index], taps in order. */
static void resize_row(const ln_resize_axis *axis, const float *x, float *out) {
    const int32_t *index = axis->index;
    const float *weight = axis->weight;
    if (axis->taps == 2) {
        for (int64_t o = 0; o < axis->out; o++)
            out[o] = weight[2 * o] * x[index[2 * o]] + weight[2 * o + 1] * x[index[2 * o + 1]];
        return;
    }
    for (int64_t o = 0; o < axis->out; o++, index += axis->taps, weight += axis->taps) {
        float sum = weight[0] * x[index[0]];
        for (int k = 1; k < axis->taps; k++) sum += weight[k] * x[index[k]];
        out[o] = sum;
    }
}

static LN_ALWAYS_INLINE vf resize_combined(const float *const *rows, const vf *weight, const int taps, int64_t i,
                                           int n) {
    vf sum = vf_mul(weight[0], any_load(true, LINNET_F32, rows[0], i, n));
    for (int k = 1; k < taps; k++) sum = vf_add(sum, vf_mul(weight[k], any_load(true, LINNET_F32, rows[k], i, n)));
    return sum;
}

/* Computes the sum of weight[k] * rows[k][i], with the taps in order. It combines rows, or the groups within a row. */
static LN_ALWAYS_INLINE void resize_combine(const float *const *rows, const float *weight, const int taps, int64_t n,
                                            float *out) {
    vf by[4];
    for (int k = 0; k < taps; k++) by[k] = vf_set1(weight[k]);
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store(out + i, resize_combined(rows, by, taps, i, VF_WIDTH));
    if (i < n) vf_store_partial(out + i, (int)(n - i), resize_combined(rows, by, taps, i, (int)(n - i)));
}

/* Computes the same sum as resize_combine for any number of taps, which cubic and antialiased filters need. */
static void resize_combine_many(const float *const *rows, const float *weight, int taps, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += VF_WIDTH) {
        int count = (int)ln_min(VF_WIDTH, n - i);
        vf sum = vf_mul(vf_set1(weight[0]), any_load(true, LINNET_F32, rows[0], i, count));
        for (int k = 1; k < taps; k++)
            sum = vf_add(sum, vf_mul(vf_set1(weight[k]), any_load(true, LINNET_F32, rows[k], i, count)));
        any_store(true, LINNET_F32, out, i, count, sum);
    }
}

static void resize_weighted_sum(const float *const *rows, const float *weight, int taps, int64_t n, float *out) {
    if (taps == 2)
        resize_combine(rows, weight, 2, n, out);
    else
        resize_combine_many(rows, weight, taps, n, out);
}

/* Interpolates along a row of groups; `rows` has space for the taps. */
static void resize_groups(const ln_resize_axis *axis, const float *x, int64_t width, const float **rows, float *out) {
    for (int64_t o = 0; o < axis->out; o++) {
        for (int k = 0; k < axis->taps; k++) rows[k] = x + axis->index[o * axis->taps + k] * width;
        if (axis->taps == 1)
            memcpy(out + o * width, rows[0], (size_t)width * sizeof *out); /* nearest: weight 1 */
        else
            resize_weighted_sum(rows, axis->weight + o * axis->taps, axis->taps, width, out + o * width);
    }
}

/* Copies both neighbours of every output element along a row of single elements. */
static void resize_neighbours(const ln_resize_axis *axis, const float *x, float *out) {
    const int32_t *index = axis->index;
    float *left = out, *right = out + axis->out;
    for (int64_t o = 0; o < axis->out; o++) {
        left[o] = x[index[2 * o]];
        right[o] = x[index[2 * o + 1]];
    }
}

/* Computes n elements from i on of a row of single elements. rows[k] holds the neighbours in input row k, which has the
 * weight down[k]. */
static LN_ALWAYS_INLINE vf resize_joint_vector(const ln_resize_plan *p, const float *const *rows, vf above, vf below,
                                               int64_t length, int64_t i, int n) {
    vf l = any_load(true, LINNET_F32, p->left, i, n), r = any_load(true, LINNET_F32, p->right, i, n);
    vf sum = vf_mul(vf_mul(l, above), any_load(true, LINNET_F32, rows[0], i, n));
    sum = vf_add(sum, vf_mul(vf_mul(r, above), any_load(true, LINNET_F32, rows[0], length + i, n)));
    sum = vf_add(sum, vf_mul(vf_mul(l, below), any_load(true, LINNET_F32, rows[1], i, n)));
    return vf_add(sum, vf_mul(vf_mul(r, below), any_load(true, LINNET_F32, rows[1], length + i, n)));
}

static void resize_joint_row(const ln_resize_plan *p, const float *const *rows, const float *down, int64_t length,
                             float *out) {
    vf above = vf_set1(down[0]), below = vf_set1(down[1]);
    int64_t i = 0;
    for (; i + VF_WIDTH <= length; i += VF_WIDTH)
        vf_store(out + i, resize_joint_vector(p, rows, above, below, length, i, VF_WIDTH));
    if (i < length) {
        int n = (int)(length - i);
        vf_store_partial(out + i, n, resize_joint_vector(p, rows, above, below, length, i, n));
    }
}

/* Interpolates along both axes at once for rows of groups; rows[k] is input row k. */
static void resize_joint_groups(const ln_resize_axis *axis, const float *const *rows, const float *down, int64_t width,
                                float *out) {
    for (int64_t o = 0; o < axis->out; o++) {
        const float *corners[4];
        float weight[4];
        for (int k = 0; k < 4; k++) {
            corners[k] = rows[k / 2] + axis->index[2 * o + k % 2] * width;
            weight[k] = axis->weight[2 * o + k % 2] * down[k / 2];
        }
        resize_combine(corners, weight, 4, width, out + o * width);
    }
}

/* Prepares one input row for a sum over both axes at once; `line` has room for the row as f32. */
static const float *resize_kept(const ln_resize_plan *p, int dtype, const void *x, int64_t at, float *line,
                                float *row) {
    const ln_resize_axis *axis = &p->tables.axis[p->inner];
    const float *floats = (const float *)x + at;
    if (p->width > 1 && dtype == LINNET_F32) return floats;
    if (dtype != LINNET_F32) {
        any_widen(dtype, x, at, axis->in * p->width, p->width > 1 ? row : line);
        floats = line;
    }
    if (p->width == 1) resize_neighbours(axis, floats, row);
    return row;
}

static linnet_status resize_rows_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                     int thread) {
    (void)phase;
    const ln_resize_plan *p = call->state;
    const ln_resize_axis *axis = &p->tables.axis[p->inner];
    int dtype = call->inputs[0].dtype, taps = p->slot[2].taps;
    int64_t length = axis->out * p->width;
    /* Interpolated rows are kept, because the next output row needs most of them again. Neighbouring taps are
     * consecutive input rows, so the row number modulo the number of taps is a free slot. */
    int64_t *held = (int64_t *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const float **rows = (const float **)(void *)(held + taps), **groups = rows + taps;
    float *line = (float *)(void *)(groups + axis->taps), *sum = line + axis->in * p->width, *cache = sum + length;
    const bool joint = p->tables.joint;
    for (int i = 0; i < taps; i++) held[i] = INT64_MIN;
    for (int64_t item = begin; item < end; item++) {
        resize_taps t;
        int64_t in, out;
        resize_locate(p, p->n_outer, item, &t, &in, &out);
        for (int k = 0; k < taps; k++) {
            int slot = t.index[2][k] % taps;
            int64_t at = in + t.index[2][k] * t.stride[2];
            float *row = cache + slot * p->kept;
            if (joint && (held[slot] != at || (dtype == LINNET_F32 && p->width > 1))) {
                rows[k] = resize_kept(p, dtype, b->inputs[0], at, line, row);
                held[slot] = at;
                continue;
            }
            if (held[slot] != at) {
                const float *x = (const float *)b->inputs[0] + at;
                if (dtype != LINNET_F32) {
                    any_widen(dtype, b->inputs[0], at, axis->in * p->width, line);
                    x = line;
                }
                if (p->width == 1)
                    resize_row(axis, x, row);
                else
                    resize_groups(axis, x, p->width, groups, row);
                held[slot] = at;
            }
            rows[k] = row;
        }
        if (joint) {
            float *to = dtype == LINNET_F32 ? (float *)b->outputs[0] + out : sum;
            if (p->width == 1)
                resize_joint_row(p, rows, t.weight[2], length, to);
            else
                resize_joint_groups(axis, rows, t.weight[2], p->width, to);
            if (dtype != LINNET_F32) any_narrow(dtype, sum, length, b->outputs[0], out);
        } else if (dtype == LINNET_F32) {
            resize_weighted_sum(rows, t.weight[2], taps, length, (float *)b->outputs[0] + out);
        } else {
            resize_weighted_sum(rows, t.weight[2], taps, length, sum);
            any_narrow(dtype, sum, length, b->outputs[0], out);
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_resize_channels) = {.can = ln_resize_channels_can,
                                                         .cost = ln_resize_channels_cost,
                                                         .configure = ln_resize_channels_configure,
                                                         .run = resize_channels_run};
const ln_kernel_code LN_SIMD_NAME(ln_resize_rows) = {.can = ln_resize_rows_can,
                                                     .cost = ln_resize_rows_cost,
                                                     .configure = ln_resize_rows_configure,
                                                     .run = resize_rows_run};
