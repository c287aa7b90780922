/* system_state.h - the part of the machine's state that changes while a tool runs. */
#ifndef LN_TOOLS_SYSTEM_STATE_H
#define LN_TOOLS_SYSTEM_STATE_H

#include "system.h"

void tool_state_read(tool_state *state);
/* Returns the clock of the fastest core in MHz, or -1. Takes some microseconds per core. */
int tool_fastest_mhz(void);
void tool_print_state(const char *word, const tool_state *state, bool json);
/* Warns on standard error if the machine was throttled, or if its clock fell by more than a tenth between `before` or
 * `fastest`, the highest clock that was seen in between, and `after`. */
void tool_warn_slow(const char *tool, const tool_state *before, int fastest, const tool_state *after);

#endif
