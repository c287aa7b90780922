/* host_work.c - executes the commands of a SUBMIT, and begins what a RECIPE describes. After the first command that
 * fails, the rest is left out. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_work.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/clock.h"
#include "remote/host_constants.h"
#include "remote/host_kept.h"
#include "remote/host_memory.h"
#include "remote/host_outbox.h"
#include "remote/host_peer.h"
#include "remote/host_piece.h"
#include "remote/host_predict.h"
#include "remote/host_recipe.h"
#include "remote/host_trace.h"

#include <stdlib.h>
#include <string.h>

/* Room for `size` more bytes of the answer, rounded up to a multiple of 8 and filled with zeros there. */
static unsigned char *more(host_connection *c, size_t size) {
    const size_t padded = (size + 7) / 8 * 8;
    if (size > SIZE_MAX / 4) return NULL;
    if (padded > c->answer_room - c->answer_size) {
        const linnet_allocator *a = &c->host->allocator;
        const size_t room = c->answer_size + c->answer_size / 2 + padded + 1024;
        unsigned char *grown = a->alloc(a->context, room, 64);
        if (grown == NULL) return NULL;
        if (c->answer_size > 0) memcpy(grown, c->answer, c->answer_size);
        a->free(a->context, c->answer, c->answer_room);
        c->answer = grown, c->answer_room = room;
    }
    unsigned char *at = c->answer + c->answer_size;
    if (padded != size) memset(at + padded - 8, 0, 8);
    c->answer_size += padded;
    return at;
}

static linnet_status malformed(linnet_error *error, const char *what) {
    ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client sent commands that are not valid: %s", what);
    return ln_sync_hint(error, "use the same version of linnet on both sides");
}

static linnet_status no_room(linnet_error *error) {
    return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory for its answer");
}

/* Bytes that follow the numbers of a command and belong to it. */
static uint64_t tail(uint32_t code, const unsigned char *at) {
    uint64_t inputs, outputs, bytes;
    switch (code) {
    case LN_REMOTE_PREPARE:
        inputs = get64(at + 48), outputs = get64(at + 56);
        return inputs < UINT32_MAX && outputs < UINT32_MAX ? 24 * (inputs + outputs) : UINT64_MAX;
    case LN_REMOTE_UPLOAD:
    case LN_REMOTE_PREDICT: bytes = get64(at + 16); break;
    case LN_REMOTE_PEER: bytes = get64(at + 24); break;
    default: return 0;
    }
    return bytes < UINT64_MAX / 2 ? (bytes + 7) / 8 * 8 : UINT64_MAX;
}

static int prepare(host_connection *c, const unsigned char *at, linnet_error *error) {
    host_prepare p = {.id = get64(at), .precision = (int)get64(at + 40), .spans = at + 64};
    memcpy(p.digest, at + 8, LN_SHA256);
    p.traced = (get32(at - 4) & LN_REMOTE_TRACED) != 0;
    p.input_count = (int)get64(at + 48), p.output_count = (int)get64(at + 56);
    return ln_host_prepare(c, &p, error);
}

static linnet_status upload(host_connection *c, const unsigned char *at, linnet_error *error) {
    const uint64_t bytes = get64(at + 16);
    if (c->placed != NULL) return LINNET_OK; /* the value is there */
    unsigned char *to = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    if (to == NULL) return (linnet_status)error->code;
    memcpy(to, at + 24, (size_t)bytes);
    return LINNET_OK;
}

static linnet_status peer(host_connection *c, const unsigned char *at, linnet_error *error) {
    const host_peer_place place = {.id = get64(at),
                                   .token = at + 8,
                                   .bytes = get64(at + 24),
                                   .address = (const char *)at + 32,
                                   .lease_ms = get32(at - 4)};
    return ln_host_peer(c, &place, error);
}

static linnet_status fetch(host_connection *c, const unsigned char *at, linnet_error *error) {
    const host_fetch f = {.peer = get64(at),
                          .connection = get64(at + 8),
                          .channel = get64(at + 16),
                          .number = get64(at + 24),
                          .buffer = get64(at + 32),
                          .offset = get64(at + 40),
                          .bytes = get64(at + 48)};
    const uint64_t since = ln_remote_now_ns();
    const linnet_status status = ln_host_fetch(c, &f, error);
    c->fetched_ns += ln_remote_now_ns() - since;
    c->fetched_bytes += f.bytes;
    return status;
}

/* The memory of the first value becomes the answer, which it has room for. */
static linnet_status keep_or_recall(host_connection *c, uint32_t code, const unsigned char *at, linnet_error *error) {
    const host_kept kept = {.name = at,
                            .number = get64(at + 16),
                            .buffer = get64(at + 24),
                            .offset = get64(at + 32),
                            .bytes = get64(at + 40)};
    return code == LN_REMOTE_KEEP ? ln_host_keep(c, &kept, error) : ln_host_recall(c, &kept, error);
}

static linnet_status take(host_connection *c, const unsigned char *at, linnet_error *error) {
    host_value *value;
    const linnet_allocator *a = &c->host->allocator;
    const linnet_status status =
        ln_host_take(c, get64(at), get64(at + 8), get64(at + 16), get64(at + 24), &value, error);
    if (status != LINNET_OK) return status;
    const size_t bytes = (size_t)value->bytes;
    if (c->answer_size == LN_REMOTE_ANSWER_BYTES) {
        a->free(a->context, c->answer, c->answer_room);
        c->answer = ln_host_value_end(value, &c->answer_room);
        c->answer_size += (bytes + 7) / 8 * 8;
        return LINNET_OK;
    }
    unsigned char *to = more(c, bytes);
    if (to != NULL) memcpy(to, value->memory + LN_REMOTE_ANSWER_BYTES, bytes);
    ln_host_value_free(c->host, value);
    return to != NULL ? LINNET_OK : no_room(error);
}

static linnet_status download(host_connection *c, const unsigned char *at, linnet_error *error) {
    const uint64_t bytes = get64(at + 16);
    const unsigned char *from = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    if (from == NULL) return (linnet_status)error->code;
    unsigned char *to = more(c, (size_t)bytes);
    if (to == NULL) return no_room(error);
    memcpy(to, from, (size_t)bytes);
    return LINNET_OK;
}

static linnet_status zero(host_connection *c, const unsigned char *at, linnet_error *error) {
    const uint64_t bytes = get64(at + 16);
    unsigned char *to = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    if (to == NULL) return (linnet_status)error->code;
    memset(to, 0, (size_t)bytes);
    return LINNET_OK;
}

static linnet_status copy(host_connection *c, const unsigned char *at, linnet_error *error) {
    const uint64_t bytes = get64(at + 32);
    const unsigned char *from = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    unsigned char *to = from != NULL ? ln_host_span(c->client, get64(at + 16), get64(at + 24), bytes, error) : NULL;
    if (to == NULL) return (linnet_status)error->code;
    memmove(to, from, (size_t)bytes);
    return LINNET_OK;
}

static linnet_status predict(host_connection *c, const unsigned char *at, linnet_error *error) {
    const host_sketch sketch = {
        .file_size = get64(at), .precision = (int)get64(at + 8), .size = get64(at + 16), .bytes = at + 24};
    uint64_t predicted[2] = {0};
    const linnet_status status = ln_host_predict(c->host, &sketch, predicted, error);
    if (status != LINNET_OK) return status;
    unsigned char *to = more(c, LN_REMOTE_PREDICTED);
    if (to == NULL) return no_room(error);
    put64(to, predicted[0]);
    put64(to + 8, predicted[1]);
    return LINNET_OK;
}

/* TIMES or STEPS. */
static linnet_status times(host_connection *c, uint32_t code, const unsigned char *at, linnet_error *error) {
    const uint64_t first = get64(at + 8), count = get64(at + 16);
    const host_piece *piece = ln_host_find_piece(c->client, get64(at), error);
    if (piece == NULL) return LINNET_PROTOCOL_ERROR;
    if (piece->trace == NULL || count > LN_REMOTE_MOST_TIMES)
        return malformed(error, "times of too many steps, or of a piece that is not traced");
    const size_t size = code == LN_REMOTE_STEPS ? LN_REMOTE_TEXT_BYTES * (size_t)count
                                                : LN_REMOTE_RUN_BYTES + LN_REMOTE_TIME_BYTES * (size_t)count;
    unsigned char *to = more(c, size);
    if (to == NULL) return no_room(error);
    if (code == LN_REMOTE_STEPS)
        ln_host_trace_steps(piece, first, (int)count, to);
    else
        ln_host_trace_times(piece, first, (int)count, to);
    return LINNET_OK;
}

/* One command, whose numbers begin at `at`. */
static int execute(host_connection *c, uint32_t code, const unsigned char *at, linnet_error *error) {
    if (c->joined != (code == LN_REMOTE_TAKE) && code != LN_REMOTE_NOTHING)
        return malformed(error, "hosts take values, and clients do everything else");
    switch (code) {
    case LN_REMOTE_ALLOCATE: return ln_host_allocate(c->host, c->client, get64(at), get64(at + 8), error);
    case LN_REMOTE_RELEASE: return ln_host_release(c->host, c->client, get64(at), error);
    case LN_REMOTE_PREPARE: return prepare(c, at, error);
    case LN_REMOTE_UNPREPARE: ln_host_unprepare(c->host, c->client, get64(at)); return LINNET_OK;
    case LN_REMOTE_UPLOAD: return upload(c, at, error);
    case LN_REMOTE_RUN: return ln_host_run_piece(c, get64(at), error);
    case LN_REMOTE_DOWNLOAD: return download(c, at, error);
    case LN_REMOTE_COPY: return copy(c, at, error);
    case LN_REMOTE_ZERO: return zero(c, at, error);
    case LN_REMOTE_PREDICT: return predict(c, at, error);
    case LN_REMOTE_PEER: return peer(c, at, error);
    case LN_REMOTE_SEND:
        return ln_host_send(c, get64(at), get64(at + 8), get64(at + 16), get64(at + 24), get64(at + 32), error);
    case LN_REMOTE_FETCH: return fetch(c, at, error);
    case LN_REMOTE_TAKE: return take(c, at, error);
    case LN_REMOTE_KEEP:
    case LN_REMOTE_RECALL: return keep_or_recall(c, code, at, error);
    case LN_REMOTE_TIMES:
    case LN_REMOTE_STEPS: return times(c, code, at, error);
    default: return LINNET_OK;
    }
}

/* A RECIPE, whose answer has a byte for each hole. */
static linnet_status recipe(host_connection *c, linnet_error *error) {
    const linnet_status status = ln_host_recipe_begin(c, c->work, c->work_size, error);
    if (status != LINNET_OK) return status;
    ln_host_constants_fill(c->host, c->recipe);
    unsigned char *lacks = more(c, (size_t)c->recipe->count);
    if (lacks == NULL) return no_room(error);
    for (int i = 0; i < c->recipe->count; i++) lacks[i] = !c->recipe->holes[i].filled;
    return LINNET_OK;
}

/* Reads the command at `at` of the message; 0: it is not valid. Otherwise returns its size. */
static size_t read_command(const host_connection *c, size_t at, uint32_t *code) {
    const size_t left = c->work_size - at;
    *code = left >= 8 ? get32(c->work + at) : 0;
    if (*code == 0 || *code >= LN_REMOTE_CODES || 8 + 8 * (size_t)ln_remote_words[*code] > left) return 0;
    if (ln_remote_words[*code] == 0 && *code != LN_REMOTE_NOTHING) return 0; /* a number that no command has */
    const size_t fixed = 8 + 8 * (size_t)ln_remote_words[*code];
    const uint64_t more = tail(*code, c->work + at + 8);
    return more <= left - fixed ? fixed + (size_t)more : 0;
}

/* After a failure: says for each value that the rest of the message would have sent that it does not come. */
static void leave_out(host_connection *c, size_t at, const linnet_error *why) {
    uint32_t code;
    for (size_t size; at < c->work_size && (size = read_command(c, at, &code)) > 0; at += size)
        if (code == LN_REMOTE_SEND && !c->joined)
            ln_host_leave_out(c, get64(c->work + at + 8), get64(c->work + at + 16), why);
}

bool ln_host_is_asked(const host_connection *c) {
    if (c->work == NULL || c->work_type != LN_REMOTE_SUBMIT || c->work_size % 8 != 0) return false;
    for (size_t at = 0; at < c->work_size; at += 8)
        if (get32(c->work + at) != LN_REMOTE_NOTHING) return false;
    return true;
}

bool ln_host_work(host_connection *c) {
    linnet_error error = {0};
    int status = LINNET_OK;
    uint32_t count = 0, code;
    c->answer_size = 0;
    c->begun_ns = ln_remote_now_ns(), c->fetched_ns = 0, c->fetched_bytes = 0;
    if (more(c, LN_REMOTE_ANSWER_BYTES) == NULL) return false;
    ln_host_note_lost(c, c->work_dropped);
    if (c->work_dropped) status = (int)ln_host_no_memory(c->host, c->work_size, &error);
    const bool is_recipe = c->work_type == LN_REMOTE_RECIPE;
    if (is_recipe && status == LINNET_OK) status = (int)recipe(c, &error);
    for (size_t at = 0, size; at < c->work_size && status == LINNET_OK && !is_recipe; at += size, count++) {
        size = read_command(c, at, &code);
        status = size > 0 ? execute(c, code, c->work + at + 8, &error)
                          : (int)malformed(&error, "a command has an unknown code, or is cut off");
        if (status != LINNET_OK) leave_out(c, at, &error);
    }
    if (status != LINNET_OK) {
        c->answer_size = LN_REMOTE_ANSWER_BYTES;
        unsigned char *record = more(c, LN_REMOTE_RECORD);
        if (record == NULL) return false;
        ln_remote_record_write(&error, record);
    }
    put32(c->answer, (uint32_t)status);
    put32(c->answer + 4, status != LINNET_OK && count > 0 ? count - 1 : count);
    return true;
}
