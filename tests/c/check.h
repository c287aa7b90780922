/* check.h - the harness of the C tests: CHECK macros, counters, one line at the end. After a failure the test
 * continues. A test program's main calls functions and returns check_end(). */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int check_passed, check_failed;

#define CHECK(condition) check_true((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_INT(got, expected) check_int((long long)(got), (long long)(expected), #got, __FILE__, __LINE__)
#define CHECK_TEXT(got, expected) check_text((got), (expected), #got, __FILE__, __LINE__)

static inline void check_count(int good) {
    if (good)
        check_passed++;
    else
        check_failed++;
}

static inline void check_true(int good, const char *text, const char *file, int line) {
    check_count(good);
    if (!good && check_failed <= 50) printf("%s:%d: failed: %s\n", file, line, text);
}

static inline void check_int(long long got, long long expected, const char *text, const char *file, int line) {
    check_count(got == expected);
    if (got != expected && check_failed <= 50)
        printf("%s:%d: failed: %s: expected %lld, got %lld\n", file, line, text, expected, got);
}

static inline void check_text(const char *got, const char *expected, const char *text, const char *file, int line) {
    int good = got && expected && strcmp(got, expected) == 0;
    check_count(good);
    if (!good && check_failed <= 50)
        printf("%s:%d: failed: %s: expected \"%s\", got \"%s\"\n", file, line, text, expected, got ? got : "NULL");
}

/* Prints the line at the end and returns main's status. A program without any check fails, too. */
static inline int check_end(const char *name) {
    printf("%s: %d passed, %d failed\n", name, check_passed, check_failed);
    return check_failed || !check_passed;
}

/* xorshift64*: the same numbers on every machine. */
static inline uint64_t check_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

#endif
