/* backend.h - the OpenCL backend: a device per GPU of the machine and per text of options, its programs, and the work
 * of sessions. device.c has the table of functions, memory.c buffers and queues, host_memory.c memory of the host,
 * program.c programs, work.c claims. */
#ifndef LG_BACKEND_H
#define LG_BACKEND_H

#include "kernels_gpu/common/library.h"
#include "kernels_gpu/opencl/cl.h"

enum { LG_PAGE = 4096 }; /* drivers use memory in place if it consists of whole pages */

typedef struct lg_program lg_program;

/* A device. It lives as long as the process. */
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
    pthread_mutex_t lock; /* of programs and of texts */
    lg_program *programs;
    struct lg_pinned *pinned; /* host_memory.c */
    lg_failures failures;
} lg_device;

/* program.c: the built program of a launch, compiled once per device and kept in the cache. `host_cache` may be NULL.
 */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, cl_program *out);
/* memory.c and work.c: functions of the table. */
typedef struct lg_state lg_state;
typedef struct lg_queue {
    cl_command_queue queue;
    lg_state *checks; /* claims that look for indices out of range */
} lg_queue;
/* After work has ended: a failure if a claim of the queue has found an index that is out of range. */
int lg_check(lg_device *device, lg_queue *queue);
void lg_memory_functions(linnet_device *table);
void lg_host_memory_functions(linnet_device *table, int memory);
void lg_work_functions(linnet_device *table);
static inline cl_mem lg_buffer(linnet_handle handle) { return (cl_mem)(uintptr_t)handle; }
static inline lg_queue *lg_queue_of(linnet_handle handle) { return (lg_queue *)(uintptr_t)handle; }

#endif
