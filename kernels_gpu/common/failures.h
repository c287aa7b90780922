/* failures.h - the texts of failures. */
#ifndef LG_FAILURES_H
#define LG_FAILURES_H

#include <pthread.h>

/* Codes of failures: those of the driver, negative; and these. */
enum { LG_NO_MEMORY = 1, LG_BAD_STEP = 2, LG_FIRST_TEXT = 100 };

/* Texts of failures with codes from LG_FIRST_TEXT on. They live as long as the device. */
typedef struct lg_failures {
    pthread_mutex_t lock;
    const char *texts[64];
    int count;
} lg_failures;

void lg_failures_init(lg_failures *failures);
/* Keeps a text and returns its code. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int lg_failure(lg_failures *failures, const char *format, ...);
/* The text of a code that is not the driver's. */
const char *lg_failure_text(lg_failures *failures, int code);

#endif
