/* backend.h - the types of the CUDA backend: a device per GPU of the machine and per text of options, its programs, and
 * the work of sessions. device.c has the table of functions, context.c the current context, memory.c buffers, queues
 * and events, program.c programs, work.c claims, graph.c the graphs that replay them. */
#ifndef LG_CUDA_BACKEND_H
#define LG_CUDA_BACKEND_H

#include "kernels_gpu/common/checks.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/options.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/cuda/cu.h"

/* Compiled programs, by the hashes of their texts (pack.c). */
typedef struct lg_programs {
    const unsigned char *data;
    size_t size, count;
    int cuda; /* the version of CUDA that the driver must have: 13000 for 13.0 */
} lg_programs;

/* A device. It lives as long as the process. */
typedef struct lg_device {
    linnet_device table;
    lg_machine machine;
    lg_options options;
    const lg_cu *cu; /* NULL: the device only plans */
    bool compiles;   /* NVRTC is there; else there are only the programs of the pack */
    lg_programs pack;
    CUcontext context; /* the primary one, which a program shares with CUDA libraries that it uses */
    char name[16], hardware[160], driver[160], features[128], architecture[16];
    uint64_t memory;
    lg_program_list programs;
    lg_failures failures;
} lg_device;

/* The code of a result of the driver: 0, or negative. */
static inline int lg_code(CUresult result) { return -result; }

/* A launch that is ready to run. */
typedef union lg_value {
    CUdeviceptr pointer;
    int32_t integer;
    float real;
} lg_value;

typedef struct lg_ready {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    lg_value *values; /* of the arguments */
    CUtensorMap *maps;
    void **parameters;
} lg_ready;

/* A claim in a session. */
typedef struct lg_state {
    int n_launches;
    lg_ready *launches;
    CUevent from, to; /* of a queue that measures: before and after the launches */
    struct lg_queue *queue;
    lg_index_check check; /* `found` is pinned memory; NULL if the claim checks no indices */
} lg_state;

/* A graph that replays launches of a sequence of claims. */
typedef struct lg_graph {
    struct lg_graph *next;
    lg_state **states;
    int count, runs;
    CUgraphExec exec; /* NULL: the sequence has not been repeated yet */
} lg_graph;

/* Claims that run one after another are kept until something else is submitted. If the same claims ran before, they are
 * submitted as a graph, which takes the processor and the GPU less time than one launch each. */
typedef struct lg_queue {
    CUstream stream;
    bool measures;
    lg_index_check *checks; /* of claims that look for indices out of range */
    lg_state **pending;     /* claims that have not been submitted */
    int n_pending, room;
    lg_graph *graphs;
} lg_queue;

static inline lg_queue *lg_queue_of(linnet_handle handle) { return (lg_queue *)(uintptr_t)handle; }

#endif
