/* linnet_bench.c - times a model: cold start, first run, steady runs, memory by region, and each step by kernel.
 * Steps are timed in separate runs, so that reading the clock does not disturb the steady figures. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "bench_report.h"
#include "clock.h"
#include "help.h"
#include "inputs.h"
#include "messages.h"
#include "open.h"
#include "options.h"
#include "peak.h"
#include "run.h"
#include "step_times.h"
#include "system.h"
#include "system_state.h"
#include "linnet_ext.h"

#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: linnet-bench MODEL.lnt [options]\n"
                           "Times the model on random inputs. Reports latency and memory, and with --ops\n"
                           "every step.\n"
                           "\n"
                           "  --shape NAME=1,3,...  full shape of an input whose dimensions the model leaves\n"
                           "                        open; may be repeated. An open batch is 1 by default.\n"
                           "                        For a range such as 1..8 the largest size is used\n"
                           "                        (`linnet plan` also tries smaller sizes). --input is\n"
                           "                        another name of this option\n"
                           "  --strict-dims         refuse shapes that give different sizes to open\n"
                           "                        dimensions of the same name\n"
                           "  --threads N           number of threads; default: the cores of the largest\n"
                           "                        cluster\n"
                           "  --bind                bind each thread to a core of the largest cluster\n"
                           "  --isa-max NAME        newest instruction set that kernels may use: scalar,\n"
                           "                        sse2, avx2, ... or neon, dotprod, ...; default: the\n"
                           "                        best of this machine\n"
                           "  --memory SIZE         fail if the model needs more memory than this, for\n"
                           "                        example 8MB or 1GiB\n"
                           "  --precision NAME      precision in which kernels may sum floats: f32, f16,\n"
                           "                        bf16, tf32 or direct; default f32\n"
                           "  --device NAME         device that runs the steps it can: a name such as\n"
                           "                        opencl or opencl:1,f16=on, or the path of a library;\n"
                           "                        may be repeated, in order of preference\n"
                           "  --placement NODE=DEVICE\n"
                           "                        place nodes by name, whatever they cost there;\n"
                           "                        * stands for any characters; may be repeated:\n"
                           "                        the first name that fits a node counts\n"
                           "  --task TASK=DEVICE    device of a task that the model's device scopes name:\n"
                           "                        /job:worker/task:0=remote:pi1:7700; cpu is this\n"
                           "                        machine; may be repeated\n"
                           "  --user-ops FILE       shared library of the user ops that the model names\n"
                           "  --tuning FILE         file that `linnet tune` wrote: the kernels to use\n"
                           "  --seconds S           how long to measure; default 2\n"
                           "  --signature NAME      signature to run; default infer\n"
                           "  --seed N              seed of the random inputs; default 0\n"
                           "  --timeout SECONDS     time limit for one run; default: none\n"
                           "  --ops                 time every step\n"
                           "  --peaks               print the highest rates of this machine; takes no model\n"
                           "  --fetch NAME          compute only this output or tensor; may be repeated\n"
                           "  --json                print one JSON object, which includes every step\n"
                           "  --version             print the version\n"
                           "  --help                print this text\n"
                           "\n"
                           "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n";

enum { MOST_RUNS = 1 << 20, FIRST_ROOM = 256, FEWEST_RUNS = 5, WARM_RUNS = 2, TRACED_RUNS = 50, CLOCK_READINGS = 8 };

static int parse(bench *b, int argc, char **argv) {
    static char shape[] = "--shape"; /* alias that `linnet bench` in Python uses */
    for (int i = 1; i < argc; i++) {
        const char *value;
        int taken;
        if (!strcmp(argv[i], "--input")) argv[i] = shape;
        taken = tool_option(&b->common, argc, argv, &i);
        if (taken > 0) return taken;
        if (taken == 0) continue;
        if (!strcmp(argv[i], "--json")) {
            b->json = true;
        } else if (!strcmp(argv[i], "--ops")) {
            b->ops = true;
        } else if (!strcmp(argv[i], "--peaks")) {
            b->peaks = true;
        } else if (!strcmp(argv[i], "--timeout")) {
            if (!(value = tool_value(b->common.tool, argc, argv, &i)) ||
                !tool_seconds(b->common.tool, "--timeout", value, &b->common.timeout))
                return TOOL_USAGE;
        } else if (!strcmp(argv[i], "--seconds")) {
            if (!(value = tool_value(b->common.tool, argc, argv, &i)) ||
                !tool_seconds(b->common.tool, "--seconds", value, &b->seconds))
                return TOOL_USAGE;
        } else {
            return tool_unknown(b->common.tool, help, argv[i]);
        }
    }
    if (b->peaks && b->common.model) return tool_usage(b->common.tool, "--peaks takes no model");
    return b->peaks || b->common.model ? TOOL_OK : tool_usage(b->common.tool, "no model given; give a .lnt file");
}

static void fill(const bench *b, linnet_session *session) {
    unsigned long long state = b->common.seed;
    for (int i = 0; i < linnet_plan_input_count(b->plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_plan_get_input(b->plan, i, &info);
        tool_random(linnet_session_input(session, i), &info, &state);
    }
}

/* Times load, plan, session and first run. */
static int start(bench *b) {
    linnet_error error;
    linnet_plan_config config;
    linnet_session_config session;
    double begin = tool_now(), mark;
    int signature, status = tool_open(&b->common, &b->model, &config, &signature);
    if (status) return status;
    b->load = tool_now() - begin;
    tool_take_batches(&b->common, b->model, signature, &config);
    mark = tool_now();
    if (linnet_plan_create(b->model, &config, &b->plan, &error))
        return tool_not_planned(&b->common, b->model, signature, &error);
    b->plan_time = tool_now() - mark;
    mark = tool_now();
    session = (linnet_session_config){.struct_size = sizeof session, .bind_threads = b->common.bind};
    if (linnet_session_create(b->plan, NULL, &session, &b->session, &error))
        return tool_fail_record(b->common.tool, &error);
    if ((status = tool_bind(&b->common, true)) != TOOL_OK) return status;
    b->session_time = tool_now() - mark;
    fill(b, b->session);
    mark = tool_now();
    status = tool_run(&b->common, b->session);
    if (status != TOOL_OK) return status;
    b->first = tool_now() - mark;
    b->cold = b->load + b->plan_time + b->session_time + b->first; /* does not include the time to fill the inputs */
    return TOOL_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Measures the steady runs. Now and then, between two of them, it reads the clock of the machine. */
static int measure(bench *b) {
    int status = TOOL_OK, room = FIRST_ROOM;
    double *times = malloc((size_t)room * sizeof *times), begin, end, read, total = 0;
    if (!times) return tool_no_memory(b->common.tool);
    for (int i = 0; status == TOOL_OK && i < WARM_RUNS; i++) status = tool_run(&b->common, b->session);
    tool_state_read(&b->before);
    begin = tool_now();
    end = begin + b->seconds;
    read = begin + b->seconds / CLOCK_READINGS;
    for (b->runs = 0; status == TOOL_OK && b->runs < MOST_RUNS; b->runs++) {
        begin = tool_now();
        if (b->runs >= FEWEST_RUNS && begin >= end) break;
        if (begin >= read) {
            const int mhz = tool_fastest_mhz();
            if (mhz > b->fastest_mhz) b->fastest_mhz = mhz;
            read += b->seconds / CLOCK_READINGS;
        }
        if (b->runs == room) {
            double *larger = realloc(times, 2 * (size_t)room * sizeof *times);
            if (!larger) break;
            times = larger;
            room *= 2;
        }
        begin = tool_now();
        status = tool_run(&b->common, b->session);
        times[b->runs] = tool_now() - begin;
        total += times[b->runs];
    }
    tool_state_read(&b->after);
    b->peak_rss = tool_peak_rss();
    if (status != TOOL_OK) {
        free(times);
        return status;
    }
    qsort(times, (size_t)b->runs, sizeof *times, by_size);
    b->least = times[0];
    b->median = b->runs % 2 ? times[b->runs / 2] : 0.5 * (times[b->runs / 2 - 1] + times[b->runs / 2]);
    b->p95 = times[(b->runs * 95 + 99) / 100 - 1];
    b->mean = total / b->runs;
    free(times);
    return TOOL_OK;
}

/* Runs a traced session, which may have to be bound to threads, and collects the times of its steps. */
static int trace(bench *b, linnet_plan *plan, step_times *times) {
    linnet_error error;
    linnet_session *traced = NULL;
    linnet_session_config config = {.struct_size = sizeof config, .trace = 1, .bind_threads = b->common.bind};
    linnet_step_info step = {.struct_size = sizeof step};
    const double end = tool_now() + 0.5 * b->seconds;
    int status = TOOL_OK;
    if (!step_times_start(times, b->memory.steps, TRACED_RUNS)) return tool_no_memory(b->common.tool);
    (void)tool_bind(&b->common, false); /* it could be bound, so this works, too */
    if (linnet_session_create(plan, NULL, &config, &traced, &error)) return tool_fail_record(b->common.tool, &error);
    (void)tool_bind(&b->common, true);
    fill(b, traced);
    for (int run = 0; status == TOOL_OK && (run < FEWEST_RUNS || (run < TRACED_RUNS && tool_now() < end)); run++) {
        status = tool_run(&b->common, traced);
        for (int i = 0; i < b->memory.steps; i++)
            if (!linnet_session_get_step(traced, i, &step)) step_times_add(times, i, &step);
    }
    linnet_session_free(traced);
    return status;
}

/* Collects the facts about every step. With --ops or --json, also their times. */
static int list_steps(bench *b) {
    step_times times = {0};
    int status = TOOL_OK;
    linnet_plan *plan = linnet_session_plan(b->session); /* the session's own, if a device has refused steps */
    b->memory.struct_size = sizeof b->memory;
    if (linnet_plan_get_info(plan, &b->memory))
        return tool_fail(b->common.tool, "cannot read the memory figures of the plan; please report this");
    linnet_plan_bound(plan, &b->most, &b->unbounded);
    b->steps = calloc((size_t)b->memory.steps + 1, sizeof *b->steps);
    if (!b->steps) return tool_no_memory(b->common.tool);
    if (b->ops || b->json) status = trace(b, plan, &times);
    for (int i = 0; status == TOOL_OK && i < b->memory.steps; i++) {
        b->steps[i].struct_size = sizeof *b->steps;
        if (linnet_plan_get_step(plan, i, &b->steps[i]))
            status = tool_fail(b->common.tool, "cannot read the details of step %d; please report this", i);
        else if (times.ns)
            step_times_put(&times, i, &b->steps[i]);
    }
    step_times_free(&times);
    return status;
}

static int run(bench *b) {
    int status = start(b);
    if (status == TOOL_OK) status = measure(b);
    if (status == TOOL_OK) status = list_steps(b);
    if (status == TOOL_OK) {
        if (b->json)
            bench_print_json(b);
        else
            bench_print_text(b);
        status = tool_flush(b->common.tool);
        tool_note_root(b->common.tool);
        tool_warn_slow(b->common.tool, &b->before, b->fastest_mhz, &b->after);
    }
    free(b->steps);
    linnet_session_free(b->session);
    linnet_plan_free(b->plan);
    linnet_model_free(b->model);
    return status;
}

int main(int argc, char **argv) {
    bench *b = calloc(1, sizeof *b);
    int status;
    if (!b) return tool_no_memory("linnet-bench");
    b->common.tool = "linnet-bench";
    b->seconds = 2;
    if (tool_answers(b->common.tool, help, argc, argv)) {
        free(b);
        return TOOL_OK;
    }
    tool_catch_signals();
    status = parse(b, argc, argv);
    if (status == TOOL_OK) status = b->peaks ? tool_print_peaks(&b->common, b->json) : run(b);
    free(b->common.tuning);
    free(b);
    return status;
}
