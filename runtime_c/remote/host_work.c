/* host_work.c - executes the commands of a SUBMIT, and begins what a RECIPE describes. After the first command that
 * fails, the rest is left out. */
#include "remote/host_work.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/host_constants.h"
#include "remote/host_memory.h"
#include "remote/host_piece.h"
#include "remote/host_predict.h"
#include "remote/host_recipe.h"

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

static int prepare(host_connection *c, const unsigned char *at, size_t left, size_t *used, linnet_error *error) {
    host_prepare p = {.id = get64(at), .precision = (int)get64(at + 40), .spans = at + 64};
    const uint64_t inputs = get64(at + 48), outputs = get64(at + 56), most = left / 24;
    memcpy(p.digest, at + 8, LN_SHA256);
    if (inputs > most || outputs > most || 24 * (inputs + outputs) > left)
        return malformed(error, "PREPARE has more operands than its message");
    p.input_count = (int)inputs, p.output_count = (int)outputs;
    *used = (size_t)(24 * (inputs + outputs));
    return ln_host_prepare(c, &p, error);
}

static linnet_status upload(host_connection *c, const unsigned char *at, size_t left, size_t *used,
                            linnet_error *error) {
    const uint64_t bytes = get64(at + 16);
    if (bytes > left || (bytes + 7) / 8 * 8 > left) return malformed(error, "UPLOAD has fewer bytes than it says");
    unsigned char *to = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    if (to == NULL) return (linnet_status)error->code;
    memcpy(to, at + 24, (size_t)bytes);
    *used = (size_t)((bytes + 7) / 8 * 8);
    return LINNET_OK;
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

static linnet_status copy(host_connection *c, const unsigned char *at, linnet_error *error) {
    const uint64_t bytes = get64(at + 32);
    const unsigned char *from = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
    unsigned char *to = from != NULL ? ln_host_span(c->client, get64(at + 16), get64(at + 24), bytes, error) : NULL;
    if (to == NULL) return (linnet_status)error->code;
    memmove(to, from, (size_t)bytes);
    return LINNET_OK;
}

static linnet_status predict(host_connection *c, const unsigned char *at, size_t left, size_t *used,
                             linnet_error *error) {
    const host_sketch sketch = {
        .file_size = get64(at), .precision = (int)get64(at + 8), .size = get64(at + 16), .bytes = at + 24};
    uint64_t predicted[2] = {0};
    if (sketch.size > left || (sketch.size + 7) / 8 * 8 > left)
        return malformed(error, "PREDICT has fewer bytes than it says");
    *used = (size_t)((sketch.size + 7) / 8 * 8);
    const linnet_status status = ln_host_predict(c->host, &sketch, predicted, error);
    if (status != LINNET_OK) return status;
    unsigned char *to = more(c, LN_REMOTE_PREDICTED);
    if (to == NULL) return no_room(error);
    put64(to, predicted[0]);
    put64(to + 8, predicted[1]);
    return LINNET_OK;
}

/* One command, whose numbers begin at `at`; `left` bytes follow them, of which *used are part of it. */
static int execute(host_connection *c, uint32_t code, const unsigned char *at, size_t left, size_t *used,
                   linnet_error *error) {
    switch (code) {
    case LN_REMOTE_ALLOCATE: return ln_host_allocate(c->host, c->client, get64(at), get64(at + 8), error);
    case LN_REMOTE_RELEASE: return ln_host_release(c->host, c->client, get64(at), error);
    case LN_REMOTE_PREPARE: return prepare(c, at, left, used, error);
    case LN_REMOTE_UNPREPARE: ln_host_unprepare(c->host, c->client, get64(at)); return LINNET_OK;
    case LN_REMOTE_UPLOAD: return upload(c, at, left, used, error);
    case LN_REMOTE_RUN: return ln_host_run_piece(c->host, c->client, get64(at), error);
    case LN_REMOTE_DOWNLOAD: return download(c, at, error);
    case LN_REMOTE_COPY: return copy(c, at, error);
    case LN_REMOTE_PREDICT: return predict(c, at, left, used, error);
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

static void write_failure(unsigned char *at, const linnet_error *error) {
    memset(at, 0, LN_REMOTE_RECORD);
    memcpy(at, error->op, sizeof error->op);
    memcpy(at + 48, error->tensor, sizeof error->tensor);
    memcpy(at + 128, error->what, sizeof error->what);
    memcpy(at + 288, error->expected, sizeof error->expected);
    memcpy(at + 384, error->got, sizeof error->got);
    memcpy(at + 480, error->hint, sizeof error->hint);
}

bool ln_host_work(host_connection *c) {
    linnet_error error = {0};
    int status = LINNET_OK;
    uint32_t count = 0;
    c->answer_size = 0;
    if (more(c, LN_REMOTE_ANSWER_BYTES) == NULL) return false;
    if (c->work_dropped) status = (int)ln_host_no_memory(c->host, c->work_size, &error);
    const bool is_recipe = c->work_type == LN_REMOTE_RECIPE;
    if (is_recipe && status == LINNET_OK) status = (int)recipe(c, &error);
    for (size_t at = 0; at < c->work_size && status == LINNET_OK && !is_recipe; count++) {
        const size_t left = c->work_size - at;
        const uint32_t code = left >= 8 ? get32(c->work + at) : 0;
        const size_t fixed = code > 0 && code < LN_REMOTE_CODES ? 8 + 8 * (size_t)ln_remote_words[code] : SIZE_MAX;
        size_t used = 0;
        status = fixed > left ? (int)malformed(&error, "a command has an unknown code, or is cut off")
                              : execute(c, code, c->work + at + 8, left - fixed, &used, &error);
        at += fixed + used;
    }
    if (status != LINNET_OK) {
        c->answer_size = LN_REMOTE_ANSWER_BYTES;
        unsigned char *record = more(c, LN_REMOTE_RECORD);
        if (record == NULL) return false;
        write_failure(record, &error);
    }
    put32(c->answer, (uint32_t)status);
    put32(c->answer + 4, status != LINNET_OK && count > 0 ? count - 1 : count);
    return true;
}
