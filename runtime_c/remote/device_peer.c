/* device_peer.c - values that go from one host to another. The session records an event of the source, lets the target
 * follow it, copies, records an event of the target, and lets the source follow that. SEND keeps a copy of the value
 * for whoever fetches it, so the source need not wait for the target: the last step is nothing. */
#include "remote/device_peer.h"

#include "net/bytes.h"
#include "net/error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void add_peer(ln_remote_queue *queue, uint64_t peer, const ln_remote_place *place) {
    const uint64_t bytes = strlen(place->address);
    const uint64_t numbers[] = {peer, get64(place->token), get64(place->token + 8), bytes};
    unsigned char *at = ln_remote_add(ln_remote_queue_batch(queue), LN_REMOTE_PEER, numbers, bytes);
    if (at == NULL) return;
    memcpy(at, place->address, (size_t)bytes);
    put32(at - 8 * ln_remote_words[LN_REMOTE_PEER] - 4, (uint32_t)place->lease_ms);
}

/* Connects again if the host has come back since: until then it does not know the token. */
static bool is_there(ln_remote_device *d) {
    linnet_error error = {0};
    pthread_mutex_lock(&d->lock);
    ln_remote_add(ln_remote_queue_batch(d->control), LN_REMOTE_NOTHING, NULL, 0);
    linnet_status status = ln_remote_queue_finish(d->control, &error);
    if (status != LINNET_OK) status = ln_remote_reconnect(d, &error);
    pthread_mutex_unlock(&d->lock);
    return status == LINNET_OK;
}

/* Lets the host try it, on a connection that ends at once. */
static bool try_peer(ln_remote_device *d, ln_remote_device *other) {
    linnet_error error = {0};
    ln_remote_welcome welcome;
    ln_remote_queue *queue = ln_remote_queue_new(&d->place, &welcome, &error);
    if (queue == NULL || !is_there(other)) {
        ln_remote_queue_free(queue);
        return false;
    }
    add_peer(queue, 1, &other->place);
    const bool reached = ln_remote_queue_finish(queue, &error) == LINNET_OK;
    ln_remote_queue_free(queue);
    return reached;
}

bool ln_remote_reaches(ln_remote_device *d, const linnet_device *other) {
    int i = 0;
    if (other->context == d) return true; /* the library has copies of the struct */
    if (other->reaches != d->functions.reaches) return false;
    pthread_mutex_lock(&d->reach_lock);
    while (i < d->reach_count && d->reach[i].other != other->context) i++;
    const bool known = i < d->reach_count;
    bool reached = known && d->reach[i].reached;
    if (!known && i < LN_REMOTE_REACHES) {
        reached = try_peer(d, other->context);
        d->reach[d->reach_count].other = other->context;
        d->reach[d->reach_count++].reached = reached;
    }
    pthread_mutex_unlock(&d->reach_lock);
    return reached;
}

void ln_remote_record(ln_remote_queue *queue, ln_remote_event *event) {
    const ln_remote_peers *p = ln_remote_queue_peers(queue);
    const size_t size = ln_remote_queue_batch(queue)->size;
    *event = (ln_remote_event){.queue = queue, .message = ln_remote_queue_mark(queue)};
    if (p->copied != NULL && size > 0 && p->copied_at == size) event->source = p->copied;
}

static linnet_status wait_for(const ln_remote_event *event, linnet_error *error) {
    bool answered;
    return ln_remote_queue_wait(event->queue, event->message, -1, &answered, error);
}

linnet_status ln_remote_settle(ln_remote_queue *queue, linnet_error *error) {
    ln_remote_peers *p = ln_remote_queue_peers(queue);
    const ln_remote_event followed = p->followed;
    p->followed.queue = NULL;
    if (followed.queue == NULL || followed.source == queue) return LINNET_OK; /* what the event has copied was kept */
    return wait_for(&followed, error);
}

linnet_status ln_remote_follow(ln_remote_queue *queue, const ln_remote_event *event, linnet_error *error) {
    if (event->queue == NULL || event->queue == queue) return LINNET_OK;
    const linnet_status status = ln_remote_settle(queue, error);
    if (status == LINNET_OK) ln_remote_queue_peers(queue)->followed = *event;
    return status;
}

/* The lane from the source, which is made if there is none yet; NULL: out of memory. */
static ln_remote_lane *lane_from(ln_remote_queue *queue, const ln_remote_queue *source, const ln_remote_device *of) {
    static _Atomic uint64_t channels;
    ln_remote_peers *p = ln_remote_queue_peers(queue);
    uint64_t peer = 0, last = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->lanes[i].source == source) return &p->lanes[i];
        if (p->lanes[i].device == of) peer = p->lanes[i].peer;
        if (p->lanes[i].peer > last) last = p->lanes[i].peer;
    }
    ln_remote_lane *grown = realloc(p->lanes, ((size_t)p->count + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    p->lanes = grown;
    if (peer == 0) add_peer(queue, peer = last + 1, &of->place);
    p->lanes[p->count] =
        (ln_remote_lane){.source = source, .device = of, .peer = peer, .channel = 1 + atomic_fetch_add(&channels, 1)};
    return &p->lanes[p->count++];
}

linnet_status ln_remote_fetch(ln_remote_queue *queue, const linnet_span *to, const linnet_device *of,
                              const linnet_span *from, linnet_error *error) {
    ln_remote_peers *p = ln_remote_queue_peers(queue);
    ln_remote_queue *source = p->followed.queue;
    ln_remote_batch *batch = ln_remote_queue_batch(queue);
    p->followed.queue = NULL;
    if (source == NULL)
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a copy from another host does not follow an event of it");
    ln_remote_lane *lane = lane_from(queue, source, of->context);
    if (lane == NULL) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a copy");
    ln_remote_queue_join(queue, source);
    const uint64_t number = ++lane->last;
    const uint64_t send[] = {lane->channel, number, from->buffer, from->offset, from->bytes};
    const uint64_t fetch[] = {
        lane->peer, ln_remote_queue_connection(source), lane->channel, number, to->buffer, to->offset, to->bytes};
    ln_remote_add(ln_remote_queue_batch(source), LN_REMOTE_SEND, send, 0);
    ln_remote_add(batch, LN_REMOTE_FETCH, fetch, 0);
    p->copied = source, p->copied_at = batch->size;
    if (!batch->failed && !ln_remote_queue_batch(source)->failed) return LINNET_OK;
    return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a message to a host");
}
