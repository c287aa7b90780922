/* platform_posix.c - files, clock, locks and threads on POSIX systems. Only this file and platform_machine.c include
 * operating-system headers. In the thread pool each worker has its own ticket, so the caller waits only for the workers
 * that received work. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "base/memory.h"
#include "base/platform.h"
#include "base/resting.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- clock and files --------------------------------------------------------------------------------------------- */

uint64_t ln_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static linnet_status file_failure(linnet_error *error, linnet_status code, const char *path, const char *what) {
    int number =
        errno; /* strerror has state and strerror_r has two incompatible forms, so the usual reasons are named here */
    const char *reason = number == ENOENT || number == ENOTDIR  ? "no such file"
                         : number == EACCES                     ? "permission denied"
                         : number == EMFILE || number == ENFILE ? "too many open files"
                         : number == ENOMEM                     ? "not enough address space"
                         : number == ENOSPC || number == EDQUOT ? "the disk or its quota is full"
                         : number == EFBIG                      ? "the file is larger than the system allows"
                         : number == EROFS                      ? "the file system is read-only"
                         : number == EIO                        ? "disk I/O error"
                         : number == EISDIR                     ? "not a regular file"
                                                                : "";
    ln_fail(error, code, "%s", what);
    ln_at_tensor(error, path);
    ln_got(error, "errno %d%s%s", number, reason[0] ? ": " : "", reason);
    if (number == ENOENT || number == ENOTDIR) ln_hint(error, "check the path");
    return code;
}

linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error) {
    struct stat status;
    void *mapped = NULL;
    /* O_NONBLOCK: a FIFO must not hang the open; regular files ignore it. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *data = NULL;
    *size = 0;
    if (file < 0) return file_failure(error, LINNET_NOT_FOUND, path, "cannot open the model file");
    if (fstat(file, &status) != 0) {
        file_failure(error, LINNET_READ_FAILED, path, "cannot read the size of the model file");
        close(file);
        return LINNET_READ_FAILED;
    }
    if (!S_ISREG(status.st_mode)) {
        close(file);
        ln_fail(error, LINNET_READ_FAILED, "not a regular file");
        ln_at_tensor(error, path);
        ln_hint(error, "give the path of a .lnt file");
        return LINNET_READ_FAILED;
    }
    if (status.st_size > 0 && (uint64_t)status.st_size <= SIZE_MAX) {
        mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapped == MAP_FAILED) {
            file_failure(error, LINNET_READ_FAILED, path, "cannot map the model file into memory");
            close(file);
            return LINNET_READ_FAILED;
        }
    }
    close(file);
    *data = mapped;
    *size = (size_t)status.st_size;
    return LINNET_OK;
}

void ln_file_unmap(const void *data, size_t size) {
    if (data) munmap((void *)(uintptr_t)data, size);
}

void ln_file_forget(const void *data, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page, end = ((uintptr_t)data + size) / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Opens and locks PATH.part. While this function waits for the lock, the previous holder may rename the file. In that
   case it opens PATH.part again. */
static bool open_new(ln_new_file *f) {
    for (;;) {
        struct stat mine, there;
        f->file = open(f->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (f->file < 0) return false;
        while (flock(f->file, LOCK_EX) != 0 && errno == EINTR); /* a file system without locks is used without a lock */
        if (fstat(f->file, &mine) == 0 && stat(f->temporary, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            return true;
        close(f->file);
    }
}

static bool write_all(int file, const char *data, size_t left) {
    while (left > 0) {
        const ssize_t done = write(file, data, left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        left -= (size_t)done;
    }
    return true;
}

/* Writes zeros as holes, so that a table with few used rows is as small on the disk as in memory. */
static bool write_sparse(int file, const char *data, size_t size, bool *hole) {
    enum { PIECE = 64 << 10 };
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < PIECE ? size - at : PIECE;
        *hole = part == PIECE && ln_is_zero(data + at, part) && lseek(file, PIECE, SEEK_CUR) >= 0;
        if (!*hole && !write_all(file, data + at, part)) return false;
    }
    return true;
}

static linnet_status write_failure(ln_new_file *f, linnet_error *error) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    file_failure(error, LINNET_WRITE_FAILED, f->path, "cannot write the file; an existing file is unchanged");
    if (f->file >= 0) {
        unlink(f->temporary); /* removed before closing, because closing releases the lock */
        close(f->file);
    }
    if (full) ln_expected(error, "%llu bytes free", (unsigned long long)f->bytes);
    ln_hint(error, full ? "free disk space, or use another path" : "use a path with write permission");
    return LINNET_WRITE_FAILED;
}

linnet_status ln_file_write(ln_new_file *f, const char *path, const ln_span *parts, int32_t count,
                            linnet_error *error) {
    struct stat there;
    f->file = -1;
    f->bytes = 0;
    for (int32_t i = 0; i < count; i++) f->bytes += parts[i].size;
    if (realpath(path, f->path) == NULL) snprintf(f->path, sizeof f->path, "%s", path);
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof f->path) return write_failure(f, error);
    snprintf(f->temporary, sizeof f->temporary, "%s.part", f->path);
    errno = EISDIR;
    if (stat(f->path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_failure(f, error); /* must not be replaced */
    if (!open_new(f) || ftruncate(f->file, 0) != 0) return write_failure(f, error);
    bool hole = false;
    for (int32_t i = 0; i < count; i++)
        if (!write_sparse(f->file, parts[i].data, parts[i].size, &hole)) return write_failure(f, error);
    return hole && ftruncate(f->file, (off_t)f->bytes) != 0 ? write_failure(f, error) : LINNET_OK;
}

linnet_status ln_file_commit(ln_new_file *f, linnet_error *error) {
    char *name;
    int folder;
    if (fsync(f->file) != 0 || rename(f->temporary, f->path) != 0) return write_failure(f, error);
    close(f->file);
    /* The rename is durable once the folder has been written to the disk. Not every file system can sync folders.
       Without the sync the name refers to either the old file or the new one after a crash, which is acceptable. */
    name = strrchr(f->path, '/');
    if (name != NULL) name[name == f->path] = 0;
    folder = open(name != NULL ? f->path : ".", O_RDONLY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        close(folder);
    }
    return LINNET_OK;
}

/* ---- locks ------------------------------------------------------------------------------------------------------- */

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

/* ---- thread pool ------------------------------------------------------------------------------------------------- */

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

/* Whether the thread that asks is the one that runs the part. */
static bool take_part(ln_worker *worker, unsigned ticket) {
    return atomic_compare_exchange_strong(&worker->part, &ticket, 0);
}

static void *worker_main(void *argument) {
    ln_worker *worker = argument;
    ln_threads *threads = worker->owner;
    unsigned ticket = 0;
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

linnet_status ln_threads_init(void *memory, int workers, ln_threads **out, linnet_error *error) {
    ln_threads *threads = memory;
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
        if (ready) failure = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failure) {
            if (ready) event_destroy(&worker->go);
            stop_workers(threads, i);
            ln_fail(error, LINNET_THREAD_FAILED, "cannot start worker thread %d of %d", i + 1, workers);
            ln_got(error, "errno %d", failure);
            return ln_hint(error, "use fewer threads, or set linnet_session_config.parallel_for"), LINNET_THREAD_FAILED;
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

/* The caller runs the parts that no worker has begun when it has finished its own, so it waits only for workers that
 * are running. If the cores are busy with other work, that happens in every call, or a worker loses its core in the
 * middle of a part. Then the pool rests: the caller does all the work itself and wakes nobody (resting.h). The results
 * are the same, because they do not depend on the number of parts. */
void ln_threads_run(ln_threads *threads, linnet_task task, void *argument, int count, uint32_t *alone) {
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
    int left = count - 1;
    for (int i = count - 1; i-- > 0;) {
        if (!take_part(&threads->worker[i], ticket)) continue;
        task(argument, i + 1);
        left = atomic_fetch_sub(&threads->pending, 1) - 1;
    }
    if (left > 0) event_wait(&threads->done, before, &threads->active);
    if (alone == NULL) return;
    const uint64_t now = ln_now_ns();
    ln_resting_expect(alone, (ended - own) * (uint64_t)count);
    ln_resting_account(&threads->resting, *alone, now - begun, now);
}
