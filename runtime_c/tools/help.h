/* help.h - the help text of a tool, which also says what options the tool has. */
#ifndef LN_TOOLS_HELP_H
#define LN_TOOLS_HELP_H

#include <stdbool.h>

/* If --help, -h or --version was given, prints the answer and returns true. The tool then ends. */
bool tool_answers(const char *tool, const char *help, int argc, char **argv);
/* Tells whether the help text names the option. */
bool tool_knows(const char *help, const char *option);
/* Prints that the tool does not have this option, and the most similar option of its help text. Returns TOOL_USAGE. */
int tool_unknown(const char *tool, const char *help, const char *option);

#endif
