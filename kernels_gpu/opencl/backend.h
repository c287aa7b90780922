/* backend.h - the OpenCL backend: a device per GPU of the machine and per text of options, its programs, and the work
 * of sessions. device.c has the table of functions, memory.c buffers and queues, host_memory.c memory of the host,
 * program.c programs, work.c claims. */
#ifndef LG_BACKEND_H
#define LG_BACKEND_H

#include "kernels_gpu/common/gpu.h"
#include "kernels_gpu/opencl/cl.h"

#include <pthread.h>

/* Inputs and outputs in memory of the host: copied to and from the device (memory=copied), through memory that the
 * driver has pinned (memory=pinned), or used in place (memory=shared). */
enum { LG_MEMORY_DEFAULT, LG_COPIED, LG_PINNED, LG_SHARED };
enum { LG_PAGE = 4096 }; /* drivers use memory in place if it consists of whole pages */

/* Options of a device: the text after the first comma of its name. */
typedef struct lg_options {
    bool f16;          /* f16=on: sums of floats may be f16 */
    bool modelled;     /* place=cost: costs are those of a model; else the device gets all that it can run */
    bool cached;       /* cache=off clears it */
    char folder[1024]; /* cache=DIR */
    int memory;        /* memory=... */
    char prefer[48];   /* kernel=NAME: the kernel of this name runs what it can. For tests */
} lg_options;

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
    const char *failures[64]; /* texts of failures with codes from LG_FIRST_TEXT on */
    int n_failures;
} lg_device;

/* Codes of failures: errors of OpenCL as they are (negative), and these. */
enum { LG_NO_MEMORY = 1, LG_BAD_STEP = 2, LG_FIRST_TEXT = 100 };

/* Keeps a text and returns its code. */
int lg_failure(lg_device *device, const char *format, ...);

/* program.c: the built program of a launch, compiled once per device and kept in the cache. `host_cache` may be NULL.
 */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, cl_program *out);
/* cache.c: programs in files, by a hash of the key. Both do nothing if the folder cannot be used. */
size_t lg_cache_load(const char *folder, const char *key, unsigned char **data); /* the caller frees it; 0: none */
void lg_cache_store(const char *folder, const char *key, const void *data, size_t size);
/* The user's folder for programs: $XDG_CACHE_HOME/linnet/programs or ~/.cache/linnet/programs. False: there is none. */
bool lg_cache_folder(char *out, size_t size);
/* Two hashes of 64 bits. */
void lg_hash(const char *text, uint64_t out[2]);

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
