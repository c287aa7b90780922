/* queue.h - a client's connection to a host, on which commands run in order: it collects commands, sends them as one
 * message, and puts the bytes of downloads where they belong. */
#ifndef LN_REMOTE_QUEUE_H
#define LN_REMOTE_QUEUE_H

#include "net/transport.h"
#include "remote/batch.h"

#include <stdatomic.h>

/* Where a host is, and how to reach it. */
typedef struct ln_remote_place {
    char address[256];
    ln_net_security *security;            /* NULL: no TLS */
    unsigned char token[LN_REMOTE_TOKEN]; /* by which the host knows all connections of this client */
    int lease_ms;                         /* how long it may say nothing while somebody waits for it */
    _Atomic uint32_t losses;              /* how often it has: connections from before such a loss are broken */
    bool keep;                            /* new values of variables, in the folder of the host */
} ln_remote_place;

typedef struct ln_remote_welcome {
    uint64_t most_bytes;
    uint32_t threads, connection; /* the number of this connection at the host */
    char name[LN_REMOTE_NAME + 1];
    bool keeps; /* the host has a folder */
} ln_remote_welcome;

typedef struct ln_remote_queue ln_remote_queue;

/* An event stands for the messages of a queue up to one. */
typedef struct ln_remote_event {
    ln_remote_queue *queue;
    uint64_t message;
    const ln_remote_queue *source; /* of the value that was copied last before the event; NULL: none was */
} ln_remote_event;

/* How values come to a queue from another host's queue: by SEND there and FETCH here. */
typedef struct ln_remote_lane {
    const ln_remote_queue *source;
    const void *device;           /* of the source */
    uint64_t peer, channel, last; /* last: the number of the last value */
} ln_remote_lane;

typedef struct ln_remote_peers {
    ln_remote_lane *lanes;
    int count;
    ln_remote_event followed;      /* the next copy comes after it; queue NULL: none */
    const ln_remote_queue *copied; /* the last command is a FETCH from there ... */
    size_t copied_at;              /* ... if the batch still has this size */
} ln_remote_peers;

/* Connects, and waits for WELCOME, for at most the lease. `place` must outlive the queue. NULL: `error` says why. */
ln_remote_queue *ln_remote_queue_new(ln_remote_place *place, ln_remote_welcome *welcome, linnet_error *error);
void ln_remote_queue_free(ln_remote_queue *queue);
/* Tells whether the connection has not failed yet. */
bool ln_remote_queue_works(const ln_remote_queue *queue);

/* What device_peer.c notes about the queue. */
ln_remote_peers *ln_remote_queue_peers(ln_remote_queue *queue);
/* The number of the connection at its host. */
uint32_t ln_remote_queue_connection(const ln_remote_queue *queue);

/* The commands that are not sent yet. Add to them with batch.h. */
ln_remote_batch *ln_remote_queue_batch(ln_remote_queue *queue);
/* Notes that work of one queue waits for work of the other. From now on both are sent together, and they are used by
 * one thread. */
void ln_remote_queue_join(ln_remote_queue *queue, ln_remote_queue *other);
/* Sends the commands of the queue, and those of all queues that were joined with it. */
linnet_status ln_remote_queue_flush(ln_remote_queue *queue, linnet_error *error);
/* Flushes, and sends UPLOAD, whose numbers are `to`, as a message of its own, without a copy of the bytes. */
linnet_status ln_remote_queue_upload(ln_remote_queue *queue, const uint64_t to[3], const void *from,
                                     linnet_error *error);
/* The number of the message that has the last command so far, which stands for the work up to now. */
uint64_t ln_remote_queue_mark(const ln_remote_queue *queue);
/* Waits until the host has answered the message of this number, for at most `timeout_ms` (-1: no limit), and sends it
 * if necessary. *answered says whether it has. Fails, once, if a message up to this one has failed. */
linnet_status ln_remote_queue_wait(ln_remote_queue *queue, uint64_t message, int timeout_ms, bool *answered,
                                   linnet_error *error);
/* Flushes and waits for everything. */
linnet_status ln_remote_queue_finish(ln_remote_queue *queue, linnet_error *error);
/* Sends RECIPE and waits for its answer, a byte of `lacks` for each of its holes. */
linnet_status ln_remote_queue_recipe(ln_remote_queue *queue, const void *bytes, size_t size, unsigned char *lacks,
                                     int holes, linnet_error *error);
/* Sends a constant that the host lacks. */
linnet_status ln_remote_queue_constant(ln_remote_queue *queue, const void *bytes, size_t size, linnet_error *error);

#endif
