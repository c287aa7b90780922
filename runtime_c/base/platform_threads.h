/* platform_threads.h - a pool of threads. */
#ifndef LN_BASE_PLATFORM_THREADS_H
#define LN_BASE_PLATFORM_THREADS_H

#include "base/platform.h"

/* A thread pool: `workers` threads, which help the thread that calls the pool. An idle worker spins for a short time
 * (at most 50 us, and only between ln_threads_begin and ln_threads_end), then sleeps. Only one thread may use a pool at
 * a time. */
typedef struct ln_threads ln_threads;
/* Returns the number of bytes that ln_threads_init needs in `memory`. */
size_t ln_threads_size(int workers);
/* Creates a pool in `memory`, and starts its threads. Nothing else is allocated. With `bind`, the workers bind
 * themselves to the cores of the largest cluster, as far as the system permits; the first core is left for the caller.
 */
linnet_status ln_threads_init(void *memory, int workers, bool bind, ln_threads **out, linnet_error *error);
/* Ends the threads and waits for their end. The caller then frees `memory`. */
void ln_threads_free(ln_threads *threads);
/* Idle workers may spin for new work between these two calls. Outside them, idle workers sleep. */
void ln_threads_begin(ln_threads *threads);
void ln_threads_end(ln_threads *threads);
/* Calls task(argument, i) for every i in [0, count), and returns when all calls have returned. The caller runs part 0;
 * `count` is at most workers + 1.
 * `alone` belongs to this work, and is 0 at first. In it the pool stores how long, in nanoseconds, the caller would
 * take without workers. While other processes keep the cores busy, the pool calls only task(argument, LN_ALL_PARTS), on
 * the calling thread. If `alone` is NULL, the pool never does this. *share is the part of the work that task(argument,
 * 0) does, in units of 1/65536. If it is 0 or `share` is NULL, all `count` parts are equal. */
enum { LN_ALL_PARTS = -1 };
void ln_threads_run(ln_threads *threads, linnet_task task, void *argument, int count, uint32_t *alone,
                    const uint32_t *share);

#endif
