/* test_threads.c - the thread pool and the readers-writer lock: in many runs, every task runs once and no task runs
 * after the end. ThreadSanitizer runs this test, too. The pool is used while its threads spin, while they sleep, and
 * from several threads that each have a pool. */
#define _DEFAULT_SOURCE 1 /* mkdtemp */

#include "check.h"

#include "base/memory.h"
#include "base/platform.h"
#include "base/platform_locks.h"
#include "base/platform_machine.h"
#include "base/platform_threads.h"
#include "base/resting.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { MOST = 8 };

typedef struct work {
    int runs[MOST];
    long long sums[MOST]; /* written without atomics, so the pool must order the accesses */
    int spin;
} work;

static void task(void *argument, int index) {
    work *w = argument;
    for (volatile int i = 0; i < w->spin; i++);
    w->runs[index]++;
    w->sums[index] += w->runs[index];
}

static ln_threads *start(ln_memory *memory, void **block, int workers) {
    ln_threads *threads = NULL;
    linnet_error error;
    *block = ln_memory_alloc(memory, ln_threads_size(workers));
    CHECK(*block != NULL);
    CHECK_INT(ln_threads_init(*block, workers, workers % 2 == 1, &threads, &error), LINNET_OK);
    return threads;
}

static void stop(ln_memory *memory, void *block, ln_threads *threads, int workers) {
    ln_threads_free(threads);
    ln_memory_free(memory, block, ln_threads_size(workers));
}

static void nap(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

/* The number of tasks varies between runs, so that workers skip runs or come late. */
static void *many_runs(void *argument) {
    int workers = *(int *)argument, expected[MOST] = {0}, wrong = 0;
    ln_memory memory;
    void *block;
    ln_threads *threads;
    work w;
    uint64_t state = 88172645463325252u + (uint64_t)workers;
    ln_memory_init(&memory, NULL);
    memset(&w, 0, sizeof w);
    *(int *)argument = 0;
    block = ln_memory_alloc(&memory, ln_threads_size(workers));
    if (!block || ln_threads_init(block, workers, false, &threads, NULL)) {
        *(int *)argument = 1;
        return NULL;
    }
    for (int session = 0; session < 20; session++) {
        ln_threads_begin(threads);
        for (int run = 0; run < 60; run++) {
            int count = (int)(check_random(&state) % (uint64_t)(workers + 2));
            w.spin = (int)(check_random(&state) % 200);
            ln_threads_run(threads, task, &w, count, NULL, NULL);
            for (int i = 0; i < MOST; i++) {
                expected[i] += i < count;
                wrong += w.runs[i] != expected[i];
            }
        }
        ln_threads_end(threads);
        if (session % 5 == 0) nap(200); /* lets the workers fall asleep */
    }
    ln_threads_free(threads);
    ln_memory_free(&memory, block, ln_threads_size(workers));
    *(int *)argument = wrong || memory.bytes;
    return NULL;
}

static void outside_of_a_session(void) {
    ln_memory memory;
    void *block;
    work w;
    ln_threads *threads;
    ln_memory_init(&memory, NULL);
    threads = start(&memory, &block, 3);
    memset(&w, 0, sizeof w);
    for (int i = 0; i < 50; i++) /* without begin, workers never spin, but the work is still done */
        ln_threads_run(threads, task, &w, 4, NULL, NULL);
    for (int i = 0; i < 4; i++) CHECK_INT(w.runs[i], 50);
    ln_threads_run(threads, task, &w, 100, NULL, NULL); /* more than the number of threads: uses all of them */
    CHECK_INT(w.runs[3], 51);
    CHECK_INT(w.runs[4], 0);
    stop(&memory, block, threads, 3);
    threads = start(&memory, &block, 0);
    ln_threads_run(threads, task, &w, 1, NULL, NULL);
    CHECK_INT(w.runs[0], 52);
    stop(&memory, block, threads, 0);
    CHECK_INT(memory.bytes, 0);
}

/* Workers that wait without work use almost no processor time, inside a session and outside. */
static void idle_workers_sleep(void) {
    ln_memory memory;
    void *block;
    work w;
    ln_threads *threads;
    struct timespec before, after;
    double used;
    ln_memory_init(&memory, NULL);
    memset(&w, 0, sizeof w);
    threads = start(&memory, &block, 3);
    ln_threads_begin(threads);
    ln_threads_run(threads, task, &w, 4, NULL, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nap(100000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    CHECK(used < 0.03); /* three spinning workers would use at least 0.1 s */
    ln_threads_end(threads);
    stop(&memory, block, threads, 3);
}

typedef struct slow_worker {
    pthread_t caller;
    atomic_int by_workers;
    int runs[2];
} slow_worker;

static void slow_on_a_worker(void *argument, int index) {
    slow_worker *s = argument;
    if (index == LN_ALL_PARTS) {
        CHECK(pthread_equal(pthread_self(), s->caller));
        s->runs[0]++, s->runs[1]++;
        return;
    }
    s->runs[index]++;
    if (pthread_equal(pthread_self(), s->caller)) return;
    atomic_fetch_add(&s->by_workers, 1);
    nap(2000);
}

/* A worker that takes far longer than the caller, as on a busy machine, gets few parts; every part still runs once. */
static void slow_workers_get_no_work(void) {
    ln_memory memory;
    void *block;
    slow_worker s = {.caller = pthread_self()};
    ln_memory_init(&memory, NULL);
    ln_threads *threads = start(&memory, &block, 1);
    ln_threads_begin(threads);
    uint32_t alone = 0;
    for (int i = 0; i < 200; i++) ln_threads_run(threads, slow_on_a_worker, &s, 2, &alone, NULL);
    ln_threads_end(threads);
    CHECK_INT(s.runs[0], 200);
    CHECK_INT(s.runs[1], 200);
    CHECK(atomic_load(&s.by_workers) <= 20);
    stop(&memory, block, threads, 1);
}

/* A machine of which a test decides how long calls take. Every call takes `alone` without workers. */
typedef struct machine {
    ln_resting resting;
    uint64_t now, calls, rested, lost, gained;
} machine;

enum { ALONE = 100000, MS = 1000000 };

/* One call of the pool: while it rests it takes ALONE, otherwise `took`. */
static void call(machine *m, uint64_t took) {
    m->calls++;
    if (m->now < m->resting.until) {
        m->now += ALONE;
        m->rested += ALONE;
        return;
    }
    m->now += took;
    if (took > ALONE)
        m->lost += took - ALONE;
    else
        m->gained += ALONE - took;
    ln_resting_account(&m->resting, ALONE, took, m->now);
}

static void resting(void) {
    machine m = {.now = 1};
    for (int i = 0; i < 1000; i++) call(&m, i == 500 ? 3 * MS : 60000); /* one call that loses its core */
    CHECK_INT(m.rested, 0);
    m = (machine){.now = 1};
    call(&m, 5 * MS); /* even the first: it costs no more than itself again */
    for (int i = 0; i < 1000; i++) call(&m, 60000);
    CHECK(m.rested > 0 && m.rested <= 5 * MS);

    m = (machine){.now =
                      1}; /* a process that starts every 5 ms takes a core for 1 ms, and the pool gains all the same */
    for (uint64_t next = 5 * MS; m.now < 1000 * MS;) {
        const bool hit = m.now >= next;
        if (hit) next += 5 * MS;
        call(&m, hit ? MS : 60000);
    }
    CHECK(m.gained > m.lost);
    CHECK_INT(m.rested, 0);

    m = (machine){.now = 1}; /* workers that slept wake up late, at the first three calls of every run */
    for (int i = 0; i < 1000; i++) call(&m, i % 50 < 3 ? 150000 : 60000);
    CHECK_INT(m.rested, 0);

    m = (machine){.now = 1}; /* what was gained long ago does not count when the machine gets busy */
    for (int i = 0; i < 10000; i++) call(&m, 60000);
    for (int i = 0; i < 200; i++) call(&m, 140000);
    CHECK(m.rested > 0);

    m = (machine){.now = 1}; /* busy loops on all cores: each call loses a third, and some lose a whole slice */
    for (int i = 0; m.now < 4000ull * MS; i++) call(&m, i % 20 == 0 ? 3 * MS : 140000);
    CHECK(m.lost > 0 && m.lost < m.now / 25);
    CHECK(m.resting.until <= m.now + 64 * 4 * MS);
    const uint64_t ended = m.now = m.resting.until; /* when they have ended, the next trial ends the rests */
    m.rested = 0;
    while (m.now < ended + 100 * MS) call(&m, 60000);
    CHECK_INT(m.rested, 0);
    call(&m, 9 * MS); /* and the next rest is short again */
    for (int i = 0; i < 200; i++) call(&m, 60000);
    CHECK(m.rested > 0 && m.rested <= 9 * MS);
}

/* A call that lost its core does not count as the work that it has; work that has grown is learnt within some calls. */
static void expected_time(void) {
    uint32_t alone = 0;
    ln_resting_expect(&alone, 1000);
    CHECK_INT(alone, 1000);
    ln_resting_expect(&alone, 9000);
    CHECK_INT(alone, 1500);
    ln_resting_expect(&alone, 800);
    CHECK_INT(alone, 800);
    for (int i = 0; i < 100; i++) ln_resting_expect(&alone, 9000);
    CHECK(alone > 8900 && alone <= 9000);
    ln_resting_expect(&alone, UINT64_MAX);
    CHECK(alone > 200000000 && alone < 300000000);
}

typedef struct shared {
    ln_lock lock;
    int a, b, torn;
} shared;

static void *reader(void *argument) {
    shared *s = argument;
    int torn = 0;
    for (int i = 0; i < 2000; i++) {
        ln_lock_shared(&s->lock);
        torn += s->a != s->b;
        ln_unlock(&s->lock);
    }
    ln_lock_exclusive(&s->lock);
    s->torn += torn;
    ln_unlock(&s->lock);
    return NULL;
}

static void *writer(void *argument) {
    shared *s = argument;
    for (int i = 0; i < 2000; i++) {
        ln_lock_exclusive(&s->lock);
        s->a++;
        s->b++;
        ln_unlock(&s->lock);
    }
    return NULL;
}

static void lock(void) {
    shared s;
    pthread_t threads[4];
    memset(&s, 0, sizeof s);
    CHECK(ln_lock_init(&s.lock));
    for (int i = 0; i < 4; i++) CHECK_INT(pthread_create(&threads[i], NULL, i < 2 ? reader : writer, &s), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK_INT(s.a, 4000);
    CHECK_INT(s.b, 4000);
    CHECK_INT(s.torn, 0);
    ln_lock_destroy(&s.lock);
}

static void put_file(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = strchr(path + strlen(folder) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Both versions of control groups: the smallest quota of the groups around a process counts, rounded up. */
static void quotas(void) {
#if defined(__linux__)
    char folder[] = "/tmp/linnet-quota-XXXXXX", groups[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(groups, sizeof groups, "%s/groups", folder);
    CHECK_INT(ln_cpu_quota(groups, folder), INT_MAX); /* no such file */
    put_file(folder, "groups", "0::/a/b\n");
    CHECK_INT(ln_cpu_quota(groups, folder), INT_MAX);
    put_file(folder, "a/b/cpu.max", "max 100000\n");
    CHECK_INT(ln_cpu_quota(groups, folder), INT_MAX);
    put_file(folder, "a/b/cpu.max", "350000 100000\n");
    CHECK_INT(ln_cpu_quota(groups, folder), 4);
    put_file(folder, "a/cpu.max", "150000 100000\n");
    CHECK_INT(ln_cpu_quota(groups, folder), 2);
    put_file(folder, "cpu.max", "10000 100000\n"); /* the file of a container's own root */
    CHECK_INT(ln_cpu_quota(groups, folder), 1);
    put_file(folder, "groups", "12:cpuset:/x\n4:cpu,cpuacct:/c\n1:name=systemd:/\n0::nonsense\n7\n");
    put_file(folder, "cpu.max", "");
    CHECK_INT(ln_cpu_quota(groups, folder), INT_MAX);
    put_file(folder, "cpu/c/cpu.cfs_quota_us", "-1\n");
    put_file(folder, "cpu/c/cpu.cfs_period_us", "100000\n");
    CHECK_INT(ln_cpu_quota(groups, folder), INT_MAX);
    put_file(folder, "cpu/c/cpu.cfs_quota_us", "250000\n");
    CHECK_INT(ln_cpu_quota(groups, folder), 3);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
#endif
}

/* Memory that is available: of the machine, or of the control group with the least. Pages of files count as available,
 * because they can be reclaimed; swap is added. */
static void memory_left(void) {
#if defined(__linux__)
    char folder[] = "/tmp/linnet-memory-XXXXXX", groups[64], info[64], command[64];
    const int64_t kilo = 1024;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(groups, sizeof groups, "%s/groups", folder);
    snprintf(info, sizeof info, "%s/meminfo", folder);
    CHECK(ln_memory_left(info, groups, folder) == UINT64_MAX); /* no file has this value */
    put_file(folder, "meminfo", "MemTotal: 9000 kB\nMemFree: 100 kB\nCached: 300 kB\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 400 * kilo); /* an old kernel without MemAvailable */
    put_file(folder, "meminfo", "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:   5000 kB\nSwapFree: 1000 kB\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 6000 * kilo);
    put_file(folder, "groups", "0::/a/b\n");
    put_file(folder, "a/b/memory.max", "max\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 6000 * kilo);
    put_file(folder, "a/memory.max", "4096000\n");
    put_file(folder, "a/memory.current", "3072000\n");
    put_file(folder, "a/memory.swap.max", "0\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 1024000);
    put_file(folder, "a/memory.stat", "anon 2048000\nfile 900\ninactive_file 500000\nactive_file 12000\nshmem 3\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 1024000 + 512000);
    put_file(folder, "a/memory.swap.max", "1000\n");
    put_file(folder, "a/memory.swap.current", "400\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 1024000 + 512000 + 600);
    put_file(folder, "memory.max", "5\n"); /* the file of a container's own root, which already uses more */
    put_file(folder, "memory.current", "9\n");
    put_file(folder, "memory.swap.max", "0\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 0);
    put_file(folder, "groups", "9:memory:/c\n1:name=systemd:/\n");
    put_file(folder, "memory/c/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(folder, "memory/c/memory.usage_in_bytes", "3\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 6000 * kilo);
    put_file(folder, "memory/c/memory.limit_in_bytes", "700000\n");
    put_file(folder, "memory/c/memory.usage_in_bytes", "600000\n");
    put_file(folder, "memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 20000\ntotal_active_file 3000\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 123000 + 1000 * kilo);
    put_file(folder, "memory/c/memory.memsw.limit_in_bytes", "700000\n");
    put_file(folder, "memory/c/memory.memsw.usage_in_bytes", "650000\n");
    CHECK_INT(ln_memory_left(info, groups, folder), 73000);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
    CHECK(ln_memory_available() > 0);
#endif
}

int main(void) {
    int workers[3] = {1, 3, 7};
    pthread_t threads[3];
    outside_of_a_session();
    idle_workers_sleep();
    slow_workers_get_no_work();
    resting();
    expected_time();
    for (int i = 0; i < 3; i++) CHECK_INT(pthread_create(&threads[i], NULL, many_runs, &workers[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(workers[i], 0);
    }
    lock();
    quotas();
    memory_left();
    CHECK(ln_default_thread_count() >= 1);
    return check_end("test_threads");
}
