/* words.c - the words of the native tools: messages of the library with the tools' options, names that fit a line, and
 * the option that is nearest to one that does not exist. */
#include "common.h"

#include <string.h>

enum { MOST_LETTERS = 40 };

void tool_words(const char *from, char *text, size_t size) {
    static const struct {
        const char *field, *option;
    } names[] = {{"plan_config.shapes", "--shape"},
                 {"plan_config.fetches", "--fetch"},
                 {"plan_config.devices", "--device"},
                 {"plan_config.max_bytes", "--memory"},
                 {"plan_config.threads", "--threads"},
                 {"plan_config.precision", "--precision"},
                 {"plan_config.strict_dims", "--strict-dims"},
                 {"plan_config.tuning", "--tuning"},
                 {"plan_get_info reports", "`linnet plan` reports"},
                 {"model_config.user_ops", "--user-ops"},
                 {"model_config.verify", "--verify"},
                 {"server_config.max_bytes", "--memory"}};
    size_t used = 0;
    while (used + 1 < size && *from) {
        const char *word = NULL;
        if (!strncmp(from, "linnet_", 7))
            for (size_t i = 0; i < sizeof names / sizeof *names && !word; i++)
                if (!strncmp(from + 7, names[i].field, strlen(names[i].field)))
                    word = names[i].option, from += 7 + strlen(names[i].field);
        if (word)
            used += (size_t)snprintf(text + used, size - used, "%s", word);
        else
            text[used++] = *from++;
    }
    text[used < size ? used : size - 1] = 0;
}

void tool_message(const linnet_error *error, char *text, size_t size) {
    char record[1024];
    linnet_error_format(error, record, sizeof record);
    tool_words(record, text, size);
}

const char *tool_step_name(const linnet_step_info *step, size_t width, char *text, size_t size) {
    const bool fused = step->fused && step->fused[0];
    char whole[1024];
    int length = snprintf(whole, sizeof whole, "%s%s%s", step->name, fused ? " + " : "", fused ? step->fused : "");
    if (length >= (int)sizeof whole) length = (int)sizeof whole - 1;
    const size_t head = (width - 3) / 2, tail = width - 3 - head;
    if ((size_t)length <= width)
        snprintf(text, size, "%s", whole);
    else
        snprintf(text, size, "%.*s...%s", (int)head, whole, whole + length - (int)tail);
    return text;
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
