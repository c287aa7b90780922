/* device_state.c - what all parts of a device of liblinnet_remote need: its connection, and codes that stand for
 * errors. */
#include "remote/device_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ln_remote_code_of(ln_remote_device *d, const linnet_error *error) {
    char text[sizeof *error + 64];
    int i = 0;
    if (error->code == LINNET_OUT_OF_MEMORY) return LINNET_DEVICE_FULL;
    snprintf(text, sizeof text, "%s%s%s%s%s", error->what, error->got[0] ? "; got " : "", error->got,
             error->hint[0] ? "; " : "", error->hint);
    pthread_mutex_lock(&d->lock);
    while (i < LN_REMOTE_TEXTS - 1 && d->texts[i] != NULL && strcmp(d->texts[i], text) != 0) ++i;
    if (d->texts[i] == NULL) {
        const size_t size = strlen(text) + 1;
        d->texts[i] = malloc(size);
        if (d->texts[i] != NULL) memcpy(d->texts[i], text, size);
    }
    pthread_mutex_unlock(&d->lock);
    return i + 1;
}

linnet_status ln_remote_reconnect(ln_remote_device *d, linnet_error *error) {
    ln_remote_queue *again = ln_remote_queue_new(&d->place, &d->welcome, error);
    if (again == NULL) return (linnet_status)error->code;
    ln_remote_queue_free(d->control);
    d->control = again;
    return LINNET_OK;
}
