/* failures.h - the codes and texts of failures. A device's function returns 0 or such a code, and later gives its text.
 */
#ifndef LG_FAILURES_H
#define LG_FAILURES_H

#include <pthread.h>

/* Codes of failures. A negative code is an error number of the driver. A code from LG_FIRST_TEXT on has a text of its
 * own. */
enum { LG_NO_MEMORY = 1, LG_BAD_STEP = 2, LG_FIRST_TEXT = 100 };

/* The texts of the failures of a device, with codes from LG_FIRST_TEXT on. They stay valid as long as the device.
 * Thread-safe. */
typedef struct lg_failures {
    pthread_mutex_t lock;
    const char *texts[64];
    int count;
} lg_failures;

void lg_failures_init(lg_failures *failures);
/* Stores a text and returns its code. Equal texts get the same code. When all places are taken, returns the code of the
 * text that was stored last. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int lg_failure(lg_failures *failures, const char *format, ...);
/* Returns the text of a code that is not negative. */
const char *lg_failure_text(lg_failures *failures, int code);

#endif
