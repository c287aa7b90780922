/* platform_machine.c - the machine: its clock, cores, memory and ARM features, and the limits of the control groups
 * that contain the process. Linux provides all of this in files; on other systems, POSIX's sysconf provides a part. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* CPU_SET, sched_getaffinity */
#endif

#include "base/platform_machine.h"

#include "base/platform.h"

#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#endif
#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

uint64_t ln_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__linux__)
/* Reads the beginning of a small file. Stores "" if the file does not exist. */
static void read_text(const char *path, char *text, size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = 0;
}

/* ---- control groups ---------------------------------------------------------------------------------------------- */

enum { MOST_GROUPS = 2048, MOST_GROUP_PATH = 512 };

/* Calls see(folder, unified, context) for every group of the controller that contains the process, because every such
   group limits the process. The innermost group comes first. unified: a group of version 2. groups: a process's
   /proc/.../cgroup file. */
typedef void (*see_group)(const char *folder, bool unified, void *context);
static void each_group(const char *groups, const char *mount, const char *controller, see_group see, void *context) {
    char list[MOST_GROUPS], path[MOST_GROUP_PATH], text[64], wanted[32];
    snprintf(wanted, sizeof wanted, ",%s,", controller);
    read_text(groups, list, sizeof list);
    for (char *rest = list, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) { /* id:controllers:/path */
        char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = 0;
        const bool unified = controllers[1] == 0;
        snprintf(text, sizeof text, ",%s,", controllers + 1);
        if (!unified && strstr(text, wanted) == NULL) continue;
        for (;;) {
            snprintf(path, sizeof path, "%s%s%s%s", mount, unified ? "" : "/", unified ? "" : controller, group);
            see(path, unified, context);
            char *last = strrchr(group, '/');
            if (last == NULL) break;
            *last = 0;
        }
    }
}

static void read_from(const char *folder, const char *name, char *text, size_t size) {
    char path[MOST_GROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    read_text(path, text, size);
}

/* Returns the number of cores that a quota per period grants, rounded up; INT_MAX for "max", -1 and any other text. */
static int granted(const char *quota, const char *period) {
    const long long most = atoll(quota), each = atoll(period);
    return most <= 0 || each <= 0 || most / each >= INT_MAX ? INT_MAX : (int)((most + each - 1) / each);
}

static void see_quota(const char *folder, bool unified, void *context) {
    int *least = context;
    char text[64], period[64];
    read_from(folder, unified ? "cpu.max" : "cpu.cfs_quota_us", text, sizeof text);
    const char *second = strchr(text, ' ');
    if (!unified) read_from(folder, "cpu.cfs_period_us", period, sizeof period);
    *least = (int)ln_min(*least, granted(text, !unified ? period : second != NULL ? second : ""));
}

int ln_cpu_quota(const char *groups, const char *mount) {
    int least = INT_MAX;
    each_group(groups, mount, "cpu", see_quota, &least);
    return least;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Add and subtract numbers that may be UINT64_MAX, which means "no limit" and stays UINT64_MAX. */
static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
static uint64_t minus(uint64_t a, uint64_t b) { return a == UINT64_MAX ? a : a > b ? a - b : 0; }
static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Returns the number behind `key` in a line that begins with `key`; `absent` if there is no such line. */
static uint64_t number_of(const char *text, const char *key, uint64_t absent) {
    const size_t length = strlen(key);
    for (const char *line = text; line != NULL && *line != 0; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':'))
            return strtoull(line + length + 1, NULL, 10);
    return absent;
}

/* Returns the number that a file of a group contains; `absent` for "max" or a missing file. */
static uint64_t number_in(const char *folder, const char *name, uint64_t absent) {
    char text[64];
    read_from(folder, name, text, sizeof text);
    return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : absent;
}

typedef struct memory_left {
    uint64_t swap, left; /* memory of the machine; smallest available memory found so far */
} memory_left;

/* Computes how much memory a group may still allocate: its limit minus its usage. The page cache counts as free,
 * because the system reclaims its memory first. */
static void see_memory(const char *folder, bool unified, void *context) {
    memory_left *m = context;
    const uint64_t most = number_in(folder, unified ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
    const uint64_t used = number_in(folder, unified ? "memory.current" : "memory.usage_in_bytes", 0);
    if (most == UINT64_MAX) return;
    char text[4096];
    read_from(folder, "memory.stat", text, sizeof text);
    const uint64_t files = number_of(text, unified ? "inactive_file" : "total_inactive_file", 0) +
                           number_of(text, unified ? "active_file" : "total_active_file", 0);
    uint64_t swap = m->swap;
    if (unified) {
        const uint64_t swapped = number_in(folder, "memory.swap.current", 0);
        swap = least_of(swap, minus(number_in(folder, "memory.swap.max", UINT64_MAX), swapped));
    } else { /* version 1 counts memory and swap together */
        const uint64_t both = number_in(folder, "memory.memsw.limit_in_bytes", UINT64_MAX);
        m->left = least_of(m->left, plus(minus(both, number_in(folder, "memory.memsw.usage_in_bytes", 0)), files));
    }
    m->left = least_of(m->left, plus(plus(minus(most, used), files), swap));
}

uint64_t ln_memory_left(const char *meminfo, const char *groups, const char *mount) {
    char text[4096];
    memory_left m = {0, UINT64_MAX};
    read_text(meminfo, text, sizeof text);
    const uint64_t older = number_of(text, "MemFree", 0) + number_of(text, "Cached", 0); /* before Linux 3.14 */
    const uint64_t kilobytes = number_of(text, "MemAvailable", older);
    m.swap = number_of(text, "SwapFree", 0) * 1024;
    if (kilobytes > 0) m.left = kilobytes * 1024 + m.swap;
    each_group(groups, mount, "memory", see_memory, &m);
    return m.left;
}

uint64_t ln_memory_available(void) { return ln_memory_left("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"); }
#else
uint64_t ln_memory_available(void) {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0) return (uint64_t)pages * (uint64_t)size;
#endif
    return UINT64_MAX;
}
#endif

/* ---- cores ------------------------------------------------------------------------------------------------------- */

#if defined(__linux__)
/* Returns a number from a file of /sys about one core; -1 if there is no such file. */
static long core_fact(int core, const char *name) {
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", core, name);
    read_text(path, text, sizeof text);
    if (text[0] == 0) return -1;
    long value = 0;
    for (const char *c = text; *c >= '0' && *c <= '9'; c++) value = value * 10 + (*c - '0');
    return value;
}

/* Cores that share a capacity (big.LITTLE) form a cluster. Hyperthreads of one core count once, because they share its
 * arithmetic units. */
int ln_largest_cluster(int cores[LN_MOST_CORES]) {
    long capacity[LN_MOST_CORES], identity[LN_MOST_CORES], best_sum = 0, best = -1;
    int count = 0, members = 0;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    for (int core = 0; core < CPU_SETSIZE && count < LN_MOST_CORES; core++) {
        long package, id, strength;
        bool known = false;
        if (!CPU_ISSET(core, &allowed)) continue;
        package = core_fact(core, "topology/physical_package_id");
        id = core_fact(core, "topology/core_id");
        strength = core_fact(core, "cpu_capacity");
        identity[count] = id < 0 ? -1 - core : (package < 0 ? 0 : package) * 65536 + id;
        capacity[count] = strength < 0 ? 1024 : strength;
        for (int i = 0; i < count && !known; i++)
            known = identity[i] == identity[count] && capacity[i] == capacity[count];
        cores[count] = core;
        count += !known;
    }
    for (int i = 0; i < count; i++) {
        long sum = 0;
        for (int j = 0; j < count; j++) sum += capacity[j] == capacity[i] ? capacity[i] : 0;
        if (sum > best_sum) best_sum = sum, best = capacity[i];
    }
    for (int i = 0; i < count; i++)
        if (capacity[i] == best) cores[members++] = cores[i];
    return members;
}

bool ln_bind_thread(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (core >= CPU_SETSIZE) return false;
    for (int i = core < 0 ? 0 : core; i <= (core < 0 ? CPU_SETSIZE - 1 : core); i++) CPU_SET(i, &cores);
    return sched_setaffinity(0, sizeof cores, &cores) == 0;
}
#else
int ln_largest_cluster(int cores[LN_MOST_CORES]) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int count = online > 0 && online <= LN_MOST_CORES ? (int)online : 1;
    for (int i = 0; i < count; i++) cores[i] = i;
    return count;
}

bool ln_bind_thread(int core) {
    (void)core;
    return false;
}
#endif

int ln_default_thread_count(void) {
    int cores[LN_MOST_CORES];
    const int count = ln_largest_cluster(cores);
#if defined(__linux__)
    return (int)ln_min(ln_max(count, 1), ln_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
#else
    return count;
#endif
}

unsigned ln_arm_features(void) {
#if defined(__linux__) && defined(__aarch64__)
    /* Bits of the kernel's ABI (arch/arm64/include/uapi/asm/hwcap.h). Old headers do not define these names. */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(26 /* AT_HWCAP2 */);
    return (first >> 20 & 1 ? LN_ARM_DOTPROD : 0u) | (first >> 10 & 1 ? LN_ARM_FP16 : 0u) |
           (second >> 13 & 1 ? LN_ARM_I8MM : 0u) | (first >> 7 & 1 ? LN_ARM_CRC : 0u) |
           (second >> 14 & 1 ? LN_ARM_BF16 : 0u) | (first >> 22 & 1 ? LN_ARM_SVE : 0u);
#elif defined(__APPLE__) && defined(__aarch64__)
    static const struct {
        const char *name;
        unsigned feature;
    } facts[] = {{"hw.optional.arm.FEAT_DotProd", LN_ARM_DOTPROD},
                 {"hw.optional.arm.FEAT_FP16", LN_ARM_FP16},
                 {"hw.optional.arm.FEAT_I8MM", LN_ARM_I8MM},
                 {"hw.optional.armv8_crc32", LN_ARM_CRC},
                 {"hw.optional.arm.FEAT_BF16", LN_ARM_BF16}};
    unsigned found = 0;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        int value = 0;
        size_t size = sizeof value;
        if (sysctlbyname(facts[i].name, &value, &size, NULL, 0) == 0 && value != 0) found |= facts[i].feature;
    }
    return found;
#else
    return 0;
#endif
}

#if defined(MADV_HUGEPAGE)
size_t ln_memory_large_page(void) { return 2 << 20; }

/* A system without large pages refuses. The memory then has ordinary pages, so the result is ignored. */
void ln_memory_use_large_pages(void *data, size_t size) { (void)madvise(data, size, MADV_HUGEPAGE); }
#else
size_t ln_memory_large_page(void) { return 0; }

void ln_memory_use_large_pages(void *data, size_t size) { (void)data, (void)size; }
#endif
