/* memory.c - buffers, queues, events and transfers of the CUDA backend. A buffer is its address on the device; queues
 * and events are objects of this file. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/cuda/memory.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/cuda/context.h"
#include "kernels_gpu/cuda/graph.h"
#include "kernels_gpu/cuda/work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct lg_event {
    CUevent event;
    lg_queue *queue; /* queue of the last record; NULL: never recorded */
} lg_event;

static lg_event *event_of(linnet_handle handle) { return (lg_event *)(uintptr_t)handle; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    lg_device *d = context;
    CUdeviceptr pointer = 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_code(d->cu->MemAlloc(&pointer, (size_t)bytes));
    lg_leave(d);
    *buffer = pointer;
    return code == -CUDA_ERROR_OUT_OF_MEMORY ? LINNET_DEVICE_FULL : code;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    lg_device *d = context;
    (void)bytes;
    if (lg_enter(d) != 0) return;
    d->cu->MemFree(buffer);
    lg_leave(d);
}

/* Allocates pinned memory, because the driver transfers from and to it without a further copy and without blocking. */
static int allocate_host(void *context, uint64_t bytes, void **host) {
    lg_device *d = context;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_code(d->cu->MemHostAlloc(host, (size_t)((bytes + 63) & ~(uint64_t)63), CU_MEMHOSTALLOC_PORTABLE));
    lg_leave(d);
    return code == -CUDA_ERROR_OUT_OF_MEMORY ? LINNET_DEVICE_FULL : code;
}

static void release_host(void *context, void *host, uint64_t bytes) {
    lg_device *d = context;
    (void)bytes;
    if (lg_enter(d) != 0) return;
    d->cu->MemFreeHost(host);
    lg_leave(d);
}

/* ---- queues and events ------------------------------------------------------------------------------------------- */

static int make_queue(lg_device *d, bool measures, linnet_handle *out) {
    lg_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return LG_NO_MEMORY;
    q->measures = measures;
    int code = lg_enter(d);
    if (code == 0) {
        code = lg_code(d->cu->StreamCreate(&q->stream, CU_STREAM_NON_BLOCKING));
        lg_leave(d);
    }
    if (code != 0) {
        free(q);
        return code;
    }
    *out = (uintptr_t)q;
    return 0;
}

static int open_queue(void *context, linnet_handle *out) { return make_queue(context, false, out); }
static int open_traced(void *context, linnet_handle *out) { return make_queue(context, true, out); }

static void close_queue(void *context, linnet_handle queue) {
    lg_device *d = context;
    lg_queue *q = lg_queue_of(queue);
    if (lg_enter(d) == 0) {
        lg_forget_graphs(d, q, NULL, true);
        d->cu->StreamDestroy(q->stream);
        lg_leave(d);
    }
    free(q->pending);
    free(q);
}

static int finish(void *context, linnet_handle queue) {
    lg_device *d = context;
    int code = lg_enter(d);
    if (code != 0) return code;
    const int flushed = lg_flush(d, lg_queue_of(queue));
    code = lg_code(d->cu->StreamSynchronize(lg_queue_of(queue)->stream)); /* `wait` reports wrong indices */
    lg_leave(d);
    return code != 0 ? code : flushed;
}

static int create_event(void *context, linnet_handle *out) {
    lg_device *d = context;
    lg_event *e = calloc(1, sizeof *e);
    if (e == NULL) return LG_NO_MEMORY;
    int code = lg_enter(d);
    if (code == 0) {
        code = lg_code(d->cu->EventCreate(&e->event, CU_EVENT_DISABLE_TIMING));
        lg_leave(d);
    }
    if (code != 0) {
        free(e);
        return code;
    }
    *out = (uintptr_t)e;
    return 0;
}

static void free_event(void *context, linnet_handle event) {
    lg_device *d = context;
    if (lg_enter(d) == 0) {
        d->cu->EventDestroy(event_of(event)->event);
        lg_leave(d);
    }
    free(event_of(event));
}

static int record(void *context, linnet_handle queue, linnet_handle event) {
    lg_device *d = context;
    lg_queue *q = lg_queue_of(queue);
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_flush(d, q);
    if (code == 0) code = lg_code(d->cu->EventRecord(event_of(event)->event, q->stream));
    if (code == 0) event_of(event)->queue = q;
    lg_leave(d);
    return code;
}

static int wait_for(void *context, linnet_handle event) {
    lg_device *d = context;
    lg_event *e = event_of(event);
    if (e->queue == NULL) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_code(d->cu->EventSynchronize(e->event));
    if (code == 0) code = lg_check(d, e->queue);
    lg_leave(d);
    return code;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits with a limit. CUDA has no such wait, so this function queries the event again and again, with growing
 * pauses. */
static int wait_until(void *context, linnet_handle event, uint64_t ns) {
    lg_device *d = context;
    lg_event *e = event_of(event);
    const uint64_t end = now() + ns;
    long pause = 0; /* nanoseconds */
    if (e->queue == NULL) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    for (int tries = 0;; ++tries) {
        code = lg_code(d->cu->EventQuery(e->event));
        if (code != -CUDA_ERROR_NOT_READY) break;
        if (now() >= end) {
            code = LINNET_DEVICE_PENDING;
            break;
        }
        if (tries < 1000) continue;
        pause = pause < 500000 ? pause + 5000 : pause;
        const struct timespec t = {0, pause};
        nanosleep(&t, NULL);
    }
    if (code == 0) code = lg_check(d, e->queue);
    lg_leave(d);
    return code;
}

static int follow(void *context, linnet_handle queue, const linnet_device *of, linnet_handle event) {
    lg_device *d = context;
    lg_queue *q = lg_queue_of(queue);
    (void)of;
    if (event_of(event)->queue == NULL) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_flush(d, q);
    if (code == 0) code = lg_code(d->cu->StreamWaitEvent(q->stream, event_of(event)->event, 0));
    lg_leave(d);
    return code;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* Moves elements between dense memory of the host and an image with its channels last, of the same dtype. */
static void reorder(const linnet_device_tensor *t, char *image, char *dense, bool to_image) {
    const int64_t planes = t->shape[0], channels = t->shape[1], pixels = t->shape[2] * t->shape[3];
    const size_t size = (size_t)lg_bytes_of(t->dtype);
    for (int64_t n = 0; n < planes; ++n)
        for (int64_t p = 0; p < pixels; ++p)
            for (int64_t c = 0; c < channels; ++c) {
                char *a = image + (size_t)((n * pixels + p) * channels + c) * size;
                char *b = dense + (size_t)((n * channels + c) * pixels + p) * size;
                memcpy(to_image ? a : b, to_image ? b : a, size);
            }
}

/* Transfers an image with its channels last, and waits for it. It need not be fast, because such values seldom leave
 * the device. */
static int transfer_image(const lg_device *d, const lg_queue *q, const linnet_device_tensor *tensor, CUdeviceptr there,
                          void *here, bool to_device) {
    char *image = malloc((size_t)tensor->bytes);
    if (image == NULL) return LG_NO_MEMORY;
    if (to_device) reorder(tensor, image, here, true);
    int code = lg_code(to_device ? d->cu->MemcpyHtoDAsync(there, image, (size_t)tensor->bytes, q->stream)
                                 : d->cu->MemcpyDtoHAsync(image, there, (size_t)tensor->bytes, q->stream));
    const int waited = lg_code(d->cu->StreamSynchronize(q->stream));
    if (code == 0) code = waited;
    if (code == 0 && !to_device) reorder(tensor, image, here, false);
    free(image);
    return code;
}

static int transfer(lg_device *d, lg_queue *q, const linnet_device_tensor *tensor, const linnet_span *span, void *host,
                    bool to_device) {
    const CUdeviceptr there = span->buffer + span->offset;
    if (tensor->bytes == 0) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_flush(d, q);
    if (code == 0 && lg_is_last(tensor))
        code = transfer_image(d, q, tensor, there, host, to_device);
    else if (code == 0)
        code = lg_code(to_device ? d->cu->MemcpyHtoDAsync(there, host, (size_t)tensor->bytes, q->stream)
                                 : d->cu->MemcpyDtoHAsync(host, there, (size_t)tensor->bytes, q->stream));
    lg_leave(d);
    return code;
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    return transfer(context, lg_queue_of(queue), tensor, to, (void *)(uintptr_t)from, true);
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    return transfer(context, lg_queue_of(queue), tensor, from, to, false);
}

static bool reaches(void *context, const linnet_device *other) { return other->context == context; }

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    lg_device *d = context;
    lg_queue *q = lg_queue_of(queue);
    (void)of;
    if (from->bytes == 0) return 0;
    int code = lg_enter(d);
    if (code != 0) return code;
    code = lg_flush(d, q);
    if (code == 0)
        code = lg_code(d->cu->MemcpyDtoDAsync(to->buffer + to->offset, from->buffer + from->offset, (size_t)from->bytes,
                                              q->stream));
    lg_leave(d);
    return code;
}

void lg_memory_functions(linnet_device *table, int memory) {
    table->allocate = allocate;
    table->release = release;
    if (memory == LG_PINNED) table->allocate_host = allocate_host, table->release_host = release_host;
    table->open = open_queue;
    table->open_traced = open_traced;
    table->close = close_queue;
    table->finish = finish;
    table->create_event = create_event;
    table->free_event = free_event;
    table->record = record;
    table->wait = wait_for;
    table->wait_until = wait_until;
    table->follow = follow;
    table->upload = upload;
    table->download = download;
    table->reaches = reaches;
    table->copy = copy;
}
