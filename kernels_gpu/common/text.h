/* text.h - a growing text, for the sources of kernels. */
#ifndef LG_TEXT_H
#define LG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A growing text, or growing bytes. When an allocation fails, `failed` becomes true, and from then on the functions
 * change nothing. So a caller may append many times and check `failed` once. Zeroed memory is an empty text. */
typedef struct lg_text {
    char *at;            /* NULL: empty; a NUL follows the text */
    size_t length, size; /* bytes in use, and allocated */
    bool failed;
    bool ignores; /* what is appended is dropped, because nobody will read the text */
} lg_text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void lg_put(lg_text *text, const char *format, ...);
/* Appends a text of any length. */
void lg_put_text(lg_text *text, const char *other);
/* Appends bytes, which may contain NULs. */
void lg_put_bytes(lg_text *text, const void *bytes, size_t size);
void lg_free(lg_text *text);
/* Tells whether the text contains the word, and not only as a part of a longer word. */
bool lg_has_word(const char *text, const char *word);

#endif
