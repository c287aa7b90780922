/* posix_ring_greet.c - the frames by which two ranks meet: HELLO, WELCOME, addresses. When both agree, a link's frames
 * are those of the ring. */
#include "sync/ring/posix_ring_greet.h"

#include "net/error.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_flow.h"
#include "sync/codec/messages.h"
#include "sync/ring/posix_ring_state.h"
#include "sync/ring/posix_ring_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ln_sync_ring_say_hello(ring_link *link, ln_sync_ring_purpose purpose) {
    const ln_sync_ring *core = &link->ring->core;
    unsigned char bytes[LN_SYNC_HELLO_BYTES];
    ln_sync_hello hello = {.lowest = LN_NET_VERSION,
                           .highest = LN_NET_VERSION,
                           .role = LN_SYNC_PEER,
                           .encodings = 1,
                           .incarnation = link->ring->id,
                           .last_step = LN_SYNC_NONE,
                           .epoch = (uint64_t)purpose,
                           .worker = (uint32_t)core->rank,
                           .group = (uint32_t)core->size,
                           .chunk = link->ring->chunk};
    ln_sync_hello_write(&hello, bytes);
    link->meets = purpose == LN_SYNC_RING_TO_MEET;
    ln_net_stream_control(link->stream,
                          &(ln_net_header){.type = LN_SYNC_HELLO, .job = link->ring->id, .worker = hello.worker}, bytes,
                          sizeof bytes);
}

ln_net_refusal ln_sync_ring_refuse(ring_link *link, ln_net_refusal why, const char *text) {
    ln_net_stream_refuse(link->stream, why, 0, text);
    return LN_NET_FINE; /* the stream has already failed with this text, which says more than the code */
}

/* Completes the handshake. From now on all frames carry the rank of the connecting side. */
static void agree(ring_link *link, uint64_t id, int worker) {
    ln_net_stream_open(link->stream, id, (uint32_t)worker, 0, link->ring->chunk);
    ln_net_stream_expect(link->stream, LN_NET_BIT(LN_SYNC_SEGMENT) | LN_NET_BIT(LN_SYNC_HEARTBEAT) |
                                           LN_NET_BIT(LN_SYNC_REFUSE) | LN_NET_BIT(LN_SYNC_BYE));
    link->open = !link->meets;
    if (link->open) *(link->accepted ? &link->ring->core.left : &link->ring->core.right) = link->stream;
}

void ln_sync_ring_welcome(ring_link *link, int rank) {
    unsigned char bytes[LN_SYNC_WELCOME_BYTES];
    const uint64_t id = link->meets ? 0 : link->ring->id;
    const ln_sync_welcome given = {.version = LN_NET_VERSION,
                                   .shards = 1,
                                   .encodings = 1,
                                   .worker = (uint32_t)rank,
                                   .epoch = 1,
                                   .applied = LN_SYNC_NONE,
                                   .chunk = link->ring->chunk,
                                   .heartbeat = (uint32_t)link->ring->timeout_ms,
                                   .lease = (uint32_t)link->ring->timeout_ms};
    ln_sync_welcome_write(&given, bytes);
    ln_net_stream_control(link->stream, &(ln_net_header){.type = LN_SYNC_WELCOME, .job = id, .worker = (uint32_t)rank},
                          bytes, sizeof bytes);
    link->rank = rank;
    agree(link, id, rank);
}

static ln_net_refusal hello_came(ring_link *link, const ln_sync_hello *hello) {
    const ln_sync_ring *core = &link->ring->core;
    char text[LN_NET_REFUSE_TEXT];
    if (!link->accepted || link->rank >= 0 || link->greeted) return LN_NET_UNEXPECTED;
    if (hello->lowest > LN_NET_VERSION || hello->highest < LN_NET_VERSION)
        return ln_sync_ring_refuse(link, LN_NET_BAD_VERSION, "this ring speaks version 1 of the protocol");
    if (hello->role != LN_SYNC_PEER)
        return ln_sync_ring_refuse(link, LN_NET_UNEXPECTED, "only ranks of a ring connect here");
    if (hello->group != (uint32_t)core->size) {
        snprintf(text, sizeof text, "the ring has %d ranks, not %u", core->size, (unsigned)hello->group);
        return ln_sync_ring_refuse(link, LN_NET_MODEL_DIFFERS, text);
    }
    link->meets = hello->epoch == LN_SYNC_RING_TO_MEET;
    if (link->meets ? core->rank != 0 || hello->worker == 0 || hello->worker >= (uint32_t)core->size
                    : hello->worker != (uint32_t)ln_sync_ring_left(core)) {
        snprintf(text, sizeof text, "rank %u is not expected here", (unsigned)hello->worker);
        return ln_sync_ring_refuse(link, LN_NET_UNEXPECTED, text);
    }
    if (link->meets) {
        ln_sync_ring_welcome(link, (int)hello->worker);
    } else { /* the peer may have the table already; it is answered when we know the ring's id
              */
        link->greeted = true;
        link->claim = hello->incarnation;
    }
    return LN_NET_FINE;
}

static ln_net_refusal meet_frame(ring_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_hello hello;
    ln_sync_welcome welcomed;
    ln_net_refuse refused;
    switch (header->type) {
    case LN_SYNC_HELLO:
        return ln_sync_hello_read(&hello, payload, header->length) ? hello_came(link, &hello) : LN_NET_MALFORMED;
    case LN_SYNC_WELCOME:
        if (link->accepted || link->rank >= 0) return LN_NET_UNEXPECTED;
        if (!ln_sync_welcome_read(&welcomed, payload, header->length)) return LN_NET_MALFORMED;
        link->rank = link->meets ? 0 : ln_sync_ring_right(&link->ring->core);
        agree(link, link->meets ? 0 : link->ring->id, link->ring->core.rank);
        return LN_NET_FINE;
    case LN_SYNC_SEGMENT: link->text_came += header->length; return LN_NET_FINE;
    case LN_SYNC_REFUSE:
        if (!ln_net_refuse_read(&refused, payload, header->length)) return LN_NET_MALFORMED;
        ln_sync_fail(&link->error, LINNET_REFUSED, "rank %d refuses: %s", link->meets ? 0 : link->rank,
                     refused.text[0] ? refused.text : ln_net_refusal_name(refused.why));
        link->told = true;
        return LN_NET_FINE;
    case LN_SYNC_HEARTBEAT:
    case LN_SYNC_BYE: return LN_NET_FINE;
    default: return LN_NET_UNEXPECTED;
    }
}

/* Addresses arrive as one message, whose size is bounded by the number of ranks. */
static ln_net_refusal meet_place(ring_link *link, const ln_net_header *header, void **destination) {
    const uint64_t most =
        link->accepted ? LN_SYNC_RING_ADDRESS : (uint64_t)LN_SYNC_RING_ADDRESS * ((uint64_t)link->ring->core.size + 1);
    if (header->type != LN_SYNC_SEGMENT || !link->meets || header->offset != link->text_came) return LN_NET_UNEXPECTED;
    if (header->total == 0 || header->total > most) return LN_NET_OVER_LIMIT;
    if (!link->text) {
        link->text = calloc(1, (size_t)header->total + 1);
        link->text_size = header->total;
        if (!link->text) return LN_NET_OVER_LIMIT;
    }
    if (header->total != link->text_size) return LN_NET_WRONG_LENGTH;
    *destination = link->text + header->offset;
    return LN_NET_FINE;
}

bool ln_sync_ring_has_text(const ring_link *link) {
    return link && link->text_size && link->text_came == link->text_size;
}

void ln_sync_ring_send_text(ring_link *link, const char *text) {
    ln_net_stream_bulk(link->stream, &(ln_net_header){.type = LN_SYNC_SEGMENT, .tensor = UINT32_MAX}, text,
                       strlen(text), 0);
}

/* ---- links --------------------------------------------------------------------------------------------------- */

static ln_net_refusal place(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination) {
    ring_link *link = context;
    const ln_net_handler *handler = &link->ring->handler;
    return link->open ? handler->place(handler->context, stream, header, destination)
                      : meet_place(link, header, destination);
}

static ln_net_refusal frame(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload) {
    ring_link *link = context;
    const ln_net_handler *handler = &link->ring->handler;
    return link->open ? handler->frame(handler->context, stream, header, payload) : meet_frame(link, header, payload);
}

static void released(void *context, ln_net_stream *stream, uint64_t tag) {
    ring_link *link = context;
    const ln_net_handler *handler = &link->ring->handler;
    if (link->open) handler->released(handler->context, stream, tag);
}

ring_link *ln_sync_ring_link_new(linnet_ring *ring, ln_net_transport *transport, bool accepted) {
    ring_link *link = transport ? calloc(1, sizeof *link) : NULL;
    void *memory = link ? malloc(ln_net_stream_bytes(LN_SYNC_RING_QUEUE)) : NULL;
    if (!memory) {
        free(link);
        ln_net_transport_free(transport);
        return NULL;
    }
    link->ring = ring;
    link->transport = transport;
    link->accepted = accepted;
    link->rank = -1;
    link->since = ln_sync_ring_clock();
    link->stream = ln_net_stream_init(memory, LN_SYNC_RING_QUEUE, &ln_sync_protocol,
                                      &(ln_net_handler){link, place, frame, released});
    return link;
}
