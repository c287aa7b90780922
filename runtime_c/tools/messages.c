/* messages.c - the errors of the native tools. A message of the library names the fields of a config; a tool's message
 * names the options that set them. */
#include "messages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tool_words(const char *from, char *text, size_t size) {
    static const struct {
        const char *field, *option;
    } names[] = {{"plan_config.shapes", "--shape"},
                 {"plan_config.fetches", "--fetch"},
                 {"plan_config.devices", "--device"},
                 {"plan_config.placement", "--placement"},
                 {"plan_config.cluster", "--task"},
                 {"plan_config.max_bytes", "--memory"},
                 {"plan_config.threads", "--threads"},
                 {"plan_config.precision", "--precision"},
                 {"plan_config.strict_dims", "--strict-dims"},
                 {"plan_config.tuning", "--tuning"},
                 {"plan_get_info reports", "`linnet plan` reports"},
                 {"model_config.user_ops", "--user-ops"},
                 {"model_config.verify", "--verify"},
                 {"server_config.max_bytes", "--memory"}};
    size_t used = 0;
    while (used + 1 < size && *from) {
        const char *word = NULL;
        if (!strncmp(from, "linnet_", 7))
            for (size_t i = 0; i < sizeof names / sizeof *names && !word; i++)
                if (!strncmp(from + 7, names[i].field, strlen(names[i].field)))
                    word = names[i].option, from += 7 + strlen(names[i].field);
        if (word)
            used += (size_t)snprintf(text + used, size - used, "%s", word);
        else
            text[used++] = *from++;
    }
    text[used < size ? used : size - 1] = 0;
}

void tool_message(const linnet_error *error, char *text, size_t size) {
    char record[1024];
    linnet_error_format(error, record, sizeof record);
    tool_words(record, text, size);
}

static void say(const char *tool, const char *format, va_list arguments) {
    fprintf(stderr, "%s: error: ", tool);
    vfprintf(stderr, format, arguments);
}

int tool_fail(const char *tool, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

int tool_fail_record(const char *tool, const linnet_error *error) {
    char text[1024];
    tool_message(error, text, sizeof text);
    return tool_fail(tool, "%s", text);
}

int tool_usage(const char *tool, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see %s --help\n", tool);
    return TOOL_USAGE;
}

int tool_no_memory(const char *tool) {
    return tool_fail(tool, "out of memory; end other programs, or give a smaller model or smaller shapes");
}

int tool_flush(const char *tool) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return TOOL_OK;
    return tool_fail(tool,
                     "cannot write to standard output: %s; check the disk, or the program that reads the "
                     "output",
                     strerror(errno));
}
