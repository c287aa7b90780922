/* platform_threads.c - the thread pool on POSIX systems. Each worker has its own ticket, so the caller waits only for
 * the workers that received work. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "base/platform_threads.h"

#include "base/platform.h"
#include "base/platform_machine.h"
#include "base/resting.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { SPIN_NS = 50000, SPINS_PER_CLOCK = 64, LINE = 64 };

/* A flag that one thread waits for. The thread spins for a bounded time, then sleeps. */
typedef struct ln_event {
    atomic_uint value;
    atomic_int sleeping;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} ln_event;

typedef struct ln_worker {
    _Alignas(LINE) ln_event go; /* ticket of the newest work for this worker */
    atomic_uint part; /* the ticket of a part that nobody has begun, or 0: the worker and the caller may take it */
    ln_threads *owner;
    int core;  /* the core to which this worker binds itself; -1: none */
    int index; /* index of this worker, which it passes to the task: 1, 2, ... */
    pthread_t thread;
} ln_worker;

struct ln_threads {
    /* The caller writes these before it changes a worker's ticket; the worker reads them after that. */
    linnet_task task;
    void *argument;
    atomic_int stop;
    int workers;
    ln_resting resting;
    _Alignas(LINE) atomic_int active;  /* between begin and end, when spinning is allowed */
    _Alignas(LINE) atomic_int pending; /* workers still running */
    ln_event done;                     /* the newest ticket whose last part a worker has finished */
    unsigned ticket;
    ln_worker worker[];
};

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool event_init(ln_event *event) {
    atomic_init(&event->value, 0);
    atomic_init(&event->sleeping, 0);
    if (pthread_mutex_init(&event->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&event->wake, NULL) == 0) return true;
    pthread_mutex_destroy(&event->mutex);
    return false;
}

static void event_destroy(ln_event *event) {
    pthread_cond_destroy(&event->wake);
    pthread_mutex_destroy(&event->mutex);
}

/* Each side writes one word and then reads the other's. Both operations are sequentially consistent, so either the
 * setter sees `sleeping` or the waiter sees the new value. The writes are exchanges because qemu-aarch64 lets the load
 * of an LDAR pass the store of an earlier STLR, which loses the wake-up about once in fifty runs of test_threads on a
 * busy machine. */
static void event_set(ln_event *event, unsigned value) {
    atomic_exchange(&event->value, value);
    if (atomic_load(&event->sleeping)) {
        pthread_mutex_lock(&event->mutex);
        pthread_cond_signal(&event->wake);
        pthread_mutex_unlock(&event->mutex);
    }
}

/* Waits until the value differs from `old`, and spins only while *spin is not 0. Returns the value. */
static unsigned event_wait(ln_event *event, unsigned old, atomic_int *spin) {
    uint64_t until = 0;
    unsigned value = atomic_load(&event->value);
    while (value == old && atomic_load_explicit(spin, memory_order_relaxed)) {
        for (int i = 0; i < SPINS_PER_CLOCK && value == old; i++) {
            pause_cpu();
            value = atomic_load(&event->value);
        }
        if (value == old) {
            uint64_t now = ln_now_ns();
            if (until == 0)
                until = now + SPIN_NS;
            else if (now >= until)
                break;
        }
    }
    if (value != old) return value;
    pthread_mutex_lock(&event->mutex);
    atomic_exchange(&event->sleeping, 1);
    while ((value = atomic_load(&event->value)) == old) pthread_cond_wait(&event->wake, &event->mutex);
    atomic_store(&event->sleeping, 0);
    pthread_mutex_unlock(&event->mutex);
    return value;
}

/* Takes the worker's part, if nobody has begun it. Returns false if another thread has taken it. */
static bool take_part(ln_worker *worker, unsigned ticket) {
    return atomic_compare_exchange_strong(&worker->part, &ticket, 0);
}

static void *worker_main(void *argument) {
    ln_worker *worker = argument;
    ln_threads *threads = worker->owner;
    unsigned ticket = 0;
    if (worker->core >= 0) (void)ln_bind_thread(worker->core);
    for (;;) {
        ticket = event_wait(&worker->go, ticket, &threads->active);
        if (atomic_load(&threads->stop)) return NULL;
        if (!take_part(worker, ticket)) continue;
        threads->task(threads->argument, worker->index);
        /* After this the caller may start new work. It cannot free the pool yet, because freeing joins the workers. */
        if (atomic_fetch_sub(&threads->pending, 1) == 1) event_set(&threads->done, ticket);
    }
}

size_t ln_threads_size(int workers) {
    return sizeof(ln_threads) + (size_t)(workers > 0 ? workers : 0) * sizeof(ln_worker);
}

static void stop_workers(ln_threads *threads, int started) {
    atomic_store(&threads->stop, 1);
    threads->ticket++;
    for (int i = 0; i < started; i++) event_set(&threads->worker[i].go, threads->ticket);
    for (int i = 0; i < started; i++) {
        pthread_join(threads->worker[i].thread, NULL);
        event_destroy(&threads->worker[i].go);
    }
    event_destroy(&threads->done);
}

linnet_status ln_threads_init(void *memory, int workers, bool bind, ln_threads **out, linnet_error *error) {
    ln_threads *threads = memory;
    int cores[LN_MOST_CORES];
    const int count = bind ? ln_largest_cluster(cores) : 0;
    *out = NULL;
    workers = workers > 0 ? workers : 0;
    memset(memory, 0, ln_threads_size(workers));
    threads->workers = workers;
    atomic_init(&threads->active, 0);
    atomic_init(&threads->pending, 0);
    if (!event_init(&threads->done))
        return ln_fail(error, LINNET_THREAD_FAILED, "cannot create the thread pool's mutex");
    for (int i = 0; i < workers; i++) {
        ln_worker *worker = &threads->worker[i];
        bool ready = event_init(&worker->go);
        int failure = EAGAIN;
        worker->owner = threads;
        worker->index = i + 1;
        worker->core = count > 0 ? cores[(i + 1) % count] : -1;
        if (ready) failure = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failure) {
            if (ready) event_destroy(&worker->go);
            stop_workers(threads, i);
            ln_fail(error, LINNET_THREAD_FAILED, "cannot start worker thread %d of %d", i + 1, workers);
            ln_got(error, "errno %d", failure);
            return ln_hint(error, "give a smaller number in linnet_plan_config.threads"), LINNET_THREAD_FAILED;
        }
    }
    *out = threads;
    return LINNET_OK;
}

void ln_threads_free(ln_threads *threads) {
    if (threads) stop_workers(threads, threads->workers);
}

void ln_threads_begin(ln_threads *threads) { atomic_store(&threads->active, 1); }

void ln_threads_end(ln_threads *threads) { atomic_store(&threads->active, 0); }

/* When the caller has finished its own part, it runs the parts that no worker has begun. So it waits only for workers
 * that are running. If other processes keep the cores busy, the caller runs such parts in every call, or a worker loses
 * its core in the middle of a part. Then the pool rests: the caller does all the work itself and wakes nobody
 * (resting.h). The results are the same, because they do not depend on the number of parts. */
void ln_threads_run(ln_threads *threads, linnet_task task, void *argument, int count, uint32_t *alone,
                    const uint32_t *share) {
    if (count > threads->workers + 1) count = threads->workers + 1;
    if (count < 2) {
        for (int i = 0; i < count; i++) task(argument, i);
        return;
    }
    const uint64_t begun = ln_now_ns();
    if (alone != NULL && begun < threads->resting.until) {
        task(argument, LN_ALL_PARTS);
        ln_resting_expect(alone, ln_now_ns() - begun);
        return;
    }
    /* Gives a part to each worker, then runs part 0. */
    const unsigned before = atomic_load(&threads->done.value);
    threads->ticket = (threads->ticket + 2) | 1; /* never 0 */
    const unsigned ticket = threads->ticket;
    threads->task = task;
    threads->argument = argument;
    atomic_store(&threads->pending, count - 1);
    for (int i = 0; i < count - 1; i++) {
        atomic_store(&threads->worker[i].part, ticket);
        event_set(&threads->worker[i].go, ticket);
    }
    const uint64_t own = ln_now_ns();
    task(argument, 0);
    const uint64_t ended = ln_now_ns();
    /* Runs the parts that no worker has begun, and waits for the others. */
    int left = count - 1;
    for (int i = count - 1; i-- > 0;) {
        if (!take_part(&threads->worker[i], ticket)) continue;
        task(argument, i + 1);
        left = atomic_fetch_sub(&threads->pending, 1) - 1;
    }
    if (left > 0) event_wait(&threads->done, before, &threads->active);
    if (alone == NULL) return;
    const uint64_t now = ln_now_ns();
    ln_resting_expect(alone,
                      share == NULL || *share == 0 ? (ended - own) * (uint64_t)count : ((ended - own) << 16) / *share);
    ln_resting_account(&threads->resting, *alone, now - begun, now);
}
