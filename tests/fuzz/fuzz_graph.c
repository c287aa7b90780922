/* fuzz_graph.c - opens, plans and runs models that tests/fuzz/mutate_graph.py changed, one file each, with hostile
 * inputs, on the CPU and on the mock device. Each runs in its own process with a limit of processor time.
 * usage: fuzz_graph SEED ROUNDS FILE.lnt... */
#define _DEFAULT_SOURCE

#include "../ext/mock_queue.h"
#include "exercise.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CPU_SECONDS = 20, LOOP_SECONDS = 2, WALL_SECONDS = 300, ENDLESS = 77 };

typedef struct shared {
    fuzz f; /* counts over all cases */
    volatile int stage;
} shared;

static volatile int *watched;

int64_t mock_number(const char *name, int set, int64_t value);

/* Random nodes on the device, in one of the ways in which devices differ. Some calls of the device fail. */
static void change_devices(fuzz *f) {
    static const char *const kinds[] = {"claims",  "layouts", "epilogues", "shared", "visible",
                                        "reaches", "refuses", "in_file",   "lends",  "pinned"};
    mock_number("hostile", 1, 1);
    mock_number("seed", 1, (int64_t)mutant_below(&f->m, 1000));
    mock_number("share", 1, mutant_below(&f->m, 2) ? 16 : 8);
    mock_number("padding", 1, mutant_below(&f->m, 2) ? 96 : 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) mock_number(kinds[i], 1, mutant_below(&f->m, 2) != 0);
    mock_number("fail", 1, (int64_t)mutant_below(&f->m, MOCK_CALLBACK_COUNT));
    mock_number("fail_at", 1, mutant_below(&f->m, 6) ? 0 : 1 + (int64_t)mutant_below(&f->m, 4));
}

static void check_devices(void) {
    if (mock_number("live", 0, 0) == 0 && mock_number("misuse", 0, 0) == 0) return;
    printf("fuzz_graph: %d objects of the device are left, %d misuses\n", (int)mock_number("live", 0, 0),
           (int)mock_number("misuse", 0, 0));
    exit(4);
}

static void on_tick(int number) {
    (void)number;
    if (*watched == AT_LOOP) _exit(ENDLESS);
}

/* Runs in the child. Its output goes where the parent's goes. */
static void one_file(shared *s, const char *path, uint64_t seed, long rounds) {
    struct rlimit limit = {CPU_SECONDS, CPU_SECONDS + 1};
    struct itimerval tick = {{LOOP_SECONDS, 0}, {LOOP_SECONDS, 0}};
    static fuzz f;
    f = s->f;
    if (!mutant_load(&f.m, path)) exit(3);
    setrlimit(RLIMIT_CPU, &limit);
    alarm(WALL_SECONDS); /* against threads that wait for one another */
    watched = f.stage = &s->stage;
    signal(SIGPROF, on_tick);
    setitimer(ITIMER_PROF, &tick, NULL);
    f.m.state = seed;
    const linnet_device *devices[] = {linnet_extension_device(), linnet_extension_device()};
    f.devices = devices;
    f.device_count = 2;
    f.change_devices = change_devices;
    f.user_ops = linnet_extension_user_ops(&f.user_op_count);
    for (long round = 0; round < rounds; round++) {
        unsigned char *exact = malloc(f.m.file_size);
        if (!exact) exit(3);
        memcpy(exact, f.m.file, f.m.file_size);
        exercise(&f, exact, f.m.file_size);
        check_devices();
        free(exact);
    }
    free(f.m.file);
    s->f = f;
}

int main(int argc, char **argv) {
    static const char *const stages[] = {"opening", "planning", "running", "looping"};
    long rounds, slow = 0, loops = 0, failed = 0;
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 4 || s == MAP_FAILED || (rounds = strtol(argv[2], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_graph SEED ROUNDS FILE.lnt...\n");
        return 2;
    }
    for (int k = 3; k < argc; k++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            one_file(s, argv[k], strtoull(argv[1], NULL, 10) + (uint64_t)k, rounds);
            exit(0);
        }
        const time_t begin = time(NULL);
        if (waitpid(child, &status, 0) != child) return 1;
        if (time(NULL) - begin > CPU_SECONDS) printf("fuzz_graph: %s took %d s\n", argv[k], (int)(time(NULL) - begin));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == ENDLESS) {
            loops++;
        } else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)) {
            printf("fuzz_graph: slow: %s while %s\n", argv[k], stages[s->stage]);
            slow++;
        } else {
            printf("fuzz_graph: %s: status 0x%x while %s\n", argv[k], (unsigned)status, stages[s->stage]);
            failed++;
        }
    }
    printf(
        "fuzz_graph: %d files, %ld failed, %ld slow, %ld loops, %ld opened, %ld planned, %ld runs, %ld bound, %ld fed, "
        "%ld placed;",
        argc - 3, failed, slow, loops, s->f.opened, s->f.planned, s->f.ran, s->f.bound, s->f.fed, s->f.placed);
    exercise_counts(&s->f);
    return failed > 0;
}
