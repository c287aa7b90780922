/* platform_locks.c - the readers-writer lock on POSIX systems, of a mutex and a condition variable. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "base/platform_locks.h"

#include "base/platform.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* A lock of our own instead of POSIX's, for two reasons. Where POSIX's lock lets readers overtake a waiting writer
 * (glibc), a training step would wait for a pause of all serving sessions. Also, a writer that waits with a deadline
 * would lose its place in the queue each time it checks the clock. */
typedef struct readers_writer {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int readers, writers; /* number of holders; number of waiting writers */
    bool written;
} readers_writer;

_Static_assert(sizeof(readers_writer) <= sizeof(((ln_lock *)0)->opaque),
               "ln_lock.opaque is too small on this platform");
_Static_assert(_Alignof(readers_writer) <= 16, "the alignment of ln_lock.opaque is too small on this platform");

#if defined(__APPLE__) /* its condition variables support one clock only */
enum { WAIT_CLOCK = CLOCK_REALTIME };
#else
enum { WAIT_CLOCK = CLOCK_MONOTONIC };
#endif

static readers_writer *inside(ln_lock *lock) { return (readers_writer *)(void *)lock->opaque; }

static bool wait_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) return false;
#if !defined(__APPLE__)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    const bool made = pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

bool ln_lock_init(ln_lock *lock) {
    readers_writer *l = inside(lock);
    memset(l, 0, sizeof *l);
    if (pthread_mutex_init(&l->mutex, NULL) != 0) return false;
    if (wait_init(&l->changed)) return true;
    pthread_mutex_destroy(&l->mutex);
    return false;
}

void ln_lock_destroy(ln_lock *lock) {
    pthread_cond_destroy(&inside(lock)->changed);
    pthread_mutex_destroy(&inside(lock)->mutex);
}

static bool is_free(const readers_writer *l, bool exclusive) {
    return !l->written && (exclusive ? l->readers == 0 : l->writers == 0);
}

static void wait_a_little(readers_writer *l) {
    enum { SLICE_NS = 5000000, SECOND_NS = 1000000000 };
    struct timespec until;
    clock_gettime(WAIT_CLOCK, &until);
    until.tv_nsec += SLICE_NS;
    if (until.tv_nsec >= SECOND_NS) ++until.tv_sec, until.tv_nsec -= SECOND_NS;
    pthread_cond_timedwait(&l->changed, &l->mutex, &until);
}

bool ln_lock_unless(ln_lock *lock, bool exclusive, bool (*give_up)(void *context), void *context) {
    readers_writer *l = inside(lock);
    bool gone = false;
    pthread_mutex_lock(&l->mutex);
    l->writers += exclusive; /* readers that arrive later must wait, even while give_up is being called */
    while (!is_free(l, exclusive) && !gone) {
        if (give_up == NULL) {
            pthread_cond_wait(&l->changed, &l->mutex);
            continue;
        }
        pthread_mutex_unlock(&l->mutex);
        gone = give_up(context);
        pthread_mutex_lock(&l->mutex);
        if (!gone && !is_free(l, exclusive)) wait_a_little(l);
    }
    l->writers -= exclusive;
    if (gone)
        pthread_cond_broadcast(&l->changed); /* wakes the readers that waited for this writer */
    else if (exclusive)
        l->written = true;
    else
        ++l->readers;
    pthread_mutex_unlock(&l->mutex);
    return !gone;
}

void ln_lock_shared(ln_lock *lock) { ln_lock_unless(lock, false, NULL, NULL); }

void ln_lock_exclusive(ln_lock *lock) { ln_lock_unless(lock, true, NULL, NULL); }

void ln_unlock(ln_lock *lock) {
    readers_writer *l = inside(lock);
    pthread_mutex_lock(&l->mutex);
    if (l->written)
        l->written = false;
    else
        --l->readers;
    if (l->readers == 0) pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}
