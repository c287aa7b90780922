/* platform_threads.h - a pool of threads. */
#ifndef LN_BASE_PLATFORM_THREADS_H
#define LN_BASE_PLATFORM_THREADS_H

#include "base/platform.h"

/* A thread pool with `workers` threads besides the caller. Idle workers spin for a bounded time (50 us at most, inside
 * a run), then sleep. */
typedef struct ln_threads ln_threads;
size_t ln_threads_size(int workers); /* bytes that ln_threads_init needs in `memory`; it does not allocate */
/* bind: the workers bind themselves to the cores of the largest cluster, from the second on, as far as they can. */
linnet_status ln_threads_init(void *memory, int workers, bool bind, ln_threads **out, linnet_error *error);
void ln_threads_free(ln_threads *threads);
/* Between these two calls workers may spin for new work; outside them they sleep. */
void ln_threads_begin(ln_threads *threads);
void ln_threads_end(ln_threads *threads);
/* Calls task(argument, i) for every i in [0, count), with i = 0 on the caller; count <= workers + 1. Returns when all
 * calls have returned. `alone` belongs to this work and is 0 at first: the pool keeps there what the caller would take
 * without workers, in nanoseconds. While other processes keep the cores busy, it then calls task(argument,
 * LN_ALL_PARTS) alone, on the caller. NULL: it never does. *share: what task(argument, 0) did of the work, in 1/65536;
 * 0 or NULL: one of `count` equal parts. */
enum { LN_ALL_PARTS = -1 };
void ln_threads_run(ln_threads *threads, linnet_task task, void *argument, int count, uint32_t *alone,
                    const uint32_t *share);

#endif
