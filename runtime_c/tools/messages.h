/* messages.h - what the native tools print when something is wrong: one line, "linnet-run: error: ...", to standard
 * error. */
#ifndef LN_TOOLS_MESSAGES_H
#define LN_TOOLS_MESSAGES_H

#include "linnet.h"

#if defined(__GNUC__)
#define TOOL_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TOOL_PRINTF(a, b)
#endif

/* The exit statuses of a tool. */
enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_INTERRUPTED = 130 };

/* Each of these prints the line. tool_usage returns TOOL_USAGE, and the others return TOOL_FAILED. */
int tool_fail(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
int tool_fail_record(const char *tool, const linnet_error *error);
int tool_usage(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
int tool_no_memory(const char *tool);
/* Copies a message of the library to `text`. Where the message names a field of a config, the copy names the option
 * that sets this field. */
void tool_words(const char *from, char *text, size_t size);
/* Formats the error as linnet_error_format does, with the changes of tool_words. */
void tool_message(const linnet_error *error, char *text, size_t size);
/* Writes the buffered output; call this last. If a part of the output could not be written, prints an error and returns
 * TOOL_FAILED. */
int tool_flush(const char *tool);

#endif
