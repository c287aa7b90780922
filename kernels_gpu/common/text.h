/* text.h - text that grows, of which the sources of kernels are made. */
#ifndef LG_TEXT_H
#define LG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Text that grows. After a failed allocation, `failed` is true and the text stays as it is. Zeroed: empty. */
typedef struct lg_text {
    char *at;
    size_t length, size;
    bool failed;
} lg_text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void lg_put(lg_text *text, const char *format, ...);
void lg_put_text(lg_text *text, const char *other); /* of any length */
void lg_put_bytes(lg_text *text, const void *bytes, size_t size);
void lg_free(lg_text *text);
/* Whether the text contains the word, not as a part of a longer one. */
bool lg_has_word(const char *text, const char *word);

#endif
