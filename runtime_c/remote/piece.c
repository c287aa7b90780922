/* piece.c - writes the steps of a claim as a model: tables of tensors and nodes, and segments of constants.
 * The tables are written twice, because the offsets of segments, which are in them, depend on their size. */
#include "remote/piece.h"

#include "net/bytes.h"
#include "remote/flat.h"

#include "linnet_ext.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 64, SMALL = 512 }; /* bytes of a file's header, and of the largest constant inside the tables */

typedef enum attribute_type { LONG, BYTE, DOUBLE, LONGS, DOUBLES } attribute_type;
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

typedef struct value {
    linnet_device_tensor tensor;
    bool read;         /* by a step */
    int64_t segment;   /* of a constant: number of its segment; -1: none */
    uint64_t offset;   /* of the segment in the file */
    uint32_t checksum; /* CRC-32C of the segment */
} value;

typedef struct writer {
    const linnet_host *host;
    const linnet_work *work;
    ln_piece *piece;
    ln_flat flat;
    value *values;
    int32_t *edges; /* of all steps, inputs then outputs; -1: absent */
    int value_count, edge_count, segment_count;
    int32_t *inputs, *outputs; /* values */
    uint32_t *positions;       /* scratch */
    bool newer;                /* the file needs version 2 of the format */
    bool sketch;               /* spans are not known, and data is left out */
} writer;

static const attribute *find_op(const char *name) {
    const attribute *at = attributes;
    while (at->op != NULL && (at->name != NULL || strcmp(at->op, name) != 0)) ++at;
    return at->op != NULL ? at : NULL;
}

bool ln_piece_can(const linnet_host *host, const linnet_step *step) {
    return find_op(host->step_op(step)) != NULL && host->step_output_count(step) > 0;
}

void ln_piece_free(ln_piece *piece) {
    free(piece->bytes);
    free(piece->holes);
    free(piece->inputs);
    free(piece->outputs);
    *piece = (ln_piece){0};
}

/* ---- values and edges -------------------------------------------------------------------------------------------- */

/* Returns the number of the value, which is added if it is new; -1 for an absent operand. */
static int32_t value_of(writer *w, const linnet_device_tensor *tensor) {
    if (tensor->dtype == LINNET_NONE) return -1;
    for (int i = 0; i < w->value_count; i++)
        if (w->values[i].tensor.value == tensor->value) return i;
    value *v = &w->values[w->value_count];
    *v = (value){.tensor = *tensor, .segment = -1};
    if (tensor->data != NULL && tensor->bytes > SMALL && !w->sketch)
        v->checksum = linnet_crc32c(0, tensor->data, (size_t)tensor->bytes);
    if (tensor->dtype == LINNET_I4 || tensor->dtype == LINNET_U4 || tensor->quant_scheme == LINNET_QUANT_BLOCK)
        w->newer = true;
    return w->value_count++;
}

/* Makes each computed value that no step reads an output. */
static void find_ends(writer *w) {
    const int32_t *edges = w->edges;
    for (int i = 0; i < w->work->count; i++) {
        edges += w->host->step_input_count(w->work->steps[i]);
        for (int n = w->host->step_output_count(w->work->steps[i]); n > 0; n--, edges++)
            if (*edges >= 0 && !w->values[*edges].read) w->outputs[w->piece->output_count++] = *edges;
    }
}

static bool collect(writer *w) {
    size_t most = 1;
    for (int i = 0; i < w->work->count; i++)
        most += (size_t)(w->host->step_input_count(w->work->steps[i]) + w->host->step_output_count(w->work->steps[i]));
    w->values = malloc(most * sizeof *w->values);
    w->edges = malloc(most * sizeof *w->edges);
    w->inputs = malloc(most * sizeof *w->inputs);
    w->outputs = malloc(most * sizeof *w->outputs);
    w->positions = malloc(most * sizeof *w->positions);
    w->piece->inputs = malloc(most * sizeof *w->piece->inputs);
    w->piece->outputs = malloc(most * sizeof *w->piece->outputs);
    if (!w->values || !w->edges || !w->inputs || !w->outputs || !w->positions || !w->piece->inputs ||
        !w->piece->outputs)
        return false;
    for (int i = 0; i < w->work->count; i++) {
        const linnet_step *step = w->work->steps[i];
        linnet_device_tensor tensor;
        const int inputs = w->host->step_input_count(step), outputs = w->host->step_output_count(step);
        for (int n = 0; n < inputs; n++) {
            const int before = w->value_count;
            linnet_device_tensor_init(&tensor);
            if (w->host->step_get_input(step, n, &tensor) != LINNET_OK) return false;
            const int32_t v = w->edges[w->edge_count++] = value_of(w, &tensor);
            if (v >= 0) w->values[v].read = true;
            if (w->value_count == before || tensor.data != NULL) continue; /* known, or a constant */
            w->inputs[w->piece->input_count] = v;
            w->piece->inputs[w->piece->input_count++] = w->sketch ? (linnet_span){0} : w->work->inputs[i][n];
        }
        for (int n = 0; n < outputs; n++) {
            linnet_device_tensor_init(&tensor);
            if (w->host->step_get_output(step, n, &tensor) != LINNET_OK) return false;
            const int32_t v = w->edges[w->edge_count++] = value_of(w, &tensor);
            if (v < 0 || w->sketch || w->work->outputs[i][n].buffer == 0) continue;
            w->outputs[w->piece->output_count] = v;
            w->piece->outputs[w->piece->output_count++] = w->work->outputs[i][n];
        }
    }
    if (w->sketch) find_ends(w);
    return true;
}

static void place_segments(writer *w, uint64_t at) {
    w->segment_count = 0;
    for (int i = 0; i < w->value_count; i++) {
        value *v = &w->values[i];
        if (v->tensor.data == NULL || v->tensor.bytes <= SMALL) continue;
        const uint64_t alignment = v->tensor.bytes >= 4096 ? 256 : 64;
        v->segment = w->segment_count++;
        v->offset = at = (at + alignment - 1) / alignment * alignment;
        at += v->tensor.bytes;
    }
    w->piece->size = (size_t)((at + 63) / 64 * 64);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

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

static uint32_t write_tensor(ln_flat *flat, const value *v) {
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

static uint32_t write_attributes(const linnet_host *host, ln_flat *flat, const linnet_step *step, const attribute *op) {
    uint32_t lists[LN_FLAT_SLOTS] = {0};
    int count = 0;
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
        ln_flat_reference(flat, a->slot, lists[a->slot]);
    }
    return ln_flat_end(flat);
}

static uint32_t write_node(writer *w, const linnet_step *step, const int32_t *edges) {
    ln_flat *flat = &w->flat;
    const attribute *op = find_op(w->host->step_op(step));
    const size_t inputs = (size_t)w->host->step_input_count(step), outputs = (size_t)w->host->step_output_count(step);
    const uint32_t name = ln_flat_text(flat, w->host->step_name(step)),
                   to = ln_flat_vector(flat, edges + inputs, outputs, 4, 4),
                   from = ln_flat_vector(flat, edges, inputs, 4, 4), table = write_attributes(w->host, flat, step, op);
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
static uint32_t write_names(writer *w, char letter, int count) {
    char text[16] = {letter};
    for (int i = 0; i < count; i++) {
        int digits = 1, rest = i;
        for (int n = i; n >= 10; n /= 10) ++digits;
        text[digits + 1] = 0;
        for (int at = digits; at > 0; --at, rest /= 10) text[at] = (char)('0' + rest % 10);
        w->positions[i] = ln_flat_text(&w->flat, text);
    }
    return ln_flat_references(&w->flat, w->positions, (size_t)count);
}

static uint32_t write_function(writer *w) {
    ln_flat *flat = &w->flat;
    const int32_t *edges = w->edges;
    for (int i = 0; i < w->value_count; i++) w->positions[i] = write_tensor(flat, &w->values[i]);
    const uint32_t tensors = ln_flat_references(flat, w->positions, (size_t)w->value_count);
    for (int i = 0; i < w->work->count; i++) {
        const linnet_step *step = w->work->steps[i];
        w->positions[i] = write_node(w, step, edges);
        edges += w->host->step_input_count(step) + w->host->step_output_count(step);
    }
    const uint32_t nodes = ln_flat_references(flat, w->positions, (size_t)w->work->count),
                   from = ln_flat_vector(flat, w->inputs, (size_t)w->piece->input_count, 4, 4),
                   to = ln_flat_vector(flat, w->outputs, (size_t)w->piece->output_count, 4, 4),
                   name = ln_flat_text(flat, "piece");
    ln_flat_begin(flat);
    ln_flat_reference(flat, FUNCTION_NAME, name);
    ln_flat_reference(flat, FUNCTION_TENSORS, tensors);
    ln_flat_reference(flat, FUNCTION_NODES, nodes);
    ln_flat_reference(flat, FUNCTION_INPUTS, from);
    ln_flat_reference(flat, FUNCTION_OUTPUTS, to);
    return ln_flat_end(flat);
}

static uint32_t write_segments(writer *w) {
    for (int i = 0, n = 0; i < w->value_count; i++) {
        const value *v = &w->values[i];
        if (v->segment < 0) continue;
        ln_flat_begin(&w->flat);
        ln_flat_i64(&w->flat, SEGMENT_OFFSET, (int64_t)v->offset);
        ln_flat_i64(&w->flat, SEGMENT_SIZE, (int64_t)v->tensor.bytes);
        if (!w->sketch) ln_flat_i64(&w->flat, SEGMENT_DIGEST, (int64_t)v->checksum);
        ln_flat_u8(&w->flat, SEGMENT_KIND, 2);
        w->positions[n++] = ln_flat_end(&w->flat);
    }
    return ln_flat_references(&w->flat, w->positions, (size_t)w->segment_count);
}

static const unsigned char *write_tables(writer *w, size_t *size) {
    ln_flat *flat = &w->flat;
    flat->used = 0;
    const uint32_t function = write_function(w), segments = write_segments(w),
                   from = write_names(w, 'x', w->piece->input_count), to = write_names(w, 'y', w->piece->output_count),
                   name = ln_flat_text(flat, "infer"), producer = ln_flat_text(flat, "linnet");
    ln_flat_begin(flat);
    ln_flat_reference(flat, SIGNATURE_NAME, name);
    ln_flat_i32(flat, SIGNATURE_FUNCTION, 0);
    ln_flat_reference(flat, SIGNATURE_INPUTS, from);
    ln_flat_reference(flat, SIGNATURE_OUTPUTS, to);
    const uint32_t signature = ln_flat_end(flat), signatures = ln_flat_references(flat, &signature, 1),
                   functions = ln_flat_references(flat, &function, 1);
    ln_flat_begin(flat);
    ln_flat_reference(flat, MODEL_PRODUCER, producer);
    ln_flat_reference(flat, MODEL_FUNCTIONS, functions);
    ln_flat_reference(flat, MODEL_SIGNATURES, signatures);
    ln_flat_reference(flat, MODEL_SEGMENTS, segments);
    return ln_flat_finish(flat, ln_flat_end(flat), "LNT1", size);
}

/* The CRC-32 of zlib, which the header has (RFC 1952, section 8), four bits at a time. */
static uint32_t crc32_of(const unsigned char *data, size_t size) {
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 4 ^ table[(crc ^ data[i]) & 15];
        crc = crc >> 4 ^ table[(crc ^ data[i] >> 4) & 15];
    }
    return ~crc;
}

/* Large constants stay where they are, as holes of the file. */
static bool note_holes(writer *w) {
    ln_piece *piece = w->piece;
    piece->holes = malloc(((size_t)w->segment_count + 1) * sizeof *piece->holes);
    piece->rest = piece->size;
    for (int i = 0; piece->holes != NULL && i < w->value_count; i++) {
        const value *v = &w->values[i];
        if (v->segment < 0 || v->tensor.bytes < LN_REMOTE_HOLE || piece->hole_count == LN_REMOTE_HOLES) continue;
        piece->rest -= (size_t)v->tensor.bytes;
        piece->holes[piece->hole_count++] = (ln_piece_hole){
            .offset = v->offset, .bytes = v->tensor.bytes, .checksum = v->checksum, .data = v->tensor.data};
    }
    return piece->holes != NULL;
}

static bool assemble(writer *w, const unsigned char *tables, size_t size) {
    if (!w->sketch && !note_holes(w)) return false;
    unsigned char *out = w->piece->bytes = calloc(1, w->sketch ? HEADER + size : w->piece->rest);
    const ln_piece_hole *hole = w->piece->holes, *end = hole + w->piece->hole_count;
    uint64_t before = 0; /* bytes of the holes so far */
    if (out == NULL) return false;
    memcpy(out, "LINNET\r\n", 8);
    put32(out + 8, w->newer ? 2 : 1);
    put32(out + 12, w->newer ? 2 : 1);
    put64(out + 16, HEADER);
    put64(out + 24, size);
    put32(out + 32, crc32_of(tables, size));
    put64(out + 40, w->piece->size);
    memcpy(out + HEADER, tables, size);
    for (int i = 0; i < w->value_count; i++) {
        const value *v = &w->values[i];
        if (v->segment < 0 || w->sketch) continue;
        if (hole < end && hole->offset == v->offset)
            before += hole++->bytes;
        else
            memcpy(out + (v->offset - before), v->tensor.data, (size_t)v->tensor.bytes);
    }
    return true;
}

void ln_piece_digest(const ln_piece *piece, unsigned char digest[LN_SHA256]) {
    ln_sha256_state state = ln_sha256_begin();
    const unsigned char *rest = piece->bytes;
    uint64_t at = 0; /* in the file */
    for (int i = 0; i < piece->hole_count; i++) {
        const ln_piece_hole *hole = &piece->holes[i];
        ln_sha256_add(&state, rest, (size_t)(hole->offset - at));
        ln_sha256_add(&state, hole->data, (size_t)hole->bytes);
        rest += hole->offset - at;
        at = hole->offset + hole->bytes;
    }
    ln_sha256_add(&state, rest, (size_t)(piece->size - at));
    ln_sha256_end(&state, digest);
}

/* *size becomes the number of bytes of the header and the tables. */
static bool write(writer *w, size_t *size) {
    *w->piece = (ln_piece){0};
    bool done = collect(w);
    if (done) {
        place_segments(w, HEADER);
        done = write_tables(w, size) != NULL;
    }
    if (done) {
        place_segments(w, HEADER + *size);
        const unsigned char *tables = write_tables(w, size);
        done = tables != NULL && assemble(w, tables, *size);
    }
    *size += HEADER;
    ln_flat_free(&w->flat);
    free(w->values);
    free(w->edges);
    free(w->inputs);
    free(w->outputs);
    free(w->positions);
    return done;
}

bool ln_piece_write(const linnet_host *host, const linnet_work *work, ln_piece *piece) {
    size_t size = 0;
    return write(&(writer){.host = host, .work = work, .piece = piece}, &size);
}

bool ln_piece_sketch(const linnet_host *host, const linnet_step *const *steps, int count, ln_piece *piece,
                     size_t *size) {
    const linnet_work work = {.count = count, .steps = steps};
    *size = 0;
    return write(&(writer){.host = host, .work = &work, .piece = piece, .sketch = true}, size);
}
