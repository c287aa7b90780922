/* infer.c - functions that the shape rules of all ops use: checks of dtypes, broadcasting, bounds of dims, list
 * operands. Dimensions may be -1 (unknown) here, and sizes come from files, so nothing may overflow. */
#include "kernel/infer.h"

#include "kernel/op.h"
#include "generated/op_table.h"

#include <string.h>

/* Refuses i4, u4 and quantization per block for ops that are not defined for them. Three kinds of ops take everything:
 * control flow passes values on, `shape` reads no element, and a user op decides for itself. */
static linnet_status check_dtypes(const ln_infer *infer, const ln_tensor *tensors, int n) {
    const ln_op *op = infer->op;
    if ((op->flags & (LN_OP_CALLS | LN_OP_REGISTERED)) || op->family == LN_FAMILY_SHAPE) return LINNET_OK;
    for (int i = 0; i < n; i++) {
        const ln_tensor *t = &tensors[i];
        const bool blocks = t->quant != NULL && t->quant->scheme == LN_QUANT_BLOCK && !(op->flags & LN_OP_BLOCKS);
        if (!blocks && (ln_dtype_bits(t->dtype) != 4 || (op->dtypes >> t->dtype & 1))) continue;
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "%s is not defined for %s%s", op->name, linnet_dtype_name(t->dtype),
                blocks ? " with quantization per block" : "");
        return ln_hint(infer->error, "dequantize the operand, or cast it to i8 or u8"), LINNET_WRONG_DTYPE;
    }
    return LINNET_OK;
}

linnet_status ln_infer_outputs(const ln_infer *infer) {
    linnet_status status = check_dtypes(infer, infer->inputs, infer->n_inputs);
    if (status == LINNET_OK) status = infer->op->infer(infer);
    return status == LINNET_OK ? check_dtypes(infer, infer->outputs, infer->n_outputs) : status;
}

static bool broadcast_dim(int64_t a, int64_t b, int64_t *out) {
    if (a == 1 || (a < 0 && b != 1))
        *out = b;
    else if (b == 1 || b < 0 || a == b)
        *out = a;
    else
        return false;
    return true;
}

linnet_status ln_broadcast(const ln_tensor *a, const ln_tensor *b, ln_tensor *out, linnet_error *error) {
    ln_tensor result;
    memset(&result, 0, sizeof result);
    result.rank = -1;
    if (a->rank >= 0 && b->rank >= 0) {
        result.rank = a->rank > b->rank ? a->rank : b->rank;
        for (int i = 0; i < result.rank; i++) {
            int ia = i - (result.rank - a->rank), ib = i - (result.rank - b->rank);
            if (!broadcast_dim(ia < 0 ? 1 : a->dims[ia], ib < 0 ? 1 : b->dims[ib], &result.dims[i])) {
                char text_a[96], text_b[96];
                ln_fail(error, LINNET_SHAPE_MISMATCH, "shapes cannot be broadcast together at dimension %d", i);
                ln_expected(error, "equal dimensions, or one of them 1");
                ln_got(error, "%s and %s", ln_shape_text(a->dims, a->rank, text_a, sizeof text_a),
                       ln_shape_text(b->dims, b->rank, text_b, sizeof text_b));
                return LINNET_SHAPE_MISMATCH;
            }
        }
    }
    /* out may be the same as a or b */
    out->rank = result.rank;
    memcpy(out->dims, result.dims, sizeof result.dims);
    return LINNET_OK;
}

uint16_t ln_bound_output(const ln_infer_facts *facts, ln_tensor *out) {
    uint16_t bounded = 0;
    for (int d = 0; d < out->rank; d++) {
        if (out->dims[d] >= 0 || (out->dims[d] == -1 && facts->most < 0)) continue;
        out->dims[d] = out->dims[d] == -1 ? facts->most : -2 - out->dims[d]; /* linnet_user_at_most */
        bounded |= (uint16_t)(1u << d);
    }
    return bounded;
}

void ln_index_facts(const ln_infer *infer, int axis, bool tuples, bool from_start) {
    const ln_tensor *x = &infer->inputs[0], *index = &infer->inputs[1];
    if (!infer->facts || axis < 0 || axis >= x->rank) return;
    if (tuples && (index->rank < 1 || index->dims[index->rank - 1] != 1)) return;
    infer->facts->indices = 1;
    infer->facts->places = x->dims[axis];
    infer->facts->from_start = from_start;
}

int ln_int_operand(const ln_tensor *t, int64_t *v) {
    int64_t count;
    if (!t || t->dtype == LINNET_NONE || !t->data || t->rank < 0 || t->rank > 1) return -1;
    if (t->dtype != LINNET_I64 && t->dtype != LINNET_I32) return -1;
    count = t->rank == 0 ? 1 : t->dims[0];
    if (count < 0) return -1;
    if (count > 2 * LN_MAX_RANK) return -2;
    for (int64_t i = 0; i < count; i++) v[i] = ln_load_i64(t->data, t->dtype, i);
    return (int)count;
}
