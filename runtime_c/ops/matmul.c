/* matmul.c - shape rule and scalar reference of matmul: NumPy's rules with transposes and bias, floats and integers.
 * The packed GEMM is in kernels_x86 and kernels_arm; integer kernels give the same bits as this one. */
#include "ops/matmul.h"

#include "base/layout.h"
#include "kernel/common/quant_unpack.h"
#include "kernel/common/requant.h"
#include "kernel/cost.h"
#include "kernel/infer.h"
#include "kernel/step.h"

#include <string.h>

/* Returns the axis of t that is number `from_end` from the end (1: the last) after the transpose. An operand with one
 * dimension is not transposed. */
static int axis_from_end(const ln_tensor *t, bool transpose, int from_end) {
    return t->rank - (transpose && t->rank >= 2 ? 3 - from_end : from_end);
}

linnet_status ln_infer_matmul(const ln_infer *infer) {
    const ln_matmul_attributes *attributes = infer->attributes;
    const ln_tensor *a = &infer->inputs[0], *b = &infer->inputs[1],
                    *bias = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
    ln_tensor *y = &infer->outputs[0];
    char text_a[96], text_b[96];
    if ((a->dtype == LINNET_I32 || a->dtype == LINNET_I64) && b->dtype == a->dtype &&
        (bias == NULL || bias->dtype == LINNET_NONE || bias->dtype == a->dtype) &&
        (attributes->output_dtype == LINNET_NONE || attributes->output_dtype == a->dtype)) {
        y->dtype = a->dtype; /* integers without quantization, whose products and sums wrap */
    } else if (ln_dtype_is_float(a->dtype) && ln_quant_has_values(b) && ln_dtype_bits(b->dtype) <= 8) {
        linnet_status status = ln_infer_product_dtype(a, a, bias, attributes->output_dtype, &y->dtype, infer->error);
        if (status != LINNET_OK) return status;
    } else {
        linnet_status status = ln_infer_product_dtype(a, b, bias, attributes->output_dtype, &y->dtype, infer->error);
        if (status != LINNET_OK) return status;
    }
    y->rank = -1;
    if (a->rank < 0 || b->rank < 0) return LINNET_OK;
    if (a->rank == 0 || b->rank == 0) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "an operand is a scalar");
        ln_expected(infer->error, "at least one dimension each");
        return ln_hint(infer->error, "use a map to multiply by a scalar");
    }
    int64_t k_a = a->dims[axis_from_end(a, attributes->transpose_a, 1)];
    int64_t k_b = b->rank == 1 ? b->dims[0] : b->dims[axis_from_end(b, attributes->transpose_b, 2)];
    if (k_a >= 0 && k_b >= 0 && k_a != k_b) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the inner dimensions of a and b differ%s",
                attributes->transpose_a || attributes->transpose_b ? " (after the transpose)" : "");
        ln_expected(infer->error, "equal inner dimensions");
        return ln_got(infer->error, "%lld and %lld: %s by %s", (long long)k_a, (long long)k_b,
                      ln_shape_text(a->dims, a->rank, text_a, sizeof text_a),
                      ln_shape_text(b->dims, b->rank, text_b, sizeof text_b));
    }
    ln_tensor batch_a = *a, batch_b = *b;
    batch_a.rank = (int8_t)(a->rank > 2 ? a->rank - 2 : 0);
    batch_b.rank = (int8_t)(b->rank > 2 ? b->rank - 2 : 0);
    linnet_status status = ln_broadcast(&batch_a, &batch_b, y, infer->error);
    if (status != LINNET_OK) return status;
    int64_t n = 1;
    if (a->rank >= 2) y->dims[y->rank++] = a->dims[axis_from_end(a, attributes->transpose_a, 2)];
    if (b->rank >= 2) n = y->dims[y->rank++] = b->dims[axis_from_end(b, attributes->transpose_b, 1)];
    if (bias == NULL || bias->dtype == LINNET_NONE || bias->rank < 0) return LINNET_OK;
    if (bias->rank != 1 || (bias->dims[0] != 1 && bias->dims[0] >= 0 && n >= 0 && bias->dims[0] != n)) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "the shape of bias does not match the columns of b");
        ln_expected(infer->error, "shape [%lld] or [1]", (long long)n);
        return ln_got(infer->error, "%s", ln_shape_text(bias->dims, bias->rank, text_a, sizeof text_a));
    }
    return LINNET_OK;
}

void ln_count_matmul(const ln_call *call, ln_counts *counts) {
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    ln_count_macs(call, counts, (double)(v.batch * v.m) * (double)v.n * (double)v.k);
}

/* Finds the strides of t along the batch dimensions of y, which are aligned at the right; 0 where t broadcasts. */
static void batch_strides(const ln_tensor *t, const ln_matmul_view *v, int64_t *out) {
    int own = t->rank > 2 ? t->rank - 2 : 0;
    for (int i = 0; i < v->n_batch; i++) {
        int axis = i - (v->n_batch - own);
        out[i] = axis < 0 || t->dims[axis] == 1 ? 0 : t->strides[axis];
    }
}

void ln_matmul_view_of(const ln_call *call, ln_matmul_view *v) {
    const ln_matmul_attributes *attributes = call->attributes;
    const ln_tensor *a = &call->inputs[0], *b = &call->inputs[1],
                    *y = call->inner != NULL ? call->inner : &call->outputs[0];
    memset(v, 0, sizeof *v);
    v->m = v->n = v->batch = 1;
    int inner = axis_from_end(a, attributes->transpose_a, 1);
    v->k = a->dims[inner], v->a_column = a->strides[inner];
    if (a->rank >= 2) {
        int row = axis_from_end(a, attributes->transpose_a, 2);
        v->m = a->dims[row], v->a_row = a->strides[row];
        v->y_row = y->strides[y->rank - (b->rank >= 2 ? 2 : 1)];
    }
    if (b->rank == 1) {
        v->b_row = b->strides[0], v->b_axis = -1;
    } else {
        int row = axis_from_end(b, attributes->transpose_b, 2), column = axis_from_end(b, attributes->transpose_b, 1);
        v->b_row = b->strides[row], v->b_column = b->strides[column], v->n = b->dims[column];
        v->b_axis = column, v->y_column = y->strides[y->rank - 1];
    }
    v->n_batch = y->rank - (a->rank >= 2) - (b->rank >= 2);
    for (int i = 0; i < v->n_batch; i++) {
        v->batch_dims[i] = y->dims[i], v->y_batch[i] = y->strides[i];
        v->batch *= y->dims[i];
    }
    batch_strides(a, v, v->a_batch);
    batch_strides(b, v, v->b_batch);
}

void ln_matmul_offsets(const ln_matmul_view *v, int64_t batch, int64_t *a, int64_t *b, int64_t *y) {
    *a = *b = *y = 0;
    for (int i = v->n_batch - 1; i >= 0; i--) {
        int64_t at = batch % v->batch_dims[i];
        batch /= v->batch_dims[i];
        *a += at * v->a_batch[i], *b += at * v->b_batch[i], *y += at * v->y_batch[i];
    }
}

enum matmul_kind {
    MATMUL_FLOAT,
    MATMUL_WEIGHTS, /* floats by quantized weights */
    MATMUL_PLAIN_INTEGER,
    MATMUL_QUANTIZED
};

typedef struct matmul_state {
    ln_matmul_view view;
    enum matmul_kind kind;
    int64_t bias_stride; /* 0 if the bias has one element */
    ln_requant requant;
} matmul_state;

static bool has_bias(const ln_call *call) { return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE; }

static bool reference_can(const ln_call *call) {
    const ln_matmul_attributes *attributes = call->attributes;
    const ln_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    if (ln_dtype_is_float(a->dtype) || a->dtype == LINNET_I32 || a->dtype == LINNET_I64)
        return (b->dtype == a->dtype || (ln_quant_has_values(b) && ln_is_dense(b))) && y->dtype == a->dtype &&
               (!has_bias(call) || call->inputs[2].dtype == a->dtype);
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    return ln_requant_usable(a, b, v.b_axis, has_bias(call) ? &call->inputs[2] : NULL, y, v.n,
                             (int)attributes->requant);
}

static linnet_status reference_configure(ln_call *call) {
    const ln_matmul_attributes *attributes = call->attributes;
    const ln_tensor *a = &call->inputs[0];
    matmul_state *s = call->state = ln_call_state(call, sizeof *s);
    if (s == NULL) return LINNET_OUT_OF_MEMORY;
    ln_matmul_view_of(call, &s->view);
    s->kind = ln_dtype_is_float(a->dtype) ? ln_dtype_is_float(call->inputs[1].dtype) ? MATMUL_FLOAT : MATMUL_WEIGHTS
              : a->dtype == LINNET_I32 || a->dtype == LINNET_I64 ? MATMUL_PLAIN_INTEGER
                                                                 : MATMUL_QUANTIZED;
    s->bias_stride = has_bias(call) && call->inputs[2].dims[0] != 1 ? call->inputs[2].strides[0] : 0;
    call->work[0] = s->view.batch * s->view.m;
    if (s->kind == MATMUL_WEIGHTS) call->scratch_thread = (size_t)ln_max(1, s->view.k) * sizeof(float);
    call->flops = (uint64_t)(2 * s->view.batch * s->view.m * s->view.n * s->view.k);
    if (s->kind == MATMUL_QUANTIZED)
        return ln_requant_prepare(call, a, &call->inputs[1], s->view.b_axis, &call->outputs[0], s->view.n,
                                  (int)attributes->requant, &s->requant);
    return LINNET_OK;
}

#define LN_TYPED "ops/matmul_typed.inc"
#include "kernel/common/typed.h"

/* Sums wrap in 64 bits and are truncated to the width of the output, which is the same as wrapping at that width. */
static void integer_row(const ln_call *call, const ln_buffers *b, const matmul_state *s, int64_t item) {
    const ln_matmul_view *v = &s->view;
    int a_dtype = call->inputs[0].dtype, b_dtype = call->inputs[1].dtype;
    bool quantized = s->kind == MATMUL_QUANTIZED;
    int64_t a_at, b_at, y_at, row = item % v->m;
    ln_matmul_offsets(v, item / v->m, &a_at, &b_at, &y_at);
    for (int64_t n = 0; n < v->n; n++) {
        uint64_t a_zero = 0, b_zero = 0, sum = 0;
        if (quantized)
            a_zero = (uint64_t)(int64_t)s->requant.x_zero,
            b_zero = (uint64_t)(int64_t)ln_requant_w_zero(&s->requant, n);
        if (has_bias(call)) sum = (uint64_t)ln_load_i64(b->inputs[2], call->inputs[2].dtype, n * s->bias_stride);
        for (int64_t k = 0; k < v->k; k++)
            sum += ((uint64_t)ln_load_i64(b->inputs[0], a_dtype, a_at + row * v->a_row + k * v->a_column) - a_zero) *
                   ((uint64_t)ln_load_i64(b->inputs[1], b_dtype, b_at + k * v->b_row + n * v->b_column) - b_zero);
        int64_t at = y_at + row * v->y_row + n * v->y_column;
        if (quantized)
            ln_requant_store(&s->requant, n, (int64_t)sum, b->outputs[0], at);
        else if (call->outputs[0].dtype == LINNET_I32)
            ((int32_t *)b->outputs[0])[at] = (int32_t)sum;
        else
            ((int64_t *)b->outputs[0])[at] = (int64_t)sum;
    }
}

/* A column of b is unpacked to `line`, so b is never widened whole. */
static void weights_row(const ln_call *call, const ln_buffers *b, const matmul_state *s, int64_t item, float *line) {
    const ln_matmul_view *v = &s->view;
    const int dtype = call->inputs[0].dtype;
    int64_t a_at, b_at, y_at, row = item % v->m;
    ln_matmul_offsets(v, item / v->m, &a_at, &b_at, &y_at);
    for (int64_t n = 0; n < v->n; n++) {
        double sum = has_bias(call) ? ln_load_f64(b->inputs[2], dtype, n * s->bias_stride) : 0;
        const int64_t together = v->b_row == 1 ? ln_max(1, v->k) : 1;
        for (int64_t k = 0; k < v->k; k += together)
            ln_quant_unpack(&call->inputs[1], b->inputs[1], b_at + k * v->b_row + n * v->b_column, together, line + k);
        for (int64_t k = 0; k < v->k; k++)
            sum += ln_load_f64(b->inputs[0], dtype, a_at + row * v->a_row + k * v->a_column) * (double)line[k];
        ln_store_f64(b->outputs[0], dtype, y_at + row * v->y_row + n * v->y_column, sum);
    }
}

static linnet_status reference_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase;
    const matmul_state *s = call->state;
    float *line = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t item = begin; item < end; item++) {
        if (s->kind == MATMUL_FLOAT)
            LN_TYPED_CALL(call->inputs[0].dtype, float_row, call, b, s, item);
        else if (s->kind == MATMUL_WEIGHTS)
            weights_row(call, b, s, item, line);
        else
            integer_row(call, b, s, item);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_matmul = {
    .cost = ln_reference_product_cost, .can = reference_can, .configure = reference_configure, .run = reference_run};
