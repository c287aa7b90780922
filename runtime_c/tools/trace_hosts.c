/* trace_hosts.c - the lanes of other machines in the trace of a run, as pyruntime/linnet/session/lanes.py writes them.
 * A queue works in order, so a value leaves a host after the last piece that was submitted there before it, and arrives
 * before the next one. */
#include "trace_hosts.h"

#include "trace_events.h"

#include "linnet_device.h"

#include <stdlib.h>
#include <string.h>

enum { HERE = 0, PIECES = 0, STEPS = 1 }; /* this machine, and tracks of hosts */

/* A step of the plan. */
typedef struct item {
    linnet_step_info step;
    linnet_device_span whole; /* of a piece */
    int host;                 /* the process of the piece; 0: it is no piece */
} item;

typedef struct lanes {
    FILE *file;
    const linnet_session *session;
    item *items;
    int count, hosts, arrows;
    double start;
} lanes;

static double us(const lanes *l, uint64_t ns) { return 1e-3 * (double)ns - 1e6 * l->start; }

static int is_transfer(const item *i, const char *kernel) {
    return !strcmp(i->step.op, "transfer") && !strcmp(i->step.kernel, kernel);
}

static int submits(const item *i) {
    return i->host > 0 || (!strcmp(i->step.op, "transfer") && strcmp(i->step.kernel, "wait"));
}

/* The last piece of the device before step i; -1: there is none. */
static int piece_before(const lanes *l, const char *device, int i) {
    while (--i >= 0)
        if (l->items[i].host > 0 && !strcmp(l->items[i].step.device, device)) return i;
    return -1;
}

static int read_items(lanes *l) {
    linnet_step_info step = {.struct_size = sizeof step};
    while (!linnet_session_get_step(l->session, l->count, &step)) l->count++;
    l->items = calloc((size_t)l->count + 1, sizeof *l->items);
    if (l->items == NULL) return 0;
    for (int i = 0; i < l->count; i++) {
        item *at = &l->items[i];
        at->step.struct_size = sizeof at->step;
        linnet_session_get_step(l->session, i, &at->step);
        linnet_device_span_init(&at->whole);
        if (linnet_session_get_span(l->session, i, 0, &at->whole)) continue;
        const int other = piece_before(l, at->step.device, i);
        at->host = other >= 0 ? l->items[other].host : ++l->hosts;
    }
    return 1;
}

/* The step that began to send the message of piece i: of submissions that follow each other, the first upload to the
 * host, or the last of them. */
static int sender(const lanes *l, int i) {
    int first = i, last = i;
    while (first > 0 && submits(&l->items[first - 1])) first--;
    for (; first < i; first++)
        if (is_transfer(&l->items[first], "upload") && l->items[first].step.runs &&
            !strcmp(l->items[first].step.device, l->items[i].step.device))
            return first;
    while (last + 1 < l->count && submits(&l->items[last + 1])) last++;
    return last;
}

static void put_piece(const lanes *l, int i) {
    const item *at = &l->items[i];
    const linnet_device_span *w = &at->whole;
    trace_put_span(l->file, at->step.name, at->host, PIECES, us(l, w->start_ns), 1e-3 * (double)w->ns);
    fprintf(l->file,
            "\"number\": %d, \"begun\": %.3f, \"sent\": %.3f, \"waited\": %.3f, \"waited_bytes\": %llu, "
            "\"error\": %.3f}}",
            i, us(l, w->begun_ns), us(l, l->items[sender(l, i)].step.start_ns), 1e-3 * (double)w->waited_ns,
            (unsigned long long)w->waited_bytes, 1e-3 * (double)w->error_ns);
    if (w->waited_ns > 0) {
        const double length = 1e-3 * (double)w->waited_ns;
        trace_put_span(l->file, "wait for values", at->host, PIECES, us(l, w->start_ns) - length, length);
        fputs("}}", l->file);
    }
    linnet_device_span span;
    linnet_device_span_init(&span);
    for (int k = 1; !linnet_session_get_span(l->session, i, k, &span); k++) {
        if (span.start_ns == 0) continue;
        trace_put_span(l->file, span.name, at->host, STEPS, us(l, span.start_ns), 1e-3 * (double)span.ns);
        trace_put_text(l->file, "op", span.op);
        fputs(", ", l->file);
        trace_put_text(l->file, "kernel", span.kernel);
        fprintf(l->file, ", \"piece\": %d}}", i);
    }
}

/* One end of an arrow. It leaves a piece at its end, and arrives here at the end of the wait. */
static void put_end(lanes *l, const item *at, char phase, const item *value, int from, int to) {
    const double begin = us(l, at->host > 0 ? at->whole.start_ns : at->step.start_ns);
    const double length = 1e-3 * (at->host > 0 ? (double)at->whole.ns : (double)at->step.total_ns / at->step.runs);
    fputs(",\n{", l->file);
    trace_put_text(l->file, "name", value->step.name);
    fprintf(l->file,
            ", \"cat\": \"value\", \"ph\": \"%c\", \"id\": %d, \"pid\": %d, \"tid\": %d, \"ts\": %.3f%s, "
            "\"args\": {\"bytes\": %llu, \"from\": %d, \"to\": %d}}",
            phase, l->arrows, at->host > 0 ? at->host : HERE, at->host > 0 ? PIECES : STEPS + at->step.branch,
            begin + ((phase == 's') == (at->host > 0) ? length : 0), phase == 'f' ? ", \"bp\": \"e\"" : "",
            (unsigned long long)value->step.bytes, from, to);
}

static void put_arrow(lanes *l, int value, int from, int to) {
    if (from < 0 || !l->items[from].step.runs || !l->items[to].step.runs) return;
    l->arrows++;
    put_end(l, &l->items[from], 's', &l->items[value], from, to);
    put_end(l, &l->items[to], 'f', &l->items[value], from, to);
}

/* The values that step i, a piece or a wait, gets since the step of its kind before it. */
static void put_arrows(lanes *l, int i) {
    const item *to = &l->items[i];
    int since = i;
    while (--since >= 0) {
        const item *other = &l->items[since];
        if (!strcmp(other->step.device, to->step.device) &&
            (to->host > 0 ? other->host > 0 : is_transfer(other, "wait")))
            break;
    }
    for (int k = since + 1; k < i; k++) {
        const item *value = &l->items[k];
        if (strcmp(value->step.device, to->step.device)) continue;
        if (to->host > 0 && is_transfer(value, "upload") && value->step.runs) put_arrow(l, k, k, i);
        if (to->host > 0 && is_transfer(value, "copy")) put_arrow(l, k, piece_before(l, value->step.source, k), i);
        if (to->host == 0 && is_transfer(value, "download")) put_arrow(l, k, piece_before(l, value->step.device, k), i);
    }
}

int trace_put_hosts(FILE *file, const linnet_session *session, double start) {
    lanes l = {.file = file, .session = session, .start = start};
    if (!read_items(&l)) return 0;
    for (int i = 0; i < l.count; i++) {
        if (l.items[i].host == 0 || piece_before(&l, l.items[i].step.device, i) >= 0) continue;
        trace_put_title(file, "process_name", l.items[i].host, PIECES, l.items[i].step.device);
        trace_put_title(file, "thread_name", l.items[i].host, PIECES, "pieces");
        trace_put_title(file, "thread_name", l.items[i].host, STEPS, "steps");
    }
    for (int i = 0; i < l.count; i++)
        if (l.items[i].host > 0) put_piece(&l, i);
    for (int i = 0; i < l.count; i++)
        if (l.items[i].host > 0 || is_transfer(&l.items[i], "wait")) put_arrows(&l, i);
    free(l.items);
    return 1;
}
