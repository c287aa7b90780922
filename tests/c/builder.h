/* builder.h - builds models in memory, without a file, for tests of plans and sessions.
 * A builder must outlive its model. Values and nodes are added by index, in order. */
#ifndef BUILDER_H
#define BUILDER_H

#include "model/graph.h"
#include "generated/op_table.h"
#include "model/model.h"
#include "model/structure_values.h"

#include <stdlib.h>
#include <string.h>

enum { BUILDER_MOST = 48 };

typedef struct builder {
    ln_value values[BUILDER_MOST];
    int64_t dims[BUILDER_MOST][LN_MAX_RANK];
    ln_node nodes[BUILDER_MOST];
    ln_variable variables[8];
    int32_t slots[BUILDER_MOST * 8];
    int32_t n_slots, n_variables;
    int32_t inputs[8], outputs[8];
    const char *input_names[8], *output_names[8];
    ln_function function;
    ln_signature signature;
} builder;

static inline int32_t build_value(builder *b, const char *name, int dtype, int rank, const int64_t *dims,
                                  const void *data) {
    ln_value *v = &b->values[b->function.n_values];
    int64_t *own = b->dims[b->function.n_values];
    for (int d = 0; d < rank; ++d) own[d] = dims[d];
    *v = (ln_value){name, own, NULL, data, NULL, -1, (uint8_t)dtype, (int8_t)rank};
    return b->function.n_values++;
}

#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

static inline int32_t build_input(builder *b, const char *name, int dtype, int rank, const int64_t *dims) {
    const int32_t v = build_value(b, name, dtype, rank, dims, NULL);
    b->input_names[b->function.n_inputs] = name;
    b->inputs[b->function.n_inputs++] = v;
    return v;
}

static inline void build_output(builder *b, int32_t value) {
    b->output_names[b->function.n_outputs] = b->values[value].name;
    b->outputs[b->function.n_outputs++] = value;
}

static inline int32_t build_variable(builder *b, const char *name, int dtype, int rank, const int64_t *dims,
                                     const void *data) {
    const int32_t v = build_value(b, name, dtype, rank, dims, NULL);
    b->values[v].variable = b->n_variables;
    ln_variable *variable = &b->variables[b->n_variables++];
    variable->name = name;
    ln_declared(&b->values[v], &variable->tensor);
    variable->tensor.data = data;
    ln_bytes(&variable->tensor, &variable->bytes);
    return v;
}

/* Adds a node with one output of unknown shape and returns the output. `inputs` ends with -2. */
static inline int32_t build_node(builder *b, int op, const void *attributes, const char *name, int dtype,
                                 const int32_t *inputs) {
    ln_node *node = &b->nodes[b->function.n_nodes++];
    node->op = &ln_ops[op];
    node->attributes = attributes;
    node->name = name;
    node->source = "";
    node->inputs = b->slots + b->n_slots;
    for (; inputs[node->n_inputs] != -2; ++node->n_inputs) b->slots[b->n_slots++] = inputs[node->n_inputs];
    const int32_t out = build_value(b, name, dtype, -1, NULL, NULL);
    node->outputs = b->slots + b->n_slots;
    b->slots[b->n_slots++] = out;
    node->n_outputs = 1;
    return out;
}

#define NODE(b, op, attributes, name, dtype, ...)                                                                      \
    build_node((b), (op), (attributes), (name), (dtype), (const int32_t[]){__VA_ARGS__, -2})

/* Returns the model with one signature, "infer", or NULL if out of memory. */
static inline linnet_model *build_model(builder *b, const linnet_allocator *allocator) {
    linnet_model *model;
    if (ln_model_new(allocator, &model, NULL) != LINNET_OK) return NULL;
    b->function.name = "main";
    b->function.values = b->values;
    b->function.nodes = b->nodes;
    b->function.inputs = b->inputs;
    b->function.outputs = b->outputs;
    b->signature = (ln_signature){.name = "infer", .function = 0, .inputs = b->input_names, .outputs = b->output_names};
    model->functions = &b->function;
    model->n_functions = 1;
    model->signatures = &b->signature;
    model->n_signatures = 1;
    model->variables = b->variables;
    model->n_variables = b->n_variables;
    model->file_kind = LN_FILE_BORROWED;
    return model;
}

/* Map programs that the tests use. */
static const int64_t build_relu_program[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_CONST, LINNET_F32, 0, 0, 0,
                                             LN_MAP_MAX,  LINNET_F32, 0, 1, 0, LN_MAP_STORE, LINNET_F32, 2, 0, 0};
static const int64_t build_add_program[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_LOAD,  LINNET_F32, 1, 0, 0,
                                            LN_MAP_ADD,  LINNET_F32, 0, 1, 0, LN_MAP_STORE, LINNET_F32, 2, 0, 0};
static const double build_zero[] = {0.0};
static const int64_t build_f32[] = {LINNET_F32};
static const ln_map_attributes build_relu = {
    .program = {build_relu_program, 20}, .floats = {build_zero, 1}, .dtypes = {build_f32, 1}};
static const ln_map_attributes build_add = {.program = {build_add_program, 20}, .dtypes = {build_f32, 1}};

/* An allocator that counts its calls and bytes, and can fail at its n-th call. */
typedef struct counting {
    size_t live, most, calls, fail_at; /* fail_at 0: never */
} counting;

static inline void *counting_alloc(void *context, size_t size, size_t alignment) {
    counting *c = context;
    if (++c->calls == c->fail_at) return NULL;
    c->live += size;
    if (c->live > c->most) c->most = c->live;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static inline void counting_free(void *context, void *pointer, size_t size) {
    counting *c = context;
    c->live -= size;
    free(pointer);
}

static inline linnet_allocator counting_allocator(counting *c) {
    return (linnet_allocator){c, counting_alloc, counting_free};
}

#endif
