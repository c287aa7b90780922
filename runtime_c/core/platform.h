/* platform.h - the few things that the operating system gives: file mapping, clock, threads, locks, atomic counts.
 * core/platform_posix.c and platform_machine.c are the only files that may include operating-system headers. */
#ifndef LN_PLATFORM_H
#define LN_PLATFORM_H

#include "core/error.h"

#include <stdatomic.h>

typedef struct ln_references {
    atomic_int count;
} ln_references;

enum { LN_MOST_PATH = 4096 };

uint64_t ln_now_ns(void);

/* Maps a whole file read-only. NOT_FOUND, READ_FAILED. */
linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error);
void ln_file_unmap(const void *data, size_t size);
/* Of a mapped file: what was read once and is not needed soon need not stay in memory. It is still there. */
void ln_file_forget(const void *data, size_t size);

/* A file about to take another's place. ln_file_write puts `parts`, one behind the other, into PATH.part (a link is
 * followed first); ln_file_commit makes it durable and the file of that name. Both remove PATH.part when they fail:
 * WRITE_FAILED. A file that stayed behind after a crash is used again. */
typedef struct ln_span {
    const void *data;
    size_t size;
} ln_span;
typedef struct ln_new_file {
    int file;
    uint64_t bytes;
    char path[LN_MOST_PATH], temporary[LN_MOST_PATH + 8];
} ln_new_file;
linnet_status ln_file_write(ln_new_file *f, const char *path, const ln_span *parts, int32_t count, linnet_error *error);
linnet_status ln_file_commit(ln_new_file *f, linnet_error *error);

/* A readers-writer lock, opaque and of fixed size so that it can lie inside other structs. A writer that waits comes
 * before readers that come later. No thread takes it twice. */
typedef struct ln_lock {
    _Alignas(16) unsigned char opaque[144];
} ln_lock;
bool ln_lock_init(ln_lock *lock);
void ln_lock_destroy(ln_lock *lock);
void ln_lock_shared(ln_lock *lock);
void ln_lock_exclusive(ln_lock *lock);
/* The same, but asks `give_up` every few milliseconds while it waits: false, and no lock, once that says so. */
bool ln_lock_unless(ln_lock *lock, bool exclusive, bool (*give_up)(void *context), void *context);
void ln_unlock(ln_lock *lock);

/* Thread pool: `workers` threads besides the caller; bounded spin (50 us at most inside a run), then sleep. */
typedef struct ln_threads ln_threads;
size_t ln_threads_size(int workers); /* bytes that ln_threads_init needs; it allocates nothing itself */
linnet_status ln_threads_init(void *memory, int workers, ln_threads **out, linnet_error *error);
void ln_threads_free(ln_threads *threads);
/* Workers may spin for new work between these two; outside they sleep. */
void ln_threads_begin(ln_threads *threads);
void ln_threads_end(ln_threads *threads);
/* task(argument, i) for i in [0, count), i = 0 on the caller; count <= workers + 1. Returns when all have ended. */
void ln_threads_run(ln_threads *threads, linnet_task task, void *argument, int count);

int ln_default_thread_count(void);
/* Linux: threads that the control groups of a process (its /proc/.../cgroup file; both versions, at `mount`) grant time
 * for, at least 1; INT_MAX without a quota. */
int ln_cpu_quota(const char *groups, const char *mount);

/* Bytes that this process can still take before its machine, or a control group around it, has none left, free swap
 * included. Other systems than Linux: what the machine has in all; UINT64_MAX where nobody tells. */
uint64_t ln_memory_available(void);
/* Linux: that, from a /proc/meminfo, a process's /proc/.../cgroup and where control groups are mounted. */
uint64_t ln_memory_left(const char *meminfo, const char *groups, const char *mount);

/* AArch64 only: what the operating system reports. */
enum ln_arm_feature { LN_ARM_DOTPROD = 1, LN_ARM_FP16 = 2, LN_ARM_I8MM = 4, LN_ARM_CRC = 8 };
unsigned ln_arm_features(void);

#endif
