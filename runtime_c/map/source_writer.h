/* source_writer.h - writes source text for devices into a buffer of the caller. Text that does not fit is only counted,
 * so a caller can first ask for the length. */
#ifndef LN_SOURCE_WRITER_H
#define LN_SOURCE_WRITER_H

#include <stddef.h>

/* A caller sets `text` and `size`, and zeroes the other fields. */
typedef struct ln_writer {
    char *text; /* NULL if size is 0 */
    size_t size, length;
    const char *opening; /* a text that is written after the next '{'; NULL: none */
} ln_writer;

void ln_put_char(ln_writer *w, char c);
void ln_put(ln_writer *w, const char *format, ...); /* one call writes fewer than 160 characters */
void ln_put_all(ln_writer *w, const char *text);
/* Ends the text with a NUL, as far as there is room, and sets *length to the length of the whole text without the NUL.
 */
void ln_put_end(ln_writer *w, size_t *length);
/* Forbids the contraction of a * b + c to a fused operation in the function or block that the next '{' opens. The rest
 * of the device's program is not affected, because the device may want contraction there. */
void ln_contract_nothing(ln_writer *w, int language);

/* Returns text number i, from 0, of a list of texts, each of which ends with a NUL. The list must have that many. */
const char *ln_nth(const char *list, int i);
/* Writes a block of one statement without contraction. The statement comes without its semicolon. */
void ln_source_block(int language, const char *statement, char *text, size_t size, size_t *length);
/* Returns the type of a stored element of the dtype, as the source text spells it. dtype is not LINNET_NONE. */
const char *ln_source_element(int dtype);

#endif
