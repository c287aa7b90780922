/* host_piece.c - pieces on a host. Pieces with the same digest share one model, and so its packed weights. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_piece.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/host_folder.h"
#include "remote/host_memory.h"
#include "remote/host_plan.h"
#include "remote/host_recipe.h"
#include "remote/host_trace.h"

#include "linnet_device.h"
#include "linnet_ext.h"

#include <stdlib.h>
#include <string.h>

/* ---- models ------------------------------------------------------------------------------------------------------ */

void ln_host_drop_model(ln_host *host, host_model *model) {
    pthread_mutex_lock(&host->lock);
    const bool unused = --model->users == 0;
    for (host_model **at = &host->models; unused && *at != NULL; at = &(*at)->next)
        if (*at == model) {
            *at = model->next;
            break;
        }
    pthread_mutex_unlock(&host->lock);
    if (!unused) return;
    linnet_model_free(model->model);
    if (model->bytes != NULL) host->allocator.free(host->allocator.context, model->bytes, model->size);
    free(model);
}

static linnet_status open_model(host_connection *c, const host_prepare *prepare, host_model *model,
                                linnet_error *error) {
    ln_host *host = c->host;
    char path[LN_HOST_PATH];
    linnet_model_config config;
    linnet_model_config_init(&config);
    config.allocator = &host->allocator;
    config.verify = LINNET_VERIFY_STRICT;
    const bool made = ln_host_recipe_is(c, prepare->digest) && c->recipe->lacking == 0;
    linnet_status status = ln_host_recipe_end(c, prepare->digest, error);
    if (status != LINNET_OK) return status;
    const bool sent = c->piece != NULL && memcmp(c->piece_digest, prepare->digest, LN_SHA256) == 0;
    if (sent && !made) ln_host_folder_store(&host->config, prepare->digest, c->piece, c->piece_size);
    if (ln_host_folder_find(&host->config, prepare->digest, path)) {
        status = linnet_model_open(path, &config, &model->model, error);
        if (status == LINNET_OK || status == LINNET_OUT_OF_MEMORY) return status;
        if (sent || made) ln_host_folder_remove(path); /* not valid; one that is damaged still has good constants */
        if (made && !sent) return status;
    }
    if (c->piece_dropped) {
        c->piece_dropped = false;
        return ln_host_no_memory(host, c->piece_size, error);
    }
    if (!sent) {
        ln_sync_fail(error, LINNET_NOT_FOUND, "the host does not have the piece");
        return (linnet_status)LN_REMOTE_MISSING;
    }
    model->bytes = c->piece, model->size = c->piece_room; /* the model takes the memory of the message */
    const size_t size = c->piece_size;
    c->piece = NULL;
    return linnet_model_open_memory(model->bytes, size, LINNET_BORROW, &config, &model->model, error);
}

/* The model of the digest, with one more user. NULL: *status says why. */
static host_model *model_of(host_connection *c, const host_prepare *prepare, linnet_status *status,
                            linnet_error *error) {
    ln_host *host = c->host;
    *status = LINNET_OK;
    pthread_mutex_lock(&host->lock);
    host_model *found = host->models;
    while (found != NULL && memcmp(found->digest, prepare->digest, LN_SHA256) != 0) found = found->next;
    if (found != NULL) found->users++;
    pthread_mutex_unlock(&host->lock);
    if (found != NULL) return found;
    host_model *made = calloc(1, sizeof *made);
    if (made == NULL) {
        *status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory for a piece");
        return NULL;
    }
    *status = open_model(c, prepare, made, error);
    if (*status != LINNET_OK) {
        if (made->bytes != NULL) host->allocator.free(host->allocator.context, made->bytes, made->size);
        free(made);
        return NULL;
    }
    memcpy(made->digest, prepare->digest, LN_SHA256);
    made->users = 1;
    pthread_mutex_lock(&host->lock);
    made->next = host->models, host->models = made;
    pthread_mutex_unlock(&host->lock);
    return made;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static linnet_status bind(host_connection *c, const host_prepare *prepare, host_piece *piece, linnet_error *error) {
    const int count = prepare->input_count + prepare->output_count;
    linnet_session *session = piece->session;
    piece->buffers = malloc(((size_t)count + 1) * sizeof *piece->buffers);
    if (piece->buffers == NULL) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory for a piece");
    for (int i = 0; i < count; i++) {
        const unsigned char *at = prepare->spans + 24 * i;
        const uint64_t bytes = get64(at + 16);
        unsigned char *memory = ln_host_span(c->client, get64(at), get64(at + 8), bytes, error);
        if (memory == NULL) return (linnet_status)error->code;
        piece->buffers[piece->buffer_count++] = get64(at);
        ln_host_use(c->client, get64(at), 1);
        const int n = i < prepare->input_count ? i : i - prepare->input_count;
        const linnet_status status = i < prepare->input_count
                                         ? linnet_session_bind_input(session, n, memory, (size_t)bytes, error)
                                         : linnet_session_bind_output(session, n, memory, (size_t)bytes, error);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

static linnet_status make_session(host_connection *c, const host_prepare *prepare, host_piece *piece,
                                  linnet_error *error) {
    linnet_plan *plan = NULL;
    linnet_session_config config;
    linnet_session_config_init(&config);
    config.trace = prepare->traced;
    config.binds_all = true; /* to memory of the client's buffers */
    linnet_status status = ln_host_plan(c->host, piece->model->model, prepare->precision, &plan, error);
    if (status != LINNET_OK) return status;
    if (linnet_plan_input_count(plan) != prepare->input_count ||
        linnet_plan_output_count(plan) != prepare->output_count)
        status = ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a piece does not have the operands that its client names");
    else
        status = linnet_session_create(plan, NULL, &config, &piece->session, error);
    linnet_plan_free(plan);
    if (status == LINNET_OK && prepare->traced && (piece->trace = ln_host_trace_new(piece->session)) == NULL)
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory to trace a piece");
    return status == LINNET_OK ? bind(c, prepare, piece, error) : status;
}

static void end_piece(ln_host *host, host_client *client, host_piece *piece) {
    linnet_session_free(piece->session);
    for (int i = 0; i < piece->buffer_count; i++) ln_host_use(client, piece->buffers[i], -1);
    free(piece->buffers);
    free(piece->trace);
    ln_host_drop_model(host, piece->model);
    free(piece);
}

int ln_host_prepare(host_connection *c, const host_prepare *prepare, linnet_error *error) {
    linnet_status status;
    host_model *model = model_of(c, prepare, &status, error);
    if (model == NULL) return status;
    if (ln_host_recipe_is(c, prepare->digest)) ln_host_recipe_free(c); /* another connection was faster */
    host_piece *piece = calloc(1, sizeof *piece);
    if (piece == NULL) {
        ln_host_drop_model(c->host, model);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory for a piece");
    }
    *piece = (host_piece){.id = prepare->id, .model = model};
    status = make_session(c, prepare, piece, error);
    if (status != LINNET_OK) {
        end_piece(c->host, c->client, piece);
        return status;
    }
    pthread_mutex_lock(&c->client->lock);
    piece->next = c->client->pieces, c->client->pieces = piece;
    pthread_mutex_unlock(&c->client->lock);
    return LINNET_OK;
}

void ln_host_unprepare(ln_host *host, host_client *client, uint64_t id) {
    pthread_mutex_lock(&client->lock);
    host_piece **at = &client->pieces;
    while (*at != NULL && (*at)->id != id) at = &(*at)->next;
    host_piece *piece = *at;
    if (piece != NULL) *at = piece->next;
    pthread_mutex_unlock(&client->lock);
    if (piece != NULL) end_piece(host, client, piece);
}

void ln_host_unprepare_all(ln_host *host, host_client *client) {
    while (client->pieces != NULL) {
        host_piece *piece = client->pieces;
        client->pieces = piece->next;
        end_piece(host, client, piece);
    }
}

static bool is_stopping(void *context) { return atomic_load(&((ln_host *)context)->stopping); }

host_piece *ln_host_find_piece(host_client *client, uint64_t id, linnet_error *error) {
    pthread_mutex_lock(&client->lock);
    host_piece *piece = client->pieces;
    while (piece != NULL && piece->id != id) piece = piece->next;
    pthread_mutex_unlock(&client->lock);
    if (piece == NULL) ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client named a piece that it has not prepared");
    return piece;
}

linnet_status ln_host_run_piece(host_connection *c, uint64_t id, linnet_error *error) {
    linnet_run_config config;
    linnet_run_config_init(&config);
    config.timeout_ns = (uint64_t)(1e9 * c->host->config.timeout);
    config.poll = is_stopping;
    config.poll_context = c->host;
    const host_piece *piece = ln_host_find_piece(c->client, id, error);
    if (piece == NULL) return LINNET_PROTOCOL_ERROR;
    if (piece->trace == NULL) return linnet_run_with(piece->session, &config, error);
    ln_host_trace_begin(c, piece);
    const linnet_status status = linnet_run_with(piece->session, &config, error);
    ln_host_trace_end(piece);
    return status;
}
