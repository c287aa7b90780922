/* library.c - finds the devices of a backend once for each text of options. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/library.h"
#include "kernels_gpu/common/options.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static lg_set *sets;
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;

int lg_list_devices(const lg_backend *backend, const linnet_host *host, const char *options, linnet_device_list *list) {
    static _Thread_local char why[1500];
    lg_options read;
    if (!lg_read_options(backend->name, backend->options, options, &read, why, sizeof why)) {
        list->missing = why;
        return 1;
    }
    pthread_mutex_lock(&sets_lock);
    lg_set *found = sets;
    while (found != NULL && strcmp(found->options, options) != 0) found = found->next;
    if (found == NULL && (found = calloc(1, sizeof *found)) != NULL) {
        found->options = strdup(options);
        if (found->options == NULL) { /* the devices are not kept, and the next call tries again */
            free(found);
            found = NULL;
        } else {
            backend->find(host, &read, found);
            found->next = sets, sets = found;
        }
    }
    pthread_mutex_unlock(&sets_lock);
    if (found == NULL) {
        list->missing = "there is no host memory";
        return 1;
    }
    list->count = found->count;
    list->devices = found->devices;
    list->missing = found->missing;
    return 0;
}
