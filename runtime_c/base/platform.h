/* platform.h - the operating-system services that the runtime uses: file mapping, libraries, clock, threads, locks,
 * atomic counts. Only base/platform_*.c may include operating-system headers. */
#ifndef LN_PLATFORM_H
#define LN_PLATFORM_H

#include "base/error.h"

#include <stdatomic.h>

typedef struct ln_references {
    atomic_int count;
} ln_references;

enum { LN_MOST_PATH = 4096 };

uint64_t ln_now_ns(void);

/* Maps a whole file read-only. Errors: NOT_FOUND, READ_FAILED. */
linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error);
void ln_file_unmap(const void *data, size_t size);
/* Lets the system drop pages of a mapped file that are not needed soon. They are read again on access. */
void ln_file_forget(const void *data, size_t size);

/* Linux: the size of the pages that large memory may have, 2 MiB, and a call that asks for them; `data` and `size` are
 * whole such pages. The memory is then ready in less time and takes fewer entries of the TLB. Elsewhere the size is 0.
 */
size_t ln_memory_large_page(void);
void ln_memory_use_large_pages(void *data, size_t size);

/* Replaces a file atomically. ln_file_write writes `parts` one after another to PATH.part (it follows a link first).
 * ln_file_commit makes the data durable and renames the file to PATH. Both remove PATH.part when they fail with
 * WRITE_FAILED. A PATH.part that remains after a crash is overwritten by the next write. */
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

/* Shared libraries, which stay open until the process ends. ln_library_open returns NULL, and the reason in `why`,
 * which does not repeat the path. ln_code_folder gives the path of the file that contains this code, and returns the
 * length of its folder, with the last slash; 0: not known. */
void *ln_library_open(const char *path, char *why, size_t size);
void *ln_library_symbol(void *library, const char *name); /* NULL: there is none */
bool ln_file_exists(const char *path);
size_t ln_code_folder(char path[LN_MOST_PATH]);

/* A readers-writer lock, opaque and of fixed size so that it can be embedded in other structs. A waiting writer gets
   the lock before readers that arrive later. A thread must not lock it twice. */
typedef struct ln_lock {
    _Alignas(16) unsigned char opaque[144];
} ln_lock;
bool ln_lock_init(ln_lock *lock);
void ln_lock_destroy(ln_lock *lock);
void ln_lock_shared(ln_lock *lock);
void ln_lock_exclusive(ln_lock *lock);
/* The same, but calls `give_up` every few milliseconds while it waits. Returns false, without the lock, once `give_up`
   returns true. */
bool ln_lock_unless(ln_lock *lock, bool exclusive, bool (*give_up)(void *context), void *context);
void ln_unlock(ln_lock *lock);

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

int ln_default_thread_count(void);
/* Writes the numbers of the cores that the calling thread may run on, of the cluster with the largest total capacity,
 * and returns how many they are, at least 1. Where cores have no numbers, these are 0, 1, ... */
enum { LN_MOST_CORES = 256 };
int ln_largest_cluster(int cores[LN_MOST_CORES]);
/* Binds the calling thread to a core; -1: lets it run on all. Returns false if the system has no such call, or refuses.
 */
bool ln_bind_thread(int core);
/* Linux: the number of threads that the control groups of a process grant CPU time for, at least 1; INT_MAX without a
 * quota. `groups` is its /proc/.../cgroup file, `mount` the mount point (both cgroup versions). */
int ln_cpu_quota(const char *groups, const char *mount);

/* Bytes that this process can still allocate before the machine or one of its control groups runs out, including free
 * swap. On systems other than Linux: the total memory of the machine, or UINT64_MAX if unknown. */
uint64_t ln_memory_available(void);
/* Linux: computes ln_memory_available from a /proc/meminfo, a process's /proc/.../cgroup and the mount point of the
 * control groups. */
uint64_t ln_memory_left(const char *meminfo, const char *groups, const char *mount);

/* AArch64 only: the features that the operating system reports. */
enum ln_arm_feature {
    LN_ARM_DOTPROD = 1,
    LN_ARM_FP16 = 2,
    LN_ARM_I8MM = 4,
    LN_ARM_CRC = 8,
    LN_ARM_BF16 = 16,
    LN_ARM_SVE = 32
};
unsigned ln_arm_features(void);

#endif
