/* piece_tables.c - writes the tables of a piece (schema/linnet.fbs): functions with their tensors and nodes, segments,
 * and the signature. */
#include "remote/piece_tables.h"

#include "net/bytes.h"

#include <stdlib.h>
#include <string.h>

typedef enum attribute_type { LONG, BYTE, DOUBLE, LONGS, DOUBLES, FUNCTION } attribute_type;
typedef struct attribute {
    const char *op, *name;
    int slot, type; /* `name` NULL: the op itself, and `slot` is its number */
} attribute;
static const attribute attributes[] = {
#define LN_NODE_OP(op, id) {#op, NULL, id, 0},
#define LN_NODE_ATTRIBUTE(op, name, slot, type) {#op, #name, slot, type},
#include "generated/node_attributes.inc"
#undef LN_NODE_OP
#undef LN_NODE_ATTRIBUTE
    {NULL, NULL, 0, 0}};

/* Slots of the tables of schema/linnet.fbs. */
enum { QUANT_SCHEME, QUANT_BITS, QUANT_AXIS, QUANT_BLOCK, QUANT_SCALE, QUANT_ZERO };
enum { SEGMENT_OFFSET, SEGMENT_SIZE, SEGMENT_KIND, SEGMENT_DIGEST };
enum { TENSOR_NAME, TENSOR_DTYPE, TENSOR_RANK, TENSOR_SHAPE, TENSOR_QUANT = 5, TENSOR_SEGMENT, TENSOR_DATA };
enum { NODE_OP, NODE_INPUTS, NODE_OUTPUTS, NODE_UNION, NODE_ATTRIBUTES, NODE_NAME };
enum { FUNCTION_NAME, FUNCTION_TENSORS, FUNCTION_NODES, FUNCTION_INPUTS, FUNCTION_OUTPUTS };
enum { SIGNATURE_NAME, SIGNATURE_FUNCTION, SIGNATURE_INPUTS, SIGNATURE_OUTPUTS };
enum { MODEL_PRODUCER, MODEL_FUNCTIONS, MODEL_SIGNATURES, MODEL_SEGMENTS = 4 };

static const attribute *find_op(const char *name) {
    const attribute *at = attributes;
    while (at->op != NULL && (at->name != NULL || strcmp(at->op, name) != 0)) ++at;
    return at->op != NULL ? at : NULL;
}

bool ln_piece_has_op(const char *name) { return find_op(name) != NULL; }

static uint32_t longs(ln_flat *flat, const int64_t *numbers, int count) {
    unsigned char small[8 * 64], *bytes = count <= 64 ? small : malloc(8 * (size_t)count);
    if (bytes == NULL) {
        flat->failed = true;
        return 0;
    }
    for (int i = 0; i < count; i++) put64(bytes + 8 * i, (uint64_t)numbers[i]);
    const uint32_t at = ln_flat_vector(flat, bytes, (size_t)count, 8, 8);
    if (bytes != small) free(bytes);
    return at;
}

static uint32_t doubles(ln_flat *flat, const double *numbers, int count) {
    unsigned char small[8 * 64], *bytes = count <= 64 ? small : malloc(8 * (size_t)count);
    if (bytes == NULL) {
        flat->failed = true;
        return 0;
    }
    for (int i = 0; i < count; i++) put_f64(bytes + 8 * i, numbers[i]);
    const uint32_t at = ln_flat_vector(flat, bytes, (size_t)count, 8, 8);
    if (bytes != small) free(bytes);
    return at;
}

static uint32_t write_quantization(ln_flat *flat, const linnet_device_tensor *t) {
    if (t->scales == NULL) return 0;
    const uint32_t zero = t->zeros ? ln_flat_vector(flat, t->zeros, (size_t)t->quant_count, 4, 4) : 0;
    const uint32_t scale = ln_flat_vector(flat, t->scales, (size_t)t->quant_count, 4, 4);
    ln_flat_begin(flat);
    ln_flat_u8(flat, QUANT_SCHEME, (uint8_t)t->quant_scheme);
    ln_flat_u8(flat, QUANT_BITS, (uint8_t)t->bits);
    if (t->quant_axis >= 0) ln_flat_i32(flat, QUANT_AXIS, t->quant_axis);
    if (t->quant_block > 0) ln_flat_i32(flat, QUANT_BLOCK, t->quant_block);
    ln_flat_reference(flat, QUANT_SCALE, scale);
    ln_flat_reference(flat, QUANT_ZERO, zero);
    return ln_flat_end(flat);
}

static uint32_t write_tensor(ln_flat *flat, const ln_piece_value *v) {
    const linnet_device_tensor *t = &v->tensor;
    const bool inside = t->data != NULL && v->segment < 0;
    const uint32_t name = ln_flat_text(flat, t->name), quantization = write_quantization(flat, t),
                   shape = longs(flat, t->shape, t->rank),
                   data = inside ? ln_flat_vector(flat, t->data, (size_t)t->bytes, 1, 16) : 0;
    ln_flat_begin(flat);
    ln_flat_reference(flat, TENSOR_NAME, name);
    ln_flat_reference(flat, TENSOR_SHAPE, shape);
    ln_flat_reference(flat, TENSOR_QUANT, quantization);
    ln_flat_reference(flat, TENSOR_DATA, data);
    ln_flat_i32(flat, TENSOR_RANK, t->rank);
    if (v->segment >= 0) ln_flat_i32(flat, TENSOR_SEGMENT, (int32_t)v->segment);
    ln_flat_u8(flat, TENSOR_DTYPE, (uint8_t)t->dtype);
    return ln_flat_end(flat);
}

static uint32_t write_attributes(const linnet_host *host, ln_flat *flat, const ln_piece_node *node,
                                 const attribute *op) {
    const linnet_step *step = node->step;
    uint32_t lists[LN_FLAT_SLOTS] = {0};
    int count = 0, body = 0;
    for (const attribute *a = op + 1; a->name != NULL; ++a) {
        const int64_t *integers = a->type == LONGS ? host->step_integers(step, a->name, &count) : NULL;
        if (integers != NULL) lists[a->slot] = longs(flat, integers, count);
        const double *reals = a->type == DOUBLES ? host->step_floats(step, a->name, &count) : NULL;
        if (reals != NULL) lists[a->slot] = doubles(flat, reals, count);
    }
    ln_flat_begin(flat);
    for (const attribute *a = op + 1; a->name != NULL; ++a) {
        const int64_t *integer = a->type == LONG || a->type == BYTE ? host->step_integers(step, a->name, &count) : NULL;
        const double *real = a->type == DOUBLE ? host->step_floats(step, a->name, &count) : NULL;
        if (integer != NULL && count == 1 && a->type == LONG) ln_flat_i64(flat, a->slot, *integer);
        if (integer != NULL && count == 1 && a->type == BYTE) ln_flat_u8(flat, a->slot, (uint8_t)*integer);
        if (real != NULL && count == 1) ln_flat_f64(flat, a->slot, *real);
        if (a->type == FUNCTION) ln_flat_i32(flat, a->slot, node->functions[body++]); /* in the order of the bodies */
        ln_flat_reference(flat, a->slot, lists[a->slot]);
    }
    return ln_flat_end(flat);
}

static uint32_t write_node(const linnet_host *host, ln_flat *flat, const ln_piece_node *node, const int32_t *edges) {
    const attribute *op = find_op(host->step_op(node->step));
    const size_t inputs = (size_t)node->input_count, outputs = (size_t)node->output_count;
    const uint32_t name = ln_flat_text(flat, host->step_name(node->step)),
                   to = ln_flat_vector(flat, edges + inputs, outputs, 4, 4),
                   from = ln_flat_vector(flat, edges, inputs, 4, 4), table = write_attributes(host, flat, node, op);
    ln_flat_begin(flat);
    ln_flat_reference(flat, NODE_INPUTS, from);
    ln_flat_reference(flat, NODE_OUTPUTS, to);
    ln_flat_reference(flat, NODE_ATTRIBUTES, table);
    ln_flat_reference(flat, NODE_NAME, name);
    ln_flat_u16(flat, NODE_OP, (uint16_t)op->slot);
    ln_flat_u8(flat, NODE_UNION, (uint8_t)op->slot);
    return ln_flat_end(flat);
}

/* The names of the signature: a letter and a number. */
static uint32_t write_names(ln_flat *flat, uint32_t *positions, char letter, int count) {
    char text[16] = {letter};
    for (int i = 0; i < count; i++) {
        int digits = 1, rest = i;
        for (int n = i; n >= 10; n /= 10) ++digits;
        text[digits + 1] = 0;
        for (int at = digits; at > 0; --at, rest /= 10) text[at] = (char)('0' + rest % 10);
        positions[i] = ln_flat_text(flat, text);
    }
    return ln_flat_references(flat, positions, (size_t)count);
}

static uint32_t write_function(const linnet_host *host, ln_flat *flat, const ln_piece_function *f,
                               uint32_t *positions) {
    const int32_t *edges = f->edges;
    for (int i = 0; i < f->value_count; i++) positions[i] = write_tensor(flat, &f->values[i]);
    const uint32_t tensors = ln_flat_references(flat, positions, (size_t)f->value_count);
    for (int i = 0; i < f->node_count; i++) {
        positions[i] = write_node(host, flat, &f->nodes[i], edges);
        edges += f->nodes[i].input_count + f->nodes[i].output_count;
    }
    const uint32_t nodes = ln_flat_references(flat, positions, (size_t)f->node_count),
                   from = ln_flat_vector(flat, f->inputs, (size_t)f->input_count, 4, 4),
                   to = ln_flat_vector(flat, f->outputs, (size_t)f->output_count, 4, 4),
                   name = ln_flat_text(flat, f->body == NULL ? "piece" : "body");
    ln_flat_begin(flat);
    ln_flat_reference(flat, FUNCTION_NAME, name);
    ln_flat_reference(flat, FUNCTION_TENSORS, tensors);
    ln_flat_reference(flat, FUNCTION_NODES, nodes);
    ln_flat_reference(flat, FUNCTION_INPUTS, from);
    ln_flat_reference(flat, FUNCTION_OUTPUTS, to);
    return ln_flat_end(flat);
}

static uint32_t write_segments(const ln_piece_graph *g, ln_flat *flat, uint32_t *positions) {
    int n = 0;
    for (int k = 0; k < g->function_count; k++)
        for (int i = 0; i < g->functions[k].value_count; i++) {
            const ln_piece_value *v = &g->functions[k].values[i];
            if (v->segment < 0) continue;
            ln_flat_begin(flat);
            ln_flat_i64(flat, SEGMENT_OFFSET, (int64_t)v->offset);
            ln_flat_i64(flat, SEGMENT_SIZE, (int64_t)v->tensor.bytes);
            if (!g->sketch) ln_flat_i64(flat, SEGMENT_DIGEST, (int64_t)v->checksum);
            ln_flat_u8(flat, SEGMENT_KIND, 2);
            positions[n++] = ln_flat_end(flat);
        }
    return ln_flat_references(flat, positions, (size_t)n);
}

const unsigned char *ln_piece_write_tables(const ln_piece_graph *g, ln_flat *flat, size_t *size) {
    size_t most = (size_t)g->function_count;
    for (int k = 0; k < g->function_count; k++)
        most += (size_t)g->functions[k].value_count + (size_t)g->functions[k].node_count;
    uint32_t *positions = malloc(2 * most * sizeof *positions), *functions = positions + most;
    if (positions == NULL) return NULL;
    flat->used = 0;
    for (int k = 0; k < g->function_count; k++)
        functions[k] = write_function(g->host, flat, &g->functions[k], positions);
    const ln_piece_function *f = &g->functions[0];
    const uint32_t segments = write_segments(g, flat, positions),
                   from = write_names(flat, positions, 'x', f->input_count),
                   to = write_names(flat, positions, 'y', f->output_count), name = ln_flat_text(flat, "infer"),
                   producer = ln_flat_text(flat, "linnet");
    ln_flat_begin(flat);
    ln_flat_reference(flat, SIGNATURE_NAME, name);
    ln_flat_i32(flat, SIGNATURE_FUNCTION, 0);
    ln_flat_reference(flat, SIGNATURE_INPUTS, from);
    ln_flat_reference(flat, SIGNATURE_OUTPUTS, to);
    const uint32_t signature = ln_flat_end(flat), signatures = ln_flat_references(flat, &signature, 1),
                   all = ln_flat_references(flat, functions, (size_t)g->function_count);
    ln_flat_begin(flat);
    ln_flat_reference(flat, MODEL_PRODUCER, producer);
    ln_flat_reference(flat, MODEL_FUNCTIONS, all);
    ln_flat_reference(flat, MODEL_SIGNATURES, signatures);
    ln_flat_reference(flat, MODEL_SEGMENTS, segments);
    free(positions);
    return ln_flat_finish(flat, ln_flat_end(flat), "LNT1", size);
}
