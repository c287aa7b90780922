/* map_convert.c - fast kernels of cast, quantize and dequantize: each is a short map program made at plan time.
 * Their results have the same bits as the references in cast.c, quantize.c and dequantize.c. */
#include "map/map_convert.h"

#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/common/quant_operands.h"
#include "map/map_kernel.h"
#include "map/map_program.h"
#include "map/map_shape.h"

#include <string.h>

typedef ln_convert_program builder;

static int emit(builder *m, int opcode, int type, int64_t a, int64_t b, int64_t c) {
    int64_t row[LN_MAP_WORDS] = {opcode, type, a, b, c};
    memcpy(m->program + (size_t)m->n * LN_MAP_WORDS, row, sizeof row);
    return m->n++;
}

/* Returns the smallest register type that holds every value of the dtype. */
static int register_of(int dtype) {
    switch (dtype) {
    case LINNET_F64: return LINNET_F64;
    case LINNET_F32:
    case LINNET_F16:
    case LINNET_BF16: return LINNET_F32;
    case LINNET_U32:
    case LINNET_I64:
    case LINNET_U64: return LINNET_I64;
    default: return LINNET_I32;
    }
}

static int64_t axis_of(const ln_call *call) {
    return call->op->id == LN_OP_QUANTIZE ? ((const ln_quantize_attributes *)call->attributes)->axis
                                          : ((const ln_dequantize_attributes *)call->attributes)->axis;
}

/* Returns the scale or zero operand `t` as a tensor that broadcasts against x: one value, or one per slice of the
 * axis. */
static ln_tensor laid_along(const ln_tensor *t, const ln_tensor *x, int axis) {
    ln_tensor y = *t;
    if (ln_count(t) == 1) {
        y.rank = 0;
        return y;
    }
    y.rank = x->rank;
    for (int d = 0; d < x->rank; d++) {
        y.dims[d] = d == axis ? t->dims[0] : 1;
        y.strides[d] = d == axis ? t->strides[0] : 0;
    }
    return y;
}

static bool one_zero(const ln_call *call, int32_t *zero) {
    *zero = 0;
    if (!ln_given(call->inputs, call->n_inputs, 2)) return true;
    const ln_tensor *z = &call->inputs[2];
    int64_t n = ln_count(z);
    if (!z->data || n < 1) return false;
    *zero = (int32_t)ln_load_i64(z->data, z->dtype, 0);
    for (int64_t i = 1; i < n; i++)
        if (ln_load_i64(z->data, z->dtype, i) != *zero) return false;
    return true;
}

bool ln_convert_can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (call->op->id == LN_OP_CAST) return !(x->dtype == LINNET_U64 && ln_dtype_is_float(y->dtype));
    bool storing = call->op->id == LN_OP_QUANTIZE;
    const ln_tensor *stored = storing ? y : x;
    if (ln_given(call->inputs, call->n_inputs, 1)) {
        int64_t block = storing ? ((const ln_quantize_attributes *)call->attributes)->block
                                : ((const ln_dequantize_attributes *)call->attributes)->block;
        const ln_tensor *s = &call->inputs[1];
        return block == 0 && (ln_count(s) == 1 || (s->rank == 1 && ln_axis(axis_of(call), x->rank) >= 0));
    }
    return stored->quant && stored->quant->count > 0 && stored->quant->scheme == LN_QUANT_TENSOR;
}

static int emit_const(builder *m, int slot, double v) {
    m->floats[slot] = v;
    return emit(m, LN_MAP_CONST, LINNET_F32, slot, 0, 0);
}

static void build_dequantize(builder *m, const ln_call *call) {
    if (!ln_given(call->inputs, call->n_inputs, 1)) {
        int v = emit(m, LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 0, 0, 0);
        emit(m, LN_MAP_STORE, LINNET_F32, v, 0, 0);
        return;
    }
    int v = emit(m, LN_MAP_LOAD, LINNET_I32, 0, 0, 0);
    if (ln_given(call->inputs, call->n_inputs, 2)) {
        int z = emit(m, LN_MAP_LOAD, LINNET_I32, 2, 0, 0);
        v = emit(m, LN_MAP_SUB, LINNET_I32, v, z, 0);
    }
    v = emit(m, LN_MAP_CAST, LINNET_F32, v, 0, 0);
    int s = emit(m, LN_MAP_LOAD, LINNET_F32, 1, 0, 0);
    v = emit(m, LN_MAP_MUL, LINNET_F32, v, s, 0);
    emit(m, LN_MAP_STORE, LINNET_F32, v, 0, 0);
}

static void build_quantize(builder *m, const ln_call *call, bool quantizes) {
    const ln_tensor *y = &call->outputs[0];
    bool operands = ln_given(call->inputs, call->n_inputs, 1);
    int64_t low, high;
    int v = emit(m, LN_MAP_LOAD, LINNET_F32, 0, 0, 0), s;
    bool plain = true;
    if (!operands && quantizes) {
        emit(m, LN_MAP_STORE_QUANTIZED, LINNET_F32, v, 0, 0);
        return;
    }
    if (operands) {
        s = emit(m, LN_MAP_LOAD, LINNET_F32, 1, 0, 0);
        plain = one_zero(call, &m->zero);
    } else {
        s = emit_const(m, 0, (double)y->quant->scale[0]);
        m->zero = y->quant->zero ? y->quant->zero[0] : 0;
    }
    v = emit(m, LN_MAP_DIV, LINNET_F32, v, s, 0);
    if (plain) {
        m->scale = 1.0f;
        m->quant = (ln_quant){.scheme = LN_QUANT_TENSOR,
                              .count = 1,
                              .scale = &m->scale,
                              .zero = &m->zero,
                              .bits = y->quant ? y->quant->bits : 0};
        m->output.quant = &m->quant;
        emit(m, LN_MAP_STORE_QUANTIZED, LINNET_F32, v, 0, 0);
        return;
    }
    /* Here zero points are run-time data or differ from each other, so the zero point is subtracted from the bounds.
     * The comparisons map NaN to the lowest value. */
    ln_quant_range(y->dtype, y->quant ? y->quant->bits : 0, &low, &high);
    v = emit(m, LN_MAP_ROUND, LINNET_F32, v, 0, 0);
    int z = emit(m, LN_MAP_LOAD, LINNET_F32, 2, 0, 0);
    int bottom = emit(m, LN_MAP_SUB, LINNET_F32, emit_const(m, 0, (double)low), z, 0);
    int top = emit(m, LN_MAP_SUB, LINNET_F32, emit_const(m, 1, (double)high), z, 0);
    int above = emit(m, LN_MAP_GT, LINNET_F32, v, bottom, 0);
    v = emit(m, LN_MAP_SELECT, LINNET_F32, above, v, bottom);
    int below = emit(m, LN_MAP_LT, LINNET_F32, v, top, 0);
    v = emit(m, LN_MAP_SELECT, LINNET_F32, below, v, top);
    v = emit(m, LN_MAP_ADD, LINNET_F32, v, z, 0); /* whole numbers below 2^17, so this is exact */
    v = emit(m, LN_MAP_CAST, LINNET_I32, v, 0, 0);
    emit(m, LN_MAP_STORE, LINNET_I32, v, 0, 0);
}

void ln_convert_build(const ln_call *call, ln_convert_program *m, bool quantizes) {
    int axis = call->op->id == LN_OP_CAST ? 0 : ln_axis(axis_of(call), call->inputs[0].rank);
    m->output = call->outputs[0];
    m->inputs[0] = call->inputs[0];
    for (int i = 1; i < call->n_inputs && i < 3; i++)
        if (call->inputs[i].dtype != LINNET_NONE) m->inputs[i] = laid_along(&call->inputs[i], &call->inputs[0], axis);
    if (call->op->id == LN_OP_CAST) {
        int type = register_of(call->inputs[0].dtype);
        emit(m, LN_MAP_STORE, type, emit(m, LN_MAP_LOAD, type, 0, 0, 0), 0, 0);
    } else if (call->op->id == LN_OP_QUANTIZE) {
        build_quantize(m, call, quantizes);
    } else {
        build_dequantize(m, call);
    }
    m->attributes.program = (ln_ints){m->program, (int64_t)m->n * LN_MAP_WORDS};
    m->attributes.floats = (ln_floats){m->floats, 2};
}

linnet_status ln_convert_configure(ln_call *call) {
    builder made = {0}, *m = &made;
    ln_convert_build(call, m, false);
    ln_map_source source = {.map = &m->attributes,
                            .inputs = m->inputs,
                            .n_inputs = call->n_inputs,
                            .outputs = &m->output,
                            .n_outputs = 1,
                            .tile_input = -1,
                            .most_bytes = 24576};
    return ln_map_prepare(&source, call, NULL);
}
