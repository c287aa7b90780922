/* backend.h - the types of the CUDA backend: a device per GPU of the machine and per text of options, its programs, and
 * the work of sessions. device.c has the table of functions, context.c the current context, memory.c buffers, queues
 * and events, program.c programs, work.c claims, and graph.c the graphs that replay claims. */
#ifndef LG_CUDA_BACKEND_H
#define LG_CUDA_BACKEND_H

#include "kernels_gpu/common/checks.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/options.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/cuda/cu.h"

/* A pack: programs that .ci/cuda_programs.py has compiled, found by the hashes of their texts (pack.c). */
typedef struct lg_programs {
    const unsigned char *data;
    size_t size, count;
    int cuda; /* the version of CUDA that the driver must support at least: 13000 for 13.0 */
} lg_programs;

/* A device. It exists until the process ends. */
typedef struct lg_device {
    linnet_device table;
    lg_machine machine;
    lg_options options;
    const lg_cu *cu; /* NULL: the option `for` was given, so the device only plans */
    bool compiles;   /* NVRTC is there; otherwise the device can only run programs of the pack and of the cache */
    lg_programs pack;
    CUcontext context; /* the primary context of the GPU, which CUDA libraries in the same process use, too */
    char name[16], hardware[160], driver[160], features[128], architecture[16];
    uint64_t memory;
    lg_program_list programs;
    lg_failures failures;
} lg_device;

/* Returns the code (failures.h) of a result of the driver: 0, or a negative number. */
static inline int lg_code(CUresult result) { return -result; }

/* The value of a kernel's argument. */
typedef union lg_value {
    CUdeviceptr pointer;
    int32_t integer;
    float real;
} lg_value;

/* A launch whose program is loaded and whose arguments are known. */
typedef struct lg_ready {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    lg_value *values;  /* the arguments that are not tensor maps */
    CUtensorMap *maps; /* the arguments that are; NULL if there are none */
    void **parameters; /* the addresses of all arguments, as the driver expects them */
} lg_ready;

/* The state of a claim in a session, from `prepare` to `unprepare`. */
typedef struct lg_state {
    int n_launches;
    lg_ready *launches;
    CUevent from, to; /* events before and after the launches; NULL unless the queue measures times */
    struct lg_queue *queue;
    lg_index_check check; /* `found` is pinned memory; NULL if the claim checks no indices */
} lg_state;

/* A CUDA graph that replays the launches of a sequence of claims. */
typedef struct lg_graph {
    struct lg_graph *next;
    lg_state **states;
    int count, runs;
    CUgraphExec exec; /* NULL: the sequence has not been repeated yet */
} lg_graph;

/* A queue collects claims until other work is submitted. If the same sequence of claims ran before, the queue submits
 * the sequence as a graph, which takes the processor and the GPU less time than single launches. */
typedef struct lg_queue {
    CUstream stream;
    bool measures;          /* the session wants the times of steps, so each claim is submitted at once */
    lg_index_check *checks; /* the claims that check indices */
    lg_state **pending;     /* the claims that have not been submitted yet */
    int n_pending, room;
    lg_graph *graphs;
} lg_queue;

static inline lg_queue *lg_queue_of(linnet_handle handle) { return (lg_queue *)(uintptr_t)handle; }

#endif
