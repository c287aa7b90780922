/* system.h - facts about a machine that explain its times: processor, memory, temperature, clock, throttling. They are
 * read from Linux's /proc and /sys. A fact that the system does not report is unknown. */
#ifndef LINNET_TOOLS_SYSTEM_H
#define LINNET_TOOLS_SYSTEM_H

#include "messages.h"

#include <stdio.h>

enum { TOOL_MOST_CORES = 1024, TOOL_PATH_ROOM = 1024, TOOL_TEXT_ROOM = 256 };

/* Returns the folder that stands for /, without the slash at its end. */
const char *tool_system_root(void);
/* Opens a file below that folder; NULL if it does not exist. */
FILE *tool_system_file(const char *path);
/* Reads the first line of the file whose path `format` gives, without the white space at the end. Returns false if
 * there is no such file or line. */
bool tool_read_line(char text[TOOL_TEXT_ROOM], const char *format, ...) TOOL_PRINTF(2, 3);
/* Reads the next line "key : value" of an open file, in which `separator` stands between the two. `line` is then the
 * key, and *value points into `line`. Lines that are too long are truncated. Returns false at the end of the file. */
bool tool_next_field(FILE *file, char separator, char line[TOOL_TEXT_ROOM], const char **value);
/* Parses a text that is only a whole number. Returns false otherwise. */
bool tool_whole_number(const char *text, int base, long long *value);

/* The part of the machine's state that changes while a tool runs. */
typedef struct tool_state {
    double celsius;            /* temperature of the hottest sensor; NaN: unknown */
    int mhz[TOOL_MOST_CORES];  /* clock of each core; -1: unknown */
    int most[TOOL_MOST_CORES]; /* highest clock that the core supports; -1: unknown */
    int n_mhz, n_most;         /* number of entries; 0 if no core has a known value */
    long throttled;            /* bits of the Raspberry Pi's firmware; -1: unknown */
} tool_state;
/* Returns the largest resident size in bytes that this process has had; -1 if it is unknown. */
long long tool_peak_rss(void);

/* Prints the machine as one JSON object or as one line of text. */
void tool_print_machine(bool json);
/* Prints a note to standard error if the facts come from another folder than /, as in tests. */
void tool_note_root(const char *tool);

#endif
