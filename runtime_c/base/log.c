/* log.c - formats a message and gives it to the host's function. Nothing is formatted if the host has none.
 * The model keeps the function, so that everything made from the model can send messages. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void ln_log(const ln_log_target *target, linnet_log_level level, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (target->log == NULL) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    target->log(target->context, level, text);
}
