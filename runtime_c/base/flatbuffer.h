/* flatbuffer.h - reads an untrusted flatbuffer (format: flatbuffers.dev, "FlatBuffer internals").
 * Every access is checked. The reader remembers the first problem and returns defaults from then on, so it is enough to
 * check `problem` once. */
#ifndef LN_FLATBUFFER_H
#define LN_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ln_fb {
    const uint8_t *data; /* 16-byte aligned */
    size_t size;
    uint64_t budget;     /* bytes that may still be visited; bounds the work when tables refer to each other */
    const char *problem; /* NULL: none yet */
    size_t where;        /* offset of the problem */
} ln_fb;

typedef struct ln_fb_table {
    ln_fb *fb;
    size_t at; /* 0: absent */
    size_t vtable;
    size_t slots;
    size_t size; /* bytes of the table's inline part */
} ln_fb_table;

typedef struct ln_fb_vector {
    ln_fb *fb;
    const void *data; /* NULL: absent */
    size_t at;
    uint32_t count;
} ln_fb_vector;

/* Whether `n` bytes are well-formed UTF-8 (Unicode 15, table 3-7) without NUL. Every string of a file must be
   well-formed. */
bool ln_is_text(const void *text, size_t n);

/* `identifier`: the four characters that must be at offset 4, or NULL. */
ln_fb_table ln_fb_root(ln_fb *fb, const void *data, size_t size, const char *identifier);

/* Scalars. The width in bytes is 1, 2, 4 or 8. A u64 above INT64_MAX is a problem. */
int64_t ln_fb_signed(const ln_fb_table *table, int slot, int width, int64_t absent);
int64_t ln_fb_unsigned(const ln_fb_table *table, int slot, int width, int64_t absent);
double ln_fb_double(const ln_fb_table *table, int slot, double absent);
bool ln_fb_has(const ln_fb_table *table, int slot);

ln_fb_table ln_fb_get_table(const ln_fb_table *table, int slot);
/* The elements are aligned to their size. */
ln_fb_vector ln_fb_get_vector(const ln_fb_table *table, int slot, size_t element_size);
/* A NUL-terminated UTF-8 string without other NULs; "" when absent. */
const char *ln_fb_string(const ln_fb_table *table, int slot);
/* Elements of a vector of tables or strings (element size 4). */
ln_fb_table ln_fb_table_at(const ln_fb_vector *vector, uint32_t i);
const char *ln_fb_string_at(const ln_fb_vector *vector, uint32_t i);

#endif
