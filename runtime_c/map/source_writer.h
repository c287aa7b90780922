/* source_writer.h - writes source text for devices into a buffer of the caller. What does not fit is counted only. */
#ifndef LN_SOURCE_WRITER_H
#define LN_SOURCE_WRITER_H

#include <stddef.h>

typedef struct ln_writer {
    char *text;
    size_t size, length;
    const char *opening; /* comes after the next brace; NULL: nothing does */
} ln_writer;

void ln_put_char(ln_writer *w, char c);
void ln_put(ln_writer *w, const char *format, ...); /* fewer than 160 characters */
void ln_put_all(ln_writer *w, const char *text);
/* Ends the text, and gives the length of all of it. */
void ln_put_end(ln_writer *w, size_t *length);
/* The next brace that is written opens a function or a block without contraction. Elsewhere in the program, the device
 * may want it. */
void ln_contract_nothing(ln_writer *w, int language);

/* The text number i of a list of texts, each of which ends with a NUL. */
const char *ln_nth(const char *list, int i);
/* Writes a block of one statement, which has no semicolon yet. */
void ln_source_block(int language, const char *statement, char *text, size_t size, size_t *length);
/* The type of a stored element. */
const char *ln_source_element(int dtype);

#endif
