/* device_cost.c - what a plan asks a host before it decides what runs there. The host plans a sketch of the steps, so
 * its own kernels, threads and machine table say how long they take. */
#define _POSIX_C_SOURCE 200809L
#include "remote/device_cost.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/clock.h"
#include "remote/piece.h"
#include "remote/sha256.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 64,
    ROUNDS = 5,
    FEW = 1 << 16,
    MANY = 1 << 20,
    UNKNOWN_RATE = 100,
    SLOW_NS = 5000000,
    PAUSE_NS = 1000000
};

/* What a host has said of a sketch. */
typedef struct ln_remote_prediction {
    struct ln_remote_prediction *next;
    unsigned char digest[LN_SHA256];
    linnet_error refused; /* code 0: the host can run it */
    double ns;
    uint64_t bytes;
} prediction;

/* ---- the way to the host ----------------------------------------------------------------------------------------- */

/* Returns in *ns the least time of a few messages. Before each, both sides fall asleep, as they do in a run that
 * computes something: waking up is a part of what a message takes. The messages read `bytes` bytes from a buffer of the
 * host if that is not 0: a client that has shipped its model before sends little until its first result. */
static linnet_status measure(ln_remote_device *d, uint64_t bytes, int rounds, uint64_t *ns, linnet_error *error) {
    const uint64_t buffer = ++d->last, made[] = {buffer, bytes};
    ln_remote_batch *batch = ln_remote_queue_batch(d->control);
    linnet_status status = LINNET_OK;
    void *to = malloc((size_t)bytes + 1);
    *ns = UINT64_MAX;
    if (to == NULL) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to measure a connection");
    if (bytes > 0) {
        ln_remote_add(batch, LN_REMOTE_ALLOCATE, made, 0);
        status = ln_remote_queue_finish(d->control, error);
    }
    for (int i = 0; i < rounds && status == LINNET_OK; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        if (bytes > 0)
            ln_remote_add_download(batch, buffer, 0, bytes, to);
        else
            ln_remote_add(batch, LN_REMOTE_NOTHING, NULL, 0);
        const uint64_t begin = ln_remote_now_ns();
        status = ln_remote_queue_finish(d->control, error);
        const uint64_t took = ln_remote_now_ns() - begin;
        if (took < *ns) *ns = took;
    }
    if (bytes > 0 && ln_remote_queue_works(d->control)) {
        linnet_error ignored;
        ln_remote_add(batch, LN_REMOTE_RELEASE, &buffer, 0);
        ln_remote_queue_finish(d->control, &ignored);
    }
    free(to);
    return status;
}

linnet_status ln_remote_measure(ln_remote_device *d, linnet_error *error) {
    uint64_t ns = 0, bytes = FEW;
    linnet_status status = measure(d, 0, ROUNDS, &d->message_ns, error);
    if (status != LINNET_OK) return status;
    if (d->welcome.most_bytes > 0 && d->welcome.most_bytes / 8 < bytes) bytes = d->welcome.most_bytes / 8;
    status = measure(d, bytes, 2, &ns, error);
    if (status == LINNET_OK && ns < SLOW_NS &&
        (d->welcome.most_bytes == 0 || d->welcome.most_bytes / 8 >= MANY)) /* too short to tell the rate */
        status = measure(d, bytes = MANY, 2, &ns, error);
    if (status == LINNET_OUT_OF_MEMORY) { /* other clients have it: the host works, but this cannot be measured */
        d->rate = UNKNOWN_RATE;
        return LINNET_OK;
    }
    const uint64_t more = ns > d->message_ns ? ns - d->message_ns : 1;
    d->rate = 1000 * bytes / more > 0 ? 1000 * bytes / more : 1;
    return status;
}

static int limits(void *context, linnet_device_limits *out) {
    const ln_remote_device *d = context;
    out->alignment = ALIGNMENT;
    out->largest_buffer = d->welcome.most_bytes;
    out->transfer_ns = d->message_ns / 2; /* a run that goes to the host and comes back has two of them */
    out->transfer_rate = d->rate;
    out->bodies = true;
    return 0;
}

/* ---- steps on the host ------------------------------------------------------------------------------------------- */

static linnet_status ask(ln_remote_device *d, const ln_piece *sketch, size_t size, int precision,
                         unsigned char *predicted, linnet_error *error) {
    const uint64_t numbers[] = {sketch->size, (uint64_t)precision, size};
    linnet_status status = LINNET_OK;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (attempt > 0 && (status = ln_remote_reconnect(d, error)) != LINNET_OK) return status;
        ln_remote_batch *batch = ln_remote_queue_batch(d->control);
        unsigned char *at = ln_remote_add(batch, LN_REMOTE_PREDICT, numbers, size);
        if (at != NULL) memcpy(at, sketch->bytes, size);
        ln_remote_expect(batch, LN_REMOTE_PREDICTED, predicted);
        status = ln_remote_queue_finish(d->control, error);
        if (ln_remote_queue_works(d->control)) break;
    }
    return status;
}

/* Returns what the host says of the sketch, and asks it only once. NULL: `error` says why. */
static const prediction *predict(ln_remote_device *d, const ln_piece *sketch, size_t size, int precision,
                                 linnet_error *error) {
    unsigned char digest[LN_SHA256], predicted[LN_REMOTE_PREDICTED];
    ln_sha256(sketch->bytes, size, digest);
    digest[0] ^= (unsigned char)precision;
    pthread_mutex_lock(&d->lock);
    prediction *found = d->predictions;
    while (found != NULL && memcmp(found->digest, digest, LN_SHA256) != 0) found = found->next;
    if (found == NULL && (found = calloc(1, sizeof *found)) == NULL) {
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for what a host says of a piece");
    } else if (found->ns == 0 && found->refused.code == 0) { /* new */
        const linnet_status status = ask(d, sketch, size, precision, predicted, error);
        if (status != LINNET_OK) found->refused = *error;
        found->ns = status == LINNET_OK ? (double)get64(predicted) + 1 : 0;
        found->bytes = status == LINNET_OK ? get64(predicted + 8) : 0;
        memcpy(found->digest, digest, LN_SHA256);
        if (ln_remote_queue_works(d->control)) {
            found->next = d->predictions, d->predictions = found;
        } else {
            free(found);
            found = NULL;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

/* The planner asks whether a step can run at all. `offer` says what it costs together with its neighbours. */
static double cost(void *context, const linnet_step *step) {
    const ln_remote_device *d = context;
    return ln_piece_can(d->host, step) ? 0 : -1;
}

/* Returns what the host says of a piece of these steps. NULL: *code says why. */
static const prediction *of_steps(ln_remote_device *d, const linnet_step *const *steps, int count, int *code) {
    linnet_error error = {0};
    ln_piece sketch;
    size_t size;
    const bool written = ln_piece_sketch(d->host, steps, count, &sketch, &size);
    const prediction *found = written ? predict(d, &sketch, size, d->host->step_precision(steps[0]), &error) : NULL;
    ln_piece_free(&sketch);
    if (found == NULL) *code = written ? ln_remote_code_of(d, &error) : (int)LINNET_DEVICE_FULL;
    return found;
}

/* The steps become one piece, so the host is asked about all of them. If it refuses them (they need too much memory, or
 * one of them cannot run), it is asked about fewer. */
static int offer(void *context, const linnet_step *const *steps, int count, linnet_offer *out) {
    int code = 0;
    for (; count > 0; count /= 2) {
        const prediction *found = of_steps(context, steps, count, &code);
        if (found == NULL) return code;
        if (found->refused.code != 0) continue;
        out->cost_ns = found->ns;
        break;
    }
    out->count = count;
    return 0;
}

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    int code = 0;
    const prediction *found = of_steps(context, steps, count, &code);
    if (found == NULL) return code;
    if (found->refused.code != 0) return ln_remote_code_of(context, &found->refused);
    out->count = count;
    out->fused = out->packs = true;
    out->kernel = "remote";
    out->own_bytes = found->bytes;
    return 0;
}

static int about(void *context, linnet_device_about *out) {
    const ln_remote_device *d = context;
    out->kind = LINNET_DEVICE_OTHER;
    out->hardware = d->welcome.name;
    out->driver = "linnet-host";
    out->memory = d->welcome.most_bytes;
    return 0;
}

void ln_remote_cost_functions(linnet_device *functions) {
    functions->limits = limits;
    functions->cost = cost;
    functions->offer = offer;
    functions->claim = claim;
    functions->about = about;
}
