/* failures.c - the texts of failures, which a device explains by their codes. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/failures.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void lg_failures_init(lg_failures *failures) { pthread_mutex_init(&failures->lock, NULL); }

int lg_failure(lg_failures *failures, const char *format, ...) {
    enum { MOST = sizeof failures->texts / sizeof *failures->texts };
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int code = LG_NO_MEMORY;
    pthread_mutex_lock(&failures->lock);
    for (int i = 0; i < failures->count; ++i)
        if (strcmp(failures->texts[i], text) == 0) code = LG_FIRST_TEXT + i;
    if (code == LG_NO_MEMORY) {
        /* The texts that `explain` returns must stay valid as long as the device. */
        char *kept = failures->count < MOST ? strdup(text) : NULL;
        if (kept != NULL) {
            failures->texts[failures->count] = kept;
            code = LG_FIRST_TEXT + failures->count++;
        } else if (failures->count == MOST) {
            code = LG_FIRST_TEXT + MOST - 1;
        }
    }
    pthread_mutex_unlock(&failures->lock);
    return code;
}

const char *lg_failure_text(lg_failures *failures, int code) {
    if (code == LG_BAD_STEP) return "the step is not one that the device has claimed";
    pthread_mutex_lock(&failures->lock); /* other queues may add texts */
    const bool known = code >= LG_FIRST_TEXT && code - LG_FIRST_TEXT < failures->count;
    const char *text = known ? failures->texts[code - LG_FIRST_TEXT] : "there is no host memory";
    pthread_mutex_unlock(&failures->lock);
    return text;
}
