/* device.c - a host as a device: claims are pieces, buffers and values are the host's, and the work of a run goes to it
 * as one message. */
#include "remote/device.h"

#include "net/bytes.h"
#include "remote/device_cost.h"
#include "remote/device_kept.h"
#include "remote/device_peer.h"
#include "remote/device_trace.h"
#include "remote/piece.h"
#include "remote/ship.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Large values go in parts, each in a message of its own: one side copies a part while the other works on the one
 * before, and the parts stay in the caches of both. */
enum { PART = 1 << 20 };
/* Fewest bytes of a constant that the host may have already, and of zeros that are not sent. */
enum { CONSTANT = 1 << 16, ZEROS = 256 };

static ln_remote_queue *queue_of(linnet_handle handle) { return (ln_remote_queue *)(uintptr_t)handle; }
static ln_remote_event *event_of(linnet_handle handle) { return (ln_remote_event *)(uintptr_t)handle; }

static const char *explain(void *context, int code) {
    const ln_remote_device *d = context;
    return code > 0 && code <= LN_REMOTE_TEXTS ? d->texts[code - 1] : NULL;
}

static uint64_t number(ln_remote_device *d) {
    pthread_mutex_lock(&d->lock);
    const uint64_t n = ++d->last;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Runs one command by the control connection. ALLOCATE, with which a session begins, is tried again on a new one. The
 * host may have executed the first one, so the buffer of this number is released before. */
static linnet_status control(ln_remote_device *d, ln_remote_code code, const uint64_t *numbers, linnet_error *error) {
    linnet_status status = LINNET_OK;
    pthread_mutex_lock(&d->lock);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (attempt > 0) status = ln_remote_reconnect(d, error);
        if (status != LINNET_OK) break;
        if (attempt > 0) ln_remote_add(ln_remote_queue_batch(d->control), LN_REMOTE_RELEASE, numbers, 0);
        ln_remote_add(ln_remote_queue_batch(d->control), code, numbers, 0);
        status = ln_remote_queue_finish(d->control, error);
        if (ln_remote_queue_works(d->control) || code != LN_REMOTE_ALLOCATE) break;
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    ln_remote_device *d = context;
    linnet_error error = {0};
    const uint64_t numbers[] = {number(d), bytes};
    if (control(d, LN_REMOTE_ALLOCATE, numbers, &error) != LINNET_OK) return ln_remote_code_of(d, &error);
    *buffer = numbers[0];
    return 0;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    linnet_error ignored;
    (void)bytes;
    control(context, LN_REMOTE_RELEASE, &buffer, &ignored);
}

/* ---- queues and events ------------------------------------------------------------------------------------------- */

static int open_queue(void *context, linnet_handle *queue) {
    ln_remote_device *d = context;
    linnet_error error = {0};
    ln_remote_welcome welcome;
    ln_remote_queue *made = ln_remote_queue_new(&d->place, &welcome, &error);
    *queue = (uintptr_t)made;
    return made != NULL ? 0 : ln_remote_code_of(d, &error);
}

static void close_queue(void *context, linnet_handle queue) {
    (void)context;
    ln_remote_queue_free(queue_of(queue));
}

static int finish(void *context, linnet_handle queue) {
    linnet_error error = {0};
    return ln_remote_queue_finish(queue_of(queue), &error) == LINNET_OK ? 0 : ln_remote_code_of(context, &error);
}

static int create_event(void *context, linnet_handle *out) {
    (void)context;
    *out = (uintptr_t)calloc(1, sizeof(ln_remote_event));
    return *out != 0 ? 0 : (int)LINNET_DEVICE_FULL;
}

static void free_event(void *context, linnet_handle handle) {
    (void)context;
    free((void *)(uintptr_t)handle);
}

/* The message is sent later, with all that the host shall do until somebody waits. */
static int record(void *context, linnet_handle queue, linnet_handle handle) {
    (void)context;
    ln_remote_record(queue_of(queue), event_of(handle));
    return 0;
}

static int flush(void *context, linnet_handle queue) {
    linnet_error error = {0};
    return ln_remote_queue_flush(queue_of(queue), &error) == LINNET_OK ? 0 : ln_remote_code_of(context, &error);
}

static int wait_for(ln_remote_device *d, linnet_handle handle, int timeout_ms) {
    const ln_remote_event *e = event_of(handle);
    linnet_error error = {0};
    bool answered = true;
    if (e->queue == NULL) return 0;
    if (ln_remote_queue_wait(e->queue, e->message, timeout_ms, &answered, &error) != LINNET_OK)
        return ln_remote_code_of(d, &error);
    return answered ? 0 : (int)LINNET_DEVICE_PENDING;
}

static int wait_event(void *context, linnet_handle handle) { return wait_for(context, handle, -1); }

static int wait_until(void *context, linnet_handle handle, uint64_t ns) {
    return wait_for(context, handle, (int)(ns / 1000000 < 1000 ? (ns + 999999) / 1000000 : 1000));
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Work that is no copy between hosts waits here for what it follows. */
static int settle(ln_remote_device *d, linnet_handle queue) {
    linnet_error error = {0};
    return ln_remote_settle(queue_of(queue), &error) == LINNET_OK ? 0 : ln_remote_code_of(d, &error);
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    ln_remote_batch *batch = ln_remote_queue_batch(queue_of(queue));
    linnet_error error = {0};
    uint64_t done = 0;
    const int code = settle(context, queue);
    if (code != 0) return code;
    for (; tensor->bytes - done > 2 * PART; done += PART) {
        ln_remote_add_download(batch, from->buffer, from->offset + done, PART, (char *)to + done);
        if (ln_remote_queue_flush(queue_of(queue), &error) != LINNET_OK) return ln_remote_code_of(context, &error);
    }
    ln_remote_add_download(batch, from->buffer, from->offset + done, tensor->bytes - done, (char *)to + done);
    return batch->failed ? (int)LINNET_DEVICE_FULL : 0;
}

static bool reaches(void *context, const linnet_device *other) { return ln_remote_reaches(context, other); }

static int follow(void *context, linnet_handle queue, const linnet_device *of, linnet_handle handle) {
    linnet_error error = {0};
    (void)of;
    return ln_remote_follow(queue_of(queue), event_of(handle), &error) == LINNET_OK
               ? 0
               : ln_remote_code_of(context, &error);
}

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    ln_remote_device *d = context;
    ln_remote_batch *batch = ln_remote_queue_batch(queue_of(queue));
    const uint64_t numbers[] = {from->buffer, from->offset, to->buffer, to->offset, from->bytes};
    linnet_error error = {0};
    if (of->context != d) /* the library has copies of the struct */
        return ln_remote_fetch(queue_of(queue), to, of, from, &error) == LINNET_OK ? 0 : ln_remote_code_of(d, &error);
    const int code = settle(d, queue);
    if (code != 0) return code;
    ln_remote_add(batch, LN_REMOTE_COPY, numbers, 0);
    return batch->failed ? (int)LINNET_DEVICE_FULL : 0;
}

static unsigned char *put_spans(unsigned char *at, const linnet_span *spans, int count) {
    for (int i = 0; i < count; i++, at += 24) {
        put64(at, spans[i].buffer);
        put64(at + 8, spans[i].offset);
        put64(at + 16, spans[i].bytes);
    }
    return at;
}

/* How a piece is prepared. */
typedef struct preparation {
    const ln_piece *piece;
    unsigned char digest[LN_SHA256];
    uint64_t id;
    int precision;
    bool trace;
} preparation;

/* Asks the host to prepare the piece, and waits for its answer. */
static linnet_status ask(ln_remote_queue *queue, const preparation *p, linnet_error *error) {
    const ln_piece *piece = p->piece;
    const int spans = piece->input_count + piece->output_count;
    const uint64_t numbers[8] = {p->id,
                                 get64(p->digest),
                                 get64(p->digest + 8),
                                 get64(p->digest + 16),
                                 get64(p->digest + 24),
                                 (uint64_t)p->precision,
                                 (uint64_t)piece->input_count,
                                 (uint64_t)piece->output_count};
    unsigned char *at = ln_remote_add(ln_remote_queue_batch(queue), LN_REMOTE_PREPARE, numbers, 24 * (uint64_t)spans);
    if (at != NULL) {
        if (p->trace) put32(at - sizeof numbers - 4, LN_REMOTE_TRACED);
        at = put_spans(at, piece->inputs, piece->input_count);
        put_spans(at, piece->outputs, piece->output_count);
    }
    return ln_remote_queue_finish(queue, error);
}

/* Prepares a piece, which is sent first if the host does not have it. */
static linnet_status ask_or_ship(ln_remote_queue *queue, preparation *p, linnet_error *error) {
    ln_piece_digest(p->piece, p->digest);
    linnet_status status = ask(queue, p, error);
    if ((int)status != LN_REMOTE_MISSING) return status;
    status = ln_piece_ship(queue, p->piece, p->digest, error);
    return status == LINNET_OK ? ask(queue, p, error) : status;
}

static int prepare(void *context, linnet_handle handle, const linnet_work *work, linnet_handle *state) {
    ln_remote_device *d = context;
    linnet_error error = {0};
    ln_piece piece;
    linnet_status status = ln_piece_write(d->host, work, &piece) ? LINNET_OK : LINNET_OUT_OF_MEMORY;
    preparation p = {.piece = &piece, .id = number(d), .trace = work->trace};
    p.precision = d->host->step_precision(work->steps[0]);
    if (status == LINNET_OK) status = ask_or_ship(queue_of(handle), &p, &error);
    ln_piece_free(&piece);
    *state = p.id;
    if (status == LINNET_OUT_OF_MEMORY) return LINNET_DEVICE_FULL;
    return status == LINNET_OK ? 0 : ln_remote_code_of(d, &error);
}

/* Brings a constant of a file to the buffer as a piece of its own, so that a host that has the constant in its folder
 * does not get it again. Returns LINNET_OUT_OF_MEMORY if this machine or the host has too little memory for that. */
static linnet_status bring_constant(ln_remote_device *d, ln_remote_queue *queue, const linnet_device_tensor *tensor,
                                    const linnet_span *to, linnet_error *error) {
    ln_piece piece;
    linnet_status status = ln_piece_constant(d->host, tensor, to, &piece) ? LINNET_OK : LINNET_OUT_OF_MEMORY;
    preparation p = {.piece = &piece, .id = number(d)};
    if (status == LINNET_OK) status = ask_or_ship(queue, &p, error);
    ln_piece_free(&piece);
    if (status != LINNET_OK) return status;
    ln_remote_add(ln_remote_queue_batch(queue), LN_REMOTE_RUN, &p.id, 0);
    ln_remote_add(ln_remote_queue_batch(queue), LN_REMOTE_UNPREPARE, &p.id, 0);
    return ln_remote_queue_flush(queue, error);
}

static bool is_zero(const char *bytes, size_t size) { return *bytes == 0 && memcmp(bytes, bytes + 1, size - 1) == 0; }

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    ln_remote_batch *batch = ln_remote_queue_batch(queue_of(queue));
    linnet_error error = {0};
    const int code = settle(context, queue);
    if (code != 0) return code;
    if (tensor->constant && tensor->bytes >= CONSTANT && ((ln_remote_device *)context)->welcome.keeps) {
        const linnet_status status = bring_constant(context, queue_of(queue), tensor, to, &error);
        if (status != LINNET_OUT_OF_MEMORY) return status == LINNET_OK ? 0 : ln_remote_code_of(context, &error);
    }
    for (uint64_t done = 0; done < tensor->bytes || done == 0;) {
        const uint64_t left = tensor->bytes - done, bytes = left < PART ? left : PART;
        const uint64_t numbers[] = {to->buffer, to->offset + done, bytes};
        if (bytes >= ZEROS && is_zero((const char *)from + done, (size_t)bytes)) { /* a new slot of an optimizer */
            ln_remote_add(batch, LN_REMOTE_ZERO, numbers, 0);
            done += bytes;
            continue;
        }
        if (bytes == PART && batch->size == 0) { /* without a copy */
            if (ln_remote_queue_upload(queue_of(queue), numbers, (const char *)from + done, &error) != LINNET_OK)
                return ln_remote_code_of(context, &error);
            done += bytes;
            continue;
        }
        unsigned char *at = ln_remote_add(batch, LN_REMOTE_UPLOAD, numbers, bytes);
        if (at != NULL && bytes > 0) memcpy(at, (const char *)from + done, (size_t)bytes);
        done += bytes;
        if (batch->size >= PART && ln_remote_queue_flush(queue_of(queue), &error) != LINNET_OK)
            return ln_remote_code_of(context, &error);
        if (tensor->bytes == 0) break;
    }
    return batch->failed ? (int)LINNET_DEVICE_FULL : 0;
}

static void unprepare(void *context, linnet_handle state) {
    linnet_error ignored;
    ln_remote_untrace(context, state);
    control(context, LN_REMOTE_UNPREPARE, &state, &ignored);
}

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle state) {
    ln_remote_batch *batch = ln_remote_queue_batch(queue_of(queue));
    (void)work;
    const int code = settle(context, queue);
    if (code != 0) return code;
    ln_remote_add(batch, LN_REMOTE_RUN, &state, 0);
    return batch->failed ? (int)LINNET_DEVICE_FULL : 0;
}

const linnet_device *ln_remote_device_new(const linnet_host *host, const ln_remote_place *place, linnet_error *error) {
    ln_remote_device *d = calloc(1, sizeof *d);
    if (d == NULL) return NULL;
    d->place = *place;
    d->host = host;
    d->control = ln_remote_queue_new(&d->place, &d->welcome, error);
    if (d->control == NULL) {
        free(d);
        return NULL;
    }
    if (ln_remote_measure(d, error) != LINNET_OK) {
        ln_remote_queue_free(d->control);
        free(d);
        return NULL;
    }
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->reach_lock, NULL);
    snprintf(d->name, sizeof d->name, "remote:%s", place->address);
    d->functions = (linnet_device){
        .struct_size = sizeof d->functions,
        .version = LINNET_DEVICE_VERSION,
        .name = d->name,
        .context = d,
        .allocate = allocate,
        .release = release,
        .open = open_queue,
        .close = close_queue,
        .finish = finish,
        .create_event = create_event,
        .free_event = free_event,
        .record = record,
        .wait = wait_event,
        .follow = follow,
        .upload = upload,
        .download = download,
        .reaches = reaches,
        .copy = copy,
        .prepare = prepare,
        .unprepare = unprepare,
        .run = run,
        .explain = explain,
        .wait_until = wait_until,
        .flush = flush,
    };
    ln_remote_cost_functions(&d->functions);
    ln_remote_trace_functions(&d->functions);
    if (ln_remote_kept_functions(d, error) != LINNET_OK) {
        ln_remote_queue_free(d->control);
        free(d);
        return NULL;
    }
    return &d->functions;
}
