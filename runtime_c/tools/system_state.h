/* system_state.h - the part of the machine's state that changes while a tool runs. */
#ifndef LN_TOOLS_SYSTEM_STATE_H
#define LN_TOOLS_SYSTEM_STATE_H

#include "system.h"

/* Reads the temperature, the clocks of the cores and the throttling. */
void tool_state_read(tool_state *state);
/* Returns the clock of the fastest core in MHz; -1 if it is unknown. This takes some microseconds per core. */
int tool_fastest_mhz(void);
/* Prints the state as one JSON object, or as one line of text that begins with `word`. */
void tool_print_state(const char *word, const tool_state *state, bool json);
/* Warns on standard error if the machine was throttled, or if its clock fell by more than a tenth. `fastest` is the
 * highest clock that was seen between `before` and `after`. */
void tool_warn_slow(const char *tool, const tool_state *before, int fastest, const tool_state *after);

#endif
