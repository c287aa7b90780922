/* flat.h - writes a flatbuffer (format: flatbuffers.dev, "FlatBuffer internals") from its end to its beginning.
 * A position is a number of bytes from the end, so it stays right while the buffer grows. A field is named by its slot,
 * its number in the schema. Children are written before the table that refers to them. */
#ifndef LN_REMOTE_FLAT_H
#define LN_REMOTE_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LN_FLAT_SLOTS = 32 }; /* most fields of a table */

typedef struct ln_flat {
    unsigned char *memory; /* the used bytes are the last ones */
    size_t size, used;
    bool failed;                   /* out of memory, or too large; nothing more is written */
    uint32_t slots[LN_FLAT_SLOTS]; /* of the open table: positions of its fields; 0: absent */
    int slot_count;
    uint32_t table; /* position where the open table began */
} ln_flat;

void ln_flat_free(ln_flat *flat);

/* These write an object and return its position. `data` may be NULL if `count` is 0. */
uint32_t ln_flat_vector(ln_flat *flat, const void *data, size_t count, size_t element, size_t alignment);
uint32_t ln_flat_text(ln_flat *flat, const char *text);
/* A vector of references to objects. */
uint32_t ln_flat_references(ln_flat *flat, const uint32_t *positions, size_t count);

/* A table: begin, fields in any order, end. Only one table can be open. */
void ln_flat_begin(ln_flat *flat);
void ln_flat_number(ln_flat *flat, int slot, const void *value, size_t size);
void ln_flat_u8(ln_flat *flat, int slot, uint8_t value);
void ln_flat_u16(ln_flat *flat, int slot, uint16_t value);
void ln_flat_i32(ln_flat *flat, int slot, int32_t value);
void ln_flat_i64(ln_flat *flat, int slot, int64_t value);
void ln_flat_f64(ln_flat *flat, int slot, double value);
/* Does nothing if `position` is 0. */
void ln_flat_reference(ln_flat *flat, int slot, uint32_t position);
uint32_t ln_flat_end(ln_flat *flat);

/* Finishes the buffer, whose root is the table. Returns its first byte, and its size in *size; NULL if it failed. */
const unsigned char *ln_flat_finish(ln_flat *flat, uint32_t root, const char identifier[4], size_t *size);

#endif
