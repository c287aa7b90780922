/* bench_report.c - prints what linnet-bench has measured: times, memory by region, where steps run, and each step by
 * kernel. */
#include "bench_report.h"

#include "step_times.h"
#include "system_state.h"
#include "values.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

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

void bench_print_json(const bench *b) {
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

void bench_print_text(const bench *b) {
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
