/* structure_nodes.c - reads and verifies functions and their nodes. Functions are read from the last to the first,
 * because a function may only call later ones. */
#include "model/structure_nodes.h"

#include "model/attributes.h"
#include "model/structure_errors.h"
#include "model/structure_reader.h"
#include "model/structure_values.h"
#include "model/user.h"
#include "model/verify_map.h"
#include "generated/op_table.h"

/* Slots of the table Function in schema/linnet.fbs. structure_reader.h has the slots of Node. */
enum { FUNCTION_NAME, FUNCTION_TENSORS, FUNCTION_NODES, FUNCTION_INPUTS, FUNCTION_OUTPUTS };

/* Limit on nodes after all calls are expanded, because nested calls multiply them. */
static const uint64_t most_nodes = 1 << 24;
enum { DEEPEST_CALL = 64 };

enum value_state { UNMADE = 0, AVAILABLE = 1 };

static linnet_status check_count(ln_reader *r, const ln_op *op, const char *what, int64_t got, int least, int most) {
    if (got >= least && (most < 0 || got <= most)) return LINNET_OK;
    ln_fail(r->error, LINNET_CORRUPT, "a node of %s has the wrong number of %s", op->name, what);
    if (most < 0)
        ln_expected(r->error, "at least %d", least);
    else
        ln_expected(r->error, "%d to %d", least, most);
    return ln_got(r->error, "%lld", (long long)got), LINNET_CORRUPT;
}

static linnet_status check_callee(ln_reader *r, int32_t function, const ln_op *op, int64_t callee, int64_t inputs,
                                  int64_t outputs) {
    const ln_function *f = &r->functions[callee];
    linnet_status status = check_count(r, op, "inputs for its function", inputs, f->n_inputs, f->n_inputs);
    if (status == LINNET_OK)
        status = check_count(r, op, "outputs for its function", outputs, f->n_outputs, f->n_outputs);
    r->expanded[function] += r->expanded[callee];
    if (r->depth[function] <= r->depth[callee]) r->depth[function] = r->depth[callee] + 1;
    return status;
}

/* Checks a node of control flow: its numbers of inputs and outputs must match the functions that it calls. */
static linnet_status check_calls(ln_reader *r, int32_t function, const ln_node *node) {
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

static linnet_status check_map(ln_reader *r, const ln_function *f, const ln_node *node) {
    const int n_in = node->n_inputs, n = n_in + node->n_outputs;
    ln_pool own; /* freed for each node, because a model may have thousands of maps */
    ln_pool_init(&own, r->temporary.memory);
    ln_tensor *operands = ln_pool_array(&own, n, sizeof *operands);
    linnet_status status = operands == NULL ? ln_reader_no_memory(r) : LINNET_OK;
    for (int i = 0; operands != NULL && i < n; i++)
        ln_declared(&f->values[i < n_in ? node->inputs[i] : node->outputs[i - n_in]], &operands[i]);
    if (operands != NULL)
        status = ln_verify_map(node->attributes, n_in, operands, node->n_outputs, operands + n_in, &own, r->error);
    ln_pool_free(&own);
    return status;
}

static linnet_status read_node(ln_reader *r, int32_t function, const ln_function *f, const ln_fb_table *table,
                               ln_node *node, uint8_t *state) {
    ln_fb_vector inputs = ln_fb_get_vector(table, LN_NODE_INPUTS, 4),
                 outputs = ln_fb_get_vector(table, LN_NODE_OUTPUTS, 4);
    linnet_status status;
    node->name = ln_fb_string(table, LN_NODE_NAME);
    node->source = ln_fb_string(table, LN_NODE_SOURCE);
    node->placement = ln_fb_string(table, LN_NODE_PLACEMENT);
    if (r->fb.problem) return ln_reader_problem(r);
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
            return ln_reader_corrupt_number(r, "", "a node reads a tensor that does not exist", "tensor ", v);
        if (state[v] != AVAILABLE)
            return ln_reader_corrupt_number(r, f->values[v].name, "a node reads a tensor before any node computes it",
                                            "tensor ", v);
    }
    if ((status = ln_read_attributes(r->pool, node->op, table, function, r->n_functions, &node->attributes, r->error)))
        return status;
    for (int i = 0; i < node->n_outputs; i++) {
        int32_t v = node->outputs[i];
        if (v < 0 || v >= f->n_values)
            return ln_reader_corrupt_number(r, "", "a node writes a tensor that does not exist", "tensor ", v);
        if (state[v] != UNMADE)
            return ln_reader_corrupt(r, f->values[v].name,
                                     "a node writes an input, a constant, a variable or the output of another node", v);
        state[v] = AVAILABLE;
    }
    if (node->op->flags & LN_OP_WRITES) {
        int32_t variable = f->values[node->inputs[0]].variable;
        if (variable < 0)
            return ln_reader_corrupt(r, f->values[node->inputs[0]].name, "assign: the first operand is not a variable",
                                     node->inputs[0]);
        if (r->assigned[variable] == function + 1)
            return ln_reader_corrupt(r, r->model->variables[variable].name,
                                     "a variable is assigned twice in one function", variable);
        r->assigned[variable] = function + 1;
    }
    if (node->op->family == LN_FAMILY_MAP && (status = check_map(r, f, node))) return status;
    if ((node->op->flags & LN_OP_REGISTERED) && (status = ln_user_resolve(r->model, node, f->values, r->error)))
        return status;
    return check_calls(r, function, node);
}

static linnet_status read_nodes(ln_reader *r, int32_t index, const ln_fb_vector *tables, ln_function *f,
                                uint8_t *state) {
    ln_node *nodes = ln_pool_array(r->pool, tables->count, sizeof *nodes);
    if (!nodes) return ln_reader_no_memory(r);
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

static linnet_status read_function(ln_reader *r, int32_t index, const ln_fb_table *table) {
    ln_function *f = &r->functions[index];
    ln_fb_vector tensors = ln_fb_get_vector(table, FUNCTION_TENSORS, 4),
                 nodes = ln_fb_get_vector(table, FUNCTION_NODES, 4);
    ln_fb_vector inputs = ln_fb_get_vector(table, FUNCTION_INPUTS, 4),
                 outputs = ln_fb_get_vector(table, FUNCTION_OUTPUTS, 4);
    ln_value *values;
    uint8_t *state;
    linnet_status status;
    f->name = ln_fb_string(table, FUNCTION_NAME);
    if (r->fb.problem) return ln_reader_problem(r);
    values = ln_pool_array(r->pool, tensors.count, sizeof *values);
    state = ln_pool_array(&r->temporary, tensors.count, 1);
    if (!values || !state) return ln_reader_no_memory(r);
    f->values = values;
    f->n_values = (int32_t)tensors.count;
    for (int32_t i = 0; i < f->n_values; i++) {
        ln_fb_table tensor = ln_fb_table_at(&tensors, (uint32_t)i);
        if ((status = ln_read_value(r, &tensor, &values[i]))) return status;
        state[i] = values[i].data || values[i].variable >= 0 ? AVAILABLE : UNMADE;
    }
    f->inputs = inputs.data;
    f->outputs = outputs.data;
    f->n_inputs = (int32_t)inputs.count;
    f->n_outputs = (int32_t)outputs.count;
    for (int32_t i = 0; i < f->n_inputs; i++) {
        int32_t v = f->inputs[i];
        if (v < 0 || v >= f->n_values)
            return ln_reader_corrupt(r, f->name, "a function lists an input that does not exist", v);
        if (state[v] != UNMADE)
            return ln_reader_corrupt(r, values[v].name,
                                     "a function input is listed twice, or is a constant or variable", v);
        state[v] = AVAILABLE;
        if ((status = ln_read_dim_names(r, &tensors, v, &values[v]))) return status;
    }
    if ((status = read_nodes(r, index, &nodes, f, state))) return status;
    for (int32_t i = 0; i < f->n_outputs; i++) {
        int32_t v = f->outputs[i];
        if (v < 0 || v >= f->n_values)
            return ln_reader_corrupt(r, f->name, "a function lists an output that does not exist", v);
        if (state[v] != AVAILABLE)
            return ln_reader_corrupt(r, values[v].name, "no node computes this output of a function", v);
    }
    return LINNET_OK;
}

linnet_status ln_read_functions(ln_reader *r, const ln_fb_vector *tables) {
    r->functions = ln_pool_array(r->pool, tables->count, sizeof *r->functions);
    r->expanded = ln_pool_array(&r->temporary, tables->count, sizeof *r->expanded);
    r->depth = ln_pool_array(&r->temporary, tables->count, sizeof *r->depth);
    r->assigned = ln_pool_array(&r->temporary, r->model->n_variables, sizeof *r->assigned);
    if (!r->functions || !r->expanded || !r->depth || !r->assigned) return ln_reader_no_memory(r);
    r->n_functions = (int32_t)tables->count;
    for (int32_t i = r->n_functions; i-- > 0;) {
        ln_fb_table table = ln_fb_table_at(tables, (uint32_t)i);
        linnet_status status = r->fb.problem ? ln_reader_problem(r) : read_function(r, i, &table);
        if (status) return status;
    }
    r->model->functions = r->functions;
    r->model->n_functions = r->n_functions;
    return ln_reader_problem(r);
}
