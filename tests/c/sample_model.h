/* sample_model.h - builds a small .lnt file by hand: y = x + w through a map, where w is a segment, and a variable
 * `state`. Keeps the positions of its parts, so that a test can corrupt any of them. */
#ifndef SAMPLE_MODEL_H
#define SAMPLE_MODEL_H

#include "writer.h"

#include "generated/op_table.h"

typedef struct sample_model {
    writer w;
    size_t size, structure_end;
    written model, function, node, attributes, x, weight, y, state_read, variable, signature, segments[2], quant;
    size_t program, node_inputs, node_outputs, function_inputs, function_outputs, x_shape, weight_shape, quant_scale;
    size_t input_names;
} sample_model;

static inline written sample_tensor(writer *w, const char *name, int dtype, const int64_t *dims, int rank,
                                    size_t *shape) {
    written t = writer_table(w, "414404004"); /* name, dtype, rank, shape, -, quant, -, -, variable */
    size_t at;
    writer_point(w, t.slots[0], writer_string(w, name));
    writer_put(w, t.slots[1], (uint64_t)dtype, 1);
    writer_put(w, t.slots[2], (uint64_t)rank, 4);
    at = writer_vector(w, dims, (size_t)rank, 8, 8);
    writer_point(w, t.slots[3], at);
    if (shape) *shape = at;
    writer_put(w, t.slots[8], (uint64_t)-1, 4); /* variable */
    return t;
}

/* Updates the checksum after a change. */
static inline void sample_seal(sample_model *s) { writer_header(&s->w, s->structure_end, s->size); }

static inline void sample_make(sample_model *s) {
    static const int64_t dims[2] = {2, 3};
    static const int64_t program[] = {LN_MAP_LOAD, 1, 0, 0, 0, LN_MAP_LOAD,  1, 1, 0, 0,
                                      LN_MAP_ADD,  1, 0, 1, 0, LN_MAP_STORE, 1, 2, 0, 0};
    static const int64_t dtypes[] = {LINNET_F32};
    static const int32_t two[] = {0, 1}, zero[] = {0}, last[] = {2};
    static const float weight[6] = {1, 2, 3, 4, 5, 6}, state[2] = {0.5f, -0.25f};
    static const float scale[] = {0.5f};
    static const int64_t state_dims[] = {2};
    writer *w = &s->w;
    size_t functions, signatures, variables, segments, tensors, nodes, at;
    memset(s, 0, sizeof *s);
    writer_begin(w);
    s->model = writer_table(w, "44444");
    writer_point(w, 64, s->model.at);
    writer_point(w, s->model.slots[0], writer_string(w, "sample_model.h"));
    functions = writer_offsets(w, 1);
    writer_point(w, s->model.slots[1], functions);
    signatures = writer_offsets(w, 1);
    writer_point(w, s->model.slots[2], signatures);
    variables = writer_offsets(w, 1);
    writer_point(w, s->model.slots[3], variables);
    segments = writer_offsets(w, 2);
    writer_point(w, s->model.slots[4], segments);

    s->function = writer_table(w, "44444");
    writer_point(w, functions + 4, s->function.at);
    writer_point(w, s->function.slots[0], writer_string(w, "main"));
    tensors = writer_offsets(w, 4);
    writer_point(w, s->function.slots[1], tensors);
    nodes = writer_offsets(w, 1);
    writer_point(w, s->function.slots[2], nodes);
    s->function_inputs = writer_vector(w, zero, 1, 4, 4);
    writer_point(w, s->function.slots[3], s->function_inputs);
    s->function_outputs = writer_vector(w, last, 1, 4, 4);
    writer_point(w, s->function.slots[4], s->function_outputs);

    s->x = sample_tensor(w, "x", LINNET_F32, dims, 2, &s->x_shape);
    writer_point(w, tensors + 4, s->x.at);
    s->weight = writer_table(w, "414400400");
    writer_point(w, tensors + 8, s->weight.at);
    writer_point(w, s->weight.slots[0], writer_string(w, "weight"));
    writer_put(w, s->weight.slots[1], LINNET_F32, 1);
    writer_put(w, s->weight.slots[2], 2, 4);
    s->weight_shape = writer_vector(w, dims, 2, 8, 8);
    writer_point(w, s->weight.slots[3], s->weight_shape);
    writer_put(w, s->weight.slots[6], 0, 4);
    s->y = sample_tensor(w, "y", LINNET_F32, dims, 2, NULL);
    writer_point(w, tensors + 12, s->y.at);
    s->state_read = sample_tensor(w, "state", LINNET_F32, state_dims, 1, NULL);
    writer_point(w, tensors + 16, s->state_read.at);
    writer_put(w, s->state_read.slots[8], 0, 4);

    /* A quantization with scheme `none`, until a test changes it. x, y and state share it. */
    s->quant = writer_table(w, "114044");
    writer_put(w, s->quant.slots[1], 8, 1);
    s->quant_scale = writer_vector(w, scale, 1, 4, 4);
    writer_point(w, s->quant.slots[4], s->quant_scale);
    at = writer_vector(w, NULL, 0, 4, 4);
    writer_point(w, s->quant.slots[5], at);
    writer_point(w, s->x.slots[5], s->quant.at);
    writer_point(w, s->y.slots[5], s->quant.at);
    writer_point(w, s->state_read.slots[5], s->quant.at);

    s->node = writer_table(w, "2441444");
    writer_point(w, nodes + 4, s->node.at);
    writer_put(w, s->node.slots[0], LN_OP_MAP, 2);
    s->node_inputs = writer_vector(w, two, 2, 4, 4);
    writer_point(w, s->node.slots[1], s->node_inputs);
    s->node_outputs = writer_vector(w, last, 1, 4, 4);
    writer_point(w, s->node.slots[2], s->node_outputs);
    writer_put(w, s->node.slots[3], LN_OP_MAP, 1);
    writer_point(w, s->node.slots[5], writer_string(w, "add"));
    writer_point(w, s->node.slots[6], writer_string(w, "Add:add"));
    s->attributes = writer_table(w, "4004");
    writer_point(w, s->node.slots[4], s->attributes.at);
    s->program = writer_vector(w, program, 20, 8, 8);
    writer_point(w, s->attributes.slots[0], s->program);
    writer_point(w, s->attributes.slots[3], writer_vector(w, dtypes, 1, 8, 8));

    s->signature = writer_table(w, "4444");
    writer_point(w, signatures + 4, s->signature.at);
    writer_point(w, s->signature.slots[0], writer_string(w, "infer"));
    s->input_names = writer_offsets(w, 1);
    writer_point(w, s->signature.slots[2], s->input_names);
    writer_point(w, s->input_names + 4, writer_string(w, "x"));
    at = writer_offsets(w, 1);
    writer_point(w, s->signature.slots[3], at);
    writer_point(w, at + 4, writer_string(w, "y"));

    s->variable = writer_table(w, "41404");
    writer_point(w, variables + 4, s->variable.at);
    writer_point(w, s->variable.slots[0], writer_string(w, "state"));
    writer_put(w, s->variable.slots[1], LINNET_F32, 1);
    writer_point(w, s->variable.slots[2], writer_vector(w, state_dims, 1, 8, 8));
    writer_put(w, s->variable.slots[4], 1, 4);

    for (int i = 0; i < 2; i++) {
        s->segments[i] = writer_table(w, "8818");
        writer_point(w, segments + 4 + 4 * (size_t)i, s->segments[i].at);
    }
    s->structure_end = w->used;
    for (int i = 0; i < 2; i++) {
        const void *data = i ? (const void *)state : (const void *)weight;
        size_t size = i ? sizeof state : sizeof weight;
        at = writer_take(w, size, 64);
        memcpy(w->bytes + at, data, size);
        writer_put(w, s->segments[i].slots[0], at, 8);
        writer_put(w, s->segments[i].slots[1], size, 8);
        writer_put(w, s->segments[i].slots[2], 1, 1);
        writer_put(w, s->segments[i].slots[3], ln_crc32(0, data, size), 8);
    }
    s->size = w->used;
    sample_seal(s);
}

#endif
