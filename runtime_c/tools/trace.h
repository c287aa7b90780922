/* trace.h - records how long each phase of a tool took, for --trace. A tool calls trace_phase at the end of each phase,
 * and trace_write when the traced session has run. */
#ifndef LINNET_TOOLS_TRACE_H
#define LINNET_TOOLS_TRACE_H

#include "linnet.h"

enum { TRACE_MOST_PHASES = 8 };

/* One phase. */
typedef struct trace_span {
    const char *name;
    double begin, end; /* seconds, by tool_now */
} trace_span;

typedef struct trace {
    trace_span phases[TRACE_MOST_PHASES];
    int n_phases;
    double since; /* time when the current phase began; 0: no phase has begun */
} trace;

/* Ends the current phase, gives it this name, and begins the next phase. The first call only begins a phase. */
void trace_phase(trace *t, const char *name);
/* Writes the phases, and the steps of the session, to the file `path`, atomically. Returns TOOL_OK, or TOOL_FAILED
 * after printing the error. */
int trace_write(const trace *t, const char *tool, const char *path, const char *model, const linnet_session *session);

#endif
