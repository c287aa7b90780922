/* window.c - resolves strides, dilations, padding and auto_pad of conv, conv_transpose and pool to plain numbers.
 * The formulas are those of the ONNX operator specifications. */
#include "kernel/common/window.h"

#define LIMIT                                                                                                          \
    INT32_MAX /* limit of strides, dilations, pads and kernel sizes, so that their products fit in 64 bits             \
               */

/* Reads an attribute with one value per real spatial axis. An empty list means the default for every axis. */
static linnet_status spread(const char *name, ln_ints list, int n_spatial, int64_t least, int64_t fallback,
                            int64_t *out, linnet_error *error) {
    int first = LN_SPATIAL - n_spatial;
    for (int i = 0; i < LN_SPATIAL; i++) out[i] = fallback;
    if (list.n == 0) return LINNET_OK;
    if (list.n != n_spatial) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "%s has the wrong length", name);
        ln_expected(error, "%d values, one per spatial axis", n_spatial);
        return ln_got(error, "%lld", (long long)list.n);
    }
    for (int i = 0; i < n_spatial; i++) {
        if (list.v[i] < least || list.v[i] > LIMIT) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "%s is out of range", name);
            ln_expected(error, "values from %lld to %d", (long long)least, LIMIT);
            return ln_got(error, "%lld", (long long)list.v[i]);
        }
        out[first + i] = list.v[i];
    }
    return LINNET_OK;
}

static linnet_status spread_pads(ln_ints pads, int n_spatial, ln_window *w, linnet_error *error) {
    if (pads.n != 0 && pads.n != 2 * n_spatial) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "pads has the wrong length");
        ln_expected(error, "%d values: all begins, then all ends", 2 * n_spatial);
        return ln_got(error, "%lld", (long long)pads.n);
    }
    ln_ints begins = {pads.v, pads.n / 2}, ends = {pads.n == 0 ? pads.v : pads.v + n_spatial, pads.n / 2};
    linnet_status status = spread("pads", begins, n_spatial, 0, 0, w->pad_begin, error);
    return status != LINNET_OK ? status : spread("pads", ends, n_spatial, 0, 0, w->pad_end, error);
}

/* Takes the rank, the batch, the channels and the spatial sizes from x. */
static linnet_status take_input(const ln_tensor *x, int64_t channel_axis, ln_window *w, linnet_error *error) {
    if (x->rank < 3 || x->rank > 5) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "x does not have 1 to 3 spatial dimensions");
        ln_expected(error, "rank 3, 4 or 5");
        return ln_got(error, "rank %d", x->rank);
    }
    if (channel_axis != 1 && channel_axis != -1 && channel_axis != x->rank - 1) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "channel_axis is out of range");
        ln_expected(error, "1 or -1");
        return ln_got(error, "%lld", (long long)channel_axis);
    }
    w->n_spatial = x->rank - 2;
    w->channel_axis = channel_axis == 1 ? 1 : x->rank - 1;
    w->batch = x->dims[0];
    w->in_channels = x->dims[w->channel_axis];
    for (int i = 0; i < LN_SPATIAL; i++) w->in[i] = 1;
    int axis = LN_SPATIAL - w->n_spatial;
    for (int i = 1; i < x->rank; i++)
        if (i != w->channel_axis) w->in[axis++] = x->dims[i];
    for (int i = 0; i < LN_SPATIAL; i++)
        if (w->in[i] > LIMIT) {
            ln_fail(error, LINNET_TOO_LARGE, "a spatial dimension of x is too large");
            ln_expected(error, "at most %d", LIMIT);
            return ln_got(error, "%lld", (long long)w->in[i]);
        }
    return LINNET_OK;
}

/* Takes the sizes of the kernel from the weight, whose rank must be that of x. */
static linnet_status take_weight(const ln_tensor *x, const ln_tensor *weight, ln_window *w, linnet_error *error) {
    for (int i = 0; i < LN_SPATIAL; i++) w->kernel[i] = i < LN_SPATIAL - w->n_spatial ? 1 : -1;
    if (weight->rank < 0) return LINNET_OK;
    if (weight->rank != x->rank) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "w and x differ in rank");
        ln_expected(error, "w of rank %d, like x", x->rank);
        return ln_got(error, "rank %d", weight->rank);
    }
    for (int i = 0; i < w->n_spatial; i++) {
        int64_t size = weight->dims[2 + i];
        if (size == 0 || size > LIMIT) {
            ln_fail(error, LINNET_SHAPE_MISMATCH, "a kernel dimension of w is 0 or too large");
            return ln_got(error, "%lld", (long long)size);
        }
        w->kernel[LN_SPATIAL - w->n_spatial + i] = size;
    }
    return LINNET_OK;
}

static linnet_status take_common(ln_ints strides, ln_ints dilations, ln_ints pads, ln_window *w, linnet_error *error) {
    linnet_status status = spread("strides", strides, w->n_spatial, 1, 1, w->stride, error);
    if (status == LINNET_OK) status = spread("dilations", dilations, w->n_spatial, 1, 1, w->dilation, error);
    if (status == LINNET_OK) status = spread_pads(pads, w->n_spatial, w, error);
    return status;
}

/* Computes the padding and the output size of one axis of a conv or pool. With same_upper and same_lower, the output
 * has ceil(in / stride) positions. */
static linnet_status slide(ln_window *w, int i, int64_t auto_pad, bool ceil_mode, linnet_error *error) {
    int64_t in = w->in[i], stride = w->stride[i];
    bool same = auto_pad == LN_CONV_AUTO_PAD_SAME_UPPER || auto_pad == LN_CONV_AUTO_PAD_SAME_LOWER;
    if (auto_pad != LN_CONV_AUTO_PAD_EXPLICIT) w->pad_begin[i] = w->pad_end[i] = 0;
    w->out[i] = -1;
    if (in < 0) return LINNET_OK;
    if (same) w->out[i] = ln_ceil_div(in, stride);
    if (w->kernel[i] < 0) return LINNET_OK;
    int64_t extent = (w->kernel[i] - 1) * w->dilation[i] + 1;
    if (same) {
        int64_t total = in == 0 ? 0 : ln_max((w->out[i] - 1) * stride + extent - in, 0);
        int64_t small = total / 2, large = total - small;
        w->pad_begin[i] = auto_pad == LN_CONV_AUTO_PAD_SAME_UPPER ? small : large;
        w->pad_end[i] = total - w->pad_begin[i];
        return LINNET_OK;
    }
    int64_t room = in + w->pad_begin[i] + w->pad_end[i] - extent;
    if (room < 0) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "the window is larger than the padded input (spatial axis %d)",
                i - (LN_SPATIAL - w->n_spatial));
        ln_expected(error, "at most %lld", (long long)(in + w->pad_begin[i] + w->pad_end[i]));
        return ln_got(error, "kernel %lld with dilation %lld", (long long)w->kernel[i], (long long)w->dilation[i]);
    }
    w->out[i] = (ceil_mode ? ln_ceil_div(room, stride) : room / stride) + 1;
    /* Rounding up may not add a window that begins in the end padding. */
    if (ceil_mode && (w->out[i] - 1) * stride >= in + w->pad_begin[i]) w->out[i]--;
    return LINNET_OK;
}

static linnet_status check_group(int64_t group, int64_t channels, const char *what, linnet_error *error) {
    if (group >= 1 && (channels < 0 || channels % group == 0)) return LINNET_OK;
    ln_fail(error, LINNET_BAD_ATTRIBUTE, "group does not divide the number of %s channels", what);
    ln_expected(error, "a divisor of %lld", (long long)channels);
    return ln_got(error, "%lld", (long long)group);
}

linnet_status ln_window_conv(const ln_conv_attributes *a, const ln_tensor *x, const ln_tensor *weight, ln_window *w,
                             linnet_error *error) {
    *w = (ln_window){.group = a->group, .out_channels = weight->rank > 0 ? weight->dims[0] : -1};
    linnet_status status = take_input(x, a->channel_axis, w, error);
    if (status == LINNET_OK) status = take_weight(x, weight, w, error);
    if (status == LINNET_OK) status = take_common(a->strides, a->dilations, a->pads, w, error);
    if (status == LINNET_OK) status = check_group(a->group, w->in_channels, "input", error);
    if (status == LINNET_OK) status = check_group(a->group, w->out_channels, "output", error);
    if (status != LINNET_OK) return status;
    if (weight->rank > 1 && weight->dims[1] >= 0 && w->in_channels >= 0 &&
        weight->dims[1] * a->group != w->in_channels) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "the shape of w does not match the channels of x");
        ln_expected(error, "w of shape [out, %lld, ...]: %lld channels in %lld groups",
                    (long long)(w->in_channels / a->group), (long long)w->in_channels, (long long)a->group);
        return ln_got(error, "[out, %lld, ...]", (long long)weight->dims[1]);
    }
    if (w->in_channels < 0 && weight->rank > 1 && weight->dims[1] >= 0 && weight->dims[1] <= LIMIT && a->group <= LIMIT)
        w->in_channels = weight->dims[1] * a->group;
    for (int i = 0; i < LN_SPATIAL && status == LINNET_OK; i++) status = slide(w, i, a->auto_pad, false, error);
    return status;
}

linnet_status ln_window_pool(const ln_pool_attributes *a, const ln_tensor *x, ln_window *w, linnet_error *error) {
    *w = (ln_window){.group = 1};
    linnet_status status = take_input(x, a->channel_axis, w, error);
    if (status == LINNET_OK && a->kernel.n == 0) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "kernel is missing");
        return ln_expected(error, "%d sizes, one per spatial axis", w->n_spatial);
    }
    if (status == LINNET_OK) status = spread("kernel", a->kernel, w->n_spatial, 1, 1, w->kernel, error);
    if (status == LINNET_OK) status = take_common(a->strides, a->dilations, a->pads, w, error);
    w->out_channels = w->in_channels;
    for (int i = 0; i < LN_SPATIAL && status == LINNET_OK; i++)
        status = slide(w, i, a->auto_pad, a->ceil_mode != 0, error);
    return status;
}

linnet_status ln_window_conv_transpose(const ln_conv_transpose_attributes *a, const ln_tensor *x,
                                       const ln_tensor *weight, ln_window *w, linnet_error *error) {
    /* Attributes and input channels. */
    *w = (ln_window){.group = a->group, .out_channels = -1};
    int64_t extra[LN_SPATIAL], wanted[LN_SPATIAL];
    linnet_status status = take_input(x, a->channel_axis, w, error);
    if (status == LINNET_OK) status = take_weight(x, weight, w, error);
    if (status == LINNET_OK) status = take_common(a->strides, a->dilations, a->pads, w, error);
    if (status == LINNET_OK) status = spread("output_padding", a->output_padding, w->n_spatial, 0, 0, extra, error);
    if (status == LINNET_OK) status = spread("output_shape", a->output_shape, w->n_spatial, 1, 1, wanted, error);
    if (status == LINNET_OK) status = check_group(a->group, w->in_channels, "input", error);
    if (status != LINNET_OK) return status;
    if (weight->rank > 0 && weight->dims[0] >= 0) {
        if (w->in_channels >= 0 && weight->dims[0] != w->in_channels) {
            ln_fail(error, LINNET_SHAPE_MISMATCH, "the shape of w does not match the channels of x");
            ln_expected(error, "w of shape [%lld, out/group, ...]", (long long)w->in_channels);
            return ln_got(error, "[%lld, out/group, ...]", (long long)weight->dims[0]);
        }
        w->in_channels = weight->dims[0];
    }
    if (weight->rank > 1 && weight->dims[1] >= 0 && weight->dims[1] <= LIMIT && a->group <= LIMIT)
        w->out_channels = weight->dims[1] * a->group;
    /* Per axis: either the output size is fixed and determines the padding, or the padding determines the size. */
    bool same =
        a->auto_pad == LN_CONV_TRANSPOSE_AUTO_PAD_SAME_UPPER || a->auto_pad == LN_CONV_TRANSPOSE_AUTO_PAD_SAME_LOWER;
    for (int i = 0; i < LN_SPATIAL; i++) {
        w->out[i] = -1;
        if (a->auto_pad != LN_CONV_TRANSPOSE_AUTO_PAD_EXPLICIT) w->pad_begin[i] = w->pad_end[i] = 0;
        bool fixed = (a->output_shape.n != 0 || same) && i >= LN_SPATIAL - w->n_spatial;
        if (a->output_shape.n != 0 && fixed) w->out[i] = wanted[i];
        if (w->in[i] < 0 || w->kernel[i] < 0) continue;
        if (fixed && w->out[i] < 0) w->out[i] = w->in[i] * w->stride[i];
        int64_t full =
            w->in[i] == 0 ? 0 : w->stride[i] * (w->in[i] - 1) + extra[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (fixed) {
            int64_t total = ln_max(full - w->out[i], 0);
            w->pad_begin[i] = a->auto_pad == LN_CONV_TRANSPOSE_AUTO_PAD_SAME_UPPER ? total / 2 : total - total / 2;
            w->pad_end[i] = total - w->pad_begin[i];
        } else {
            w->out[i] = full - w->pad_begin[i] - w->pad_end[i];
            if (w->out[i] < 0) {
                ln_fail(error, LINNET_SHAPE_MISMATCH, "pads are larger than the result");
                ln_expected(error, "at most %lld", (long long)full);
                return ln_got(error, "%lld", (long long)(w->pad_begin[i] + w->pad_end[i]));
            }
        }
    }
    return LINNET_OK;
}

void ln_window_shape(const ln_window *w, ln_tensor *y) {
    y->rank = (int8_t)(w->n_spatial + 2);
    y->dims[0] = w->batch;
    y->dims[w->channel_axis] = w->out_channels;
    int axis = LN_SPATIAL - w->n_spatial;
    for (int i = 1; i < y->rank; i++)
        if (i != w->channel_axis) y->dims[i] = w->out[axis++];
}

ln_window_strides ln_window_strides_of(const ln_tensor *t, int channel_axis) {
    ln_window_strides s = {.n = t->strides[0], .c = t->strides[channel_axis]};
    int axis = LN_SPATIAL - (t->rank - 2);
    for (int i = 1; i < t->rank; i++)
        if (i != channel_axis) s.s[axis++] = t->strides[i];
    return s;
}

void ln_window_valid(const ln_window *w, int axis, int64_t o, int64_t *begin, int64_t *end) {
    int64_t first = o * w->stride[axis] - w->pad_begin[axis], d = w->dilation[axis];
    *begin = first < 0 ? ln_min(ln_ceil_div(-first, d), w->kernel[axis]) : 0;
    *end = first >= w->in[axis] ? 0 : ln_min(w->kernel[axis], (w->in[axis] - 1 - first) / d + 1);
    *end = ln_max(*begin, *end);
}
