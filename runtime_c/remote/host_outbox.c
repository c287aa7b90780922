/* host_outbox.c - values that a host keeps for other hosts. A value is copied when it is sent, so that the work after
 * it may overwrite the buffer at once. The numbers of a channel go up, so whoever takes one will take no lower one. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_outbox.h"

#include "net/error.h"
#include "remote/host_memory.h"
#include "remote/host_wait.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 64, MOST_SENT = 64 << 20 };

static host_channel *find(const host_connection *c, uint64_t id) {
    host_channel *channel = c->channels;
    while (channel != NULL && channel->id != id) channel = channel->next;
    return channel;
}

/* The channel, which is made if there is none yet; NULL: there are too many, or no memory. */
static host_channel *open_channel(host_connection *c, uint64_t id) {
    host_channel *channel = find(c, id);
    int count = 0;
    if (channel != NULL) return channel;
    for (const host_channel *other = c->channels; other != NULL; other = other->next) count++;
    channel = count < MOST_CHANNELS ? calloc(1, sizeof *channel) : NULL;
    if (channel == NULL) return NULL;
    channel->id = id;
    channel->next = c->channels, c->channels = channel;
    return channel;
}

void ln_host_value_free(ln_host *host, host_value *value) {
    if (value == NULL) return;
    host->allocator.free(host->allocator.context, value->memory, (size_t)value->bytes + 64);
    free(value);
}

unsigned char *ln_host_value_end(host_value *value, size_t *room) {
    unsigned char *memory = value->memory;
    const size_t end = LN_REMOTE_ANSWER_BYTES + (size_t)value->bytes;
    memset(memory + end, 0, (8 - end % 8) % 8);
    *room = (size_t)value->bytes + 64;
    free(value);
    return memory;
}

/* Takes the first value out of its channel. */
static host_value *detach(host_connection *c, host_channel *channel) {
    host_value *value = channel->values;
    channel->values = value->next;
    c->sent_bytes -= value->bytes + 64;
    pthread_cond_broadcast(&c->client->moved);
    return value;
}

void ln_host_outbox_free(host_connection *c) {
    while (c->channels != NULL) {
        host_channel *channel = c->channels;
        while (channel->values != NULL) ln_host_value_free(c->host, detach(c, channel));
        c->channels = channel->next;
        free(channel);
    }
}

/* Memory for a value: NULL, and what is missing, if there is none also when everything that was sent is taken. */
static host_value *make(host_connection *c, uint64_t number, uint64_t bytes, linnet_error *error) {
    const linnet_allocator *a = &c->host->allocator;
    const int64_t end = ln_host_wait_end(c, 0);
    linnet_status status = LINNET_OK;
    host_value *value = bytes < SIZE_MAX / 2 ? calloc(1, sizeof *value) : NULL;
    while (value != NULL && status == LINNET_OK) {
        pthread_mutex_lock(&c->client->lock);
        const bool room = c->sent_bytes == 0 || (bytes <= MOST_SENT && c->sent_bytes + bytes + 64 <= MOST_SENT);
        if (room) value->memory = a->alloc(a->context, (size_t)bytes + 64, 64);
        const bool empty = c->sent_bytes == 0;
        pthread_mutex_unlock(&c->client->lock);
        if (value->memory != NULL) {
            value->number = number, value->bytes = bytes;
            return value;
        }
        if (empty) break;
        ln_host_wait_begins(c);
        pthread_mutex_lock(&c->client->lock);
        if (c->sent_bytes > 0) ln_host_wait_moved(c);
        pthread_mutex_unlock(&c->client->lock);
        status = ln_host_wait_look(c, end, error);
        ln_host_wait_ends(c);
    }
    free(value);
    if (status == LINNET_OK) ln_host_no_memory(c->host, bytes, error);
    return NULL;
}

/* Puts a value into its channel. */
static linnet_status put(host_connection *c, uint64_t id, host_value *value, linnet_error *error) {
    linnet_status status = LINNET_OK;
    pthread_mutex_lock(&c->client->lock);
    host_channel *channel = open_channel(c, id);
    if (channel == NULL || value->number <= channel->last) {
        status = ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client sends values in too many channels, or one twice");
    } else {
        host_value **at = &channel->values;
        while (*at != NULL) at = &(*at)->next;
        *at = value;
        channel->last = value->number;
        c->sent_bytes += value->bytes + 64;
        pthread_cond_broadcast(&c->client->moved);
    }
    pthread_mutex_unlock(&c->client->lock);
    return status;
}

linnet_status ln_host_send(host_connection *c, uint64_t channel, uint64_t number, uint64_t buffer, uint64_t offset,
                           uint64_t bytes, linnet_error *error) {
    if (ln_host_span(c->client, buffer, offset, bytes, error) == NULL) return (linnet_status)error->code;
    host_value *value = make(c, number, bytes, error);
    if (value == NULL) return (linnet_status)error->code;
    /* Once more: the buffer may have been freed during a wait. */
    const unsigned char *from = ln_host_span(c->client, buffer, offset, bytes, error);
    if (from != NULL) memcpy(value->memory + LN_REMOTE_ANSWER_BYTES, from, (size_t)bytes);
    const linnet_status status = from != NULL ? put(c, channel, value, error) : (linnet_status)error->code;
    if (status != LINNET_OK) ln_host_value_free(c->host, value);
    return status;
}

void ln_host_leave_out(host_connection *c, uint64_t id, uint64_t number, const linnet_error *why) {
    pthread_mutex_lock(&c->client->lock);
    host_channel *channel = open_channel(c, id);
    if (channel != NULL && number > channel->last) {
        channel->last = number;
        channel->failure = *why;
        pthread_cond_broadcast(&c->client->moved);
    }
    pthread_mutex_unlock(&c->client->lock);
}

void ln_host_note_lost(host_connection *c, bool lost) {
    if (c->client == NULL || c->lost == lost) return; /* only this thread changes it */
    pthread_mutex_lock(&c->client->lock);
    c->lost = lost;
    pthread_cond_broadcast(&c->client->moved);
    pthread_mutex_unlock(&c->client->lock);
}

/* With the client's lock: the value, or a failure if it will not come; neither: it may still come. */
static host_value *find_value(const host_client *client, uint64_t number_of, uint64_t id, uint64_t number,
                              linnet_error *error) {
    host_connection *c = client->own;
    while (c != NULL && c->number != number_of) c = c->next;
    if (c == NULL) {
        ln_sync_fail(error, LINNET_CONNECTION_LOST, "the connection that sends the value has ended");
        return NULL;
    }
    host_channel *channel = find(c, id);
    while (channel != NULL && channel->values != NULL && channel->values->number < number)
        ln_host_value_free(c->host, detach(c, channel));
    if (channel != NULL && channel->values != NULL && channel->values->number == number) return detach(c, channel);
    if (channel != NULL && channel->last >= number) {
        ln_sync_fail(error, LINNET_CONNECTION_LOST, "the value is no longer there");
        if (channel->failure.code != 0) *error = channel->failure;
    } else if (c->lost) {
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host could not read the message that sends the value");
    }
    return NULL;
}

linnet_status ln_host_take(host_connection *c, uint64_t number_of, uint64_t channel, uint64_t number, uint64_t bytes,
                           host_value **value, linnet_error *error) {
    const int64_t end = ln_host_wait_end(c, 0);
    linnet_status status = LINNET_OK;
    error->code = 0;
    *value = NULL;
    while (*value == NULL && status == LINNET_OK) {
        pthread_mutex_lock(&c->client->lock);
        *value = find_value(c->client, number_of, channel, number, error);
        if (*value == NULL && error->code == 0) {
            ln_host_wait_moved(c);
            *value = find_value(c->client, number_of, channel, number, error);
        }
        pthread_mutex_unlock(&c->client->lock);
        status = (linnet_status)error->code;
        if (*value == NULL && status == LINNET_OK) status = ln_host_wait_look(c, end, error);
    }
    if (*value == NULL || (*value)->bytes == bytes || bytes == UINT64_MAX) return status;
    ln_host_value_free(c->host, *value);
    *value = NULL;
    return ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a host asks for a value of another size than was sent");
}
