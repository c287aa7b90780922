/* host_trace.c - when the steps of a piece ran. The session counts the time of all runs, so what it had before the last
 * run is kept. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_trace.h"

#include "net/bytes.h"
#include "remote/clock.h"

#include <stdlib.h>
#include <string.h>

typedef struct host_trace {
    uint64_t begun, start, end, fetched_ns, fetched_bytes;
    int steps;
    uint64_t before[]; /* nanoseconds of each step in all runs before the last one */
} host_trace;

static bool read_step(const linnet_session *session, int i, linnet_step_info *step) {
    linnet_step_info_init(step);
    return linnet_session_get_step(session, i, step) == LINNET_OK;
}

/* Steps of a device of the host itself have their time there. */
static uint64_t total(const linnet_step_info *step) {
    return step->device_ns > step->total_ns ? step->device_ns : step->total_ns;
}

host_trace *ln_host_trace_new(const linnet_session *session) {
    linnet_step_info step;
    int steps = 0;
    while (read_step(session, steps, &step)) steps++;
    host_trace *trace = calloc(1, sizeof *trace + (size_t)steps * sizeof *trace->before);
    if (trace != NULL) trace->steps = steps;
    return trace;
}

void ln_host_trace_begin(host_connection *c, const host_piece *piece) {
    host_trace *t = piece->trace;
    linnet_step_info step;
    for (int i = 0; i < t->steps && read_step(piece->session, i, &step); i++) t->before[i] = total(&step);
    t->begun = c->begun_ns;
    t->fetched_ns = c->fetched_ns, t->fetched_bytes = c->fetched_bytes;
    c->fetched_ns = c->fetched_bytes = 0;
    t->start = t->end = ln_remote_now_ns();
}

void ln_host_trace_end(const host_piece *piece) { piece->trace->end = ln_remote_now_ns(); }

void ln_host_trace_times(const host_piece *piece, uint64_t first, int count, unsigned char *to) {
    const host_trace *t = piece->trace;
    linnet_step_info step;
    memset(to, 0, LN_REMOTE_RUN_BYTES + LN_REMOTE_TIME_BYTES * (size_t)count);
    const uint64_t head[] = {ln_remote_now_ns(), t->begun,         t->start,          t->end,
                             t->fetched_ns,      t->fetched_bytes, (uint64_t)t->steps};
    for (int i = 0; i < 7; i++, to += 8) put64(to, head[i]);
    for (int i = 0; i < count && first + (uint64_t)i < (uint64_t)t->steps; i++, to += LN_REMOTE_TIME_BYTES) {
        const int at = (int)first + i;
        if (!read_step(piece->session, at, &step)) break;
        put64(to, step.start_ns >= t->start ? step.start_ns : 0); /* 0: it did not run now */
        put64(to + 8, total(&step) - t->before[at]);
    }
}

static void put_text(unsigned char *to, size_t room, const char *text) {
    const size_t size = strlen(text);
    memcpy(to, text, size < room ? size : room - 1);
}

void ln_host_trace_steps(const host_piece *piece, uint64_t first, int count, unsigned char *to) {
    linnet_step_info step;
    memset(to, 0, LN_REMOTE_TEXT_BYTES * (size_t)count);
    for (int i = 0; i < count && first + (uint64_t)i < (uint64_t)piece->trace->steps; i++, to += LN_REMOTE_TEXT_BYTES) {
        if (!read_step(piece->session, (int)first + i, &step)) break;
        put_text(to, LN_REMOTE_TEXT_OP, step.name);
        put_text(to + LN_REMOTE_TEXT_OP, LN_REMOTE_TEXT_KERNEL - LN_REMOTE_TEXT_OP, step.op);
        put_text(to + LN_REMOTE_TEXT_KERNEL, LN_REMOTE_TEXT_BYTES - LN_REMOTE_TEXT_KERNEL, step.kernel);
    }
}
