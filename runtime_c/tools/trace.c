/* trace.c - writes the spans of one process as a Chrome trace, which ui.perfetto.dev and chrome://tracing display.
 * The first track has what the tool does, the second has the steps of the traced run. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "trace.h"

#include "clock.h"
#include "messages.h"
#include "trace_events.h"
#include "trace_hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void trace_phase(trace *t, const char *name) {
    const double now = tool_now();
    if (t->n_phases < TRACE_MOST_PHASES && t->since > 0) {
        t->phases[t->n_phases].name = name;
        t->phases[t->n_phases].begin = t->since;
        t->phases[t->n_phases++].end = now;
    }
    t->since = now;
}

static bool put_all(FILE *file, const trace *t, const char *model, const linnet_session *session) {
    const double start = t->n_phases ? t->phases[0].begin : 0;
    linnet_step_info step = {.struct_size = sizeof step};
    fputs("{\"format\": \"linnet run 1\", \"displayTimeUnit\": \"ms\", \"otherData\": {", file);
    trace_put_text(file, "version", linnet_version());
    fputs("}, \"traceEvents\": [\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"tid\": 0, "
          "\"args\": {\"sort_index\": 0}}",
          file);
    trace_put_title(file, "process_name", 0, 0, model);
    trace_put_title(file, "thread_name", 0, 0, "phases");
    trace_put_title(file, "thread_name", 0, 1, "steps");
    int branches = 0; /* they run side by side, so each is a track of its own */
    for (int i = 0; !linnet_session_get_step(session, i, &step); i++)
        if (step.branch > branches) branches = step.branch;
    for (int b = 1; b <= branches; b++) {
        char title[24];
        snprintf(title, sizeof title, "branch %d", b);
        trace_put_title(file, "thread_name", 0, 1 + b, title);
    }
    for (int i = 0; i < t->n_phases; i++) {
        const trace_span *p = &t->phases[i];
        trace_put_span(file, p->name, 0, 0, 1e6 * (p->begin - start), 1e6 * (p->end - p->begin));
        fputs("}}", file);
    }
    for (int i = 0; !linnet_session_get_step(session, i, &step); i++) {
        if (!step.runs) continue;
        trace_put_span(file, step.name, 0, 1 + step.branch, 1e-3 * (double)step.start_ns - 1e6 * start,
                       1e-3 * (double)step.total_ns / (double)step.runs);
        trace_put_text(file, "op", step.op);
        fputs(", ", file);
        trace_put_text(file, "kernel", step.kernel);
        fputs(", ", file);
        trace_put_text(file, "layout", step.layout);
        fputs(", ", file);
        trace_put_text(file, "device", step.device);
        fputs(", ", file);
        trace_put_text(file, "fused", step.fused);
        fprintf(file, ", \"bytes\": %llu, \"flops\": %llu, \"number\": %d}}", (unsigned long long)step.bytes,
                (unsigned long long)step.flops, i);
    }
    const bool whole = trace_put_hosts(file, session, start);
    fputs("\n]}\n", file);
    return whole && fflush(file) == 0 && !ferror(file);
}

int trace_write(const trace *t, const char *tool, const char *path, const char *model, const linnet_session *session) {
    char temporary[4096];
    FILE *file;
    bool good;
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.%ld.part", path, (long)getpid()) >= sizeof temporary)
        return tool_fail(tool, "--trace: the path is too long; give a shorter one");
    if (!(file = fopen(temporary, "w")))
        return tool_fail(tool, "--trace %s: cannot create the file: %s; give the path of a file in a writable folder",
                         path, strerror(errno));
    good = put_all(file, t, model, session);
    good = fclose(file) == 0 && good && rename(temporary, path) == 0;
    if (good) return TOOL_OK;
    tool_fail(tool, "--trace %s: cannot write the file: %s; free space on the disk, or give another path", path,
              strerror(errno));
    remove(temporary);
    return TOOL_FAILED;
}
