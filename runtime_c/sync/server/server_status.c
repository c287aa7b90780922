/* server_status.c - the state of a server for people and tools: JSON for STATUS, Prometheus' text for /metrics.
 * Counters begin at 0 when the process starts; `version` and `sequence` continue after a restart. */
#include "sync/server/server_status.h"

#include "sync/server/server_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct text {
    char *at;
    size_t size, used;
} text;

static void put(text *t, const char *format, ...) {
    va_list arguments;
    int n;
    va_start(arguments, format);
    n = vsnprintf(t->used < t->size ? t->at + t->used : NULL, t->used < t->size ? t->size - t->used : 0, format,
                  arguments);
    va_end(arguments);
    if (n > 0) t->used += (size_t)n;
}

/* Names come from peers, so anything but printable ASCII becomes '?'. Both formats escape with a backslash. */
static void put_name(text *t, const char *name) {
    put(t, "\"");
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        put(t, c == '"' || c == '\\' ? "\\%c" : "%c", c < 0x20 || c > 0x7e ? '?' : c);
    }
    put(t, "\"");
}

static void put_number(text *t, const char *key, double value) {
    if (isfinite(value))
        put(t, ",\"%s\":%.9g", key, value);
    else
        put(t, ",\"%s\":null", key);
}

static const char *mode(const ln_sync_server *s) {
    return s->config.asynchronous ? "asynchronous" : s->config.quorum ? "quorum" : "synchronous";
}

static double seconds(uint64_t ns) { return (double)ns * 1e-9; }

static void put_worker(text *t, const ln_sync_server *s, const sync_member *m) {
    put(t, "{\"worker\":%" PRIu32 ",\"name\":", m->id);
    put_name(t, m->name);
    put(t, ",\"peer\":");
    put_name(t, m->peer);
    put(t, ",\"group\":%" PRIu32 ",\"step\":%" PRIu64 ",\"connected\":%s,\"member\":%s,\"pushed\":%s,\"held\":%s",
        m->group ? m->group->id : 0, m->group ? m->group->step : 0, m->connection ? "true" : "false",
        m->live ? "true" : "false", m->committed ? "true" : "false", m->held ? "true" : "false");
    put(t, ",\"applied\":%" PRIu64 ",\"late\":%" PRIu64 ",\"not_finite\":%" PRIu64 ",\"staleness\":%" PRIu64,
        m->applied, m->late, m->not_finite, m->staleness);
    put(t, ",\"received\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"examples\":%" PRIu64, m->received, m->sent, m->examples);
    put_number(t, "compute_s", seconds(m->compute_ns));
    put_number(t, "examples_per_s", m->speed);
    put_number(t, "loss", m->loss);
    put_number(t, "silent_s", s->now > m->heard ? seconds(s->now - m->heard) : 0);
    put(t, ",\"rivals\":%" PRIu64 ",\"rival\":", m->rivals);
    put_name(t, m->rival);
    put_number(t, "rival_s", m->rivals && s->now > m->rival_at ? seconds(s->now - m->rival_at) : 0);
    put(t, "}");
}

static void put_group(text *t, const sync_group *g) {
    put(t,
        "{\"group\":%" PRIu32 ",\"step\":%" PRIu64 ",\"members\":%" PRIu32 ",\"awaited\":%" PRIu32
        ",\"pushed\":%" PRIu32 ",\"last_workers\":%" PRIu32,
        g->id, g->step, g->live, g->awaited, g->committed, g->closed_workers);
    put(t, ",\"not_finite\":%" PRIu64, g->not_finite);
    put_number(t, "collect_s", seconds(g->closed_clock[1] - g->closed_clock[0]));
    put_number(t, "update_s", seconds(g->closed_clock[3] - g->closed_clock[2]));
    put_number(t, "loss", g->loss);
    put_number(t, "losses", g->losses);
    put_number(t, "loss_weights", g->loss_weights);
    put(t, "}");
}

static void traffic(const ln_sync_server *s, uint64_t *received, uint64_t *sent) {
    *received = s->lost_received;
    *sent = s->lost_sent;
    for (uint32_t i = 0; i < s->connection_count; i++) {
        *received += s->connections[i]->received;
        *sent += s->connections[i]->sent;
    }
}

static uint32_t live(const ln_sync_server *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->member_count; i++) n += s->members[i]->live;
    return n;
}

size_t ln_sync_server_status(ln_sync_server *s, char *to, size_t size) {
    text t = {to, to ? size : 0, 0};
    uint64_t received, sent;
    traffic(s, &received, &sent);
    put(&t, "{\"job\":\"");
    for (int i = 0; i < 16; i++) put(&t, "%02x", s->manifest->job[i]);
    put(&t, "\",\"shard\":%u,\"shards\":%u,\"epoch\":%" PRIu64 ",\"mode\":\"%s\"", (unsigned)s->manifest->shard,
        (unsigned)s->manifest->shards, s->config.epoch, mode(s));
    put(&t, ",\"workers_wanted\":%" PRIu32 ",\"quorum\":%" PRIu32 ",\"elastic\":%s,\"bound\":%" PRId64,
        s->config.workers, s->config.quorum, s->config.elastic ? "true" : "false", s->config.staleness);
    put(&t, ",\"version\":%" PRIu64 ",\"sequence\":%" PRIu64 ",\"saved_version\":%" PRIu64 ",\"journal\":%" PRIu64,
        s->version, s->sequence, s->saved_version, s->journal_records);
    put(&t, ",\"members\":%" PRIu32 ",\"connections\":%" PRIu32 ",\"tensors\":%" PRIu32, live(s), s->connection_count,
        s->manifest->count);
    put(&t,
        ",\"applied\":%" PRIu64 ",\"late\":%" PRIu64 ",\"not_finite\":%" PRIu64 ",\"steps_not_finite\":%" PRIu64
        ",\"refused\":%" PRIu64,
        s->applied, s->late, s->not_finite, s->steps_not_finite, s->refused);
    put(&t, ",\"left_out\":%" PRIu64, s->left_out);
    put(&t, ",\"dropped_readers\":%" PRIu64 ",\"copies\":%" PRIu64 ",\"paused\":%" PRIu32, s->dropped_readers,
        s->copies, s->paused);
    put(&t, ",\"bytes\":%" PRIu64 ",\"max_bytes\":%" PRIu64 ",\"received\":%" PRIu64 ",\"sent\":%" PRIu64, s->used,
        s->config.max_bytes, received, sent);
    put(&t, ",\"values_sent\":%" PRIu64 ",\"values_saved\":%" PRIu64, s->values_sent, s->values_saved);
    put(&t, ",\"puts\":%" PRIu64, s->puts);
    put_number(&t, "uptime_s", seconds(s->now - s->began));
    put_number(&t, "update_s", seconds(s->update_ns));
    put(&t, ",\"groups\":[");
    for (uint32_t i = 0; i < s->group_count; i++) {
        if (i) put(&t, ",");
        put_group(&t, s->groups[i]);
    }
    put(&t, "],\"workers\":[");
    for (uint32_t i = 0; i < s->member_count; i++) {
        if (i) put(&t, ",");
        put_worker(&t, s, s->members[i]);
    }
    put(&t, "]}");
    return t.used;
}

static void metric(text *t, const char *name, const char *type, const char *help, double value) {
    put(t, "# HELP linnet_sync_%s %s\n# TYPE linnet_sync_%s %s\nlinnet_sync_%s %.17g\n", name, help, name, type, name,
        value);
}

typedef enum of_worker { PUSHES_APPLIED, PUSHES_LATE, STALENESS, RATE, OF_WORKER } of_worker;

static double of(const sync_member *m, of_worker what) {
    return what == PUSHES_APPLIED ? (double)m->applied
           : what == PUSHES_LATE  ? (double)m->late
           : what == STALENESS    ? (double)m->staleness
                                  : m->speed;
}

size_t ln_sync_server_metrics(ln_sync_server *s, char *to, size_t size) {
    static const char *const names[OF_WORKER][3] = {
        {"worker_applied_total", "counter", "Pushes of a worker that were applied."},
        {"worker_late_total", "counter", "Pushes of a worker that came after their step was closed."},
        {"worker_staleness_updates", "gauge", "Updates between the values that a worker used and its own last push."},
        {"worker_examples_per_second", "gauge", "Examples a worker computes per second."},
    };
    text t = {to, to ? size : 0, 0};
    uint64_t received, sent;
    traffic(s, &received, &sent);
    metric(&t, "version", "gauge", "Updates of the variables, over all starts.", (double)s->version);
    metric(&t, "epoch", "gauge", "Epoch of this start of the server.", (double)s->config.epoch);
    metric(&t, "members", "gauge", "Workers that take part.", live(s));
    metric(&t, "connections", "gauge", "Open connections.", s->connection_count);
    metric(&t, "applied_total", "counter", "Pushes that were applied.", (double)s->applied);
    metric(&t, "late_total", "counter", "Pushes dropped because their step was closed.", (double)s->late);
    metric(&t, "not_finite_total", "counter", "Pushes dropped because of NaN or infinity.", (double)s->not_finite);
    metric(&t, "steps_not_finite_total", "counter", "Steps dropped because their gradients or updates overflowed.",
           (double)s->steps_not_finite);
    metric(&t, "refused_total", "counter", "Connections refused.", (double)s->refused);
    metric(&t, "dropped_readers_total", "counter", "Connections ended for reading too slowly.",
           (double)s->dropped_readers);
    metric(&t, "received_bytes_total", "counter", "Bytes received.", (double)received);
    metric(&t, "sent_bytes_total", "counter", "Bytes sent.", (double)sent);
    metric(&t, "puts_total", "counter", "Values that clients have put.", (double)s->puts);
    metric(&t, "values_bytes_total", "counter", "Bytes of values sent to workers.", (double)s->values_sent);
    metric(&t, "values_saved_bytes_total", "counter", "Bytes that f16 and bf16 saved in them.",
           (double)s->values_saved);
    metric(&t, "memory_bytes", "gauge", "Memory of pushes, copies and replies.", (double)s->used);
    metric(&t, "update_seconds_total", "counter", "Time spent in updates.", seconds(s->update_ns));
    metric(&t, "saved_version", "gauge", "Version of the last snapshot.", (double)s->saved_version);
    for (int what = 0; what < OF_WORKER; what++) {
        put(&t, "# HELP linnet_sync_%s %s\n# TYPE linnet_sync_%s %s\n", names[what][0], names[what][2], names[what][0],
            names[what][1]);
        for (uint32_t i = 0; i < s->member_count; i++) {
            const sync_member *m = s->members[i];
            if (!m->live) continue;
            put(&t, "linnet_sync_%s{worker=\"%" PRIu32 "\",name=", names[what][0], m->id);
            put_name(&t, m->name);
            put(&t, "} %.17g\n", of(m, (of_worker)what));
        }
    }
    return t.used;
}
