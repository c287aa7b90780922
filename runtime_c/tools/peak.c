/* peak.c - measures what a number of threads can do at most: the best of several slices of a loop in registers, and of
 * copies of blocks that fit a core's cache, the cache that cores share, and neither. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "peak.h"

#include "clock.h"
#include "peak_loop.h"
#include "values.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES = 5, MOST_THREADS = 256, ROUNDS = 4000, SMALL = 128 << 10, MIDDLE = 4 << 20, LARGE = 64 << 20 };
static const double slice_seconds = 0.01;

/* The loops of this build, worst first. */
static const struct {
    const char *isa;
    peak_loop *f32, *i8;
} sets[] = {
    {"scalar", NULL, NULL},
#if defined(TOOL_PEAK_sse2)
    {"sse2", peak_f32_sse2, peak_i8_sse2},
#endif
#if defined(TOOL_PEAK_avx2)
    {"avx2", peak_f32_avx2, peak_i8_avx2},
#endif
#if defined(TOOL_PEAK_avx512)
    {"avx512", peak_f32_avx512, peak_i8_avx512},
#endif
#if defined(TOOL_PEAK_avx512vnni)
    {"avx512vnni", NULL, peak_i8_avx512vnni},
#endif
#if defined(TOOL_PEAK_neon)
    {"neon", peak_f32_neon, peak_i8_neon},
#endif
#if defined(TOOL_PEAK_dotprod)
    {"dotprod", NULL, peak_i8_dotprod},
#endif
};

typedef struct work {
    peak_loop *loop; /* NULL: copies */
    char *from, *to;
    size_t bytes;
    double rate; /* per second */
} work;

static double slice(work *w) {
    volatile int seed = 1;
    double done = 0, begin = tool_now(), now;
    do {
        if (w->loop) {
            done += w->loop(ROUNDS, &seed);
        } else {
            memcpy(w->to, w->from, w->bytes);
            w->from[0] = w->to[w->bytes - 1]; /* keeps the copy */
            done += 2.0 * (double)w->bytes;
        }
        now = tool_now();
    } while (now < begin + slice_seconds);
    return done / (now - begin);
}

static void *best(void *argument) {
    work *w = argument;
    w->rate = 0;
    for (int i = 0; i <= SLICES; i++) {
        const double rate = slice(w); /* the first one warms up */
        if (i > 0 && rate > w->rate) w->rate = rate;
    }
    return NULL;
}

/* The sum of the threads' rates in 1e9 per second; 0 if they cannot be measured. */
static double measured(peak_loop *loop, size_t bytes, int threads) {
    work *parts = calloc((size_t)threads, sizeof *parts);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    bool *started = calloc((size_t)threads, sizeof *started), good = parts && ids && started;
    double sum = 0;
    for (int i = 0; good && i < threads; i++) {
        parts[i].loop = loop;
        if (loop) continue;
        parts[i].bytes = bytes;
        parts[i].from = malloc(bytes);
        parts[i].to = malloc(bytes);
        good = parts[i].from && parts[i].to;
        if (good) memset(parts[i].from, 1, bytes);
        if (good) memset(parts[i].to, 2, bytes);
    }
    for (int i = 1; good && i < threads; i++) good = started[i] = !pthread_create(&ids[i], NULL, best, &parts[i]);
    if (good) best(&parts[0]);
    for (int i = 1; started && i < threads; i++)
        if (started[i]) pthread_join(ids[i], NULL);
    for (int i = 0; parts && i < threads; i++) {
        sum += parts[i].rate;
        free(parts[i].from);
        free(parts[i].to);
    }
    free(parts);
    free(ids);
    free(started);
    return good ? 1e-9 * sum : 0;
}

/* Whether this machine and the library have an instruction set that is not above `isa_max`. */
static bool has(const char *isa, const char *isa_max) {
    const char *name;
    for (int i = 0; (name = linnet_isa_name(i)) != NULL; i++) {
        if (!strcmp(name, isa)) return true;
        if (isa_max && !strcmp(name, isa_max)) return false;
    }
    return false;
}

static void print_rate(bool json, const char *key, const char *what, const char *unit, double rate) {
    if (json) {
        printf(", \"%s\": ", key);
        if (rate > 0)
            printf("%.3f", rate);
        else
            printf("null");
    } else if (rate > 0) {
        printf("%10.1f %s %s\n", rate, unit, what);
    }
}

int tool_print_peaks(const tool_options *options, bool json) {
    const char *isa_max = options->isa_max;
    const long threads = options->threads;
    peak_loop *f32 = NULL, *i8 = NULL;
    const char *isa = "scalar";
    const int count = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : (int)threads;
    if (isa_max && !has(isa_max, NULL))
        return tool_fail(options->tool, "this machine has no instruction set '%s'; leave out --isa-max to use the best",
                         isa_max);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (!has(sets[i].isa, isa_max)) continue;
        isa = sets[i].isa;
        if (sets[i].f32) f32 = sets[i].f32;
        if (sets[i].i8) i8 = sets[i].i8;
    }
    if (json) {
        printf("{");
        tool_json_entry("isa", isa);
        printf(", \"threads\": %d", count);
    } else {
        printf("%s, %d thread%s\n", isa, count, count == 1 ? "" : "s");
    }
    print_rate(json, "f32_gflops", "of multiply-accumulates of floats", "GFLOP/s", f32 ? measured(f32, 0, count) : 0);
    print_rate(json, "i8_gops", "of multiply-accumulates of 8-bit integers", "GOP/s  ",
               i8 ? measured(i8, 0, count) : 0);
    print_rate(json, "cache_gbs", "of copies in a core's cache", "GB/s   ", measured(NULL, SMALL / 2, count));
    print_rate(json, "shared_gbs", "of copies in the cache of all cores", "GB/s   ",
               measured(NULL, (size_t)MIDDLE / 2 / (size_t)count, count));
    print_rate(json, "memory_gbs", "of copies beyond", "GB/s   ",
               measured(NULL, (size_t)LARGE / 2 / (size_t)count, count));
    if (json) printf("}\n");
    return tool_flush(options->tool);
}
