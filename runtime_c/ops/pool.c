/* pool.c - shape rule and scalar reference of max, average and Lp pooling.
 * Padding is never the maximum, and counts in an average only with count_include_pad. */
#include "kernel/common/window.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <math.h>

linnet_status ln_infer_pool(const ln_infer *infer) {
    const ln_pool_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0], *indices = infer->n_outputs > 1 ? &infer->outputs[1] : NULL;
    y->dtype = x->dtype;
    y->rank = -1;
    if (a->kind == LN_POOL_KIND_LP && (a->p < 1 || !ln_dtype_is_float(x->dtype))) {
        ln_fail(infer->error, a->p < 1 ? LINNET_BAD_ATTRIBUTE : LINNET_WRONG_DTYPE,
                "lp pooling needs a float dtype and p >= 1");
        return ln_got(infer->error, "p %lld, %s", (long long)a->p, linnet_dtype_name(x->dtype));
    }
    if (indices != NULL) {
        if (a->kind != LN_POOL_KIND_MAX) {
            ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "only max pooling has an indices output");
            return ln_hint(infer->error, "remove the second output");
        }
        indices->dtype = LINNET_I64;
        indices->rank = -1;
    }
    if (x->rank < 0) return LINNET_OK;
    ln_window window;
    linnet_status status = ln_window_pool(a, x, &window, infer->error);
    if (status != LINNET_OK) return status;
    ln_window_shape(&window, y);
    if (indices != NULL) ln_window_shape(&window, indices);
    return LINNET_OK;
}

/* The running maximum stays in a register. So a comparison takes only a quarter of the time of an operation of a map,
 * which also loads and stores. */
void ln_count_pool(const ln_call *call, ln_counts *counts) {
    const ln_ints kernel = ((const ln_pool_attributes *)call->attributes)->kernel;
    double taps = 0.25;
    for (int64_t i = 0; i < kernel.n; i++) taps *= (double)kernel.v[i];
    counts->work[LN_RATE_MAP] += taps * (double)ln_count(&call->outputs[0]);
}

typedef struct pool_state {
    ln_window window;
    ln_window_strides x, y, indices;
    bool with_indices;
} pool_state;

static bool reference_can(const ln_call *call) { return call->inputs[0].dtype == call->outputs[0].dtype; }

static linnet_status reference_configure(ln_call *call) {
    pool_state *s = call->state = ln_call_state(call, sizeof *s);
    if (s == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_status status = ln_window_pool(call->attributes, &call->inputs[0], &s->window, NULL);
    if (status != LINNET_OK) return status;
    int axis = s->window.channel_axis;
    s->x = ln_window_strides_of(&call->inputs[0], axis);
    s->y = ln_window_strides_of(&call->outputs[0], axis);
    s->with_indices = call->n_outputs > 1 && call->outputs[1].dtype != LINNET_NONE;
    if (s->with_indices) s->indices = ln_window_strides_of(&call->outputs[1], axis);
    call->work[0] = s->window.batch * s->window.out_channels * s->window.out[0] * s->window.out[1];
    call->flops = (uint64_t)(s->window.batch * s->window.out_channels * ln_window_positions(&s->window) *
                             ln_window_taps(&s->window));
    return LINNET_OK;
}

/* Returns the flat index into x, in logical order, that ONNX MaxPool reports. storage_order 1 reverses the spatial
 * axes. */
static int64_t flat_index(const ln_window *w, int64_t storage_order, int64_t n, int64_t c, int64_t z, int64_t y,
                          int64_t x) {
    int64_t plane = w->in[0] * w->in[1] * w->in[2];
    int64_t at = storage_order ? z + w->in[0] * (y + w->in[1] * x) : (z * w->in[1] + y) * w->in[2] + x;
    return w->channel_axis == 1 ? (n * w->in_channels + c) * plane + at : (n * plane + at) * w->in_channels + c;
}

static double integer_least(int dtype) { return dtype == LINNET_I8 ? -128 : dtype == LINNET_U8 ? 0 : -32768; }

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase, (void)thread;
    const ln_pool_attributes *a = call->attributes;
    const pool_state *s = call->state;
    const ln_window *w = &s->window;
    int dtype = call->inputs[0].dtype;
    bool is_float = ln_dtype_is_float(dtype);
    /* f32, f16 and bf16 are summed in f32, tap by tap, like the vector kernels, so that every ISA gives the same bits.
     */
    bool single = is_float && dtype != LINNET_F64 && a->kind == LN_POOL_KIND_AVERAGE;
    for (int64_t item = begin; item < end; item++) {
        int64_t oy = item % w->out[1], oz = item / w->out[1] % w->out[0];
        int64_t c = item / w->out[1] / w->out[0] % w->out_channels, n = item / w->out[1] / w->out[0] / w->out_channels;
        int64_t first[3], last[3];
        ln_window_valid(w, 0, oz, &first[0], &last[0]);
        ln_window_valid(w, 1, oy, &first[1], &last[1]);
        for (int64_t ox = 0; ox < w->out[2]; ox++) {
            ln_window_valid(w, 2, ox, &first[2], &last[2]);
            double best = is_float ? -INFINITY : integer_least(dtype), sum = 0;
            int64_t best_index = -1;
            for (int64_t kz = first[0]; kz < last[0]; kz++)
                for (int64_t ky = first[1]; ky < last[1]; ky++)
                    for (int64_t kx = first[2]; kx < last[2]; kx++) {
                        int64_t z = oz * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0];
                        int64_t y = oy * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
                        int64_t x = ox * w->stride[2] - w->pad_begin[2] + kx * w->dilation[2];
                        double v = ln_load_f64(b->inputs[0], dtype,
                                               n * s->x.n + c * s->x.c + z * s->x.s[0] + y * s->x.s[1] + x * s->x.s[2]);
                        if (v > best || best_index < 0) {
                            best = v;
                            best_index = flat_index(w, a->storage_order, n, c, z, y, x);
                        }
                        sum += a->kind == LN_POOL_KIND_LP ? pow(fabs(v), (double)a->p) : v;
                        if (single) sum = (double)(float)sum;
                    }
            int64_t inside = (last[0] - first[0]) * (last[1] - first[1]) * (last[2] - first[2]), count = inside;
            if (a->count_include_pad)
                count = ln_window_padded(w, 0, oz) * ln_window_padded(w, 1, oy) * ln_window_padded(w, 2, ox);
            const ln_quant *quant = call->inputs[0].quant;
            if (!is_float && quant != NULL && quant->zero != NULL) /* padding has the real value 0 */
                sum += (double)(count - inside) * quant->zero[0];
            double value = a->kind == LN_POOL_KIND_MAX       ? best
                           : a->kind == LN_POOL_KIND_AVERAGE ? (count > 0 ? sum / (double)count : 0)
                                                             : pow(sum, 1 / (double)a->p);
            if (single) value = (double)(float)value;
            ln_store_f64(b->outputs[0], dtype,
                         n * s->y.n + c * s->y.c + oz * s->y.s[0] + oy * s->y.s[1] + ox * s->y.s[2],
                         is_float ? value : rint(value));
            if (s->with_indices)
                ((int64_t *)b->outputs[1])[n * s->indices.n + c * s->indices.c + oz * s->indices.s[0] +
                                           oy * s->indices.s[1] + ox * s->indices.s[2]] = best_index;
        }
    }
    return LINNET_OK;
}

/* The reference is slow, because it computes the offset of every tap. */
static void reference_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel, (void)call;
    ln_scale_operations(counts, 40);
}

const ln_kernel_code ln_reference_pool = {
    .cost = reference_cost, .can = reference_can, .configure = reference_configure, .run = reference_run};
