/* trace_events.h - writes events of a Chrome trace. */
#ifndef LINNET_TOOLS_TRACE_EVENTS_H
#define LINNET_TOOLS_TRACE_EVENTS_H

#include <stdio.h>

/* Parts of the file: `"key": "text"`; an event with the name of a process or of a track; and a span, in microseconds
 * from the first phase, which the caller ends with its arguments and two braces. */
void trace_put_text(FILE *file, const char *key, const char *text);
void trace_put_title(FILE *file, const char *what, int process, int track, const char *text);
void trace_put_span(FILE *file, const char *name, int process, int track, double begin, double length);

#endif
