/* flatbuffer.h - reads an untrusted flatbuffer (format: flatbuffers.dev, "FlatBuffer internals").
 * Every access is checked. The reader stores the first problem and returns defaults from then on, so a caller may read
 * many fields and check `problem` once at the end. A field is named by its slot, its number in the schema. */
#ifndef LN_FLATBUFFER_H
#define LN_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ln_fb {
    const uint8_t *data; /* 16-byte aligned */
    size_t size;
    uint64_t
        budget; /* bytes that may still be read; limits the work, because many offsets may refer to the same table */
    const char *problem; /* the first problem, as a text that need not be freed; NULL: none yet */
    size_t where;        /* offset of the problem in `data` */
} ln_fb;

/* A table of the flatbuffer. If it is absent, all its fields are absent. */
typedef struct ln_fb_table {
    ln_fb *fb;
    size_t at;     /* 0: absent */
    size_t vtable; /* offset of the vtable, which has the positions of the fields */
    size_t slots;  /* number of fields in the vtable */
    size_t size;   /* bytes of the table's inline part */
} ln_fb_table;

/* A vector of scalars, or of offsets to tables or strings. An absent vector has no elements. */
typedef struct ln_fb_vector {
    ln_fb *fb;
    const void *data; /* the elements; NULL: absent */
    size_t at;        /* offset of the elements in fb->data */
    uint32_t count;
} ln_fb_vector;

/* Tells whether `n` bytes are well-formed UTF-8 (Unicode 15, table 3-7) without NUL. Every string of a file must be
 * well-formed. */
bool ln_is_text(const void *text, size_t n);

/* Initializes `fb` and returns the root table. `data` must be 16-byte aligned and stay valid while the reader is used.
 * `identifier`: the four characters that must be at offset 4; NULL: any. On an error, the table is absent and
 * fb->problem is set. */
ln_fb_table ln_fb_root(ln_fb *fb, const void *data, size_t size, const char *identifier);

/* Read a scalar field. The width in bytes is 1, 2, 4 or 8. They return `absent` if the table lacks the field. A u64
 * above INT64_MAX is a problem. */
int64_t ln_fb_signed(const ln_fb_table *table, int slot, int width, int64_t absent);
int64_t ln_fb_unsigned(const ln_fb_table *table, int slot, int width, int64_t absent);
double ln_fb_double(const ln_fb_table *table, int slot, double absent);
/* Tells whether the table has the field. */
bool ln_fb_has(const ln_fb_table *table, int slot);

/* Reads a field that is a table. */
ln_fb_table ln_fb_get_table(const ln_fb_table *table, int slot);
/* Reads a field that is a vector of elements of `element_size` bytes, and checks that they are aligned to their size.
 */
ln_fb_vector ln_fb_get_vector(const ln_fb_table *table, int slot, size_t element_size);
/* Reads a field that is a string: NUL-terminated UTF-8 without other NULs. Returns "" if the field is absent. The
 * string lies in the flatbuffer. */
const char *ln_fb_string(const ln_fb_table *table, int slot);
/* Return element `i` of a vector of tables or strings, which was read with element size 4. For `i` >= count, the first
 * returns an absent table and sets the problem, and the second returns "". */
ln_fb_table ln_fb_table_at(const ln_fb_vector *vector, uint32_t i);
const char *ln_fb_string_at(const ln_fb_vector *vector, uint32_t i);

#endif
