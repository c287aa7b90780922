/* platform_machine.h - the processor, the memory and the clock. */
#ifndef LN_BASE_PLATFORM_MACHINE_H
#define LN_BASE_PLATFORM_MACHINE_H

#include "base/platform.h"

/* Returns the time of a monotonic clock in nanoseconds. */
uint64_t ln_now_ns(void);

/* ln_memory_large_page returns the size of large pages: 2 MiB on Linux, 0 on systems without them.
 * ln_memory_use_large_pages asks the system to use such pages for this memory, which must begin and end at their
 * borders. Large pages need fewer page faults and fewer entries of the TLB. The system may refuse without an effect. */
size_t ln_memory_large_page(void);
void ln_memory_use_large_pages(void *data, size_t size);

/* Returns the number of threads that a session uses unless its user gives a number: at least 1. */
int ln_default_thread_count(void);
/* Cores of equal capacity form a cluster. Finds the cluster with the largest total capacity among the cores on which
 * the calling thread may run. Writes the numbers of its cores and returns their count, which is at least 1. On systems
 * that do not number their cores, the numbers are 0, 1, ... */
enum { LN_MOST_CORES = 256 };
int ln_largest_cluster(int cores[LN_MOST_CORES]);
/* Binds the calling thread to a core; -1 lets the thread run on all cores. Returns false if the system has no such
 * call, or refuses. */
bool ln_bind_thread(int core);
/* Linux: returns for how many threads the control groups of a process grant CPU time: at least 1, and INT_MAX if there
 * is no quota. `groups` is the process's /proc/.../cgroup file, and `mount` is the mount point of the control groups,
 * of version 1 or 2. Tests pass files of their own. */
int ln_cpu_quota(const char *groups, const char *mount);

/* Returns the number of bytes that this process can still allocate before the machine or one of its control groups runs
 * out of memory, including free swap. On systems other than Linux, returns the total memory of the machine, or
 * UINT64_MAX if it is not known. */
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
