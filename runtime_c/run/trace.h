/* trace.h - counts special values in the output of a step. */
#ifndef LN_TRACE_H
#define LN_TRACE_H

#include "plan/session_layout.h"

void ln_count_special(const ln_resolved_step *resolved, ln_trace *trace);

#endif
