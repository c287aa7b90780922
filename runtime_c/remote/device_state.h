/* device_state.h - what a device of liblinnet_remote is: a host, and the connection that serves everybody who has no
 * queue of their own. */
#ifndef LN_REMOTE_DEVICE_STATE_H
#define LN_REMOTE_DEVICE_STATE_H

#include "remote/queue.h"

#include "linnet_device.h"

#include <pthread.h>

enum { LN_REMOTE_TEXTS = 64, LN_REMOTE_REACHES = 64 };

typedef struct ln_remote_device {
    linnet_device functions;
    const linnet_host *host;
    ln_remote_place place;
    ln_remote_welcome welcome;
    char name[300];
    pthread_mutex_t lock;         /* of the rest */
    ln_remote_queue *control;     /* for commands that belong to no queue of the library */
    uint64_t last;                /* number given to a buffer or a piece */
    char *texts[LN_REMOTE_TEXTS]; /* texts[i] is what code i + 1 means */
    struct ln_remote_prediction *predictions;
    struct ln_remote_traced *traced; /* what hosts said of the runs of pieces */
    /* The host's monotonic clock minus the one here, by how much that may be wrong, and when it was found. */
    int64_t clock_offset;
    uint64_t clock_error, clock_at;
    /* Measured when the device was made, and kept: plans of one process must agree. */
    uint64_t message_ns;        /* from a message to its answer, for the least message */
    uint64_t rate;              /* bytes a microsecond */
    pthread_mutex_t reach_lock; /* of the rest */
    struct {
        const void *other;
        bool reached;
    } reach[LN_REMOTE_REACHES]; /* other hosts, and whether this one can fetch values from them */
    int reach_count;
} ln_remote_device;

/* Connects again after the connection was lost: the host may have come back. The caller holds the device's lock. */
linnet_status ln_remote_reconnect(ln_remote_device *d, linnet_error *error);
/* The code that stands for an error's text. */
int ln_remote_code_of(ln_remote_device *d, const linnet_error *error);

#endif
