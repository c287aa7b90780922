/* backend.h - the CUDA backend: a device per GPU of the machine and per text of options, its programs, and the work of
 * sessions. device.c has the table of functions, memory.c buffers, queues and events, program.c programs, work.c
 * claims, graph.c the graphs that replay them. */
#ifndef LG_BACKEND_H
#define LG_BACKEND_H

#include "kernels_gpu/common/library.h"
#include "kernels_gpu/cuda/cu.h"

typedef struct lg_program lg_program;

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
    pthread_mutex_t lock; /* of programs */
    lg_program *programs;
    lg_failures failures;
} lg_device;

/* Makes the device's context the thread's, until lg_leave. Functions of the driver need one. Returns a code. */
int lg_enter(lg_device *device);
void lg_leave(const lg_device *device);
/* The code of a result of the driver: 0, or negative. */
static inline int lg_code(CUresult result) { return -result; }

/* program.c: the function of a launch, whose program is compiled once per device and kept in the cache. `host_cache`
 * may be NULL. */
int lg_build(lg_device *device, const lg_launch *launch, const linnet_program_cache *host_cache, CUfunction *out);
/* Whether the pack has the programs of all launches. */
bool lg_has_programs(const lg_device *device, const lg_plan *plan);
/* Writes the program's text for tests and builds: FOLDER/<hash>.cu. */
void lg_show(const lg_device *device, const lg_launch *launch);
/* pack.c: opens the pack in a file, or without a path that of the build, which may have none. False with a text in
 * `why`: it cannot be used. */
bool lg_programs_open(const char *path, lg_programs *out, char *why, size_t size);
/* The code of a text; NULL: the pack does not have it. */
const unsigned char *lg_programs_find(const lg_programs *pack, const uint64_t hash[2]);
/* Which of the block's coordinates is the largest dimension of a launch: CUDA allows 2^31 blocks along x, and 65535
 * along y and z. */
int lg_largest_axis(const lg_launch *launch);

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
    /* A claim that checks indices. `found`, in pinned memory, is read after each run: 1 and the index, if one is out of
     * range. */
    struct lg_state *next;
    struct lg_queue *queue;
    CUdeviceptr status;
    int32_t *found;
    int64_t size;
    char name[80];
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
    lg_state *checks;   /* claims that look for indices out of range */
    lg_state **pending; /* claims that have not been submitted */
    int n_pending, room;
    lg_graph *graphs;
} lg_queue;

/* graph.c. The context is current. */
int lg_submit(lg_device *device, lg_queue *queue, lg_state *state); /* now or later */
int lg_flush(lg_device *device, lg_queue *queue);                   /* now, all that is pending */
int lg_launch_all(lg_device *device, lg_queue *queue, const lg_state *state);
/* Those of a claim, or all if it is NULL. If the context is not `current`, the driver keeps what it has of them. */
void lg_forget_graphs(lg_device *device, lg_queue *queue, const lg_state *state, bool current);

/* After work has ended: a failure if a claim of the queue has found an index that is out of range. */
int lg_check(lg_device *device, lg_queue *queue);
void lg_memory_functions(linnet_device *table, int memory);
void lg_work_functions(linnet_device *table);
static inline lg_queue *lg_queue_of(linnet_handle handle) { return (lg_queue *)(uintptr_t)handle; }

#endif
