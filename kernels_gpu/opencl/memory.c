/* memory.c - buffers, queues, events and transfers of the OpenCL backend. Buffers are cl_mem objects; queues and events
 * are objects of this file. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/opencl/memory.h"
#include "kernels_gpu/opencl/work.h"

#include <stdlib.h>
#include <time.h>

/* A message from the driver's thread: an event is complete. The event and the driver's callback both use the signal;
 * the last of them frees it. */
typedef struct lg_signal {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users;
    bool complete;
} lg_signal;

typedef struct lg_event {
    cl_event event;
    lg_queue *queue;
    lg_signal *signal; /* tells when the last record is complete; the first wait with a limit creates it */
} lg_event;

static const lg_cl *functions_of(void *context) { return ((lg_device *)context)->cl; }

enum { ALLOCATION_FAILURE = -4, OUT_OF_RESOURCES = -5, OUT_OF_HOST_MEMORY = -6 };

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    lg_device *d = context;
    cl_int code = CL_SUCCESS;
    if (bytes > d->largest)
        return lg_failure(&d->failures, "a buffer of %llu bytes is larger than the largest of this device, %llu bytes",
                          (unsigned long long)bytes, (unsigned long long)d->largest);
    cl_mem memory = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
    *buffer = (uintptr_t)memory;
    if (code == CL_SUCCESS) return 0;
    return code == ALLOCATION_FAILURE || code == OUT_OF_RESOURCES || code == OUT_OF_HOST_MEMORY ? LINNET_DEVICE_FULL
                                                                                                : code;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    (void)bytes;
    functions_of(context)->ReleaseMemObject(lg_buffer(buffer));
}

static int make_queue(lg_device *d, bool measures, linnet_handle *out) {
    cl_int code = CL_SUCCESS;
    lg_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return LG_NO_MEMORY;
    q->queue = d->cl->CreateCommandQueue(d->context, d->id, measures ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (code != CL_SUCCESS) {
        free(q);
        return code;
    }
    *out = (uintptr_t)q;
    return 0;
}

static int open_queue(void *context, linnet_handle *out) { return make_queue(context, false, out); }
static int open_traced(void *context, linnet_handle *out) { return make_queue(context, true, out); }

static void close_queue(void *context, linnet_handle queue) {
    lg_queue *q = lg_queue_of(queue);
    functions_of(context)->ReleaseCommandQueue(q->queue);
    free(q);
}

static int finish(void *context, linnet_handle queue) {
    return functions_of(context)->Finish(lg_queue_of(queue)->queue); /* `wait` reports wrong indices */
}

static int create_event(void *context, linnet_handle *out) {
    (void)context;
    lg_event *e = calloc(1, sizeof *e);
    *out = (uintptr_t)e;
    return e != NULL ? 0 : LG_NO_MEMORY;
}

static void leave(lg_signal *signal) {
    pthread_mutex_lock(&signal->lock);
    const int left = --signal->users;
    pthread_mutex_unlock(&signal->lock);
    if (left > 0) return;
    pthread_cond_destroy(&signal->changed);
    pthread_mutex_destroy(&signal->lock);
    free(signal);
}

static void forget(const lg_cl *cl, lg_event *e) {
    if (e->event != NULL) cl->ReleaseEvent(e->event);
    if (e->signal != NULL) leave(e->signal);
    e->event = NULL;
    e->signal = NULL;
}

static void free_event(void *context, linnet_handle event) {
    lg_event *e = (lg_event *)(uintptr_t)event;
    forget(functions_of(context), e);
    free(e);
}

static int record(void *context, linnet_handle queue, linnet_handle event) {
    const lg_cl *cl = functions_of(context);
    lg_event *e = (lg_event *)(uintptr_t)event;
    forget(cl, e);
    e->queue = lg_queue_of(queue);
    const int code = cl->EnqueueMarkerWithWaitList(lg_queue_of(queue)->queue, 0, NULL, &e->event);
    return code != 0 ? code : cl->Flush(lg_queue_of(queue)->queue);
}

static int wait_for(void *context, linnet_handle event) {
    const lg_event *e = (const lg_event *)(uintptr_t)event;
    if (e->event == NULL) return 0;
    const int code = functions_of(context)->WaitForEvents(1, &e->event);
    return code != 0 ? code : lg_check(context, e->queue);
}

static void completed(cl_event event, cl_int status, void *argument) {
    lg_signal *signal = argument;
    (void)event;
    (void)status; /* WaitForEvents reports a failure */
    pthread_mutex_lock(&signal->lock);
    signal->complete = true;
    pthread_cond_broadcast(&signal->changed);
    pthread_mutex_unlock(&signal->lock);
    leave(signal);
}

/* Asks the driver to signal when the event is complete. Returns false if the driver cannot. */
static bool watch(const lg_cl *cl, lg_event *e) {
    if (e->signal != NULL) return true;
    lg_signal *signal = calloc(1, sizeof *signal);
    pthread_condattr_t clock;
    if (signal == NULL) return false;
    signal->users = 2;
    pthread_mutex_init(&signal->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&signal->changed, &clock);
    pthread_condattr_destroy(&clock);
    e->signal = signal;
    if (cl->SetEventCallback(e->event, CL_COMPLETE, completed, signal) == CL_SUCCESS) return true;
    signal->users = 1;
    leave(signal);
    e->signal = NULL;
    return false;
}

static int wait_until(void *context, linnet_handle event, uint64_t ns) {
    lg_event *e = (lg_event *)(uintptr_t)event;
    struct timespec until;
    if (e->event == NULL || !watch(functions_of(context), e)) return wait_for(context, event);
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&e->signal->lock);
    while (!e->signal->complete)
        if (pthread_cond_timedwait(&e->signal->changed, &e->signal->lock, &until) != 0) break;
    const bool complete = e->signal->complete;
    pthread_mutex_unlock(&e->signal->lock);
    return complete ? wait_for(context, event) : LINNET_DEVICE_PENDING;
}

static int follow(void *context, linnet_handle queue, const linnet_device *of, linnet_handle event) {
    const lg_event *e = (const lg_event *)(uintptr_t)event;
    (void)of;
    return e->event == NULL
               ? 0
               : functions_of(context)->EnqueueBarrierWithWaitList(lg_queue_of(queue)->queue, 1, &e->event, NULL);
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    if (tensor->bytes == 0) return 0;
    const int code =
        functions_of(context)->EnqueueWriteBuffer(lg_queue_of(queue)->queue, lg_buffer(to->buffer), CL_FALSE,
                                                  (size_t)to->offset, (size_t)tensor->bytes, from, 0, NULL, NULL);
    return code == ALLOCATION_FAILURE ? LINNET_DEVICE_FULL : code; /* many drivers allocate at the first use */
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    if (tensor->bytes == 0) return 0;
    return functions_of(context)->EnqueueReadBuffer(lg_queue_of(queue)->queue, lg_buffer(from->buffer), CL_FALSE,
                                                    (size_t)from->offset, (size_t)tensor->bytes, to, 0, NULL, NULL);
}

static bool reaches(void *context, const linnet_device *other) { return other->context == context; }

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    (void)of;
    if (from->bytes == 0) return 0;
    return functions_of(context)->EnqueueCopyBuffer(lg_queue_of(queue)->queue, lg_buffer(from->buffer),
                                                    lg_buffer(to->buffer), (size_t)from->offset, (size_t)to->offset,
                                                    (size_t)from->bytes, 0, NULL, NULL);
}

void lg_memory_functions(linnet_device *table) {
    table->allocate = allocate;
    table->release = release;
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
