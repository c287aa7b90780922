/* structure_values.c - reads and verifies tensors: shape, quantization, the data of constants. */
#include "model/structure_values.h"

#include "base/layout.h"
#include "model/structure_errors.h"
#include "model/structure_reader.h"

#include <math.h>
#include <string.h>

/* Slots of the tables in schema/linnet.fbs. */
enum { QUANT_SCHEME, QUANT_BITS, QUANT_AXIS, QUANT_BLOCK, QUANT_SCALE, QUANT_ZERO };
enum {
    TENSOR_NAME,
    TENSOR_DTYPE,
    TENSOR_RANK,
    TENSOR_SHAPE,
    TENSOR_DIM_NAMES,
    TENSOR_QUANT,
    TENSOR_SEGMENT,
    TENSOR_DATA,
    TENSOR_VARIABLE
};

enum { DATA_ALIGNMENT = 16 };

bool ln_zero_fits(int dtype, int32_t zero) {
    switch (dtype) {
    case LINNET_I8: return zero >= INT8_MIN && zero <= INT8_MAX;
    case LINNET_U8: return zero >= 0 && zero <= UINT8_MAX;
    case LINNET_I16: return zero >= INT16_MIN && zero <= INT16_MAX;
    case LINNET_U16: return zero >= 0 && zero <= UINT16_MAX;
    case LINNET_I4: return zero >= -8 && zero <= 7;
    case LINNET_U4: return zero >= 0 && zero <= 15;
    case LINNET_U32:
    case LINNET_U64: return zero >= 0;
    default: return true;
    }
}

static linnet_status check_blocks(ln_reader *r, const char *name, const ln_tensor *t, int axis, int64_t block,
                                  int64_t scales) {
    if (ln_dtype_bits(t->dtype) > 8)
        return ln_reader_corrupt_number(r, name, "quantization per block needs elements of 4 or 8 bits", "dtype ",
                                        t->dtype);
    if (block < 1) return ln_reader_corrupt(r, name, "the block size of a quantization is not positive", block);
    const int64_t blocks = ln_block_count(t, axis, block);
    if (blocks < 0)
        return ln_reader_corrupt_number(r, name, "quantization per block needs a known shape", "axis ", axis);
    if (blocks == scales) return LINNET_OK;
    ln_reader_corrupt(r, name, "the number of scales differs from the number of blocks", scales);
    return ln_expected(r->error, "%lld blocks", (long long)blocks), LINNET_CORRUPT;
}

linnet_status ln_read_quant(ln_reader *r, const char *name, const ln_fb_table *table, int slot, ln_tensor *t) {
    ln_fb_table q = ln_fb_get_table(table, slot);
    int64_t scheme = ln_fb_unsigned(&q, QUANT_SCHEME, 1, LN_QUANT_NONE);
    int64_t bits = ln_fb_unsigned(&q, QUANT_BITS, 1, 0), axis = ln_fb_signed(&q, QUANT_AXIS, 4, 0);
    ln_fb_vector scale = ln_fb_get_vector(&q, QUANT_SCALE, 4), zero = ln_fb_get_vector(&q, QUANT_ZERO, 4);
    int64_t block = ln_fb_unsigned(&q, QUANT_BLOCK, 4, 0);
    linnet_status status;
    ln_quant *quant;
    if (r->fb.problem) return ln_reader_problem(r);
    if (!q.at || scheme == LN_QUANT_NONE) return LINNET_OK;
    if (scheme > LN_QUANT_BLOCK) return ln_reader_corrupt(r, name, "unknown quantization scheme", scheme);
    if (t->dtype < LINNET_I8 || t->dtype == LINNET_BOOL)
        return ln_reader_corrupt(r, name, "a tensor with quantization does not have an integer dtype", t->dtype);
    if (bits > ln_dtype_bits(t->dtype))
        return ln_reader_corrupt(r, name, "quantization has more bits than the dtype", bits);
    if (scale.count == 0 || (scheme == LN_QUANT_TENSOR && scale.count != 1))
        return ln_reader_corrupt(r, name, "quantization has the wrong number of scales", scale.count);
    if (zero.count != 0 && zero.count != scale.count)
        return ln_reader_corrupt(r, name, "the number of zero points is neither 0 nor the number of scales",
                                 zero.count);
    if (scheme != LN_QUANT_TENSOR) {
        if (axis < 0 || axis >= t->rank)
            return ln_reader_corrupt(r, name, "the quantization axis is out of range", axis);
        if (scheme == LN_QUANT_BLOCK && (status = check_blocks(r, name, t, (int)axis, block, scale.count)))
            return status;
        if (scheme == LN_QUANT_AXIS && scale.count != 1 && t->dims[axis] >= 0 && t->dims[axis] != scale.count)
            return ln_reader_corrupt(r, name, "the number of scales differs from the size of the quantization axis",
                                     scale.count);
    }
    quant = ln_pool_alloc(r->pool, sizeof *quant);
    if (!quant) return ln_reader_no_memory(r);
    /* A single entry for a whole axis, or a single block, is treated as quantization per tensor, so kernels do not need
       to check `count`. */
    quant->scheme = (uint8_t)(scale.count == 1 ? LN_QUANT_TENSOR : scheme);
    quant->bits = (uint8_t)(bits ? bits : ln_dtype_bits(t->dtype));
    quant->axis = quant->scheme == LN_QUANT_TENSOR ? 0 : (int32_t)axis;
    quant->block = quant->scheme == LN_QUANT_BLOCK ? (uint32_t)block : 0;
    quant->count = scale.count;
    quant->scale = scale.data;
    quant->zero = zero.count ? zero.data : NULL;
    for (uint32_t i = 0; i < quant->count; i++) {
        if (!isfinite(quant->scale[i]) || !(quant->scale[i] > 0))
            return ln_reader_corrupt_number(r, name, "a quantization scale is not a positive number", "scale number ",
                                            i);
        if (quant->zero && !ln_zero_fits(t->dtype, quant->zero[i]))
            return ln_reader_corrupt(r, name, "a quantization zero point does not fit in the dtype", quant->zero[i]);
    }
    t->quant = quant;
    return LINNET_OK;
}

/* Reads dtype and dims and sets dense strides. `rank` is -1 if the rank is unknown. */
linnet_status ln_read_shape(ln_reader *r, const char *name, int64_t dtype, int64_t rank, const ln_fb_vector *shape,
                            ln_tensor *t) {
    ln_tensor known;
    uint64_t bytes;
    if (r->fb.problem) return ln_reader_problem(r);
    if (dtype <= LINNET_NONE || dtype > LN_LAST_DTYPE)
        return ln_reader_corrupt(r, name, "a tensor has an unknown dtype", dtype);
    if (rank < -1 || rank > LN_MAX_RANK) return ln_reader_corrupt(r, name, "a tensor has more than 8 dimensions", rank);
    if (shape->count != (uint32_t)(rank < 0 ? 0 : rank))
        return ln_reader_corrupt(r, name, "the length of a shape differs from the rank", shape->count);
    t->dtype = (uint8_t)dtype;
    t->rank = (int8_t)rank;
    if (shape->count) memcpy(t->dims, shape->data, shape->count * sizeof *t->dims);
    known = *t;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < -1) return ln_reader_corrupt(r, name, "a dimension is less than -1", t->dims[i]);
        if (t->dims[i] == -1) known.dims[i] = 1;
    }
    if (rank >= 0 && !ln_bytes(&known, &bytes)) {
        char text[96];
        ln_fail(r->error, LINNET_TOO_LARGE, "the size of a tensor in bytes overflows");
        ln_at_tensor(r->error, name);
        return ln_got(r->error, "%s", ln_shape_text(t->dims, t->rank, text, sizeof text)), LINNET_TOO_LARGE;
    }
    if (ln_count(t) >= 0) ln_set_layout(t, LN_LAYOUT_DENSE);
    return LINNET_OK;
}

linnet_status ln_read_segment(ln_reader *r, const char *name, int64_t index, uint64_t bytes, const void **data) {
    if (index < 0 || index >= r->model->n_segments)
        return ln_reader_corrupt(r, name, "the segment number is out of range", index);
    if (r->model->segments[index].size != bytes) {
        ln_reader_corrupt(r, name, "the sizes of a segment and its tensor differ",
                          (int64_t)r->model->segments[index].size);
        return ln_expected(r->error, "%llu bytes", (unsigned long long)bytes), LINNET_CORRUPT;
    }
    *data = r->model->segments[index].data;
    return LINNET_OK;
}

void ln_declared(const ln_value *value, ln_tensor *out) {
    *out = (ln_tensor){.dtype = value->dtype, .rank = value->rank, .quant = value->quant, .data = value->data};
    for (int i = 0; i < out->rank; i++) out->dims[i] = value->dims[i];
    if (ln_count(out) >= 0) ln_set_layout(out, LN_LAYOUT_DENSE);
}

static linnet_status read_constant(ln_reader *r, ln_value *value, const ln_tensor *t, int64_t index,
                                   const ln_fb_vector *data) {
    uint64_t bytes;
    if (!ln_bytes(t, &bytes))
        return ln_reader_corrupt_number(r, value->name, "a constant has an unknown dimension or rank", "rank ",
                                        t->rank);
    if (data->data && index >= 0)
        return ln_reader_corrupt(r, value->name, "a constant has both data and a segment", index);
    if (!data->data) return ln_read_segment(r, value->name, index, bytes, &value->data);
    if (data->count != bytes) {
        ln_reader_corrupt(r, value->name, "the size of a constant's data does not match its shape", data->count);
        return ln_expected(r->error, "%llu bytes", (unsigned long long)bytes), LINNET_CORRUPT;
    }
    value->data = data->data;
    if (bytes == 0 || (uintptr_t)data->data % DATA_ALIGNMENT != 0) { /* writers should align, but need not */
        void *copy = ln_pool_alloc(r->pool, (size_t)bytes);
        if (!copy) return ln_reader_no_memory(r);
        if (bytes) memcpy(copy, data->data, (size_t)bytes);
        value->data = copy;
    }
    return LINNET_OK;
}

linnet_status ln_read_value(ln_reader *r, const ln_fb_table *table, ln_value *value) {
    ln_tensor t = {0};
    int64_t dtype = ln_fb_unsigned(table, TENSOR_DTYPE, 1, LINNET_NONE), rank = ln_fb_signed(table, TENSOR_RANK, 4, -1);
    int64_t index = ln_fb_signed(table, TENSOR_SEGMENT, 4, -1), variable = ln_fb_signed(table, TENSOR_VARIABLE, 4, -1);
    ln_fb_vector shape = ln_fb_get_vector(table, TENSOR_SHAPE, 8), data = ln_fb_get_vector(table, TENSOR_DATA, 1);
    ln_fb_vector dim_names = ln_fb_get_vector(table, TENSOR_DIM_NAMES, 4);
    linnet_status status;
    value->name = ln_fb_string(table, TENSOR_NAME);
    value->variable = -1;
    for (uint32_t i = 0; i < dim_names.count; i++) ln_fb_string_at(&dim_names, i);
    if ((status = ln_read_shape(r, value->name, dtype, rank, &shape, &t))) return status;
    if (dim_names.count && dim_names.count != shape.count)
        return ln_reader_corrupt(r, value->name, "the number of dimension names differs from the number of dimensions",
                                 dim_names.count);
    if ((status = ln_read_quant(r, value->name, table, TENSOR_QUANT, &t))) return status;
    value->dtype = t.dtype;
    value->rank = t.rank;
    value->dims = shape.data;
    value->quant = t.quant;
    if (index < -1 || variable < -1 || variable >= r->model->n_variables)
        return ln_reader_corrupt(r, value->name, "a tensor refers to a segment or variable that does not exist",
                                 index < -1 ? index : variable);
    if (data.data || index >= 0) {
        if (variable >= 0)
            return ln_reader_corrupt(r, value->name, "a tensor is both a constant and a variable", variable);
        return read_constant(r, value, &t, index, &data);
    }
    if (variable >= 0) {
        const ln_variable *v = &r->model->variables[variable];
        if (v->tensor.dtype != t.dtype || v->tensor.rank != t.rank ||
            memcmp(v->tensor.dims, t.dims, sizeof *t.dims * (size_t)t.rank) != 0)
            return ln_reader_corrupt(r, value->name, "a tensor and its variable differ in shape or dtype", variable);
        if (!value->quant) value->quant = v->tensor.quant;
        value->variable = (int32_t)variable;
    }
    return LINNET_OK;
}

/* ln_read_value has checked that there is one name per dimension, or none. */
linnet_status ln_read_dim_names(ln_reader *r, const ln_fb_vector *tensors, int32_t index, ln_value *value) {
    ln_fb_table table = ln_fb_table_at(tensors, (uint32_t)index);
    ln_fb_vector given = ln_fb_get_vector(&table, TENSOR_DIM_NAMES, 4);
    if (given.count == 0) return LINNET_OK;
    const char **names = ln_pool_array(r->pool, given.count, sizeof *names);
    if (!names) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < given.count; i++) names[i] = ln_fb_string_at(&given, i);
    value->dim_names = names;
    return ln_reader_problem(r);
}
