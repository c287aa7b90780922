/* error.c - the error record of liblinnet_sync.
 * Text that is too long is cut, what is not printable becomes '?': names and texts come from other machines. */
#include "sync/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(char *field, size_t size, const char *format, va_list arguments) {
    vsnprintf(field, size, format, arguments);
    size_t length = strlen(field);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)field[i] < 0x20 || field[i] == 0x7f) field[i] = '?';
    if (length + 1 < size) return;
    while (length > 0 && ((unsigned char)field[length - 1] & 0xc0) == 0x80) length--; /* UTF-8 is not cut in two */
    if (length > 0 && (unsigned char)field[length - 1] >= 0xc0) length--;
    field[length] = 0;
}

linnet_status ln_sync_fail(linnet_error *error, linnet_status code, const char *what, ...) {
    if (error) {
        va_list arguments;
        memset(error, 0, sizeof *error);
        error->code = code;
        error->op_index = -1;
        va_start(arguments, what);
        put(error->what, sizeof error->what, what, arguments);
        va_end(arguments);
    }
    return code;
}

#define LN_SYNC_FIELD(function, field)                                                                                 \
    void function(linnet_error *error, const char *format, ...) {                                                      \
        if (error) {                                                                                                   \
            va_list arguments;                                                                                         \
            va_start(arguments, format);                                                                               \
            put(error->field, sizeof error->field, format, arguments);                                                 \
            va_end(arguments);                                                                                         \
        }                                                                                                              \
    }
LN_SYNC_FIELD(ln_sync_expected, expected)
LN_SYNC_FIELD(ln_sync_got, got)
LN_SYNC_FIELD(ln_sync_hint, hint)
LN_SYNC_FIELD(ln_sync_at, tensor)
