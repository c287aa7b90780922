/* backend.h - the types of the OpenCL backend: a device per GPU of the machine and per text of options, its programs,
 * and the queues of sessions. device.c has the table of functions, memory.c buffers and queues, host_memory.c memory of
 * the host, program.c programs, work.c claims. */
#ifndef LG_OPENCL_BACKEND_H
#define LG_OPENCL_BACKEND_H

#include "kernels_gpu/common/checks.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/options.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/opencl/cl.h"

enum { LG_PAGE = 4096 }; /* drivers use the host's memory in place only if it consists of whole pages of this size */

/* A device. It exists until the process ends. */
typedef struct lg_device {
    linnet_device table;
    lg_machine machine;
    lg_options options;
    const lg_cl *cl;
    cl_device_id id;
    cl_context context;
    char name[16], hardware[160], driver[320], features[128];
    uint64_t memory, largest, alignment;
    bool rounds_divisions, unified;
    lg_program_list programs;
    pthread_mutex_t lock;     /* protects `pinned` */
    struct lg_pinned *pinned; /* memory of the host that the device uses in place (host_memory.c) */
    lg_failures failures;
} lg_device;

/* The queue of a session. */
typedef struct lg_queue {
    cl_command_queue queue;
    lg_index_check *checks; /* the claims that check indices */
} lg_queue;

static inline cl_mem lg_buffer(linnet_handle handle) { return (cl_mem)(uintptr_t)handle; }
static inline lg_queue *lg_queue_of(linnet_handle handle) { return (lg_queue *)(uintptr_t)handle; }

#endif
