/* help.c - prints the help text of a tool, and finds the option in it that is nearest to one that does not exist. */
#include "help.h"

#include "messages.h"
#include "linnet.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LETTERS = 40 };

bool tool_answers(const char *tool, const char *help, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), true;
        if (!strcmp(argv[i], "--version")) return printf("%s %s\n", tool, linnet_version()), true;
    }
    return false;
}

/* Number of letters to change, insert or leave out to make one word of the other (Levenshtein, 1966). */
static int distance(const char *a, const char *b, size_t n) {
    int row[MOST_LETTERS + 1];
    for (size_t k = 0; k <= n; k++) row[k] = (int)k;
    for (int i = 1; a[i - 1]; i++) {
        int before = row[0];
        row[0] = i;
        for (size_t k = 1; k <= n; k++) {
            int least = before + (a[i - 1] != b[k - 1]);
            if (row[k] + 1 < least) least = row[k] + 1;
            if (row[k - 1] + 1 < least) least = row[k - 1] + 1;
            before = row[k];
            row[k] = least;
        }
    }
    return row[n];
}

/* Finds the next option in a help text from `at` on, and its length. Returns NULL at the end. */
static const char *next_option(const char *at, size_t *length) {
    at = strstr(at, "--");
    if (at) *length = strspn(at, "-abcdefghijklmnopqrstuvwxyz");
    return at;
}

bool tool_knows(const char *help, const char *option) {
    size_t length = 0;
    for (const char *at = help; (at = next_option(at, &length)) != NULL; at += length)
        if (length == strlen(option) && !strncmp(at, option, length)) return true;
    return false;
}

int tool_unknown(const char *tool, const char *help, const char *option) {
    const char *nearest = NULL;
    size_t length = 0, found = 0;
    int least = (int)strlen(option) / 3 + 1;
    for (const char *at = help; (at = next_option(at, &length)) != NULL; at += length) {
        const int far = length > 2 && length <= MOST_LETTERS ? distance(option, at, length) : least;
        if (far < least) least = far, nearest = at, found = length;
    }
    if (nearest == NULL) return tool_usage(tool, "unknown option '%s'", option);
    return tool_usage(tool, "unknown option '%s'; the nearest option is %.*s", option, (int)found, nearest);
}
