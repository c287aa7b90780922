/* queue.c - a client's connection to a host. Several messages may be under way; the host answers them in order. */
#define _POSIX_C_SOURCE 200809L
#include "remote/queue.h"

#include "net/bytes.h"
#include "net/error.h"
#include "net/transport_connect.h"
#include "remote/clock.h"
#include "remote/link.h"
#include "remote/pulse.h"

#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 128 };

struct ln_remote_queue {
    ln_remote_place *place;
    ln_remote_link *link;
    ln_remote_pulse pulse;
    uint32_t losses;       /* of the place, when the queue was made */
    ln_remote_batch batch; /* not sent yet */
    struct {
        ln_remote_download *downloads;
        int count, room;
    } way[UNDER_WAY];        /* of the messages that are not answered yet, at their number modulo UNDER_WAY */
    uint64_t sent, answered; /* messages */
    linnet_error failure;    /* of a message; code 0: none since the last wait */
    ln_remote_peers peers;
    ln_remote_queue *next; /* a ring of the queues whose work depends on each other */
    ln_remote_welcome welcome;
    bool welcomed;
};

static ln_net_refusal answer(ln_remote_queue *queue, const unsigned char *bytes, size_t size) {
    if (queue->answered == queue->sent || size < LN_REMOTE_ANSWER_BYTES) return LN_NET_UNEXPECTED;
    const int32_t status = (int32_t)get32(bytes);
    const int way = (int)(queue->answered % UNDER_WAY);
    size_t at = LN_REMOTE_ANSWER_BYTES;
    if (status != 0) {
        if (size != at + LN_REMOTE_RECORD) return LN_NET_WRONG_LENGTH;
        if (queue->failure.code == 0) ln_remote_record_read(bytes + at, status, &queue->failure);
    }
    for (int i = 0; status == 0 && i < queue->way[way].count; i++) {
        const ln_remote_download *d = &queue->way[way].downloads[i];
        if (d->bytes > size - at) return LN_NET_WRONG_LENGTH;
        memcpy(d->to, bytes + at, (size_t)d->bytes);
        at += (size_t)((d->bytes + 7) / 8 * 8);
        if (at > size) return LN_NET_WRONG_LENGTH;
    }
    if (status == 0 && at != size) return LN_NET_WRONG_LENGTH;
    queue->answered++;
    return LN_NET_FINE;
}

static ln_net_refusal receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                              size_t size) {
    ln_remote_queue *queue = context;
    if (bytes == NULL) return LN_NET_FULL;
    ln_remote_pulse_hear(&queue->pulse);
    if (type == LN_REMOTE_ANSWER) return answer(queue, bytes, size);
    if (type != LN_REMOTE_WELCOME || queue->welcomed) return LN_NET_UNEXPECTED;
    if (size != LN_REMOTE_WELCOME_BYTES) return LN_NET_WRONG_LENGTH;
    if (get32(bytes) != LN_REMOTE_VERSION) return LN_NET_BAD_VERSION;
    queue->welcome = (ln_remote_welcome){.most_bytes = get64(bytes + 8),
                                         .threads = get32(bytes + 16),
                                         .connection = get32(bytes + 20),
                                         .keeps = (get32(bytes + 24 + LN_REMOTE_NAME) & LN_REMOTE_KEEPS) != 0};
    memcpy(queue->welcome.name, bytes + 24, LN_REMOTE_NAME);
    queue->welcomed = true;
    ln_remote_link_open(link, get32(bytes + 4));
    return LN_NET_FINE;
}

static linnet_status greet(ln_remote_queue *queue, const ln_remote_place *place, linnet_error *error) {
    unsigned char hello[LN_REMOTE_HELLO_BYTES];
    put32(hello, LN_REMOTE_VERSION);
    put32(hello + 4, LN_REMOTE_CHUNK);
    memcpy(hello + 8, place->token, LN_REMOTE_TOKEN);
    const int64_t end = ln_remote_now_ms() + place->lease_ms;
    linnet_status status = ln_remote_link_begin(queue->link, LN_REMOTE_HELLO, hello, sizeof hello, error);
    while (status == LINNET_OK && !queue->welcomed) {
        const int64_t left = end - ln_remote_now_ms();
        if (left <= 0) {
            ln_sync_fail(error, LINNET_TIMED_OUT, "the host at %s did not answer within %g s", place->address,
                         place->lease_ms / 1000.0);
            return ln_sync_hint(error, "check that linnet-host listens there, and that both sides use the same key");
        }
        status = ln_remote_link_turn(queue->link, (int)left, error);
    }
    return status;
}

ln_remote_queue *ln_remote_queue_new(ln_remote_place *place, ln_remote_welcome *welcome, linnet_error *error) {
    ln_net_transport *transport = NULL;
    ln_remote_queue *queue = calloc(1, sizeof *queue);
    linnet_status status = queue != NULL ? LINNET_OK : LINNET_OUT_OF_MEMORY;
    if (queue != NULL) {
        const ln_remote_pulse_place pulse = {.address = place->address,
                                             .security = place->security,
                                             .token = place->token,
                                             .greeting = LN_REMOTE_HELLO,
                                             .lease_ms = place->lease_ms};
        queue->next = queue;
        queue->place = place;
        queue->losses = atomic_load(&place->losses);
        ln_remote_pulse_init(&queue->pulse, &pulse);
    }
    if (status == LINNET_OK) status = ln_net_connect(place->address, place->security, false, &transport, error);
    if (status == LINNET_OK) {
        queue->link = ln_remote_link_new(transport, NULL, receive, queue);
        if (queue->link == NULL) status = LINNET_OUT_OF_MEMORY;
    }
    if (status == LINNET_OUT_OF_MEMORY)
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a connection to %s", place->address);
    if (status == LINNET_OK) status = greet(queue, place, error);
    if (status == LINNET_OK) {
        *welcome = queue->welcome;
        return queue;
    }
    ln_remote_queue_free(queue);
    return NULL;
}

void ln_remote_queue_free(ln_remote_queue *queue) {
    if (queue == NULL) return;
    ln_remote_queue *before = queue;
    while (before->next != queue) before = before->next;
    before->next = queue->next;
    ln_remote_link_free(queue->link);
    ln_remote_pulse_free(&queue->pulse);
    ln_remote_batch_free(&queue->batch);
    for (int i = 0; i < UNDER_WAY; i++) free(queue->way[i].downloads);
    free(queue->peers.lanes);
    free(queue);
}

ln_remote_peers *ln_remote_queue_peers(ln_remote_queue *queue) { return &queue->peers; }

uint32_t ln_remote_queue_connection(const ln_remote_queue *queue) { return queue->welcome.connection; }

bool ln_remote_queue_works(const ln_remote_queue *queue) { return ln_remote_link_works(queue->link); }

ln_remote_batch *ln_remote_queue_batch(ln_remote_queue *queue) { return &queue->batch; }

void ln_remote_queue_join(ln_remote_queue *queue, ln_remote_queue *other) {
    for (const ln_remote_queue *q = queue->next; q != queue; q = q->next)
        if (q == other) return;
    if (queue == other) return;
    ln_remote_queue *next = queue->next;
    queue->next = other->next, other->next = next;
}

/* Breaks the connection if the host owes an answer, or does not read, and has given no sign of life for the lease. All
 * connections from before are then broken, so that nobody else waits for a lease again. */
static void look(ln_remote_queue *queue, int *timeout_ms) {
    linnet_error why;
    if (!ln_remote_link_works(queue->link)) return;
    if (queue->answered == queue->sent && !ln_remote_link_sends(queue->link)) return;
    if (queue->losses != atomic_load(&queue->place->losses)) {
        ln_remote_pulse_fail(&queue->pulse, &why);
    } else {
        if (ln_remote_pulse_look(&queue->pulse, timeout_ms, &why) == LINNET_OK) return;
        atomic_fetch_add(&queue->place->losses, 1);
    }
    ln_remote_link_break(queue->link, &why);
}

/* Moves bytes of the whole ring: a host may be unable to go on before another one has got rid of its answer. */
static linnet_status turn(ln_remote_queue *queue, int timeout_ms, linnet_error *error) {
    ln_remote_link *links[LN_REMOTE_TOGETHER] = {queue->link};
    int count = 1;
    look(queue, &timeout_ms);
    for (ln_remote_queue *q = queue->next; q != queue && count < LN_REMOTE_TOGETHER; q = q->next) {
        look(q, &timeout_ms);
        links[count++] = q->link;
    }
    return ln_remote_links_turn(links, count, timeout_ms, error);
}

/* Sends a message that the host answers. The downloads of the batch are those of the answer. rest: the end of the
 * message, or NULL. */
static linnet_status send_answered(ln_remote_queue *queue, ln_remote_type type, const ln_net_slice *bytes,
                                   const ln_net_slice *rest, linnet_error *error) {
    ln_remote_batch *batch = &queue->batch;
    linnet_status status = LINNET_OK;
    while (status == LINNET_OK && queue->sent - queue->answered == UNDER_WAY) status = turn(queue, -1, error);
    if (queue->sent == queue->answered) ln_remote_pulse_hear(&queue->pulse);
    if (status == LINNET_OK) {
        const int way = (int)(queue->sent % UNDER_WAY);
        ln_remote_download *spare = queue->way[way].downloads;
        const int room = queue->way[way].room;
        queue->way[way].downloads = batch->downloads, queue->way[way].room = batch->download_room;
        queue->way[way].count = batch->download_count;
        batch->downloads = spare, batch->download_room = room;
        ++queue->sent;
        status = rest != NULL
                     ? ln_remote_link_gather(queue->link, (uint8_t)type, bytes, rest, error)
                     : ln_remote_link_begin(queue->link, (uint8_t)type, bytes->data, (size_t)bytes->size, error);
    }
    while (status == LINNET_OK && ln_remote_link_sends(queue->link)) status = turn(queue, -1, error);
    ln_remote_batch_clear(batch);
    queue->peers.copied = NULL;
    return status;
}

static linnet_status send_batch(ln_remote_queue *queue, linnet_error *error) {
    const ln_remote_batch *batch = &queue->batch;
    const ln_net_slice bytes = {batch->bytes, batch->size};
    return batch->size == 0 ? LINNET_OK : send_answered(queue, LN_REMOTE_SUBMIT, &bytes, NULL, error);
}

linnet_status ln_remote_queue_flush(ln_remote_queue *queue, linnet_error *error) {
    linnet_error ignored; /* who waits for another queue of the ring learns of its failure */
    bool failed = queue->batch.failed;
    for (const ln_remote_queue *q = queue->next; q != queue; q = q->next) failed |= q->batch.failed;
    if (failed) { /* what is left of the ring's work does not fit together */
        ln_remote_batch_clear(&queue->batch);
        for (ln_remote_queue *q = queue->next; q != queue; q = q->next) ln_remote_batch_clear(&q->batch);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a message to a host");
    }
    for (ln_remote_queue *q = queue->next; q != queue; q = q->next) (void)send_batch(q, &ignored);
    return send_batch(queue, error);
}

linnet_status ln_remote_queue_upload(ln_remote_queue *queue, const uint64_t to[3], const void *from,
                                     linnet_error *error) {
    unsigned char command[LN_REMOTE_UPLOAD_BYTES];
    const ln_net_slice head = {command, sizeof command}, rest = {from, (size_t)to[2]};
    const linnet_status status = ln_remote_queue_flush(queue, error);
    if (status != LINNET_OK) return status;
    put32(command, LN_REMOTE_UPLOAD), put32(command + 4, 0);
    for (int i = 0; i < 3; i++) put64(command + 8 + 8 * i, to[i]);
    return send_answered(queue, LN_REMOTE_SUBMIT, &head, &rest, error);
}

uint64_t ln_remote_queue_mark(const ln_remote_queue *queue) { return queue->sent + (queue->batch.size > 0); }

linnet_status ln_remote_queue_wait(ln_remote_queue *queue, uint64_t message, int timeout_ms, bool *answered,
                                   linnet_error *error) {
    linnet_status status = message > queue->sent ? ln_remote_queue_flush(queue, error) : LINNET_OK;
    const int64_t end = timeout_ms < 0 ? INT64_MAX : ln_remote_now_ms() + timeout_ms;
    if (message > queue->sent) message = queue->sent; /* it could not be sent */
    while (status == LINNET_OK && queue->answered < message) {
        const int64_t left = timeout_ms < 0 ? -1 : end - ln_remote_now_ms();
        if (timeout_ms >= 0 && left <= 0) break;
        status = turn(queue, (int)left, error);
    }
    *answered = queue->answered >= message;
    if (status == LINNET_OK && *answered && queue->failure.code != 0) {
        *error = queue->failure;
        queue->failure.code = 0;
        status = (linnet_status)error->code;
    }
    return status;
}

linnet_status ln_remote_queue_finish(ln_remote_queue *queue, linnet_error *error) {
    bool answered;
    const linnet_status status = ln_remote_queue_flush(queue, error);
    return status != LINNET_OK ? status : ln_remote_queue_wait(queue, queue->sent, -1, &answered, error);
}

linnet_status ln_remote_queue_recipe(ln_remote_queue *queue, const void *bytes, size_t size, unsigned char *lacks,
                                     int holes, linnet_error *error) {
    ln_remote_batch *batch = &queue->batch;
    bool answered;
    linnet_status status = ln_remote_queue_finish(queue, error);
    if (status != LINNET_OK) return status;
    ln_remote_expect(batch, (uint64_t)holes, lacks);
    if (batch->failed) {
        ln_remote_batch_clear(batch);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a message to a host");
    }
    const ln_net_slice recipe = {bytes, size};
    status = send_answered(queue, LN_REMOTE_RECIPE, &recipe, NULL, error);
    return status != LINNET_OK ? status : ln_remote_queue_wait(queue, queue->sent, -1, &answered, error);
}

linnet_status ln_remote_queue_constant(ln_remote_queue *queue, const void *bytes, size_t size, linnet_error *error) {
    ln_remote_pulse_hear(&queue->pulse);
    linnet_status status = ln_remote_link_begin(queue->link, LN_REMOTE_CONSTANT, bytes, size, error);
    while (status == LINNET_OK && ln_remote_link_sends(queue->link)) status = turn(queue, -1, error);
    return status;
}
