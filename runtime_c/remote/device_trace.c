/* device_trace.c - what a host says of the runs of pieces. Its times are by its own clock. How far that is from the
 * clock here follows from a message and its answer: the host's time lies between the two, and the middle is wrong by at
 * most half of the round trip (F. Cristian, "Probabilistic clock synchronization", 1989). */
#define _POSIX_C_SOURCE 200809L
#include "remote/device_trace.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/clock.h"

#include <stdlib.h>

enum { ROUNDS = 5, DRIFT = 20000 }; /* two clocks drift apart by less than 1 in DRIFT */

/* What the host said of the last run of a piece. */
typedef struct ln_remote_traced {
    struct ln_remote_traced *next;
    uint64_t piece, steps;
    unsigned char head[LN_REMOTE_RUN_BYTES];
    unsigned char *times, *texts; /* of the steps */
} traced;

/* Keeps the host's time of an answer if it says more than what is known. */
static void note_clock(ln_remote_device *d, uint64_t sent, uint64_t there, uint64_t answered) {
    const uint64_t error = (answered - sent) / 2 + 1;
    if (d->clock_at != 0 && error > d->clock_error + (answered - d->clock_at) / DRIFT) return;
    d->clock_offset = (int64_t)(there - (sent + error));
    d->clock_error = error, d->clock_at = answered;
}

/* Asks for `count` steps from `first` on. The caller holds the device's lock. */
static linnet_status ask(ln_remote_device *d, traced *t, uint64_t first, uint64_t count, bool texts,
                         linnet_error *error) {
    ln_remote_batch *batch = ln_remote_queue_batch(d->control);
    const uint64_t numbers[] = {t->piece, first, count};
    ln_remote_add(batch, LN_REMOTE_TIMES, numbers, 0);
    ln_remote_expect(batch, LN_REMOTE_RUN_BYTES, t->head);
    if (count > 0) ln_remote_expect(batch, LN_REMOTE_TIME_BYTES * count, t->times + LN_REMOTE_TIME_BYTES * first);
    if (texts) {
        ln_remote_add(batch, LN_REMOTE_STEPS, numbers, 0);
        ln_remote_expect(batch, LN_REMOTE_TEXT_BYTES * count, t->texts + LN_REMOTE_TEXT_BYTES * first);
    }
    const uint64_t sent = ln_remote_now_ns();
    const linnet_status status = ln_remote_queue_finish(d->control, error);
    if (status == LINNET_OK && !texts && count == 0) note_clock(d, sent, get64(t->head), ln_remote_now_ns());
    return status;
}

static void forget(traced *t) {
    if (t == NULL) return;
    free(t->times);
    free(t->texts);
    free(t);
}

/* A new entry for the piece, with the names of its steps. The clocks are compared by a few small messages. */
static traced *add(ln_remote_device *d, uint64_t piece, linnet_error *error) {
    linnet_status status = LINNET_OK;
    traced *t = calloc(1, sizeof *t);
    if (t != NULL) t->piece = piece;
    for (int i = 0; t != NULL && i < ROUNDS && status == LINNET_OK; i++) status = ask(d, t, 0, 0, false, error);
    if (t != NULL && status == LINNET_OK) {
        t->steps = get64(t->head + 48);
        const bool few = t->steps < 1 << 24;
        t->times = few ? calloc((size_t)t->steps + 1, LN_REMOTE_TIME_BYTES) : NULL;
        t->texts = few ? calloc((size_t)t->steps + 1, LN_REMOTE_TEXT_BYTES) : NULL;
    }
    if (status == LINNET_OK && (t == NULL || t->times == NULL || t->texts == NULL))
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for the trace of a host");
    if (status == LINNET_OK) {
        t->next = d->traced, d->traced = t;
        return t;
    }
    forget(t);
    return NULL;
}

static traced *find(const ln_remote_device *d, uint64_t piece) {
    traced *t = d->traced;
    while (t != NULL && t->piece != piece) t = t->next;
    return t;
}

static linnet_status ask_all(ln_remote_device *d, uint64_t piece, uint64_t *ns, linnet_error *error) {
    traced *t = find(d, piece);
    const bool made = t == NULL;
    if (made && (t = add(d, piece, error)) == NULL) return (linnet_status)error->code;
    linnet_status status = made ? LINNET_OK : ask(d, t, 0, 0, false, error);
    for (uint64_t first = 0; first < t->steps && status == LINNET_OK; first += LN_REMOTE_MOST_TIMES) {
        const uint64_t left = t->steps - first;
        status = ask(d, t, first, left < LN_REMOTE_MOST_TIMES ? left : LN_REMOTE_MOST_TIMES, made, error);
    }
    *ns = get64(t->head + 24) - get64(t->head + 16);
    return status;
}

static int elapsed(void *context, const linnet_work *work, linnet_handle state, uint64_t *ns) {
    ln_remote_device *d = context;
    linnet_error error = {0};
    (void)work;
    pthread_mutex_lock(&d->lock);
    const linnet_status status = ask_all(d, state, ns, &error);
    pthread_mutex_unlock(&d->lock);
    return status == LINNET_OK ? 0 : ln_remote_code_of(d, &error);
}

static int span(void *context, const linnet_work *work, linnet_handle state, int i, linnet_device_span *out) {
    ln_remote_device *d = context;
    pthread_mutex_lock(&d->lock);
    const traced *t = find(d, state);
    const uint64_t offset = (uint64_t)d->clock_offset;
    out->error_ns = d->clock_error;
    if (t != NULL && i == 0) {
        out->name = d->host->step_name(work->steps[0]);
        out->op = "piece", out->kernel = "host";
        out->begun_ns = get64(t->head + 8) - offset;
        out->start_ns = get64(t->head + 16) - offset;
        out->ns = get64(t->head + 24) - get64(t->head + 16);
        out->waited_ns = get64(t->head + 32);
        out->waited_bytes = get64(t->head + 40);
    } else if (t != NULL && i > 0 && (uint64_t)i <= t->steps) {
        const unsigned char *time = t->times + LN_REMOTE_TIME_BYTES * ((size_t)i - 1);
        const char *text = (const char *)t->texts + LN_REMOTE_TEXT_BYTES * ((size_t)i - 1);
        out->name = text, out->op = text + LN_REMOTE_TEXT_OP, out->kernel = text + LN_REMOTE_TEXT_KERNEL;
        out->start_ns = get64(time) != 0 ? get64(time) - offset : 0;
        out->ns = get64(time + 8);
    }
    pthread_mutex_unlock(&d->lock);
    return 0;
}

void ln_remote_untrace(ln_remote_device *d, linnet_handle piece) {
    pthread_mutex_lock(&d->lock);
    traced **at = &d->traced;
    while (*at != NULL && (*at)->piece != piece) at = &(*at)->next;
    traced *found = *at;
    if (found != NULL) *at = found->next;
    pthread_mutex_unlock(&d->lock);
    forget(found);
}

void ln_remote_trace_functions(linnet_device *functions) { functions->elapsed = elapsed, functions->span = span; }
