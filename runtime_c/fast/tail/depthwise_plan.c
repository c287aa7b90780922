/* depthwise_plan.c - decides which calls the depthwise kernels support, plans their memory, and packs the weights, for
 * all ISAs. The loops are in fast/tail/depthwise.inc.c. */
#include "fast/tail/depthwise_plan.h"

#include "base/layout.h"
#include "fast/tail/depthwise.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <string.h>

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

/* Returns the number of packed taps, which includes padding. */
static int64_t packed_taps(const ln_depthwise *d) { return d->taps.rows * d->window.kernel[2]; }

static int64_t tap_bytes(const ln_depthwise *d) { return d->narrow.stores == LN_NARROW_NONE ? 4 : 2; }

static const ln_tensor *result_of(const ln_call *call) { return call->inner != NULL ? call->inner : &call->outputs[0]; }

static linnet_status window_of(const ln_call *call, ln_window *g) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    return call->op->id == LN_OP_CONV ? ln_window_conv(call->attributes, x, w, g, NULL)
                                      : ln_window_conv_transpose(call->attributes, x, w, g, NULL);
}

/* Tells whether there is one input channel per group, and channels are innermost in the input and the output. conv may
 * have several output channels per group, unless there is only one group, which is an ordinary convolution. */
static bool shape_fits(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *y = result_of(call);
    ln_window g;
    if (window_of(call, &g) != LINNET_OK || g.group != g.in_channels ||
        (g.out_channels != g.in_channels && (call->op->id != LN_OP_CONV || g.in_channels == 1)) ||
        g.kernel[0] * g.kernel[1] > LN_DEPTHWISE_ROWS)
        return false;
    if (g.in_channels > 1 && x->strides[g.channel_axis] != 1) return false;
    if (g.out_channels > 1 && y->strides[g.channel_axis] != 1) return false;
    if (call->epilogue == NULL) return true;
    /* ln_epilogue_apply needs rows of channels without gaps. */
    return g.channel_axis == y->rank - 1 ? ln_is_dense(y) : ln_is_channels_last(y);
}

/* Tells whether results are computed from sums in floats: f32 results, and small integers by float_rne. */
static bool by_floats(const ln_call *call) {
    const int to = result_of(call)->dtype;
    return to == LINNET_F32 || (((const ln_conv_attributes *)call->attributes)->requant == LN_REQUANT_FLOAT_RNE &&
                                (to == LINNET_I8 || to == LINNET_U8 || to == LINNET_I16));
}

void ln_depthwise_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = result_of(call);
    const bool floats = ln_dtype_is_float(x->dtype);
    const double results = (double)ln_count(y);
    /* Each product loads its operands, so it takes as long as several in a matrix product. */
    ln_scale_products(counts, floats || x->dtype == LINNET_I16 ? 2.5 : 5);
    counts->work[LN_RATE_MAP] += results * (floats ? 0.5 : 4);
    if (!floats && call->epilogue != NULL) counts->work[LN_RATE_MAP] += results * (x->dtype == LINNET_I16 ? 2 : 8);
    if (x->dtype != LINNET_F32 && !(kernel->needs & LN_HALVES)) counts->work[LN_RATE_MAP] += (double)ln_count(x) * 2;
    counts->work[LN_RATE_MOVE] += 1300;
    ln_scale_products(counts, ln_short_lines(kernel, w->dims[0]));
    /* A single channel leaves most lanes of the vectors empty. The matrix product is better, because its taps are
       contiguous. */
    if (w->dims[0] == 1 && w->dims[w->rank - 1] >= 4 && floats) ln_scale_products(counts, 5);
}

void ln_depthwise_cost_lanes(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    const double results = (double)ln_count(result_of(call));
    const int64_t lanes = ln_lanes(kernel);
    /* If tiles convert the results, a vector that is not full takes as long as a full one. */
    const double fill = by_floats(call)
                            ? (double)(ln_ceil_div(w->dims[0], lanes) * lanes) / (double)ln_max(w->dims[0], 1)
                            : ln_short_lines(kernel, w->dims[0]);
    ln_scale_products(counts, 4 * fill);
    counts->work[LN_RATE_MAP] += results * (by_floats(call) ? 2 : 4) + (double)ln_count(x) * 2;
    counts->work[LN_RATE_MOVE] += 1300;
}

bool ln_depthwise_can_float(const ln_call *call) {
    int dtype = call->inputs[0].dtype;
    return call->inputs[1].dtype == dtype && (!has_bias(call) || call->inputs[2].dtype == dtype) && shape_fits(call);
}

bool ln_depthwise_can_f16(const ln_call *call) {
    const ln_tensor *w = &call->inputs[1];
    return call->precision == LINNET_PRECISION_F16 && ln_packable(w) && w->rank == 4 && w->dims[2] == 3 &&
           w->dims[3] == 3 && (!has_bias(call) || call->inputs[2].dtype == w->dtype) && shape_fits(call);
}

bool ln_depthwise_can_transpose(const ln_call *call) {
    ln_window g;
    return ln_depthwise_can_float(call) && call->inputs[0].dims[0] > 0 && window_of(call, &g) == LINNET_OK &&
           g.in_channels > 1 && (g.stride[2] == 1 || g.dilation[2] == 1);
}

/* Tells whether the dtype of x can store the zero point, with which padding is filled. For i16, the zero point must be
 * 0. */
static bool zero_fits(const ln_tensor *x) {
    const int32_t zero = x->quant->zero == NULL ? 0 : x->quant->zero[0];
    if (x->dtype == LINNET_I16) return zero == 0;
    return x->dtype == LINNET_U8 ? zero >= 0 && zero <= UINT8_MAX : zero >= INT8_MIN && zero <= INT8_MAX;
}

static bool zeros_are_0(const ln_quant *q) {
    for (int64_t i = 0; q->zero != NULL && i < q->count; i++)
        if (q->zero[i] != 0) return false;
    return true;
}

bool ln_depthwise_can_integer(const ln_call *call) {
    const ln_conv_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = result_of(call);
    if (!ln_requant_usable(x, w, 0, has_bias(call) ? &call->inputs[2] : NULL, y, w->dims[0], (int)a->requant))
        return false;
    if (call->epilogue != NULL && y->dtype != LINNET_F32) return false;
    int64_t taps = 1;
    for (int i = 2; i < w->rank; i++) taps *= w->dims[i];
    /* The sum of the products must fit in 32 bits without the bias. |x - zero| is at most 2^15 for i16, and less than
     * 2^8 otherwise. |w - zero| is less than 2^9, or at most 2^7 if there are no zero points, and so are the parts of
     * 16-bit weights. */
    const int64_t most = x->dtype != LINNET_I16 ? 8192 : w->dtype != LINNET_U8 && zeros_are_0(w->quant) ? 511 : 64;
    return taps <= most && shape_fits(call) && zero_fits(x);
}

bool ln_depthwise_can_quads(const ln_call *call) {
    const ln_tensor *w = &call->inputs[1];
    if (call->inputs[0].dtype == LINNET_I16 || !by_floats(call) || !ln_depthwise_can_integer(call)) return false;
    return w->dtype == LINNET_I8 && zeros_are_0(w->quant);
}

static int64_t weight_offset(const ln_window_strides *s, const ln_window *g, int64_t c, int64_t tap) {
    int64_t kx = tap % g->kernel[2], ky = tap / g->kernel[2] % g->kernel[1], kz = tap / g->kernel[2] / g->kernel[1];
    return c * s->n + kz * s->s[0] + ky * s->s[1] + kx * s->s[2];
}

/* Returns the strides of the weights, in the order of the axes of d->window. */
static ln_window_strides weight_strides(const ln_depthwise *d, const ln_tensor *w) {
    ln_window_strides s = ln_window_strides_of(w, 1);
    if (d->swapped) s.s[1] = s.s[2], s.s[2] = ln_window_strides_of(w, 1).s[1];
    return s;
}

static void swap_last(int64_t *v) {
    const int64_t kept = v[1];
    v[1] = v[2];
    v[2] = kept;
}

/* A picture of width 1, such as a sound [n, time, 1, channels], is turned by a quarter, so that its rows are long. */
static void swap_axes(ln_depthwise *d) {
    ln_window *w = &d->window;
    if (d->transposed || w->in[2] != 1 || w->out[2] != 1 || w->kernel[2] != 1 || w->pad_begin[2] != 0) return;
    int64_t *all[] = {w->in, w->out, w->kernel, w->stride, w->dilation, w->pad_begin, w->pad_end, d->x.s, d->y.s};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) swap_last(all[i]);
    d->swapped = true;
}

/* Tells whether |bias| + sum |w| * max |x - zero| stays below 2^31 for every channel. */
static bool sums_fit(const ln_call *call, const ln_depthwise *d) {
    const ln_tensor *w = &call->inputs[1];
    if (!d->quantized.requant.wide) return true; /* 32-bit sums wrap by definition */
    if (w->data == NULL || (has_bias(call) && call->inputs[2].data == NULL)) return false;
    ln_window_strides ws = weight_strides(d, w);
    int64_t zero = d->quantized.requant.x_zero, reach = ln_max(INT16_MAX - zero, zero - INT16_MIN);
    for (int64_t c = 0; c < d->channels; c++) {
        int64_t bias = has_bias(call)
                           ? ln_load_i64(call->inputs[2].data, call->inputs[2].dtype, c * call->inputs[2].strides[0])
                           : 0;
        for (int part = 0; part < d->quantized.parts; part++) {
            const int64_t own = d->quantized.parts == 1 ? bias : ln_part_of(bias, part);
            if (own > INT32_MAX || own < -INT32_MAX) return false;
            int64_t sum = own < 0 ? -own : own;
            for (int64_t t = 0; t < ln_window_taps(&d->window); t++) {
                int64_t v = ln_load_i64(w->data, w->dtype, weight_offset(&ws, &d->window, c, t)) -
                            ln_requant_w_zero(&d->quantized.requant, c);
                if (d->quantized.parts == 2) v = ln_part_of(v, part);
                sum += (v < 0 ? -v : v) * reach;
            }
            if (sum > INT32_MAX) return false;
        }
    }
    return true;
}

/* Tells whether a kernel can requantize sums of 16-bit inputs in registers, with the epilogue. */
static bool narrow_words(const ln_call *call, ln_depthwise *d) {
    const ln_requant *r = &d->quantized.requant;
    if (call->epilogue == NULL) return r->output_dtype == LINNET_I16 && r->mode == LN_REQUANT_FLOAT_RNE;
    const ln_quantized_sum *sum = &call->epilogue->sum;
    if (!sum->used || !sum->words || sum->input != 0 || sum->y_dtype != LINNET_I16) return false;
    d->narrow.sum = sum, d->apply = false;
    return true;
}

/* Returns how much of a call (LN_NARROW_...) a kernel can compute that multiplies in 16 bits, with vectors of 8
 * channels. */
static int narrow_of(const ln_call *call, ln_depthwise *d, int dtype) {
    const ln_requant *r = &d->quantized.requant;
    const bool u8 = dtype == LINNET_U8;
    if ((dtype == LINNET_I16 && !(d->quantized.sums_fit && d->quantized.parts == 1)) || d->channels < 8 ||
        d->multiplier > 1 || r->x_zero < (u8 ? 0 : INT8_MIN) || r->x_zero > (u8 ? 255 : INT8_MAX))
        return LN_NARROW_NONE;
    for (int64_t c = 0; c < d->channels; c++)
        if (ln_requant_w_zero(r, c) < -1024 || ln_requant_w_zero(r, c) > 1024) return LN_NARROW_NONE;
    if (dtype == LINNET_I16) return narrow_words(call, d) ? LN_NARROW_WORDS : LN_NARROW_SUMS;
    if ((r->output_dtype != LINNET_I8 && r->output_dtype != LINNET_U8) || r->y_zero < -1024 || r->y_zero > 1024)
        return LN_NARROW_SUMS;
    if (r->mode == LN_REQUANT_FLOAT_RNE) return LN_NARROW_FLOAT;
    for (int64_t c = 0; c < d->channels && r->mode == LN_REQUANT_TFLITE; c++)
        if (r->shift[c] > 0) return LN_NARROW_SUMS;
    return r->mode == LN_REQUANT_TFLITE ? LN_NARROW_FIXED : LN_NARROW_SUMS;
}

/* Tells whether biases are at most 2^52, as even the biases of dead channels are in quantized models. If so, their sums
 * with the products are exact in f64. */
static bool biases_are_exact(const ln_call *call) {
    const ln_tensor *bias = &call->inputs[2];
    for (int64_t c = 0; has_bias(call) && c < bias->dims[0]; c++) {
        if (bias->data == NULL) return false;
        const int64_t v = ln_load_i64(bias->data, bias->dtype, c * bias->strides[0]);
        if (v > (int64_t)1 << 52 || v < -((int64_t)1 << 52)) return false;
    }
    return true;
}

static bool has_wide_bias(const ln_depthwise *d) { return !d->integer || !d->quantized.sums_fit; }

/* Plans the groups of rows whose elements share lanes, and the memory for lanes. 24 kB of lanes are processed at a
 * time, so that they stay in L1. */
static void plan_lanes(ln_call *call, ln_depthwise *d, int group) {
    enum { LANE_BYTES = 24 << 10, LEAST_PIXELS = 8 };
    const ln_window *w = &d->window;
    const int x = call->inputs[0].dtype;
    d->lanes.wide = x == LINNET_I16;
    d->lanes.group = group;
    d->taps.rows_per_plane = ln_ceil_div(w->kernel[1], group);
    /* Two output rows read one more row of the input than one. The second output row is computed together with the
     * first if this row needs no further group. */
    const bool second = w->out[1] > 1 && w->stride[1] == 1 && w->dilation[1] == 1 &&
                        ln_ceil_div(w->kernel[1] + 1, group) == d->taps.rows_per_plane;
    d->lanes.rows = second ? 2 : 1;
    d->lanes.taps_high = w->kernel[1] + second;
    d->taps.rows = w->kernel[0] * d->taps.rows_per_plane * d->lanes.rows;
    const int32_t zero = d->quantized.requant.x_zero, stored = x == LINNET_I8 ? zero + 128 : zero;
    d->lanes.x_zero_byte = zero & 255;
    d->lanes.padding = d->lanes.wide ? 0 : (int32_t)((uint32_t)stored * (group == 4 ? 0x01010101u : 0x00010001u));
    d->lanes.finished = d->quantized.sums_fit && by_floats(call);
    d->lanes.exact =
        d->quantized.requant.output_dtype == LINNET_F32 && !d->quantized.sums_fit && biases_are_exact(call);
    const ln_quantized_sum *sum = call->epilogue == NULL ? NULL : &call->epilogue->sum;
    if (d->lanes.finished && sum != NULL && sum->used && sum->words && sum->input == 0)
        d->lanes.sum = sum, d->apply = false;
    d->lanes.stored = d->lanes.sum != NULL ? d->lanes.sum->y_dtype : d->quantized.requant.output_dtype;
    const int64_t reach = (w->kernel[2] - 1) * w->dilation[2] + 1, groups = w->kernel[0] * d->taps.rows_per_plane;
    d->lanes.block = (int64_t)ln_round_up(
        (size_t)ln_ceil_div(d->channels, ln_ceil_div(d->channels, LN_DEPTHWISE_BLOCK)), LN_DEPTHWISE_LANES);
    const int64_t fits = (LANE_BYTES / 4 / (groups * d->lanes.block) - reach) / w->stride[2] + 1;
    const int64_t pixels = ln_max(w->out[2], 1);
    d->lanes.span = ln_ceil_div(pixels, ln_ceil_div(pixels, ln_max(LEAST_PIXELS, fits)));
    /* With few channels, a vector is longer than a pixel, so the last one also writes after the row. */
    d->lanes.row = (int64_t)ln_round_up((size_t)(w->out[2] * d->channels), LN_DEPTHWISE_LANES) + LN_DEPTHWISE_LANES;
    d->row_bytes = ln_round_up((size_t)(d->lanes.row * d->quantized.parts * d->lanes.rows) * 4, LN_ALIGNMENT);
    const int64_t columns = (d->lanes.span - 1) * w->stride[2] + reach;
    call->scratch_thread = d->row_bytes + (size_t)(groups * columns * d->lanes.block) * 4;
}

/* Plans the call. `group` is the number of rows in a lane; 0: the kernel has no lanes. */
static linnet_status configure(ln_call *call, bool narrow, int group) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = result_of(call);
    ln_depthwise *d = call->state = ln_call_state(call, sizeof *d);
    if (d == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = window_of(call, &d->window);
    if (status != LINNET_OK) return status;
    const ln_window *g = &d->window;
    d->x = ln_window_strides_of(x, g->channel_axis);
    d->y = ln_window_strides_of(y, g->channel_axis);
    d->channels = g->out_channels;
    d->multiplier = g->out_channels / g->in_channels;
    d->padded = (int64_t)ln_round_up((size_t)d->channels, LN_DEPTHWISE_LANES);
    d->constant = ln_packable(w) && (!has_bias(call) || ln_packable(&call->inputs[2]));
    d->transposed = call->op->id != LN_OP_CONV;
    swap_axes(d);
    d->integer = !ln_dtype_is_float(x->dtype);
    d->quantized.parts = 1;
    d->taps.rows_per_plane = g->kernel[1];
    d->taps.rows = g->kernel[0] * d->taps.rows_per_plane;
    d->floats.low = -INFINITY, d->floats.high = INFINITY;
    bool clamp = call->epilogue != NULL && call->epilogue->clamp_only && call->outputs[0].dtype == LINNET_F32;
    if (clamp && !d->integer) d->floats.low = call->epilogue->low, d->floats.high = call->epilogue->high;
    d->apply = call->epilogue != NULL && (d->integer || !clamp);
    /* The plan may place the output over an operand of the epilogue that is no longer needed. That operand must be read
     * before anything is written. */
    d->floats.direct = !d->integer && call->outputs[0].dtype == LINNET_F32 && call->n_extra == 0;
    if (d->integer) {
        status =
            ln_requant_prepare(call, x, w, 0, y, d->channels,
                               (int)((const ln_conv_attributes *)call->attributes)->requant, &d->quantized.requant);
        if (status != LINNET_OK) return status;
        d->quantized.parts = 1;
        d->quantized.sums_fit = sums_fit(call, d);
        if (w->dtype == LINNET_I16 && !d->quantized.sums_fit) {
            d->quantized.parts = 2;
            d->quantized.sums_fit = sums_fit(call, d);
        }
        d->narrow.size = (int)ln_dtype_size(x->dtype);
        if (narrow) d->narrow.stores = narrow_of(call, d, x->dtype);
        d->quantized.x_u8 = x->dtype == LINNET_U8;
        d->narrow.padding = (int8_t)(d->quantized.requant.x_zero - (d->quantized.x_u8 ? 128 : 0));
    }
    if (group > 0) plan_lanes(call, d, group);
    const int64_t biases = has_wide_bias(d) ? 2 * 8 : 4 * d->quantized.parts;
    size_t packed = (size_t)((packed_taps(d) * tap_bytes(d) * d->quantized.parts + biases) * d->padded);
    if (d->constant) {
        call->packed_bytes = packed;
        call->packed_inputs = 1u << 1 | 1u << 2;
    } else {
        call->scratch_bytes = packed;
        call->phases = 2;
    }
    call->work[call->phases == 2] = g->batch * g->out[0] * g->out[1];
    call->flops = (uint64_t)(2 * g->batch * d->channels * ln_window_positions(g) * ln_window_taps(g));
    if (group > 0) return LINNET_OK;
    d->widen = (x->dtype != LINNET_F32 || d->multiplier > 1) && d->narrow.stores == LN_NARROW_NONE;
    d->row_bytes =
        d->floats.direct || d->narrow.stores > LN_NARROW_SUMS
            ? 0
            : ln_round_up((size_t)(g->out[2] * d->channels * d->quantized.parts) * sizeof(float), LN_ALIGNMENT);
    call->scratch_thread = d->row_bytes;
    if (d->narrow.stores != LN_NARROW_NONE) {
        int64_t reach[3];
        d->narrow.in_place = !d->quantized.x_u8;
        for (int i = 0; i < 3; i++) {
            reach[i] = (g->out[i] - 1) * g->stride[i] + (g->kernel[i] - 1) * g->dilation[i] + 1;
            if (g->pad_begin[i] > 0 || reach[i] > g->in[i]) d->narrow.in_place = false;
        }
        if (!d->narrow.in_place)
            call->scratch_thread +=
                (size_t)((g->kernel[0] * g->kernel[1] + 1) * reach[2] * d->channels * d->narrow.size);
    }
    if (d->widen) call->scratch_thread += (size_t)(d->taps.rows * g->in[2] * d->channels) * sizeof(float);
    return LINNET_OK;
}

linnet_status ln_depthwise_configure(ln_call *call) { return configure(call, false, 0); }

linnet_status ln_depthwise_configure_narrow(ln_call *call) { return configure(call, true, 0); }

linnet_status ln_depthwise_configure_pairs(ln_call *call) { return configure(call, false, 2); }

linnet_status ln_depthwise_configure_quads(ln_call *call) { return configure(call, false, 4); }

static ln_depthwise_weights parts_of(const ln_depthwise *d, const void *packed) {
    const char *bias = (const char *)packed + packed_taps(d) * d->padded * tap_bytes(d) * d->quantized.parts;
    const void *wide = has_wide_bias(d) ? bias + d->padded * 8 : NULL;
    return (ln_depthwise_weights){packed, bias, wide};
}

ln_depthwise_weights ln_depthwise_weights_of(const ln_call *call, const ln_buffers *b) {
    const ln_depthwise *d = call->state;
    return parts_of(d, d->constant ? b->packed : b->scratch);
}

static int32_t integer_of(const ln_depthwise *d, int64_t v, int part) {
    return (int32_t)(d->quantized.parts == 1 ? v : ln_part_of(v, part));
}

/* Puts weight v of a tap in its place in the lanes of each output row. The lanes are zeros before the first tap. */
static void put_tap(const ln_depthwise *d, uint32_t *taps, int64_t tap, uint32_t v) {
    const ln_window *w = &d->window;
    const int64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1],
                  kz = tap / w->kernel[2] / w->kernel[1];
    const int bits = 32 / d->lanes.group;
    for (int64_t row = 0; row < d->lanes.rows; row++) {
        const int64_t y = ky + row, group = (row * w->kernel[0] + kz) * d->taps.rows_per_plane + y / d->lanes.group;
        taps[(group * w->kernel[2] + kx) * d->padded] |= (v & ((1u << bits) - 1)) << y % d->lanes.group * bits;
    }
}

static void pack(const ln_call *call, const void *weights, const void *bias, void *packed) {
    const ln_depthwise *d = call->state;
    const ln_tensor *w = &call->inputs[1];
    ln_window_strides ws = weight_strides(d, w);
    ln_depthwise_weights parts = parts_of(d, packed);
    int64_t taps = ln_window_taps(&d->window), stride = has_bias(call) ? call->inputs[2].strides[0] : 0;
    int64_t *finite = d->integer ? NULL : (int64_t *)parts.wide_bias;
    if (finite != NULL) *finite = 1;
    if (d->lanes.group > 0) memset(packed, 0, (size_t)(packed_taps(d) * d->quantized.parts * d->padded) * 4);
    /* Lanes hold elements of x as unsigned bytes from which no zero point was subtracted. Each is too large by
     * `offset`, and the bias gets the correction. */
    const int64_t offset =
        d->lanes.group == 0 || d->lanes.wide ? 0 : d->quantized.requant.x_zero + (d->quantized.x_u8 ? 0 : 128);
    for (int64_t c = 0; c < d->padded; c++) {
        bool real = c < d->channels;
        if (!d->integer) {
            for (int64_t t = 0; t < taps; t++) {
                const float v = real ? (float)ln_load_f64(weights, w->dtype, weight_offset(&ws, &d->window, c, t)) : 0;
                ((float *)parts.taps)[t * d->padded + c] = v;
                if (!isfinite(v)) *finite = 0;
            }
            ((float *)parts.bias)[c] =
                real && bias != NULL ? (float)ln_load_f64(bias, call->inputs[2].dtype, c * stride) : 0;
            continue;
        }
        int64_t surplus = 0, value = real && bias != NULL ? ln_load_i64(bias, call->inputs[2].dtype, c * stride) : 0;
        for (int64_t t = 0; t < taps; t++) {
            int64_t v = real ? ln_load_i64(weights, w->dtype, weight_offset(&ws, &d->window, c, t)) -
                                   ln_requant_w_zero(&d->quantized.requant, c)
                             : 0;
            surplus += v * offset;
            for (int part = 0; part < d->quantized.parts; part++) {
                const int64_t at = (part * packed_taps(d) + t) * d->padded + c;
                if (d->narrow.stores)
                    ((int16_t *)parts.taps)[at] = (int16_t)v;
                else if (d->lanes.group > 0)
                    put_tap(d, (uint32_t *)parts.taps + part * packed_taps(d) * d->padded + c, t,
                            (uint32_t)integer_of(d, v, part));
                else
                    ((int32_t *)parts.taps)[at] = integer_of(d, v, part);
            }
        }
        for (int part = 0; part < d->quantized.parts; part++)
            ((int32_t *)parts.bias)[part * d->padded + c] =
                d->quantized.sums_fit ? integer_of(d, value - surplus, part) : 0;
        if (d->lanes.exact)
            ((double *)parts.wide_bias)[c] = (double)value;
        else if (!d->quantized.sums_fit)
            ((int64_t *)parts.wide_bias)[c] = value;
    }
}

void ln_depthwise_pack(const ln_call *call, void *packed) {
    if (((const ln_depthwise *)call->state)->constant)
        pack(call, call->inputs[1].data, has_bias(call) ? call->inputs[2].data : NULL, packed);
}

void ln_depthwise_pack_run(const ln_call *call, const ln_buffers *b) {
    pack(call, b->inputs[1], has_bias(call) ? b->inputs[2] : NULL, b->scratch);
}
