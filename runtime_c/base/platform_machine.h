/* platform_machine.h - the processor, the memory and the clock. */
#ifndef LN_BASE_PLATFORM_MACHINE_H
#define LN_BASE_PLATFORM_MACHINE_H

#include "base/platform.h"

uint64_t ln_now_ns(void);

/* Linux: the size of the pages that large memory may have, 2 MiB, and a call that asks for them; `data` and `size` are
 * whole such pages. The memory is then ready in less time and takes fewer entries of the TLB. Elsewhere the size is 0.
 */
size_t ln_memory_large_page(void);
void ln_memory_use_large_pages(void *data, size_t size);

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
