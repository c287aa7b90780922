/* source_writer.c - writes source text into a buffer of the caller. */
#include "map/source_writer.h"

#include "linnet_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ln_put_char(ln_writer *w, char c) {
    if (w->length < w->size) w->text[w->length] = c;
    w->length++;
    if (c != '{' || w->opening == NULL) return;
    const char *opening = w->opening;
    w->opening = NULL;
    ln_put_all(w, opening);
}

void ln_put(ln_writer *w, const char *format, ...) {
    char part[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part, sizeof part, format, arguments);
    va_end(arguments);
    for (const char *c = part; *c; c++) ln_put_char(w, *c);
}

void ln_put_all(ln_writer *w, const char *text) {
    while (*text) ln_put_char(w, *text++);
}

void ln_put_end(ln_writer *w, size_t *length) {
    if (w->size > 0) w->text[w->length < w->size ? w->length : w->size - 1] = 0;
    *length = w->length;
}

void ln_contract_nothing(ln_writer *w, int language) {
    if (language == LINNET_SOURCE_OPENCL) w->opening = "\n#pragma OPENCL FP_CONTRACT OFF\n";
}

const char *ln_nth(const char *list, int i) {
    while (i-- > 0) list += strlen(list) + 1;
    return list;
}

void ln_source_block(int language, const char *statement, char *text, size_t size, size_t *length) {
    ln_writer w = {.text = text, .size = size};
    ln_contract_nothing(&w, language);
    ln_put_all(&w, "{\n");
    ln_put_all(&w, statement);
    ln_put_all(&w, ";\n}\n");
    ln_put_end(&w, length);
}

const char *ln_source_element(int dtype) {
    static const char names[] = "float\0ln_u16\0ln_u16\0double\0ln_i8\0ln_i16\0ln_i32\0ln_i64\0"
                                "ln_u8\0ln_u16\0ln_u32\0ln_u64\0ln_u8\0ln_i8\0ln_u8";
    return ln_nth(names, dtype - 1);
}
