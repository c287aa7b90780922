/* clock.h - the clock of the native tools. */
#ifndef LN_TOOLS_CLOCK_H
#define LN_TOOLS_CLOCK_H

/* Returns a monotonic time in seconds. */
double tool_now(void);

#endif
