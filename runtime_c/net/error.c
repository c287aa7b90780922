/* error.c - fills the public error record inside liblinnet_sync.
 * Names and texts may come from peers and files, so each field is kept to one line and truncated at a character
 * border. */
#include "net/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes the field one printable line that does not end inside a UTF-8 sequence. */
static void tidy(char *field, size_t size) {
    size_t length = strlen(field), start = length;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)field[i] < 0x20 || field[i] == 0x7f) field[i] = '?';
    if (length + 1 < size) return;
    while (start > 0 && ((unsigned char)field[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (unsigned char)field[start - 1] >= 0xc0) {
        unsigned char lead = (unsigned char)field[start - 1];
        size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if (length - (start - 1) < whole) field[start - 1] = 0;
    }
}

static linnet_status status_of(const linnet_error *error) {
    return error ? (linnet_status)error->code : LINNET_INVALID_ARGUMENT;
}

linnet_status ln_sync_fail(linnet_error *error, linnet_status status, const char *what, ...) {
    va_list arguments;
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->code = status;
    error->op_index = -1;
    va_start(arguments, what);
    vsnprintf(error->what, sizeof error->what, what, arguments);
    va_end(arguments);
    tidy(error->what, sizeof error->what);
    return status;
}

linnet_status ln_sync_at(linnet_error *error, const char *name) {
    if (error) {
        snprintf(error->tensor, sizeof error->tensor, "%s", name ? name : "");
        tidy(error->tensor, sizeof error->tensor);
    }
    return status_of(error);
}

#define LN_SYNC_FIELD(function, field)                                                                                 \
    linnet_status function(linnet_error *error, const char *format, ...) {                                             \
        va_list arguments;                                                                                             \
        if (error) {                                                                                                   \
            va_start(arguments, format);                                                                               \
            vsnprintf(error->field, sizeof error->field, format, arguments);                                           \
            va_end(arguments);                                                                                         \
            tidy(error->field, sizeof error->field);                                                                   \
        }                                                                                                              \
        return status_of(error);                                                                                       \
    }
LN_SYNC_FIELD(ln_sync_expected, expected)
LN_SYNC_FIELD(ln_sync_got, got)
LN_SYNC_FIELD(ln_sync_hint, hint)
