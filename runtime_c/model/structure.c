/* structure.c - reads and verifies segments, variables, functions and signatures; each table is read once.
 * Functions are read from the last to the first, because a function may only call later ones. */
#include "model/structure.h"

#include <math.h>
#include <string.h>

/* Slots of the tables in schema/linnet.fbs. */
enum {
    MODEL_PRODUCER,
    MODEL_FUNCTIONS,
    MODEL_SIGNATURES,
    MODEL_VARIABLES,
    MODEL_SEGMENTS,
    MODEL_METADATA,
    MODEL_EXTRAS
};
enum { QUANT_SCHEME, QUANT_BITS, QUANT_AXIS, QUANT_BLOCK, QUANT_SCALE, QUANT_ZERO };
enum { SEGMENT_OFFSET, SEGMENT_SIZE, SEGMENT_DIGEST_KIND, SEGMENT_DIGEST };
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
enum { FUNCTION_NAME, FUNCTION_TENSORS, FUNCTION_NODES, FUNCTION_INPUTS, FUNCTION_OUTPUTS };
enum { VARIABLE_NAME, VARIABLE_DTYPE, VARIABLE_SHAPE, VARIABLE_QUANT, VARIABLE_SEGMENT };
enum { SIGNATURE_NAME, SIGNATURE_FUNCTION, SIGNATURE_INPUTS, SIGNATURE_OUTPUTS };
enum { KEY_VALUE_KEY, KEY_VALUE_VALUE };
enum { EXTRA_KIND, EXTRA_TARGET, EXTRA_SEGMENT };

enum { SEGMENT_ALIGNMENT = 64, DATA_ALIGNMENT = 16, HEADER_SIZE = 64 };
/* Limit on nodes after all calls are expanded, because nested calls multiply them. */
static const uint64_t most_nodes = 1 << 24;
enum { DEEPEST_CALL = 64 };

typedef struct reader {
    linnet_model *model;
    ln_pool *pool;     /* the model's pool */
    ln_pool temporary; /* freed at the end */
    ln_fb fb;
    ln_function *functions;
    uint64_t *expanded; /* nodes per function after expansion */
    int32_t *depth;     /* levels of calls below each function */
    int32_t *assigned;  /* per variable: 1 + the function that assigned it last */
    int32_t n_functions;
    linnet_error *error;
} reader;

/* Fails with CORRUPT. `name` is the name of the item; `kind` says what the number `got` counts, as in "segment 3". */
static linnet_status corrupt_number(reader *r, const char *name, const char *what, const char *kind, int64_t got) {
    if (r->fb.problem) return ln_structure_problem(&r->fb, LINNET_OK, r->error);
    ln_fail(r->error, LINNET_CORRUPT, "%s", what);
    ln_at_tensor(r->error, name);
    ln_got(r->error, "%s%lld", kind, (long long)got);
    return ln_hint(r->error, "copy the file again, or convert the model again"), LINNET_CORRUPT;
}

static linnet_status corrupt(reader *r, const char *name, const char *what, int64_t got) {
    return corrupt_number(r, name, what, "", got);
}

static linnet_status no_memory(reader *r) {
    return ln_fail(r->error, LINNET_OUT_OF_MEMORY, "cannot allocate the structure of a model");
}

static linnet_status problem(reader *r) { return ln_structure_problem(&r->fb, LINNET_OK, r->error); }

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void sift_down(const char **names, int64_t root, int64_t count) {
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        const char *larger;
        if (child + 1 < count && strcmp(names[child], names[child + 1]) < 0) child++;
        if (strcmp(names[root], names[child]) >= 0) return;
        larger = names[child];
        names[child] = names[root];
        names[root] = larger;
    }
}

/* Checks that all names differ and none is empty; `kind` says what the names belong to. Heap sort, because it has no
 * bad worst case. */
static linnet_status check_names(reader *r, const char *const *names, int64_t count, const char *kind) {
    const char **sorted = ln_pool_array(&r->temporary, count, sizeof *sorted);
    if (!sorted) return no_memory(r);
    for (int64_t i = 0; i < count; i++) sorted[i] = names[i];
    for (int64_t i = count / 2; i-- > 0;) sift_down(sorted, i, count);
    for (int64_t n = count; n-- > 1;) {
        const char *largest = sorted[0];
        sorted[0] = sorted[n];
        sorted[n] = largest;
        sift_down(sorted, 0, n);
    }
    for (int64_t i = 0; i < count; i++) {
        if (sorted[i][0] && (i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0)) continue;
        ln_fail(r->error, LINNET_CORRUPT, sorted[i][0] ? "two %s have the same name" : "one of the %s has no name",
                kind);
        ln_at_tensor(r->error, sorted[i]);
        return ln_hint(r->error, "give each of them a unique name"), LINNET_CORRUPT;
    }
    return LINNET_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

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

static linnet_status check_blocks(reader *r, const char *name, const ln_tensor *t, int axis, int64_t block,
                                  int64_t scales) {
    if (ln_dtype_bits(t->dtype) > 8)
        return corrupt_number(r, name, "quantization per block needs elements of 4 or 8 bits", "dtype ", t->dtype);
    if (block < 1) return corrupt(r, name, "the block size of a quantization is not positive", block);
    const int64_t blocks = ln_block_count(t, axis, block);
    if (blocks < 0) return corrupt_number(r, name, "quantization per block needs a known shape", "axis ", axis);
    if (blocks == scales) return LINNET_OK;
    corrupt(r, name, "the number of scales differs from the number of blocks", scales);
    return ln_expected(r->error, "%lld blocks", (long long)blocks), LINNET_CORRUPT;
}

static linnet_status read_quant(reader *r, const char *name, const ln_fb_table *table, int slot, ln_tensor *t) {
    ln_fb_table q = ln_fb_get_table(table, slot);
    int64_t scheme = ln_fb_unsigned(&q, QUANT_SCHEME, 1, LN_QUANT_NONE);
    int64_t bits = ln_fb_unsigned(&q, QUANT_BITS, 1, 0), axis = ln_fb_signed(&q, QUANT_AXIS, 4, 0);
    ln_fb_vector scale = ln_fb_get_vector(&q, QUANT_SCALE, 4), zero = ln_fb_get_vector(&q, QUANT_ZERO, 4);
    int64_t block = ln_fb_unsigned(&q, QUANT_BLOCK, 4, 0);
    linnet_status status;
    ln_quant *quant;
    if (r->fb.problem) return problem(r);
    if (!q.at || scheme == LN_QUANT_NONE) return LINNET_OK;
    if (scheme > LN_QUANT_BLOCK) return corrupt(r, name, "unknown quantization scheme", scheme);
    if (t->dtype < LINNET_I8 || t->dtype == LINNET_BOOL)
        return corrupt(r, name, "a tensor with quantization does not have an integer dtype", t->dtype);
    if (bits > ln_dtype_bits(t->dtype)) return corrupt(r, name, "quantization has more bits than the dtype", bits);
    if (scale.count == 0 || (scheme == LN_QUANT_TENSOR && scale.count != 1))
        return corrupt(r, name, "quantization has the wrong number of scales", scale.count);
    if (zero.count != 0 && zero.count != scale.count)
        return corrupt(r, name, "the number of zero points is neither 0 nor the number of scales", zero.count);
    if (scheme != LN_QUANT_TENSOR) {
        if (axis < 0 || axis >= t->rank) return corrupt(r, name, "the quantization axis is out of range", axis);
        if (scheme == LN_QUANT_BLOCK && (status = check_blocks(r, name, t, (int)axis, block, scale.count)))
            return status;
        if (scheme == LN_QUANT_AXIS && scale.count != 1 && t->dims[axis] >= 0 && t->dims[axis] != scale.count)
            return corrupt(r, name, "the number of scales differs from the size of the quantization axis", scale.count);
    }
    quant = ln_pool_alloc(r->pool, sizeof *quant);
    if (!quant) return no_memory(r);
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
            return corrupt_number(r, name, "a quantization scale is not a positive number", "scale number ", i);
        if (quant->zero && !ln_zero_fits(t->dtype, quant->zero[i]))
            return corrupt(r, name, "a quantization zero point does not fit in the dtype", quant->zero[i]);
    }
    t->quant = quant;
    return LINNET_OK;
}

/* Reads dtype and dims and sets dense strides. `rank` is -1 if the rank is unknown. */
static linnet_status read_shape(reader *r, const char *name, int64_t dtype, int64_t rank, const ln_fb_vector *shape,
                                ln_tensor *t) {
    ln_tensor known;
    uint64_t bytes;
    if (r->fb.problem) return problem(r);
    if (dtype <= LINNET_NONE || dtype > LN_LAST_DTYPE) return corrupt(r, name, "a tensor has an unknown dtype", dtype);
    if (rank < -1 || rank > LN_MAX_RANK) return corrupt(r, name, "a tensor has more than 8 dimensions", rank);
    if (shape->count != (uint32_t)(rank < 0 ? 0 : rank))
        return corrupt(r, name, "the length of a shape differs from the rank", shape->count);
    t->dtype = (uint8_t)dtype;
    t->rank = (int8_t)rank;
    if (shape->count) memcpy(t->dims, shape->data, shape->count * sizeof *t->dims);
    known = *t;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < -1) return corrupt(r, name, "a dimension is less than -1", t->dims[i]);
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

static linnet_status get_segment(reader *r, const char *name, int64_t index, uint64_t bytes, const void **data) {
    if (index < 0 || index >= r->model->n_segments)
        return corrupt(r, name, "the segment number is out of range", index);
    if (r->model->segments[index].size != bytes) {
        corrupt(r, name, "the sizes of a segment and its tensor differ", (int64_t)r->model->segments[index].size);
        return ln_expected(r->error, "%llu bytes", (unsigned long long)bytes), LINNET_CORRUPT;
    }
    *data = r->model->segments[index].data;
    return LINNET_OK;
}

static linnet_status read_constant(reader *r, ln_value *value, int64_t index, const ln_fb_vector *data) {
    uint64_t bytes;
    if (!ln_bytes(&value->tensor, &bytes))
        return corrupt_number(r, value->name, "a constant has an unknown dimension or rank", "rank ",
                              value->tensor.rank);
    value->bytes = bytes;
    if (data->data && index >= 0) return corrupt(r, value->name, "a constant has both data and a segment", index);
    if (!data->data) return get_segment(r, value->name, index, bytes, &value->tensor.data);
    if (data->count != bytes) {
        corrupt(r, value->name, "the size of a constant's data does not match its shape", data->count);
        return ln_expected(r->error, "%llu bytes", (unsigned long long)bytes), LINNET_CORRUPT;
    }
    value->tensor.data = data->data;
    if (bytes == 0 || (uintptr_t)data->data % DATA_ALIGNMENT != 0) { /* writers should align, but need not */
        void *copy = ln_pool_alloc(r->pool, (size_t)bytes);
        if (!copy) return no_memory(r);
        if (bytes) memcpy(copy, data->data, (size_t)bytes);
        value->tensor.data = copy;
    }
    return LINNET_OK;
}

static linnet_status read_value(reader *r, const ln_fb_table *table, ln_value *value) {
    ln_tensor *t = &value->tensor;
    int64_t dtype = ln_fb_unsigned(table, TENSOR_DTYPE, 1, LINNET_NONE), rank = ln_fb_signed(table, TENSOR_RANK, 4, -1);
    int64_t index = ln_fb_signed(table, TENSOR_SEGMENT, 4, -1), variable = ln_fb_signed(table, TENSOR_VARIABLE, 4, -1);
    ln_fb_vector shape = ln_fb_get_vector(table, TENSOR_SHAPE, 8), data = ln_fb_get_vector(table, TENSOR_DATA, 1);
    ln_fb_vector dim_names = ln_fb_get_vector(table, TENSOR_DIM_NAMES, 4);
    linnet_status status;
    value->name = ln_fb_string(table, TENSOR_NAME);
    value->variable = -1;
    for (uint32_t i = 0; i < dim_names.count; i++) ln_fb_string_at(&dim_names, i);
    if ((status = read_shape(r, value->name, dtype, rank, &shape, t))) return status;
    if (dim_names.count && dim_names.count != shape.count)
        return corrupt(r, value->name, "the number of dimension names differs from the number of dimensions",
                       dim_names.count);
    if ((status = read_quant(r, value->name, table, TENSOR_QUANT, t))) return status;
    if (index < -1 || variable < -1 || variable >= r->model->n_variables)
        return corrupt(r, value->name, "a tensor refers to a segment or variable that does not exist",
                       index < -1 ? index : variable);
    if (data.data || index >= 0) {
        if (variable >= 0) return corrupt(r, value->name, "a tensor is both a constant and a variable", variable);
        return read_constant(r, value, index, &data);
    }
    if (variable >= 0) {
        const ln_variable *v = &r->model->variables[variable];
        if (v->tensor.dtype != t->dtype || v->tensor.rank != t->rank ||
            memcmp(v->tensor.dims, t->dims, sizeof *t->dims * (size_t)t->rank) != 0)
            return corrupt(r, value->name, "a tensor and its variable differ in shape or dtype", variable);
        if (!t->quant) t->quant = v->tensor.quant;
        value->variable = (int32_t)variable;
        value->bytes = v->bytes;
    }
    return LINNET_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

enum value_state { UNMADE = 0, AVAILABLE = 1 };

static linnet_status check_count(reader *r, const ln_op *op, const char *what, int64_t got, int least, int most) {
    if (got >= least && (most < 0 || got <= most)) return LINNET_OK;
    ln_fail(r->error, LINNET_CORRUPT, "a node of %s has the wrong number of %s", op->name, what);
    if (most < 0)
        ln_expected(r->error, "at least %d", least);
    else
        ln_expected(r->error, "%d to %d", least, most);
    return ln_got(r->error, "%lld", (long long)got), LINNET_CORRUPT;
}

static linnet_status check_callee(reader *r, int32_t function, const ln_op *op, int64_t callee, int64_t inputs,
                                  int64_t outputs) {
    const ln_function *f = &r->functions[callee];
    linnet_status status = check_count(r, op, "inputs for its function", inputs, f->n_inputs, f->n_inputs);
    if (status == LINNET_OK)
        status = check_count(r, op, "outputs for its function", outputs, f->n_outputs, f->n_outputs);
    r->expanded[function] += r->expanded[callee];
    if (r->depth[function] <= r->depth[callee]) r->depth[function] = r->depth[callee] + 1;
    return status;
}

/* Control flow: the numbers of operands must match the functions called. */
static linnet_status check_calls(reader *r, int32_t function, const ln_node *node) {
    int64_t callees[LN_MOST_CALLEES], inputs = node->n_inputs - node->op->min_inputs, outputs = node->n_outputs;
    const int n = ln_callees(node, callees);
    linnet_status status = LINNET_OK;
    if (node->op->id == LN_OP_WHILE) {
        const ln_while_attributes *a = node->attributes;
        int64_t values = node->n_inputs > 2 ? node->n_inputs - 2 : 0;
        if (a->carried < 0 || a->carried > values || a->carried > node->n_outputs) {
            ln_fail(r->error, LINNET_BAD_ATTRIBUTE, "while: `carried` is out of range");
            ln_expected(r->error, "0 to %lld", (long long)ln_min(values, node->n_outputs));
            return ln_got(r->error, "%lld", (long long)a->carried), LINNET_BAD_ATTRIBUTE;
        }
        inputs = values + 2; /* the counter and the condition are inputs, the condition is an output */
        ++outputs;
    }
    for (int c = 0; c < n && status == LINNET_OK; c++)
        status = check_callee(r, function, node->op, callees[c], inputs, outputs);
    return status;
}

static linnet_status check_map(reader *r, const ln_function *f, const ln_node *node) {
    const ln_tensor **operands =
        ln_pool_array(&r->temporary, (int64_t)node->n_inputs + node->n_outputs, sizeof *operands);
    if (!operands) return no_memory(r);
    for (int i = 0; i < node->n_inputs; i++) operands[i] = &f->values[node->inputs[i]].tensor;
    for (int i = 0; i < node->n_outputs; i++) operands[node->n_inputs + i] = &f->values[node->outputs[i]].tensor;
    return ln_verify_map(node->attributes, node->n_inputs, operands, node->n_outputs, operands + node->n_inputs,
                         &r->temporary, r->error);
}

static linnet_status read_node(reader *r, int32_t function, const ln_function *f, const ln_fb_table *table,
                               ln_node *node, uint8_t *state) {
    ln_fb_vector inputs = ln_fb_get_vector(table, LN_NODE_INPUTS, 4),
                 outputs = ln_fb_get_vector(table, LN_NODE_OUTPUTS, 4);
    linnet_status status;
    node->name = ln_fb_string(table, LN_NODE_NAME);
    node->source = ln_fb_string(table, LN_NODE_SOURCE);
    if (r->fb.problem) return problem(r);
    if (!(node->op = ln_read_op(table, r->error))) return LINNET_UNSUPPORTED;
    node->inputs = inputs.data;
    node->outputs = outputs.data;
    if ((status = check_count(r, node->op, "inputs", inputs.count, node->op->min_inputs, node->op->max_inputs)) ||
        (status = check_count(r, node->op, "outputs", outputs.count, node->op->min_outputs, node->op->max_outputs)))
        return status;
    node->n_inputs = (int32_t)inputs.count;
    node->n_outputs = (int32_t)outputs.count;
    for (int i = 0; i < node->n_inputs; i++) {
        int32_t v = node->inputs[i];
        if (v == -1 && ln_operand_bit(node->op->absent, i)) continue;
        if (v < 0 || v >= f->n_values)
            return corrupt_number(r, "", "a node reads a tensor that does not exist", "tensor ", v);
        if (state[v] != AVAILABLE)
            return corrupt_number(r, f->values[v].name, "a node reads a tensor before any node computes it", "tensor ",
                                  v);
    }
    if ((status = ln_read_attributes(r->pool, node->op, table, function, r->n_functions, &node->attributes, r->error)))
        return status;
    for (int i = 0; i < node->n_outputs; i++) {
        int32_t v = node->outputs[i];
        if (v < 0 || v >= f->n_values)
            return corrupt_number(r, "", "a node writes a tensor that does not exist", "tensor ", v);
        if (state[v] != UNMADE)
            return corrupt(r, f->values[v].name,
                           "a node writes an input, a constant, a variable or the output of another node", v);
        state[v] = AVAILABLE;
    }
    if (node->op->flags & LN_OP_WRITES) {
        int32_t variable = f->values[node->inputs[0]].variable;
        if (variable < 0)
            return corrupt(r, f->values[node->inputs[0]].name, "assign: the first operand is not a variable",
                           node->inputs[0]);
        if (r->assigned[variable] == function + 1)
            return corrupt(r, r->model->variables[variable].name, "a variable is assigned twice in one function",
                           variable);
        r->assigned[variable] = function + 1;
    }
    if (node->op->family == LN_FAMILY_MAP && (status = check_map(r, f, node))) return status;
    if ((node->op->flags & LN_OP_REGISTERED) && (status = ln_user_resolve(r->model, node, f->values, r->error)))
        return status;
    return check_calls(r, function, node);
}

static linnet_status read_nodes(reader *r, int32_t index, const ln_fb_vector *tables, ln_function *f, uint8_t *state) {
    ln_node *nodes = ln_pool_array(r->pool, tables->count, sizeof *nodes);
    if (!nodes) return no_memory(r);
    f->nodes = nodes;
    f->n_nodes = (int32_t)tables->count;
    r->expanded[index] = tables->count;
    for (int32_t i = 0; i < f->n_nodes; i++) {
        ln_fb_table table = ln_fb_table_at(tables, (uint32_t)i);
        linnet_status status = read_node(r, index, f, &table, &nodes[i], state);
        if (status) {
            ln_at_node(r->error, i,
                       nodes[i].name && nodes[i].name[0] ? nodes[i].name
                       : nodes[i].op                     ? nodes[i].op->name
                                                         : "?");
            return status;
        }
        if (r->expanded[index] > most_nodes || r->depth[index] > DEEPEST_CALL) {
            ln_fail(r->error, LINNET_TOO_LARGE,
                    "nested function calls have too many levels or expand to too many nodes");
            ln_at_tensor(r->error, f->name);
            ln_expected(r->error, "at most %d levels and %llu nodes after expansion", DEEPEST_CALL,
                        (unsigned long long)most_nodes);
            return LINNET_TOO_LARGE;
        }
    }
    return LINNET_OK;
}

/* Names of open dimensions. read_value has checked that there is one name per dimension. */
static linnet_status read_dim_names(reader *r, const ln_fb_vector *tensors, int32_t index, ln_value *value) {
    ln_fb_table table = ln_fb_table_at(tensors, (uint32_t)index);
    ln_fb_vector given = ln_fb_get_vector(&table, TENSOR_DIM_NAMES, 4);
    if (given.count == 0) return LINNET_OK;
    const char **names = ln_pool_array(r->pool, given.count, sizeof *names);
    if (!names) return no_memory(r);
    for (uint32_t i = 0; i < given.count; i++) names[i] = ln_fb_string_at(&given, i);
    value->dim_names = names;
    return problem(r);
}

static linnet_status read_function(reader *r, int32_t index, const ln_fb_table *table) {
    ln_function *f = &r->functions[index];
    ln_fb_vector tensors = ln_fb_get_vector(table, FUNCTION_TENSORS, 4),
                 nodes = ln_fb_get_vector(table, FUNCTION_NODES, 4);
    ln_fb_vector inputs = ln_fb_get_vector(table, FUNCTION_INPUTS, 4),
                 outputs = ln_fb_get_vector(table, FUNCTION_OUTPUTS, 4);
    ln_value *values;
    uint8_t *state;
    linnet_status status;
    f->name = ln_fb_string(table, FUNCTION_NAME);
    if (r->fb.problem) return problem(r);
    values = ln_pool_array(r->pool, tensors.count, sizeof *values);
    state = ln_pool_array(&r->temporary, tensors.count, 1);
    if (!values || !state) return no_memory(r);
    f->values = values;
    f->n_values = (int32_t)tensors.count;
    for (int32_t i = 0; i < f->n_values; i++) {
        ln_fb_table tensor = ln_fb_table_at(&tensors, (uint32_t)i);
        if ((status = read_value(r, &tensor, &values[i]))) return status;
        state[i] = values[i].tensor.data || values[i].variable >= 0 ? AVAILABLE : UNMADE;
    }
    f->inputs = inputs.data;
    f->outputs = outputs.data;
    f->n_inputs = (int32_t)inputs.count;
    f->n_outputs = (int32_t)outputs.count;
    for (int32_t i = 0; i < f->n_inputs; i++) {
        int32_t v = f->inputs[i];
        if (v < 0 || v >= f->n_values) return corrupt(r, f->name, "a function lists an input that does not exist", v);
        if (state[v] != UNMADE)
            return corrupt(r, values[v].name, "a function input is listed twice, or is a constant or variable", v);
        state[v] = AVAILABLE;
        if ((status = read_dim_names(r, &tensors, v, &values[v]))) return status;
    }
    if ((status = read_nodes(r, index, &nodes, f, state))) return status;
    for (int32_t i = 0; i < f->n_outputs; i++) {
        int32_t v = f->outputs[i];
        if (v < 0 || v >= f->n_values) return corrupt(r, f->name, "a function lists an output that does not exist", v);
        if (state[v] != AVAILABLE) return corrupt(r, values[v].name, "no node computes this output of a function", v);
    }
    return LINNET_OK;
}

static linnet_status read_functions(reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_FUNCTIONS, 4);
    r->functions = ln_pool_array(r->pool, tables.count, sizeof *r->functions);
    r->expanded = ln_pool_array(&r->temporary, tables.count, sizeof *r->expanded);
    r->depth = ln_pool_array(&r->temporary, tables.count, sizeof *r->depth);
    r->assigned = ln_pool_array(&r->temporary, r->model->n_variables, sizeof *r->assigned);
    if (!r->functions || !r->expanded || !r->depth || !r->assigned) return no_memory(r);
    r->n_functions = (int32_t)tables.count;
    for (int32_t i = r->n_functions; i-- > 0;) {
        ln_fb_table table = ln_fb_table_at(&tables, (uint32_t)i);
        linnet_status status = r->fb.problem ? problem(r) : read_function(r, i, &table);
        if (status) return status;
    }
    r->model->functions = r->functions;
    r->model->n_functions = r->n_functions;
    return problem(r);
}

/* ---- segments, signatures and metadata --------------------------------------------------------------------------- */

static linnet_status read_segments(reader *r, const ln_fb_table *root, uint64_t structure_size) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_SEGMENTS, 4);
    ln_segment *segments = ln_pool_array(r->pool, tables.count, sizeof *segments);
    uint64_t left = r->model->file_size; /* segments do not overlap, so that reading all of them reads the file once */
    if (!segments) return no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_fb_table table = ln_fb_table_at(&tables, i);
        uint64_t offset = (uint64_t)ln_fb_unsigned(&table, SEGMENT_OFFSET, 8, 0);
        uint64_t size = (uint64_t)ln_fb_unsigned(&table, SEGMENT_SIZE, 8, 0);
        segments[i].digest_kind = (int32_t)ln_fb_unsigned(&table, SEGMENT_DIGEST_KIND, 1, LN_DIGEST_NONE);
        segments[i].digest = (uint64_t)ln_fb_unsigned(&table, SEGMENT_DIGEST, 8, 0);
        if (r->fb.problem) return problem(r);
        if (offset % SEGMENT_ALIGNMENT != 0)
            return corrupt_number(r, "", "a segment is not aligned to 64 bytes", "offset ", (int64_t)offset);
        if (offset < HEADER_SIZE + structure_size || offset > r->model->file_size ||
            size > r->model->file_size - offset || size > left)
            return corrupt_number(r, "", "a segment is outside the file or overlaps others", "segment ", i);
        left -= size;
        segments[i].data = (const char *)r->model->file + offset;
        segments[i].size = size;
    }
    r->model->segments = segments;
    r->model->n_segments = (int32_t)tables.count;
    return problem(r);
}

static linnet_status read_variables(reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_VARIABLES, 4);
    ln_variable *variables = ln_pool_array(r->pool, tables.count, sizeof *variables);
    const char **names = ln_pool_array(&r->temporary, tables.count, sizeof *names);
    const uint64_t limit = (uint64_t)1 << 62; /* limit of their sum, which a store computes */
    uint64_t total = 0;
    linnet_status status;
    if (!variables || !names) return no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_variable *v = &variables[i];
        ln_fb_table table = ln_fb_table_at(&tables, i);
        int64_t dtype = ln_fb_unsigned(&table, VARIABLE_DTYPE, 1, LINNET_NONE);
        int64_t index = ln_fb_signed(&table, VARIABLE_SEGMENT, 4, -1);
        ln_fb_vector shape = ln_fb_get_vector(&table, VARIABLE_SHAPE, 8);
        names[i] = v->name = ln_fb_string(&table, VARIABLE_NAME);
        if ((status = read_shape(r, v->name, dtype, shape.count, &shape, &v->tensor)) ||
            (status = read_quant(r, v->name, &table, VARIABLE_QUANT, &v->tensor)))
            return status;
        if (!ln_bytes(&v->tensor, &v->bytes))
            return corrupt_number(r, v->name, "a variable has an unknown dimension or rank", "rank ", v->tensor.rank);
        if (index != -1 && (status = get_segment(r, v->name, index, v->bytes, &v->tensor.data))) return status;
        total += ln_round_up(v->bytes, LN_ALIGNMENT);
        if (total > limit) {
            ln_fail(r->error, LINNET_TOO_LARGE, "the total size of the variables is too large");
            ln_at_tensor(r->error, v->name);
            return ln_expected(r->error, "at most 2^62 bytes"), LINNET_TOO_LARGE;
        }
    }
    r->model->variables = variables;
    r->model->n_variables = (int32_t)tables.count;
    return r->fb.problem ? problem(r) : check_names(r, names, tables.count, "variables");
}

static linnet_status read_name_list(reader *r, const ln_fb_table *table, int slot, int32_t count, const char *kind,
                                    const char *signature, const char *const **out) {
    ln_fb_vector strings = ln_fb_get_vector(table, slot, 4);
    const char **names;
    if (r->fb.problem) return problem(r);
    if (strings.count != (uint32_t)count) {
        ln_fail(r->error, LINNET_CORRUPT, "a signature and its function have different numbers of %s", kind);
        ln_at_tensor(r->error, signature);
        ln_expected(r->error, "%d", (int)count);
        return ln_got(r->error, "%u", (unsigned)strings.count), LINNET_CORRUPT;
    }
    names = ln_pool_array(r->pool, count, sizeof *names);
    if (!names) return no_memory(r);
    for (int32_t i = 0; i < count; i++) names[i] = ln_fb_string_at(&strings, (uint32_t)i);
    *out = names;
    return r->fb.problem ? problem(r) : check_names(r, names, count, kind);
}

static linnet_status read_signatures(reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_SIGNATURES, 4);
    ln_signature *signatures = ln_pool_array(r->pool, tables.count, sizeof *signatures);
    const char **names = ln_pool_array(&r->temporary, tables.count, sizeof *names);
    linnet_status status;
    if (!signatures || !names) return no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_signature *s = &signatures[i];
        ln_fb_table table = ln_fb_table_at(&tables, i);
        int64_t function = ln_fb_signed(&table, SIGNATURE_FUNCTION, 4, 0);
        const ln_function *f;
        names[i] = s->name = ln_fb_string(&table, SIGNATURE_NAME);
        if (r->fb.problem) return problem(r);
        if (function < 0 || function >= r->n_functions)
            return corrupt(r, s->name, "a signature refers to a function that does not exist", function);
        s->function = (int32_t)function;
        f = &r->functions[function];
        if ((status = read_name_list(r, &table, SIGNATURE_INPUTS, f->n_inputs, "inputs", s->name, &s->inputs)) ||
            (status = read_name_list(r, &table, SIGNATURE_OUTPUTS, f->n_outputs, "outputs", s->name, &s->outputs)))
            return status;
    }
    r->model->signatures = signatures;
    r->model->n_signatures = (int32_t)tables.count;
    return r->fb.problem ? problem(r) : check_names(r, names, tables.count, "signatures");
}

/* The metadata, with the producer as its last entry. Extras of kinds that this version does not know are skipped. */
static linnet_status read_metadata(reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_METADATA, 4), extras = ln_fb_get_vector(root, MODEL_EXTRAS, 4);
    const char **pairs = ln_pool_array(r->pool, 2 * ((int64_t)tables.count + 1), sizeof *pairs);
    const char *producer = ln_fb_string(root, MODEL_PRODUCER);
    if (!pairs) return no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_fb_table table = ln_fb_table_at(&tables, i);
        pairs[2 * i] = ln_fb_string(&table, KEY_VALUE_KEY);
        pairs[2 * i + 1] = ln_fb_string(&table, KEY_VALUE_VALUE);
    }
    pairs[2 * (size_t)tables.count] = "producer"; /* last, so that an entry of the file's metadata is found first */
    pairs[2 * (size_t)tables.count + 1] = producer;
    for (uint32_t i = 0; i < extras.count; i++) {
        ln_fb_table table = ln_fb_table_at(&extras, i);
        const char *target = ln_fb_string(&table, EXTRA_TARGET);
        int64_t index = ln_fb_signed(&table, EXTRA_SEGMENT, 4, -1);
        if (index < -1 || index >= r->model->n_segments)
            return corrupt(r, target, "an extra refers to a segment that does not exist", index);
    }
    r->model->metadata = pairs;
    r->model->n_metadata = (int32_t)tables.count + (producer[0] != 0);
    return problem(r);
}

linnet_status ln_read_structure(linnet_model *model, const void *structure, size_t size, linnet_error *error) {
    reader r;
    ln_fb_table root;
    linnet_status status;
    memset(&r, 0, sizeof r);
    r.model = model;
    r.pool = &model->pool;
    r.error = error;
    ln_pool_init(&r.temporary, &model->memory);
    root = ln_fb_root(&r.fb, structure, size, "LNT1");
    status = problem(&r);
    if (status == LINNET_OK && ((status = read_segments(&r, &root, size)) || (status = read_variables(&r, &root)) ||
                                (status = read_functions(&r, &root)) || (status = read_signatures(&r, &root))))
        ; /* the error record is filled */
    else if (status == LINNET_OK)
        status = read_metadata(&r, &root);
    ln_pool_free(&r.temporary);
    return status;
}
