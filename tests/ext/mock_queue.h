/* mock_queue.h - what the mock device is made of: handles that are no addresses, settings, failures on request, and
 * queues with a thread of their own. */
#ifndef MOCK_QUEUE_H
#define MOCK_QUEUE_H

#include "linnet_device.h"

#include <stdbool.h>
#include <stdint.h>

/* Settings and counters, which tests set and read by name. */
#define MOCK_NUMBERS(X)                                                                                                \
    /* settings */                                                                                                     \
    X(seed)    /* of which nodes the device takes, claims, layouts and delays */                                       \
    X(share)   /* nodes of 16 that the device takes */                                                                 \
    X(delay)   /* longest delay before each piece of work, in microseconds */                                          \
    X(visible) /* limits */                                                                                            \
    X(shared)                                                                                                          \
    X(epilogues)                                                                                                       \
    X(padding)                                                                                                         \
    X(largest)                                                                                                         \
    X(claims)   /* 1: claims of several steps; 0: each step alone */                                                   \
    X(layouts)  /* 1: private layouts */                                                                               \
    X(in_place) /* 1: a map may overwrite an operand */                                                                \
    X(refuses)  /* 1: some steps that `cost` took are refused by `offer`, some by `claim` */                           \
    X(late)     /* 1: some claims are refused by `prepare` */                                                          \
    X(reaches)  /* 1: copies between devices */                                                                        \
    X(in_file)  /* 1: constants are read in the model's file */                                                        \
    X(lends)    /* 1: with `shared`, the host and the device take turns with memory that is imported */                \
    X(pinned)   /* 1: memory for inputs and outputs is the device's */                                                 \
    X(hostile)  /* 1: models are hostile: a step may fail, and what the device may read of steps is read */            \
    X(fail_at)  /* the call of the callback `fail` that fails, from 1; 0: none */                                      \
    X(fail)     /* enum mock_callback */                                                                               \
    /* counters */                                                                                                     \
    X(live)       /* buffers, queues, events and states that exist */                                                  \
    X(live_bytes) /* of buffers */                                                                                     \
    X(turns)      /* memory that was given to the device and back */                                                   \
    X(pinned_bytes)                                                                                                    \
    X(misuse) /* wrong handles, spans outside their buffer, calls out of order */                                      \
    X(failed) /* failures made */                                                                                      \
    X(uploads)                                                                                                         \
    X(variables) /* uploads of variables */                                                                            \
    X(downloads)                                                                                                       \
    X(copies)                                                                                                          \
    X(runs)                                                                                                            \
    X(fused)       /* runs of fused claims */                                                                          \
    X(private)     /* operands read in a private layout */                                                             \
    X(overwritten) /* operands that a map overwrote */                                                                 \
    X(waits)                                                                                                           \
    X(overlaps) /* transfers that were submitted while earlier work was still in the queue */

enum mock_number {
#define X(name) MOCK_##name,
    MOCK_NUMBERS(X)
#undef X
        MOCK_NUMBER_COUNT
};
#define mock(name) mock_value(MOCK_##name)
int64_t mock_value(enum mock_number number);
void mock_changed(void); /* of mock_device.c */
void mock_count(enum mock_number number, int64_t by);

/* Callbacks that can fail; WORK is the execution of work on the queue's thread. */
#define MOCK_CALLBACKS(X)                                                                                              \
    X(LIMITS)                                                                                                          \
    X(CLAIM)                                                                                                           \
    X(OFFER)                                                                                                           \
    X(ALLOCATE)                                                                                                        \
    X(MAP)                                                                                                             \
    X(UNMAP)                                                                                                           \
    X(IMPORT)                                                                                                          \
    X(IMPORT_CONSTANTS)                                                                                                \
    X(ALLOCATE_HOST)                                                                                                   \
    X(HOST_ACQUIRE)                                                                                                    \
    X(HOST_RELEASE)                                                                                                    \
    X(OPEN)                                                                                                            \
    X(FINISH)                                                                                                          \
    X(CREATE_EVENT)                                                                                                    \
    X(RECORD)                                                                                                          \
    X(WAIT)                                                                                                            \
    X(FOLLOW)                                                                                                          \
    X(UPLOAD)                                                                                                          \
    X(DOWNLOAD)                                                                                                        \
    X(COPY)                                                                                                            \
    X(PREPARE)                                                                                                         \
    X(RUN)                                                                                                             \
    X(ELAPSED)                                                                                                         \
    X(WORK)
enum mock_callback {
#define X(name) MOCK_##name,
    MOCK_CALLBACKS(X)
#undef X
        MOCK_CALLBACK_COUNT
};
/* The code that this call of the callback returns: 0, or 1 + callback if the test asked for a failure. */
int mock_fails(enum mock_callback callback);
enum { MOCK_FAILED = 98, MOCK_MISUSED = 99 };

/* Handles: a salt, a kind and an index. A wrong one counts as misuse and gives NULL. */
enum mock_kind { MOCK_BUFFER = 1, MOCK_QUEUE, MOCK_EVENT, MOCK_STATE };
linnet_handle mock_add(enum mock_kind kind, void *object);
void *mock_get(enum mock_kind kind, linnet_handle handle);
void *mock_remove(enum mock_kind kind, linnet_handle handle);
int mock_misused(void); /* counts, and returns MOCK_MISUSED */

uint64_t mock_hash(const char *text, int64_t salt); /* of the text, the salt and the seed */

/* A queue runs jobs one after another. After a job has failed it skips all jobs until mock_queue_finish. */
typedef struct mock_queue mock_queue;
typedef struct mock_event mock_event;
mock_queue *mock_queue_new(void);
void mock_queue_free(mock_queue *queue);
/* Copies `size` bytes of the argument, which the job receives. */
void mock_submit(mock_queue *queue, int (*job)(const void *argument), const void *argument, size_t size);
bool mock_busy(mock_queue *queue);
int mock_queue_finish(mock_queue *queue); /* the code of the first failure since the last call */
mock_event *mock_event_new(void);
void mock_event_free(mock_event *event);
void mock_event_record(mock_queue *queue, mock_event *event);
int mock_event_wait(mock_event *event);
int mock_event_wait_until(mock_event *event, uint64_t ns); /* LINNET_DEVICE_PENDING after that time */
void mock_follow(mock_queue *queue, mock_event *event);    /* later jobs wait for the event */

#endif
