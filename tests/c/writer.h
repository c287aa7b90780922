/* writer.h - writes small .lnt files for the C tests, front to back, so that any field can be corrupted on purpose.
 * A table's fields are given as widths; offsets are filled in when their targets exist. */
#ifndef WRITER_H
#define WRITER_H

#include "base/crc32.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WRITER_SIZE = 1 << 16, WRITER_SLOTS = 16 };

typedef struct writer {
    _Alignas(64) unsigned char bytes[WRITER_SIZE]; /* the structure begins at 64 */
    size_t used;
} writer;

typedef struct written {
    size_t at;
    size_t slots[WRITER_SLOTS]; /* position of each field */
} written;

static inline void writer_put(writer *w, size_t at, uint64_t value, int width) {
    for (int i = 0; i < width; i++) w->bytes[at + (size_t)i] = (unsigned char)(value >> 8 * i);
}

static inline size_t writer_take(writer *w, size_t size, size_t alignment) {
    size_t at = (w->used + alignment - 1) / alignment * alignment;
    if (at + size > WRITER_SIZE) abort();
    memset(w->bytes + w->used, 0, at + size - w->used);
    w->used = at + size;
    return at;
}

/* Writes a table. widths: bytes of each slot, one digit per slot: "4180" has four slots, and the last slot is absent.
 * Offsets have width 4. */
static inline written writer_table(writer *w, const char *widths) {
    written t = {0};
    size_t n = strlen(widths), vtable, offset = 8, end;
    for (size_t i = 0; i < n; i++) { /* aligns every field to its width, and the table to 8 */
        size_t width = (size_t)(widths[i] - '0');
        if (!width) continue;
        offset = (offset + width - 1) / width * width;
        t.slots[i] = offset;
        offset += width;
    }
    end = offset;
    vtable = writer_take(w, 4 + 2 * n, 8);
    t.at = writer_take(w, end, 8);
    writer_put(w, vtable, 4 + 2 * n, 2);
    writer_put(w, vtable + 2, end, 2);
    writer_put(w, t.at, t.at - vtable, 4);
    for (size_t i = 0; i < n; i++) {
        writer_put(w, vtable + 4 + 2 * i, t.slots[i], 2);
        if (t.slots[i]) t.slots[i] += t.at;
    }
    return t;
}

/* Makes the offset at `at` point to `target`. */
static inline void writer_point(writer *w, size_t at, size_t target) { writer_put(w, at, target - at, 4); }

/* Writes elements aligned to `align`. Returns the position of the length. */
static inline size_t writer_vector(writer *w, const void *data, size_t count, size_t element, size_t align) {
    size_t at;
    while ((w->used + 4) % (align < 4 ? 4 : align) != 0) writer_take(w, 1, 1);
    at = writer_take(w, 4 + count * element, 4);
    writer_put(w, at, count, 4);
    if (data && count) memcpy(w->bytes + at + 4, data, count * element);
    return at;
}

static inline size_t writer_string(writer *w, const char *text) {
    size_t at = writer_vector(w, text, strlen(text), 1, 1);
    writer_take(w, 1, 1);
    return at;
}

/* Writes a vector of offsets, which the caller fills in: element i is at the result + 4 + 4 * i. */
static inline size_t writer_offsets(writer *w, size_t count) { return writer_vector(w, NULL, count, 4, 4); }

static inline void writer_begin(writer *w) {
    memset(w, 0, sizeof *w);
    w->used = 64 + 8; /* header, root offset, identifier */
    memcpy(w->bytes + 68, "LNT1", 4);
}

/* Writes the header for a structure of [64, end) in a file of `file` bytes; segments follow the structure. */
static inline void writer_header(writer *w, size_t end, size_t file) {
    memset(w->bytes, 0, 64);
    memcpy(w->bytes, "LINNET\r\n", 8);
    writer_put(w, 8, 1, 4);
    writer_put(w, 12, 1, 4);
    writer_put(w, 16, 64, 8);
    writer_put(w, 24, end - 64, 8);
    writer_put(w, 32, ln_crc32(0, w->bytes + 64, end - 64), 4);
    writer_put(w, 40, file, 8);
}

#endif
