/* text.c - a growing text, for the sources of kernels. */
#include "kernels_gpu/common/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for n further bytes and a NUL. */
static bool reserve(lg_text *text, size_t n) {
    if (text->failed) return false;
    if (text->length + n + 1 <= text->size) return true;
    const size_t size = 2 * text->size + n + 256;
    char *at = realloc(text->at, size);
    if (at == NULL) {
        text->failed = true;
        return false;
    }
    text->at = at, text->size = size;
    return true;
}

void lg_put(lg_text *text, const char *format, ...) {
    va_list arguments;
    if (text->ignores) return;
    va_start(arguments, format);
    const int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (n < 0 || !reserve(text, (size_t)n)) return;
    va_start(arguments, format);
    vsnprintf(text->at + text->length, (size_t)n + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)n;
}

void lg_put_bytes(lg_text *text, const void *bytes, size_t size) {
    if (text->ignores || !reserve(text, size)) return;
    memcpy(text->at + text->length, bytes, size);
    text->length += size;
    text->at[text->length] = 0;
}

void lg_put_text(lg_text *text, const char *other) { lg_put_bytes(text, other, strlen(other)); }

void lg_free(lg_text *text) {
    free(text->at);
    *text = (lg_text){0};
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool lg_has_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        if ((at == text || !is_word(at[-1])) && !is_word(at[n])) return true;
    return false;
}
