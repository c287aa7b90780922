/* run.h - runs a session for a tool, which a signal or a time limit may end. */
#ifndef LN_TOOLS_RUN_H
#define LN_TOOLS_RUN_H

#include "options.h"

/* With --bind, binds the calling thread to a core (`bound`), or ends the binding. New threads inherit the binding, so
 * end it before a session is created. */
int tool_bind(const tool_options *options, bool bound);
/* From this call on, SIGINT and SIGTERM end the current run. A second signal ends the tool at once. */
void tool_catch_signals(void);
/* Runs the session within the time limit of the options. Returns TOOL_OK, TOOL_FAILED, or TOOL_INTERRUPTED after a
 * signal; prints every error. */
int tool_run(const tool_options *options, linnet_session *session);

#endif
