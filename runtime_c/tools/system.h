/* system.h - the facts about a machine that explain its times: processor, memory, temperature, clock, throttling.
 * All are read from Linux's /proc and /sys. A fact that the system does not report stays unknown. */
#ifndef LINNET_TOOLS_SYSTEM_H
#define LINNET_TOOLS_SYSTEM_H

#include "common.h"

enum { TOOL_MOST_CORES = 1024, TOOL_PATH_ROOM = 1024, TOOL_TEXT_ROOM = 256 };

/* Returns the folder that stands for /, without the slash at its end. */
const char *tool_system_root(void);
FILE *tool_system_file(const char *path);
/* Reads the first line of a file whose path is formatted, without space at its end. Returns false if there is none. */
bool tool_read_line(char text[TOOL_TEXT_ROOM], const char *format, ...) TOOL_PRINTF(2, 3);
/* Reads the next line "key : value" of an open file; `line` is then the key. Lines that are too long are cut. */
bool tool_next_field(FILE *file, char separator, char line[TOOL_TEXT_ROOM], const char **value);
bool tool_whole_number(const char *text, int base, long long *value);

/* The part of the machine's state that changes while a tool runs. */
typedef struct tool_state {
    double celsius;            /* of the hottest sensor; NaN: unknown */
    int mhz[TOOL_MOST_CORES];  /* clock of each core; -1: unknown */
    int most[TOOL_MOST_CORES]; /* highest clock that the core supports; -1: unknown */
    int n_mhz, n_most;         /* 0 if no core has a known value */
    long throttled;            /* bits of the Raspberry Pi's firmware; -1: unknown */
} tool_state;
/* Returns the largest size in bytes that the process's memory has had, or -1 if it is unknown. */
long long tool_peak_rss(void);

/* Print the machine, or its state, as one JSON object or as one line of text that begins with a word. */
void tool_print_machine(bool json);
/* Prints a note to standard error if the facts come from another folder than /, as in tests. */
void tool_note_root(const char *tool);

#endif
