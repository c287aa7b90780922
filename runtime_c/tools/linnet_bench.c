/* linnet_bench.c - times a model: cold start, first run, steady runs, memory by region, and each step by kernel.
 * Steps are timed in separate runs, so that reading the clock does not disturb the steady figures. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "linnet_ext.h"
#include "peak.h"
#include "step_times.h"
#include "system.h"
#include "system_state.h"

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

typedef struct bench {
    tool_options common;
    double seconds;
    bool json, ops, peaks;
    linnet_model *model;
    linnet_plan *plan;
    linnet_session *session;
    double load, plan_time, session_time, first, cold;
    double median, least, p95, mean;
    int runs;
    linnet_plan_info memory;
    uint64_t most; /* linnet_plan_bound */
    linnet_error unbounded;
    linnet_step_info *steps;  /* with the times of one run, the medians, if --ops or --json is given */
    tool_state before, after; /* of the machine, at the start and at the end of the steady runs */
    int fastest_mhz;          /* the highest clock that was seen in between */
    long long peak_rss;
} bench;

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

/* Returns the element type of the computation: the type that the quantizer recorded, or else the type of the first
 * input. */
static const char *arithmetic_dtype(const bench *b) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    const char *declared = linnet_model_metadata(b->model, "dtype");
    if (declared != NULL) return declared;
    if (linnet_plan_input_count(b->plan) > 0 && !linnet_plan_get_input(b->plan, 0, &info))
        return linnet_dtype_name(info.dtype);
    return linnet_dtype_name(LINNET_F32);
}

static void print_input(const bench *b, int i) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    bool assumed = false;
    linnet_plan_get_input(b->plan, i, &info);
    for (int k = 0; k < b->common.n_shapes; k++)
        assumed |= b->common.assumed[k] && !strcmp(b->common.shapes[k].input, info.name);
    printf("%s{", i ? ", " : "");
    tool_json_entry("name", info.name);
    printf(", ");
    tool_json_entry("dtype", linnet_dtype_name(info.dtype));
    printf(", \"shape\": [");
    for (int d = 0; d < info.rank; d++) printf("%s%lld", d ? ", " : "", (long long)info.shape[d]);
    printf("], \"assumed\": %s}", assumed ? "true" : "false");
}

/* Returns how many steps of the plan are on the device of step `first`, or 0 if an earlier step is on it too. */
static int steps_on(const bench *b, int first) {
    int count = 0;
    if (!strcmp(b->steps[first].op, "transfer")) return 0;
    for (int i = 0; i < b->memory.steps; i++) {
        if (!strcmp(b->steps[i].op, "transfer") || strcmp(b->steps[i].device, b->steps[first].device) != 0) continue;
        if (i < first) return 0;
        count++;
    }
    return count;
}

static int transfers(const bench *b) {
    int count = 0;
    for (int i = 0; i < b->memory.steps; i++) count += !strcmp(b->steps[i].op, "transfer");
    return count;
}

/* Prints where steps run, in the words of `linnet bench`. */
static void print_places(const bench *b) {
    const int moved = transfers(b), back = (int)b->memory.fallbacks;
    for (int i = 0; i < b->memory.steps; i++) {
        const int count = steps_on(b, i);
        if (count > 0) printf("%d step%s on %s, ", count, count == 1 ? "" : "s", b->steps[i].device);
    }
    printf("%d transfer%s, %d fallback%s\n", moved, moved == 1 ? "" : "s", back, back == 1 ? "" : "s");
}

static void print_json(const bench *b) {
    const linnet_plan_info *m = &b->memory;
    double left;
    const struct {
        const char *name;
        uint64_t bytes;
    } regions[] = {
        {"activations", m->activations}, {"scratch", m->scratch},     {"packed_weights", m->packed_weights},
        {"constants", m->constants},     {"variables", m->variables}, {"io", m->io},
        {"bookkeeping", m->bookkeeping}, {"total", m->total},         {"mapped", m->mapped},
        {"lower_bound", m->lower_bound}, {"naive", m->naive},         {"gradients", m->gradients},
    };
    printf("{");
    tool_json_entry("model", b->common.model);
    printf(", ");
    tool_json_entry("version", linnet_version());
    printf(", ");
    tool_json_entry("dtype", arithmetic_dtype(b));
    printf(", \"threads\": %d, ", (int)m->threads);
    tool_json_entry("isa", m->isa);
    printf(", \"runs\": %d, \"median_ms\": %.6f, \"min_ms\": %.6f, \"p95_ms\": %.6f, \"mean_ms\": %.6f, ", b->runs,
           1e3 * b->median, 1e3 * b->least, 1e3 * b->p95, 1e3 * b->mean);
    printf(
        "\"first_run_ms\": %.6f, \"load_ms\": %.6f, \"plan_ms\": %.6f, \"session_ms\": %.6f, \"cold_start_ms\": %.6f, ",
        1e3 * b->first, 1e3 * b->load, 1e3 * b->plan_time, 1e3 * b->session_time, 1e3 * b->cold);
    printf("\"inputs\": [");
    for (int i = 0; i < linnet_plan_input_count(b->plan); i++) print_input(b, i);
    printf("], ");
    if (b->common.n_devices > 0) {
        bool some = false;
        printf("\"steps_on\": {");
        for (int i = 0; i < m->steps; i++) {
            const int count = steps_on(b, i);
            if (count == 0) continue;
            printf("%s", some ? ", " : "");
            tool_json_text(b->steps[i].device, strlen(b->steps[i].device));
            printf(": %d", count);
            some = true;
        }
        printf("}, \"transfers\": %d, \"fallbacks\": %d, ", transfers(b), (int)m->fallbacks);
    }
    printf("\"machine\": ");
    tool_print_machine(true);
    printf(", \"before\": ");
    tool_print_state("", &b->before, true);
    printf(", \"after\": ");
    tool_print_state("", &b->after, true);
    if (b->peak_rss < 0)
        printf(", \"peak_rss\": null, ");
    else
        printf(", \"peak_rss\": %lld, ", b->peak_rss);
    printf("\"steps_ms\": %.6f, ", 1e-6 * step_times_sum(b->steps, m->steps, &left));
    printf("\"segments\": %d, \"memory\": {", (int)m->segments);
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++)
        printf("%s\"%s\": %llu", i ? ", " : "", regions[i].name, (unsigned long long)regions[i].bytes);
    if (b->unbounded.code)
        printf("}, \"most\": null, \"ops\": [");
    else
        printf("}, \"most\": %llu, \"ops\": [", (unsigned long long)b->most);
    for (int i = 0; i < m->steps; i++) {
        const linnet_step_info *s = &b->steps[i];
        printf("%s\n  {", i ? "," : "");
        const char *texts[][2] = {{"name", s->name},     {"op", s->op},         {"kernel", s->kernel},
                                  {"layout", s->layout}, {"device", s->device}, {"fused", s->fused}};
        for (int k = 0; k < 6; k++) {
            if (k > 0) printf(", ");
            tool_json_entry(texts[k][0], texts[k][1]);
        }
        if (s->runs)
            printf(", \"ms\": %.6f", 1e-6 * (double)s->total_ns);
        else
            printf(", \"ms\": null");
        if (s->device_ns > 0) printf(", \"device_ms\": %.6f", 1e-6 * (double)s->device_ns);
        if (s->fork > 0) printf(", \"fork\": %d, \"branch\": %d", s->fork, s->branch);
        printf(", \"bytes\": %llu, \"flops\": %llu}", (unsigned long long)s->bytes, (unsigned long long)s->flops);
    }
    printf("]}\n");
}

static void print_text(const bench *b) {
    const linnet_plan_info *m = &b->memory;
    double kb = 1e-3, traced, left;
    printf("%s: %s, %d thread%s, %s, %d steps\n", b->common.model, arithmetic_dtype(b), (int)m->threads,
           m->threads == 1 ? "" : "s", m->isa, (int)m->steps);
    if (b->common.n_devices > 0) print_places(b);
    printf("steady  median %.4g ms, min %.4g, p95 %.4g (%d runs)\n", 1e3 * b->median, 1e3 * b->least, 1e3 * b->p95,
           b->runs);
    printf("cold    %.3f ms: load %.3f, plan %.3f, session %.3f, first run %.3f\n", 1e3 * b->cold, 1e3 * b->load,
           1e3 * b->plan_time, 1e3 * b->session_time, 1e3 * b->first);
    printf(
        "memory  total %.1f kB: activations %.1f (lower bound %.1f, naive %.1f), scratch %.1f, packed weights %.1f,\n"
        "        constants %.1f, variables %.1f, io %.1f, bookkeeping %.1f; mapped %.1f\n",
        kb * (double)m->total, kb * (double)m->activations, kb * (double)m->lower_bound, kb * (double)m->naive,
        kb * (double)m->scratch, kb * (double)m->packed_weights, kb * (double)m->constants, kb * (double)m->variables,
        kb * (double)m->io, kb * (double)m->bookkeeping, kb * (double)m->mapped);
    if (b->unbounded.code)
        printf("        later segments add to the total without a known bound: %s: %s\n", b->unbounded.op,
               b->unbounded.what);
    else if (b->most > m->total)
        printf("        at most %.1f including later segments\n", kb * (double)b->most);
    if (b->peak_rss >= 0) printf("        the process needed %.1f at most\n", kb * (double)b->peak_rss);
    tool_print_machine(false);
    tool_print_state("before", &b->before, false);
    tool_print_state("after", &b->after, false);
    if (!b->ops) return;
    traced = step_times_sum(b->steps, m->steps, &left);
    printf("steps   %.4g ms together: the sum of the steps' medians\n", 1e-6 * traced);
    int beside = 0;
    for (int i = 0; i < m->steps; i++) beside += b->steps[i].fork > 0;
    if (beside > 0) printf("        %d of them run side by side on several threads, so their times overlap\n", beside);
    printf("\n%10s %6s %9s %9s  %-14s %-40s %s\n", "us", "%", "GFLOP/s", "kB", "layout", "kernel", "step");
    for (int i = 0; i < m->steps; i++) {
        const linnet_step_info *s = &b->steps[i];
        const double ns = step_times_own(s, &left);
        char name[64];
        printf("%10.1f %6.1f %9.2f %9.1f  %-14s %-40s %s\n", 1e-3 * ns, traced > 0 ? 100 * ns / traced : 0,
               ns > 0 ? (double)s->flops / ns : 0, kb * (double)s->bytes, s->layout, s->kernel,
               tool_step_name(s, 40, name, sizeof name));
    }
}

static int run(bench *b) {
    int status = start(b);
    if (status == TOOL_OK) status = measure(b);
    if (status == TOOL_OK) status = list_steps(b);
    if (status == TOOL_OK) {
        if (b->json)
            print_json(b);
        else
            print_text(b);
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
