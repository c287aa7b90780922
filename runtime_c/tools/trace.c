/* trace.c - writes the spans of one process as a Chrome trace, which ui.perfetto.dev and chrome://tracing display.
 * The first track has what the tool does, the second has the steps of the traced run. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "trace.h"

#include "clock.h"
#include "messages.h"

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

static void put_text(FILE *file, const char *key, const char *text) {
    fprintf(file, "\"%s\": \"", key);
    for (; text && *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fputc('\\', file);
        if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void put_title(FILE *file, const char *what, int track, const char *text) {
    fprintf(file, ",\n{\"name\": \"%s\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": {", what, track);
    put_text(file, "name", text);
    fputs("}}", file);
}

/* Times are in microseconds from the first phase. */
static void put_span(FILE *file, const char *name, int track, double begin, double length) {
    fputs(",\n{", file);
    put_text(file, "name", name);
    fprintf(file, ", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {", track, begin,
            length);
}

static bool put_all(FILE *file, const trace *t, const char *model, const linnet_session *session) {
    const double start = t->n_phases ? t->phases[0].begin : 0;
    linnet_step_info step = {.struct_size = sizeof step};
    fputs("{\"displayTimeUnit\": \"ms\", \"otherData\": {", file);
    put_text(file, "version", linnet_version());
    fputs("}, \"traceEvents\": [\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"tid\": 0, "
          "\"args\": {\"sort_index\": 0}}",
          file);
    put_title(file, "process_name", 0, model);
    put_title(file, "thread_name", 0, "phases");
    put_title(file, "thread_name", 1, "steps");
    int branches = 0; /* they run side by side, so each is a track of its own */
    for (int i = 0; !linnet_session_get_step(session, i, &step); i++)
        if (step.branch > branches) branches = step.branch;
    for (int b = 1; b <= branches; b++) {
        char title[24];
        snprintf(title, sizeof title, "branch %d", b);
        put_title(file, "thread_name", 1 + b, title);
    }
    for (int i = 0; i < t->n_phases; i++) {
        const trace_span *p = &t->phases[i];
        put_span(file, p->name, 0, 1e6 * (p->begin - start), 1e6 * (p->end - p->begin));
        fputs("}}", file);
    }
    for (int i = 0; !linnet_session_get_step(session, i, &step); i++) {
        if (!step.runs) continue;
        put_span(file, step.name, 1 + step.branch, 1e-3 * (double)step.start_ns - 1e6 * start,
                 1e-3 * (double)step.total_ns / (double)step.runs);
        put_text(file, "op", step.op);
        fputs(", ", file);
        put_text(file, "kernel", step.kernel);
        fputs(", ", file);
        put_text(file, "layout", step.layout);
        fputs(", ", file);
        put_text(file, "device", step.device);
        fputs(", ", file);
        put_text(file, "fused", step.fused);
        fprintf(file, ", \"bytes\": %llu, \"flops\": %llu}}", (unsigned long long)step.bytes,
                (unsigned long long)step.flops);
    }
    fputs("\n]}\n", file);
    return fflush(file) == 0 && !ferror(file);
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
