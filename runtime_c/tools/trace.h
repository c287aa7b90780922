/* trace.h - the spans of one run of a tool, for --trace.
 * A tool calls trace_phase at the end of each phase, and trace_write once the traced session has run. */
#ifndef LINNET_TOOLS_TRACE_H
#define LINNET_TOOLS_TRACE_H

#include "common.h"

enum { TRACE_MOST_PHASES = 8 };

typedef struct trace_span {
    const char *name;
    double begin, end; /* seconds, by tool_now */
} trace_span;

typedef struct trace {
    trace_span phases[TRACE_MOST_PHASES];
    int n_phases;
    double since; /* end of the last phase; 0: none has begun */
} trace;

/* Ends the current phase, which gets this name, and begins the next one. The first call only begins. */
void trace_phase(trace *t, const char *name);
/* Writes the file atomically. Returns TOOL_OK, or TOOL_FAILED after printing the error. */
int trace_write(const trace *t, const char *tool, const char *path, const char *model, const linnet_session *session);

#endif
