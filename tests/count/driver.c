/* driver.c - runs a model for the counting plugin: driver MODEL [ISA] [f16]. - stands for the best ISA, and f16 permits
 * sums of f16. Marks stand around loading, planning, creating the session, and runs; in the traced run, at each reading
 * of the clock, which the trace reads around every step. */
#define _POSIX_C_SOURCE 200809L
#include "linnet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void mark(void) {
#ifdef __aarch64__
    __asm__ volatile("movz xzr, #0x51A3" ::: "memory");
#else
    __asm__ volatile("movw ip, #0x51A3" ::: "ip", "memory");
#endif
}

static int tracing;

/* The linker puts this in place of clock_gettime (--wrap). Time passes evenly, so that every count is the same. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    static long now;
    (void)clock;
    if (tracing) mark();
    now += 1000;
    t->tv_sec = now / 1000000000, t->tv_nsec = now % 1000000000;
    return 0;
}

static int failed(const char *what, const linnet_error *error) {
    char text[2048];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "cannot %s: %s\n", what, text);
    return 1;
}

/* Floats between -1 and 1, and bytes of all values. */
static void fill(linnet_session *session, const linnet_plan *plan) {
    uint32_t state = 12345;
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info;
        linnet_tensor_info_init(&info);
        linnet_plan_get_input(plan, i, &info);
        void *data = linnet_session_input(session, i);
        const int floats = info.dtype == LINNET_F32;
        for (size_t k = 0; k < (size_t)info.bytes / (floats ? sizeof(float) : 1); k++) {
            state = state * 1664525u + 1013904223u;
            if (floats)
                ((float *)data)[k] = (float)(int32_t)(state >> 8) / (1 << 23) - 1.0f;
            else
                ((unsigned char *)data)[k] = (unsigned char)(state >> 24);
        }
    }
}

static int report(linnet_plan *plan, linnet_session *session) {
    linnet_plan_info plan_info;
    linnet_plan_info_init(&plan_info);
    linnet_plan_get_info(plan, &plan_info);
    printf("plan %s %" PRId64 " %" PRId64 "\n", plan_info.isa, (int64_t)plan_info.total,
           (int64_t)plan_info.packed_weights);
    for (int i = 0; i < plan_info.steps; i++) {
        linnet_step_info step;
        linnet_step_info_init(&step);
        if (linnet_session_get_step(session, i, &step) != LINNET_OK) return 1;
        printf("step %s %s %" PRIu64 " %s\n", step.op, step.kernel, (uint64_t)step.flops, step.name);
    }
    return fclose(stdout) != 0;
}

int main(int argc, char **argv) {
    linnet_error error = {0};
    linnet_model *model = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL, *traced = NULL;
    linnet_plan_config config;
    linnet_session_config trace;
    if (argc < 2) return 2;
    linnet_plan_config_init(&config);
    linnet_session_config_init(&trace);
    config.threads = 1, trace.trace = 1;
    if (argc > 2 && strcmp(argv[2], "-") != 0) config.isa_max = argv[2];
    if (argc > 3 && strcmp(argv[3], "f16") == 0) config.precision = LINNET_PRECISION_F16;
    if (argc > 3 && strcmp(argv[3], "bf16") == 0) config.precision = LINNET_PRECISION_BF16;
    mark();
    if (linnet_model_open(argv[1], NULL, &model, &error) != LINNET_OK) return failed("open the model", &error);
    mark();
    if (linnet_plan_create(model, &config, &plan, &error) != LINNET_OK) return failed("plan the model", &error);
    mark();
    if (linnet_session_create(plan, NULL, NULL, &session, &error) != LINNET_OK)
        return failed("create a session", &error);
    mark();
    fill(session, plan);
    for (int run = 0; run < 3; run++) { /* the last is looked at, with marks 5 and 6 around it */
        mark();
        if (linnet_run(session, &error) != LINNET_OK) return failed("run the model", &error);
    }
    mark();
    if (linnet_session_create(plan, NULL, &trace, &traced, &error) != LINNET_OK)
        return failed("create a traced session", &error);
    fill(traced, plan);
    if (linnet_run(traced, &error) != LINNET_OK) return failed("run the model", &error);
    mark(); /* 8 */
    tracing = 1;
    if (linnet_run(traced, &error) != LINNET_OK) return failed("run the model", &error);
    tracing = 0;
    return report(plan, traced);
}
