/* host_memory.c - memory of the host that the device reads or writes in place, and memory for fast transfers. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/opencl/host_memory.h"

#include <stdlib.h>

/* Memory that allocate_host has returned. */
typedef struct lg_pinned {
    struct lg_pinned *next;
    void *host;
    cl_mem memory; /* NULL: the memory was allocated by posix_memalign */
} lg_pinned;

/* Opens a queue for a single call that waits for its result. */
static cl_command_queue open_briefly(const lg_device *d, cl_int *code) {
    return d->cl->CreateCommandQueue(d->context, d->id, 0, code);
}

static void close_briefly(const lg_device *d, cl_command_queue queue) {
    d->cl->Finish(queue);
    d->cl->ReleaseCommandQueue(queue);
}

/* Maps the buffer for the host, and waits until the host may use its memory. */
static void *map_briefly(const lg_device *d, cl_mem memory, uint64_t bytes, cl_int *code) {
    void *host = NULL;
    const cl_command_queue queue = open_briefly(d, code);
    if (*code != CL_SUCCESS) return NULL;
    host = d->cl->EnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, (size_t)bytes, 0, NULL, NULL,
                                   code);
    close_briefly(d, queue);
    return host;
}

static int import_as(const lg_device *d, cl_bitfield access, const void *host, uint64_t bytes, linnet_handle *buffer) {
    cl_int code = CL_SUCCESS;
    const cl_mem memory =
        d->cl->CreateBuffer(d->context, access | CL_MEM_USE_HOST_PTR, (size_t)bytes, (void *)(uintptr_t)host, &code);
    *buffer = (uintptr_t)memory;
    return code;
}

/* Imports constants only if the device shares the host's memory. A device with memory of its own would copy them. */
static int import_constants(void *context, const void *host, uint64_t bytes, linnet_handle *buffer) {
    const lg_device *d = context;
    if (!d->unified || bytes > d->largest) return LG_NO_MEMORY;
    return import_as(d, CL_MEM_READ_ONLY, host, bytes, buffer);
}

static int import(void *context, void *host, uint64_t bytes, linnet_handle *buffer) {
    const lg_device *d = context;
    cl_int code = import_as(d, CL_MEM_READ_WRITE, host, bytes, buffer);
    if (code != CL_SUCCESS) return code;
    map_briefly(d, lg_buffer(*buffer), bytes, &code); /* the host has the memory until host_release */
    if (code != CL_SUCCESS) d->cl->ReleaseMemObject(lg_buffer(*buffer));
    return code;
}

static int host_acquire(void *context, linnet_handle queue, linnet_handle buffer, void *host, uint64_t bytes) {
    const lg_device *d = context;
    cl_int code = CL_SUCCESS;
    (void)host; /* not needed, because the call returns the same address */
    d->cl->EnqueueMapBuffer(lg_queue_of(queue)->queue, lg_buffer(buffer), CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0,
                            (size_t)bytes, 0, NULL, NULL, &code);
    return code;
}

static int host_release(void *context, linnet_handle queue, linnet_handle buffer, void *host, uint64_t bytes) {
    const lg_device *d = context;
    (void)bytes;
    return d->cl->EnqueueUnmapMemObject(lg_queue_of(queue)->queue, lg_buffer(buffer), host, 0, NULL, NULL);
}

/* Allocates pinned memory if the option says so and the driver's memory is aligned. Otherwise allocates whole pages,
 * which drivers can use in place. */
static int allocate_host(void *context, uint64_t bytes, void **host) {
    lg_device *d = context;
    cl_int code = CL_SUCCESS;
    lg_pinned *made = calloc(1, sizeof *made);
    if (made == NULL) return LG_NO_MEMORY;
    bytes = (bytes + LG_PAGE - 1) / LG_PAGE * LG_PAGE;
    if (d->options.memory == LG_PINNED) {
        made->memory =
            d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, (size_t)bytes, NULL, &code);
        if (code == CL_SUCCESS) made->host = map_briefly(d, made->memory, bytes, &code);
        if (made->memory != NULL && (code != CL_SUCCESS || (uintptr_t)made->host % 64 != 0)) {
            d->cl->ReleaseMemObject(made->memory); /* this also unmaps the memory */
            made->memory = NULL, made->host = NULL;
        }
    }
    if (made->host == NULL && posix_memalign(&made->host, LG_PAGE, (size_t)bytes) != 0) {
        free(made);
        return LINNET_DEVICE_FULL;
    }
    pthread_mutex_lock(&d->lock);
    made->next = d->pinned;
    d->pinned = made;
    pthread_mutex_unlock(&d->lock);
    *host = made->host;
    return 0;
}

static void release_host(void *context, void *host, uint64_t bytes) {
    lg_device *d = context;
    cl_int code = CL_SUCCESS;
    (void)bytes;
    pthread_mutex_lock(&d->lock);
    lg_pinned **at = &d->pinned;
    while (*at != NULL && (*at)->host != host) at = &(*at)->next;
    lg_pinned *found = *at;
    if (found != NULL) *at = found->next;
    pthread_mutex_unlock(&d->lock);
    if (found == NULL) return;
    const cl_command_queue queue = found->memory != NULL ? open_briefly(d, &code) : NULL;
    if (queue != NULL) {
        d->cl->EnqueueUnmapMemObject(queue, found->memory, host, 0, NULL, NULL);
        close_briefly(d, queue);
    }
    if (found->memory != NULL)
        d->cl->ReleaseMemObject(found->memory);
    else
        free(found->host);
    free(found);
}

void lg_host_memory_functions(linnet_device *table, int memory) {
    table->import_constants = import_constants;
    if (memory == LG_COPIED) return;
    table->allocate_host = allocate_host;
    table->release_host = release_host;
    if (memory == LG_PINNED) return;
    table->import = import;
    table->host_acquire = host_acquire;
    table->host_release = host_release;
}
