/* flat.c - writes a flatbuffer from its end to its beginning. Numbers are little-endian, whatever the machine's order.
 */
#include "remote/flat.h"

#include "net/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 30 }; /* bytes; a reader refuses structures of 2 GB and more */

void ln_flat_free(ln_flat *flat) {
    free(flat->memory);
    *flat = (ln_flat){0};
}

/* Makes room for `count` bytes in front of the used ones, and returns the first; NULL if that fails. */
static unsigned char *reserve(ln_flat *flat, size_t count) {
    if (flat->failed) return NULL;
    if (count > flat->size - flat->used) {
        size_t size = 2 * flat->size + 4096;
        while (size < flat->used + count && size < MOST) size *= 2;
        unsigned char *grown = count < MOST && size <= MOST ? malloc(size) : NULL;
        if (grown == NULL) {
            flat->failed = true;
            return NULL;
        }
        if (flat->used > 0) memcpy(grown + size - flat->used, flat->memory + flat->size - flat->used, flat->used);
        free(flat->memory);
        flat->memory = grown, flat->size = size;
    }
    flat->used += count;
    return flat->memory + flat->size - flat->used;
}

/* Pads with zeros, so that an object that ends `after` bytes further on is aligned. */
static void align(ln_flat *flat, size_t after, size_t alignment) {
    const size_t gap = (alignment - (flat->used + after) % alignment) % alignment;
    unsigned char *at = reserve(flat, gap);
    if (at != NULL) memset(at, 0, gap);
}

static void put(ln_flat *flat, const void *bytes, size_t size) {
    unsigned char *at = reserve(flat, size);
    if (at != NULL && size > 0) memcpy(at, bytes, size);
}

static void put_u32(ln_flat *flat, uint32_t value) {
    unsigned char bytes[4];
    put32(bytes, value);
    put(flat, bytes, sizeof bytes);
}

static void put_u16(ln_flat *flat, uint32_t value) {
    unsigned char bytes[2];
    put16(bytes, (uint16_t)value);
    put(flat, bytes, sizeof bytes);
}

uint32_t ln_flat_vector(ln_flat *flat, const void *data, size_t count, size_t element, size_t alignment) {
    align(flat, count * element, alignment > 4 ? alignment : 4);
    put(flat, data, count * element);
    put_u32(flat, (uint32_t)count);
    return (uint32_t)flat->used;
}

uint32_t ln_flat_text(ln_flat *flat, const char *text) {
    const size_t length = strlen(text);
    align(flat, length + 1, 4);
    put(flat, text, length + 1);
    put_u32(flat, (uint32_t)length);
    return (uint32_t)flat->used;
}

uint32_t ln_flat_references(ln_flat *flat, const uint32_t *positions, size_t count) {
    align(flat, 4 * count, 4);
    for (size_t i = count; i > 0; --i) put_u32(flat, (uint32_t)flat->used + 4 - positions[i - 1]);
    put_u32(flat, (uint32_t)count);
    return (uint32_t)flat->used;
}

void ln_flat_begin(ln_flat *flat) {
    memset(flat->slots, 0, sizeof flat->slots);
    flat->slot_count = 0;
    flat->table = (uint32_t)flat->used;
}

static void took(ln_flat *flat, int slot) {
    flat->slots[slot] = (uint32_t)flat->used;
    if (slot >= flat->slot_count) flat->slot_count = slot + 1;
}

void ln_flat_number(ln_flat *flat, int slot, const void *value, size_t size) {
    align(flat, size, size);
    put(flat, value, size);
    took(flat, slot);
}

void ln_flat_u8(ln_flat *flat, int slot, uint8_t value) { ln_flat_number(flat, slot, &value, 1); }

void ln_flat_u16(ln_flat *flat, int slot, uint16_t value) {
    unsigned char bytes[2];
    put16(bytes, value);
    ln_flat_number(flat, slot, bytes, sizeof bytes);
}

void ln_flat_i32(ln_flat *flat, int slot, int32_t value) {
    unsigned char bytes[4];
    put32(bytes, (uint32_t)value);
    ln_flat_number(flat, slot, bytes, sizeof bytes);
}

void ln_flat_i64(ln_flat *flat, int slot, int64_t value) {
    unsigned char bytes[8];
    put64(bytes, (uint64_t)value);
    ln_flat_number(flat, slot, bytes, sizeof bytes);
}

void ln_flat_f64(ln_flat *flat, int slot, double value) {
    unsigned char bytes[8];
    put_f64(bytes, value);
    ln_flat_number(flat, slot, bytes, sizeof bytes);
}

void ln_flat_reference(ln_flat *flat, int slot, uint32_t position) {
    if (position == 0) return;
    align(flat, 4, 4);
    put_u32(flat, (uint32_t)flat->used + 4 - position);
    took(flat, slot);
}

uint32_t ln_flat_end(ln_flat *flat) {
    align(flat, 4, 4);
    put_u32(flat, 0); /* the distance to the vtable, which is not known yet */
    const uint32_t table = (uint32_t)flat->used;
    for (int i = flat->slot_count; i > 0; --i) put_u16(flat, flat->slots[i - 1] ? table - flat->slots[i - 1] : 0);
    put_u16(flat, table - flat->table);
    put_u16(flat, 4 + 2 * (uint32_t)flat->slot_count);
    if (!flat->failed) put32(flat->memory + flat->size - table, (uint32_t)flat->used - table);
    return table;
}

const unsigned char *ln_flat_finish(ln_flat *flat, uint32_t root, const char identifier[4], size_t *size) {
    align(flat, 8, 16);
    put(flat, identifier, 4);
    put_u32(flat, (uint32_t)flat->used + 4 - root);
    *size = flat->used;
    return flat->failed ? NULL : flat->memory + flat->size - flat->used;
}
