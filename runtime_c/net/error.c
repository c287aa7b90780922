/* error.c - formats the texts of error records. liblinnet writes them: it keeps each field to one line and truncates it
 * at a character border, because names and texts may come from peers and files. */
#include "net/error.h"

#include "linnet_ext.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT = 512 }; /* more than the longest field of a record */

linnet_status ln_sync_fail(linnet_error *error, linnet_status status, const char *what, ...) {
    char text[TEXT];
    va_list arguments;
    if (!error) return status;
    va_start(arguments, what);
    vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    return linnet_error_begin(error, status, text);
}

linnet_status ln_sync_at(linnet_error *error, const char *name) {
    return linnet_error_add(error, LINNET_ERROR_AT, name);
}

#define LN_SYNC_FIELD(function, part)                                                                                  \
    linnet_status function(linnet_error *error, const char *format, ...) {                                             \
        char text[TEXT];                                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        vsnprintf(text, sizeof text, format, arguments);                                                               \
        va_end(arguments);                                                                                             \
        return linnet_error_add(error, part, text);                                                                    \
    }
LN_SYNC_FIELD(ln_sync_expected, LINNET_ERROR_EXPECTED)
LN_SYNC_FIELD(ln_sync_got, LINNET_ERROR_GOT)
LN_SYNC_FIELD(ln_sync_hint, LINNET_ERROR_HINT)
_Static_assert(TEXT > sizeof((linnet_error *)0)->what && TEXT > sizeof((linnet_error *)0)->hint, "a text fits");
