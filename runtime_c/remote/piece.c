/* piece.c - writes the steps of a claim as a model: tables of functions (piece_tables.c), and segments of constants.
 * The tables are written twice, because the offsets of segments, which are in them, depend on their size. */
#include "remote/piece.h"

#include "net/bytes.h"
#include "remote/piece_graph.h"
#include "remote/piece_tables.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 64 }; /* bytes of a file's header */

bool ln_piece_can(const linnet_host *host, const linnet_step *step) {
    const linnet_body *body;
    const linnet_step *inner;
    bool can = ln_piece_has_op(host->step_op(step)) && host->step_output_count(step) > 0;
    for (int k = 0; can && k < 2 && (body = host->step_body(step, k)) != NULL; k++)
        for (int i = 0; can && (inner = host->body_step(body, i)) != NULL; i++) can = ln_piece_can(host, inner);
    return can;
}

void ln_piece_free(ln_piece *piece) {
    free(piece->bytes);
    free(piece->holes);
    free(piece->inputs);
    free(piece->outputs);
    *piece = (ln_piece){0};
}

/* Gives each large constant a segment. Returns the number of segments. */
static int place_segments(ln_piece_graph *g, uint64_t at, ln_piece *piece) {
    int count = 0;
    for (int k = 0; k < g->function_count; k++)
        for (int i = 0; i < g->functions[k].value_count; i++) {
            ln_piece_value *v = &g->functions[k].values[i];
            if (v->tensor.data == NULL || v->tensor.bytes <= LN_PIECE_SMALL) continue;
            const uint64_t alignment = v->tensor.bytes >= 4096 ? 256 : 64;
            v->segment = count++;
            v->offset = at = (at + alignment - 1) / alignment * alignment;
            at += v->tensor.bytes;
        }
    piece->size = (size_t)((at + 63) / 64 * 64);
    return count;
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
static bool note_holes(const ln_piece_graph *g, int segments, ln_piece *piece) {
    piece->holes = malloc(((size_t)segments + 1) * sizeof *piece->holes);
    piece->rest = piece->size;
    for (int k = 0; piece->holes != NULL && k < g->function_count; k++)
        for (int i = 0; i < g->functions[k].value_count; i++) {
            const ln_piece_value *v = &g->functions[k].values[i];
            if (v->segment < 0 || v->tensor.bytes < LN_REMOTE_HOLE || piece->hole_count == LN_REMOTE_HOLES) continue;
            piece->rest -= (size_t)v->tensor.bytes;
            piece->holes[piece->hole_count++] = (ln_piece_hole){
                .offset = v->offset, .bytes = v->tensor.bytes, .checksum = v->checksum, .data = v->tensor.data};
        }
    return piece->holes != NULL;
}

/* Copies the small constants to their places between the holes. */
static void copy_constants(const ln_piece_graph *g, const ln_piece *piece) {
    const ln_piece_hole *hole = piece->holes, *end = hole + piece->hole_count;
    uint64_t before = 0; /* bytes of the holes so far */
    for (int k = 0; k < g->function_count; k++)
        for (int i = 0; i < g->functions[k].value_count; i++) {
            const ln_piece_value *v = &g->functions[k].values[i];
            if (v->segment < 0) continue;
            if (hole < end && hole->offset == v->offset)
                before += hole++->bytes;
            else
                memcpy(piece->bytes + (v->offset - before), v->tensor.data, (size_t)v->tensor.bytes);
        }
}

static bool assemble(const ln_piece_graph *g, const unsigned char *tables, size_t size, ln_piece *piece) {
    unsigned char *out = piece->bytes = calloc(1, g->sketch ? HEADER + size : piece->rest);
    if (out == NULL) return false;
    memcpy(out, "LINNET\r\n", 8);
    put32(out + 8, g->newer ? 2 : 1);
    put32(out + 12, g->newer ? 2 : 1);
    put64(out + 16, HEADER);
    put64(out + 24, size);
    put32(out + 32, crc32_of(tables, size));
    put64(out + 40, piece->size);
    memcpy(out + HEADER, tables, size);
    if (!g->sketch) copy_constants(g, piece);
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
static bool write(ln_piece_graph *g, const linnet_work *work, ln_piece *piece, size_t *size) {
    ln_flat flat = {0};
    *piece = (ln_piece){0};
    bool done = ln_piece_graph_collect(g, work);
    if (done) {
        place_segments(g, HEADER, piece);
        done = ln_piece_write_tables(g, &flat, size) != NULL;
    }
    if (done) {
        const int segments = place_segments(g, HEADER + *size, piece);
        const unsigned char *tables = ln_piece_write_tables(g, &flat, size);
        done = tables != NULL && (g->sketch || note_holes(g, segments, piece)) && assemble(g, tables, *size, piece);
    }
    if (done) {
        piece->inputs = g->inputs, piece->input_count = g->functions[0].input_count;
        piece->outputs = g->outputs, piece->output_count = g->functions[0].output_count;
        g->inputs = g->outputs = NULL;
    }
    *size += HEADER;
    ln_flat_free(&flat);
    ln_piece_graph_free(g);
    return done;
}

bool ln_piece_write(const linnet_host *host, const linnet_work *work, ln_piece *piece) {
    size_t size = 0;
    return write(&(ln_piece_graph){.host = host}, work, piece, &size);
}

bool ln_piece_constant(const linnet_host *host, const linnet_device_tensor *tensor, const linnet_span *to,
                       ln_piece *piece) {
    const linnet_work none = {0};
    size_t size = 0;
    if (!write(&(ln_piece_graph){.host = host, .constant = tensor}, &none, piece, &size)) return false;
    piece->outputs[0] = *to;
    return true;
}

bool ln_piece_sketch(const linnet_host *host, const linnet_step *const *steps, int count, ln_piece *piece,
                     size_t *size) {
    const linnet_work work = {.count = count, .steps = steps};
    *size = 0;
    return write(&(ln_piece_graph){.host = host, .sketch = true}, &work, piece, size);
}
