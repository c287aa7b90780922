/* builder.c - linnet_op_infer and linnet_op_evaluate: one op outside any file, for programs that build graphs.
 * The Node arrives as a flatbuffer, which is checked as strictly as a file. */
#include "base/layout.h"
#include "kernel/infer.h"
#include "kernel/parts.h"
#include "kernel/user.h"
#include "model/attributes.h"
#include "model/structure_errors.h"
#include "model/structure_values.h"
#include "model/user.h"
#include "model/verify_map.h"
#include "plan/graph/evaluate.h"

#include <math.h>
#include <string.h>

typedef struct single_op {
    ln_user_op user; /* set by linnet_user_op_infer */
    ln_memory memory;
    ln_pool pool;
    const ln_op *op;
    const void *attributes;
    ln_tensor *inputs, *outputs;
    int n_inputs, n_outputs;
    ln_infer_facts facts; /* what the shape rule has found out besides shapes */
} single_op;

static linnet_status no_memory(linnet_error *error) {
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to infer or evaluate an op");
}

static linnet_status count_error(const ln_op *op, const char *what, int got, int least, int most, linnet_error *error) {
    ln_fail(error, LINNET_SHAPE_MISMATCH, "%s has the wrong number of %s", op->name, what);
    if (most < 0)
        ln_expected(error, "at least %d", least);
    else
        ln_expected(error, "%d to %d", least, most);
    return ln_got(error, "%d", got), LINNET_SHAPE_MISMATCH;
}

static linnet_status check_blocks(const ln_tensor *t, ln_quant *quant, int axis, linnet_error *error) {
    const int64_t blocks = axis < 0 ? -1 : ln_block_count(t, axis, quant->block);
    quant->axis = axis;
    if (ln_dtype_bits(t->dtype) <= 8 && blocks == (int64_t)quant->count) return LINNET_OK;
    ln_fail(error, LINNET_SHAPE_MISMATCH, "the number of scales differs from the number of blocks");
    ln_expected(error, "%lld scales for elements of 4 or 8 bits", (long long)blocks);
    return ln_got(error, "%u scales for %s", (unsigned)quant->count, linnet_dtype_name(t->dtype)),
           LINNET_SHAPE_MISMATCH;
}

/* Makes the checks that need the tensor's dtype and rank. */
static linnet_status check_quant(ln_tensor *t, linnet_error *error) {
    ln_quant *quant = (ln_quant *)(uintptr_t)t->quant; /* made by take_quant */
    if (!quant || t->dtype == LINNET_NONE) return LINNET_OK;
    for (uint32_t i = 0; quant->zero && i < quant->count; i++)
        if (!ln_zero_fits(t->dtype, quant->zero[i])) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "a quantization zero point does not fit in %s",
                    linnet_dtype_name(t->dtype));
            return ln_got(error, "%d", (int)quant->zero[i]), LINNET_BAD_ATTRIBUTE;
        }
    if (quant->scheme == LN_QUANT_TENSOR || t->rank < 0) return LINNET_OK;
    int axis = ln_axis(quant->axis, t->rank);
    if (quant->scheme == LN_QUANT_BLOCK) return check_blocks(t, quant, axis, error);
    if (axis < 0 || (t->dims[axis] >= 0 && t->dims[axis] != quant->count)) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "the number of scales differs from the size of the quantization axis");
        ln_expected(error, "one scale, or one per slice along the axis");
        return ln_got(error, "%u scales along axis %d of rank %d", (unsigned)quant->count, (int)quant->axis, t->rank),
               LINNET_SHAPE_MISMATCH;
    }
    quant->axis = axis;
    return LINNET_OK;
}

static linnet_status take_quant(single_op *one, const linnet_operand *o, ln_tensor *t, linnet_error *error) {
    ln_quant *quant;
    if (!o->scales || o->quant_scheme == LINNET_QUANT_NONE) return LINNET_OK;
    if (o->quant_scheme < LINNET_QUANT_NONE || o->quant_scheme > LINNET_QUANT_BLOCK || o->quant_count < 1 ||
        o->quant_count > INT32_MAX || (o->quant_scheme == LINNET_QUANT_TENSOR && o->quant_count != 1) ||
        (o->quant_scheme == LINNET_QUANT_BLOCK && o->quant_block < 1)) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "the fields of an operand's quantization contradict each other");
        ln_expected(error, "one scale, scales along an axis, or blocks of 1 or more elements");
        return ln_got(error, "scheme %d, %lld scales, blocks of %d", (int)o->quant_scheme, (long long)o->quant_count,
                      (int)o->quant_block),
               LINNET_BAD_ATTRIBUTE;
    }
    for (int64_t i = 0; i < o->quant_count; i++)
        if (!isfinite(o->scales[i]) || !(o->scales[i] > 0)) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "a quantization scale is not a positive number");
            return ln_got(error, "%g", (double)o->scales[i]), LINNET_BAD_ATTRIBUTE;
        }
    quant = ln_pool_alloc(&one->pool, sizeof *quant);
    if (!quant) return no_memory(error);
    quant->scheme = o->quant_count == 1 ? LN_QUANT_TENSOR : o->quant_scheme;
    quant->axis = o->quant_count == 1 ? 0 : o->quant_axis;
    quant->block = quant->scheme == LN_QUANT_BLOCK ? (uint32_t)o->quant_block : 0;
    quant->bits = (uint8_t)ln_dtype_bits(t->dtype);
    quant->count = (uint32_t)o->quant_count;
    quant->scale = o->scales;
    quant->zero = o->zeros;
    t->quant = quant;
    return t->rank >= 0 ? check_quant(t, error) : LINNET_OK;
}

static linnet_status take_operand(single_op *one, const linnet_operand *o, bool output, ln_tensor *t,
                                  linnet_error *error) {
    uint64_t bytes;
    if (o->dtype < LINNET_NONE || o->dtype > LN_LAST_DTYPE) {
        ln_fail(error, LINNET_WRONG_DTYPE, "an operand has an unknown dtype");
        return ln_got(error, "%d", (int)o->dtype), LINNET_WRONG_DTYPE;
    }
    t->dtype = (uint8_t)o->dtype;
    t->rank = -1;
    if (output) /* the shape rule determines its shape */
        return take_quant(one, o, t, error);
    if (o->dtype == LINNET_NONE) {
        t->rank = 0;
        return LINNET_OK;
    }
    if (o->rank < -1 || o->rank > LN_MAX_RANK) {
        ln_fail(error, LINNET_SHAPE_MISMATCH, "the rank of an operand is out of range");
        ln_expected(error, "-1 (unknown) to %d", LN_MAX_RANK);
        return ln_got(error, "%d", (int)o->rank), LINNET_SHAPE_MISMATCH;
    }
    t->rank = (int8_t)o->rank;
    for (int i = 0; i < t->rank; i++) {
        t->dims[i] = o->shape[i];
        if (t->dims[i] < -1) return ln_fail(error, LINNET_SHAPE_MISMATCH, "an operand has a negative dimension");
    }
    if (ln_count(t) >= 0 || t->rank < 0) {
        if (t->rank >= 0 && !ln_bytes(t, &bytes))
            return ln_fail(error, LINNET_TOO_LARGE, "the size of an operand in bytes overflows");
        if (t->rank >= 0) {
            ln_set_layout(t, LN_LAYOUT_DENSE);
            t->data = o->data;
        }
    }
    return take_quant(one, o, t, error);
}

static linnet_status prepare(single_op *one, const void *node, size_t size, const linnet_operand *inputs,
                             const linnet_operand *outputs, linnet_error *error) {
    ln_fb fb;
    ln_fb_table table;
    void *copy;
    linnet_status status;
    if (!node || (!inputs && one->n_inputs) || !outputs || one->n_inputs < 0 || one->n_outputs < 1)
        return ln_null_argument(error, "linnet_op_infer, linnet_op_evaluate",
                                !node                            ? "node"
                                : !outputs || one->n_outputs < 1 ? "outputs"
                                                                 : "inputs");
    if (!(copy = ln_pool_alloc(&one->pool, size))) return no_memory(error);
    memcpy(copy, node, size);
    table = ln_fb_root(&fb, copy, size, NULL);
    if (fb.problem) return ln_structure_problem(&fb, LINNET_OK, error);
    if (!(one->op = ln_read_op(&table, error))) return LINNET_UNSUPPORTED;
    if (one->user.host.run != NULL) {
        if (!(one->op->flags & LN_OP_REGISTERED))
            return ln_fail(error, LINNET_INVALID_ARGUMENT, "the node is not a node of a user op");
        one->op = &one->user.op;
    }
    if (one->n_inputs < one->op->min_inputs || (one->op->max_inputs >= 0 && one->n_inputs > one->op->max_inputs))
        return count_error(one->op, "inputs", one->n_inputs, one->op->min_inputs, one->op->max_inputs, error);
    if (one->n_outputs < one->op->min_outputs || (one->op->max_outputs >= 0 && one->n_outputs > one->op->max_outputs))
        return count_error(one->op, "outputs", one->n_outputs, one->op->min_outputs, one->op->max_outputs, error);
    if ((status = ln_read_attributes(&one->pool, one->op, &table, -1, INT32_MAX, &one->attributes, error)))
        return status;
    if (LN_HAS_USER_OPS && (one->op->flags & LN_OP_REGISTERED) && (status = ln_user_check(one->attributes, error)))
        return status;
    one->inputs = ln_pool_array(&one->pool, one->n_inputs, sizeof *one->inputs);
    one->outputs = ln_pool_array(&one->pool, one->n_outputs, sizeof *one->outputs);
    if (!one->inputs || !one->outputs) return no_memory(error);
    for (int i = 0; i < one->n_inputs; i++) {
        if ((status = take_operand(one, &inputs[i], false, &one->inputs[i], error))) return status;
        if (one->inputs[i].dtype == LINNET_NONE && !ln_operand_bit(one->op->absent, i)) {
            ln_fail(error, LINNET_SHAPE_MISMATCH, "operand %d of %s is required", i, one->op->name);
            return ln_got(error, "none"), LINNET_SHAPE_MISMATCH;
        }
    }
    for (int i = 0; i < one->n_outputs; i++)
        if ((status = take_operand(one, &outputs[i], true, &one->outputs[i], error))) return status;
    if (one->op->family == LN_FAMILY_MAP)
        status =
            ln_verify_map(one->attributes, one->n_inputs, one->inputs, one->n_outputs, one->outputs, &one->pool, error);
    return status;
}

/* Applies the shape rule to outputs that are zeroed except for dtype and quantization. */
static linnet_status infer(single_op *one, linnet_error *error) {
    ln_infer rule = {one->op,     one->attributes, one->n_inputs, one->n_outputs,
                     one->inputs, one->outputs,    error,         &one->facts};
    linnet_status status;
    for (int i = 0; i < one->n_outputs; i++)
        if (!(one->op->flags & LN_OP_REGISTERED)) one->outputs[i].rank = 0;
    one->facts = ln_no_facts;
    status = ln_infer_outputs(&rule);
    for (int i = 0; i < one->n_outputs && status == LINNET_OK; i++) {
        ln_tensor known = one->outputs[i];
        uint64_t bytes;
        status = check_quant(&one->outputs[i], error);
        if (status) return status;
        for (int d = 0; d < known.rank; d++) known.dims[d] = known.dims[d] < 0 ? 1 : known.dims[d];
        if (known.rank >= 0 && known.dtype != LINNET_NONE && !ln_bytes(&known, &bytes)) {
            char text[96];
            ln_fail(error, LINNET_TOO_LARGE, "the size of the result in bytes overflows");
            return ln_got(error, "%s", ln_shape_text(one->outputs[i].dims, known.rank, text, sizeof text)),
                   LINNET_TOO_LARGE;
        }
    }
    return status;
}

static void name_op(const single_op *one, linnet_error *error) {
    if (error && one->op && !error->op[0]) ln_at_node(error, -1, one->op->name);
}

static void begin(single_op *one, int n_inputs, int n_outputs) {
    memset(one, 0, sizeof *one);
    ln_memory_init(&one->memory, NULL);
    ln_pool_init(&one->pool, &one->memory);
    one->n_inputs = n_inputs;
    one->n_outputs = n_outputs;
}

linnet_status linnet_user_op_infer(const linnet_user_op *op, const void *node, size_t size,
                                   const linnet_operand *inputs, int input_count, linnet_operand *outputs,
                                   int output_count, linnet_error *error) {
    LN_WANT_ERROR(error);
    single_op one;
    linnet_status status = LINNET_OK;
    begin(&one, input_count, output_count);
    if (op != NULL && !LN_HAS_USER_OPS) return ln_left_out("linnet_user_op_infer", "LINNET_USER_OPS", error);
    if (op != NULL) status = ln_user_row(op, &one.user, error);
    if (status == LINNET_OK) status = prepare(&one, node, size, inputs, outputs, error);
    if (status == LINNET_OK) status = infer(&one, error);
    for (int i = 0; i < output_count && status == LINNET_OK; i++) {
        const ln_tensor *t = &one.outputs[i];
        outputs[i].dtype = t->dtype;
        outputs[i].rank = t->rank;
        for (int d = 0; d < LN_MAX_RANK; d++) outputs[i].shape[d] = d >= t->rank ? 0 : ln_max(t->dims[d], -1);
    }
    if (status) name_op(&one, error);
    ln_pool_free(&one.pool);
    return status;
}

linnet_status linnet_op_infer(const void *node, size_t size, const linnet_operand *inputs, int input_count,
                              linnet_operand *outputs, int output_count, linnet_error *error) {
    return linnet_user_op_infer(NULL, node, size, inputs, input_count, outputs, output_count, error);
}

/* Checks the caller's buffers against the shape rule. Dims that depend on data are upper bounds, and the caller's may
   be larger. */
static linnet_status check_outputs(single_op *one, const linnet_operand *outputs, void **data, linnet_error *error) {
    for (int i = 0; i < one->n_outputs; i++) {
        ln_tensor *t = &one->outputs[i];
        uint64_t bytes;
        if (!outputs[i].data && i >= one->op->min_outputs && ln_bytes(t, &bytes)) { /* optional and not requested */
            ln_set_layout(t, LN_LAYOUT_DENSE);
            continue;
        }
        ln_tensor most = *t;
        ln_bound_output(&one->facts, &most);
        bool same = outputs[i].rank == t->rank && t->rank >= 0 && outputs[i].dtype == t->dtype;
        for (int d = 0; same && d < t->rank; d++) {
            int64_t given = outputs[i].shape[d];
            same =
                given >= 0 && (t->dims[d] == given || (t->dims[d] < 0 && most.dims[d] >= 0 && given >= most.dims[d]));
            if (same) t->dims[d] = given;
        }
        if (!same || !ln_bytes(t, &bytes)) {
            char text[96], other[96];
            ln_fail(error, LINNET_SHAPE_MISMATCH,
                    "the dtype or shape of output %d differs from what linnet_op_infer returns", i);
            ln_expected(error, "%s %s", linnet_dtype_name(t->dtype),
                        ln_shape_text(most.dims, t->rank, text, sizeof text));
            ln_got(error, "dtype %d, %s", (int)outputs[i].dtype,
                   outputs[i].rank > LN_MAX_RANK
                       ? "too many dimensions"
                       : ln_shape_text(outputs[i].shape, outputs[i].rank, other, sizeof other));
            return LINNET_SHAPE_MISMATCH;
        }
        if (!outputs[i].data && bytes) return ln_fail(error, LINNET_INVALID_ARGUMENT, "output %d has no buffer", i);
        ln_set_layout(t, LN_LAYOUT_DENSE);
        data[i] = outputs[i].data;
    }
    return LINNET_OK;
}

static linnet_status evaluate(single_op *one, linnet_operand *outputs, linnet_error *error) {
    void **data = ln_pool_array(&one->pool, one->n_outputs, sizeof *data);
    int64_t *dims = ln_pool_array(&one->pool, (int64_t)one->n_outputs * LN_MAX_RANK, sizeof *dims);
    bool dependent = one->op->flags & LN_OP_DATA_DEPENDENT;
    linnet_status status;
    if (!data || !dims) return no_memory(error);
    if (one->op->flags & LN_OP_CALLS)
        return ln_fail(error, LINNET_UNSUPPORTED, "a control flow op cannot be evaluated without its graph");
    for (int i = 0; i < one->n_inputs; i++) {
        const ln_tensor *t = &one->inputs[i];
        if (t->dtype == LINNET_NONE || one->op->family == LN_FAMILY_SHAPE) continue;
        if (ln_count(t) < 0 || (!t->data && ln_count(t) > 0)) {
            ln_fail(error, LINNET_SHAPE_MISMATCH, "operand %d has no data or no complete shape", i);
            return ln_hint(error, "give data and a full shape for every operand"), LINNET_SHAPE_MISMATCH;
        }
    }
    if ((status = infer(one, error)) || (status = check_outputs(one, outputs, data, error))) return status;
    for (int i = 0; i < one->n_outputs; i++)
        memcpy(dims + i * LN_MAX_RANK, one->outputs[i].dims, sizeof one->outputs[i].dims);
    status = ln_evaluate(&one->memory, one->op, one->attributes, one->n_inputs, one->inputs, one->n_outputs,
                         one->outputs, data, LN_ISA_SCALAR, true, dependent ? dims : NULL, error);
    for (int i = 0; dependent && status == LINNET_OK && i < one->n_outputs; i++)
        memcpy(outputs[i].shape, dims + i * LN_MAX_RANK, sizeof outputs[i].shape);
    return status;
}

linnet_status linnet_op_evaluate(const void *node, size_t size, const linnet_operand *inputs, int input_count,
                                 linnet_operand *outputs, int output_count, linnet_error *error) {
    LN_WANT_ERROR(error);
    single_op one;
    linnet_status status;
    begin(&one, input_count, output_count);
    status = prepare(&one, node, size, inputs, outputs, error);
    if (status == LINNET_OK) status = evaluate(&one, outputs, error);
    if (status) name_op(&one, error);
    ln_pool_free(&one.pool);
    return status;
}
