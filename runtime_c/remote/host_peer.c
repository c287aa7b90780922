/* host_peer.c - other hosts from which a host fetches values for a client. Each connection of the client has links of
 * its own, so that the work of one never waits for the work of another. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_peer.h"

#include "net/bytes.h"
#include "net/error.h"
#include "net/transport_connect.h"
#include "remote/host_memory.h"
#include "remote/host_wait.h"
#include "remote/pulse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PEERS = 32, MOST_ADDRESS = 255, GREETING_MS = 5000, TAKE_BYTES = 40 };

struct host_peer {
    host_peer *next;
    uint64_t id;
    char address[MOST_ADDRESS + 1];
    unsigned char token[LN_REMOTE_TOKEN];
    ln_remote_link *link; /* NULL: it has failed */
    ln_remote_pulse pulse;
    int lease_ms; /* 0: none */
    bool welcomed, answered;
    host_connection *connection;    /* that fetches */
    const host_fetch *fetch;        /* that the next answer belongs to; NULL: nobody wants it any more */
    linnet_error failure;           /* what the last answer says; code 0: the value is in its place */
    uint64_t asked;                 /* number of the value that was asked for; 0: none was */
    uint64_t source, channel;       /* where its values come from; source 0: nobody has fetched one */
    unsigned char take[TAKE_BYTES]; /* the message that asks */
};

static void *take(void *context, size_t size) {
    const ln_host *host = context;
    return host->allocator.alloc(host->allocator.context, size, 64);
}

static void give(void *context, void *memory, size_t size) {
    const ln_host *host = context;
    host->allocator.free(host->allocator.context, memory, size);
}

/* Puts the value into its buffer. Other work of the client may run meanwhile, so the client's work waits. */
static void store(host_peer *peer, const unsigned char *bytes) {
    const host_fetch *f = peer->fetch;
    host_connection *c = peer->connection;
    ln_host_wait_ends(c);
    unsigned char *to = ln_host_span(c->client, f->buffer, f->offset, f->bytes, &peer->failure);
    if (to != NULL) memcpy(to, bytes, (size_t)f->bytes);
    ln_host_wait_begins(c);
}

/* Reads one answer. The link is then paused: the next one waits for its FETCH. */
static ln_net_refusal read_answer(host_peer *peer, const unsigned char *bytes, size_t size) {
    if (peer->asked == 0 || peer->answered || size < LN_REMOTE_ANSWER_BYTES) return LN_NET_UNEXPECTED;
    const int32_t status = (int32_t)get32(bytes);
    const uint64_t padded = peer->fetch != NULL ? (peer->fetch->bytes + 7) / 8 * 8 : size - LN_REMOTE_ANSWER_BYTES;
    if (size - LN_REMOTE_ANSWER_BYTES != (status != 0 ? LN_REMOTE_RECORD : padded)) return LN_NET_WRONG_LENGTH;
    peer->answered = true;
    peer->failure.code = 0;
    if (status != 0)
        ln_remote_record_read(bytes + LN_REMOTE_ANSWER_BYTES, status, &peer->failure);
    else if (peer->fetch != NULL)
        store(peer, bytes + LN_REMOTE_ANSWER_BYTES);
    return ln_remote_link_pause(peer->link, true, NULL) == LINNET_OK ? LN_NET_FINE : LN_NET_FULL;
}

static ln_net_refusal receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                              size_t size) {
    host_peer *peer = context;
    if (bytes == NULL) return LN_NET_FULL;
    ln_remote_pulse_hear(&peer->pulse);
    if (type == LN_REMOTE_ANSWER) return read_answer(peer, bytes, size);
    if (type != LN_REMOTE_WELCOME || peer->welcomed) return LN_NET_UNEXPECTED;
    if (size != LN_REMOTE_WELCOME_BYTES) return LN_NET_WRONG_LENGTH;
    if (get32(bytes) != LN_REMOTE_VERSION) return LN_NET_BAD_VERSION;
    peer->welcomed = true;
    ln_remote_link_open(link, get32(bytes + 4));
    return LN_NET_FINE;
}

/* Moves what can be moved until `flag` is set and everything is sent. */
static linnet_status wait_for(host_peer *peer, const bool *flag, int64_t end, linnet_error *error) {
    linnet_status status = LINNET_OK;
    ln_remote_pulse_hear(&peer->pulse);
    while (status == LINNET_OK && (!*flag || ln_remote_link_sends(peer->link))) {
        int most_ms = LN_HOST_TICK_MS;
        if (peer->lease_ms > 0) status = ln_remote_pulse_look(&peer->pulse, &most_ms, error);
        if (status == LINNET_OK) status = ln_remote_link_turn(peer->link, most_ms, error);
        if (status == LINNET_OK && !*flag) status = ln_host_wait_look(peer->connection, end, error);
    }
    return status;
}

/* Adds to an error of the link which host it is about, unless it says so itself: a client shows 160 characters. */
static linnet_status from_peer(const host_peer *peer, linnet_error *error) {
    const linnet_error why = *error;
    if (strncmp(why.what, "the host at ", 12) == 0) return (linnet_status)why.code;
    ln_sync_fail(error, (linnet_status)why.code, "the host at %.60s sent no value: %s", peer->address, why.what);
    if (why.got[0] != 0) ln_sync_got(error, "%s", why.got);
    return ln_sync_hint(error, "%s", why.hint);
}

static void unlink_peer(host_peer *peer) {
    ln_remote_link_free(peer->link);
    peer->link = NULL;
    ln_remote_pulse_free(&peer->pulse);
}

static linnet_status greet(host_peer *peer, linnet_error *error) {
    unsigned char join[LN_REMOTE_HELLO_BYTES];
    const int64_t end = ln_host_wait_end(peer->connection, GREETING_MS);
    put32(join, LN_REMOTE_VERSION);
    put32(join + 4, LN_REMOTE_CHUNK);
    memcpy(join + 8, peer->token, LN_REMOTE_TOKEN);
    const linnet_status status = ln_remote_link_begin(peer->link, LN_REMOTE_JOIN, join, sizeof join, error);
    return status == LINNET_OK ? wait_for(peer, &peer->welcomed, end, error) : status;
}

static linnet_status connect_to(host_peer *peer, linnet_error *error) {
    ln_host *host = peer->connection->host;
    const ln_remote_memory memory = {.context = host, .take = take, .give = give};
    ln_net_transport *transport = NULL;
    linnet_status status = ln_net_connect(peer->address, host->config.security, false, &transport, error);
    if (status != LINNET_OK) return status;
    peer->link = ln_remote_link_new(transport, &memory, receive, peer);
    if (peer->link == NULL)
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection to %s", peer->address);
    peer->welcomed = false, peer->asked = 0;
    status = greet(peer, error);
    if (status == LINNET_OK) status = ln_remote_link_pause(peer->link, true, error); /* until an answer is wanted */
    if (status != LINNET_OK) unlink_peer(peer);
    return status;
}

static host_peer *find(const host_connection *c, uint64_t id, int *count) {
    host_peer *found = NULL;
    *count = 0;
    for (host_peer *peer = c->peers; peer != NULL; peer = peer->next, ++*count)
        if (peer->id == id) found = peer;
    return found;
}

/* Adds a connection to the host at this address. */
static host_peer *add(host_connection *c, const host_peer *place, linnet_error *error) {
    host_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no memory for a connection");
        return NULL;
    }
    *peer = *place;
    const ln_remote_pulse_place pulse = {.address = peer->address,
                                         .security = c->host->config.security,
                                         .token = peer->token,
                                         .greeting = LN_REMOTE_JOIN,
                                         .lease_ms = peer->lease_ms};
    ln_remote_pulse_init(&peer->pulse, &pulse);
    ln_host_wait_begins(c);
    const linnet_status status = connect_to(peer, error);
    ln_host_wait_ends(c);
    if (status != LINNET_OK) {
        free(peer);
        return NULL;
    }
    peer->next = c->peers, c->peers = peer;
    return peer;
}

/* The connection for the channel of a value. Each has its own, because a host is asked for the next value of a channel
 * before anybody knows that it is the next one that is wanted. */
static host_peer *peer_of(host_connection *c, const host_fetch *f, linnet_error *error) {
    int count;
    host_peer *peer = c->peers, *any = find(c, f->peer, &count);
    while (peer != NULL && (peer->id != f->peer || peer->source != f->connection || peer->channel != f->channel))
        peer = peer->next;
    if (peer == NULL && any != NULL && any->source == 0) peer = any;
    if (peer == NULL && (any == NULL || count >= MOST_PEERS)) {
        ln_sync_fail(error, LINNET_PROTOCOL_ERROR,
                     "a client fetches from too many hosts, or from one it has not named");
    } else if (peer == NULL) {
        host_peer place = {.id = any->id, .connection = c, .lease_ms = any->lease_ms};
        memcpy(place.address, any->address, sizeof place.address);
        memcpy(place.token, any->token, sizeof place.token);
        peer = add(c, &place, error);
    }
    if (peer != NULL) peer->source = f->connection, peer->channel = f->channel;
    return peer;
}

linnet_status ln_host_peer(host_connection *c, const host_peer_place *place, linnet_error *error) {
    int count;
    if (c->host->config.no_peers)
        return ln_sync_fail(error, LINNET_UNSUPPORTED, "the host connects to no other hosts (--no-peers)");
    if (find(c, place->id, &count) != NULL || count >= MOST_PEERS || place->bytes > MOST_ADDRESS ||
        memchr(place->address, 0, (size_t)place->bytes) != NULL)
        return ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client names too many hosts, or one that cannot be");
    host_peer peer = {.id = place->id, .connection = c};
    peer.lease_ms = (int)(place->lease_ms < INT32_MAX ? place->lease_ms : INT32_MAX);
    memcpy(peer.address, place->address, (size_t)place->bytes);
    memcpy(peer.token, place->token, LN_REMOTE_TOKEN);
    return add(c, &peer, error) != NULL ? LINNET_OK : (linnet_status)error->code;
}

static linnet_status ask(host_peer *peer, const host_fetch *f, uint64_t number, linnet_error *error) {
    put32(peer->take, LN_REMOTE_TAKE), put32(peer->take + 4, 0);
    put64(peer->take + 8, f->connection), put64(peer->take + 16, f->channel);
    put64(peer->take + 24, number), put64(peer->take + 32, UINT64_MAX);
    peer->asked = number;
    const linnet_status status =
        ln_remote_link_begin(peer->link, LN_REMOTE_SUBMIT, peer->take, sizeof peer->take, error);
    return status == LINNET_OK ? ln_remote_link_turn(peer->link, 0, error) : status;
}

/* Waits for the answer to what was asked; `f` NULL: it is dropped. */
static linnet_status listen_to(host_peer *peer, const host_fetch *f, int64_t end, linnet_error *error) {
    peer->fetch = f, peer->answered = false;
    linnet_status status = ln_remote_link_pause(peer->link, false, error);
    if (status == LINNET_OK) status = wait_for(peer, &peer->answered, end, error);
    peer->fetch = NULL, peer->asked = 0;
    return status;
}

/* Gets the value, and asks for the one that is likely to be next, so that it is under way as soon as it is sent. */
static linnet_status get(host_peer *peer, const host_fetch *f, linnet_error *error) {
    const int64_t end = ln_host_wait_end(peer->connection, 0);
    linnet_status status = LINNET_OK;
    if (peer->asked != 0 && peer->asked != f->number) status = listen_to(peer, NULL, end, error);
    const bool ahead = peer->asked != 0;
    if (status == LINNET_OK && !ahead) status = ask(peer, f, f->number, error);
    if (status == LINNET_OK) status = listen_to(peer, f, end, error);
    if (status == LINNET_OK && ahead && peer->failure.code == LINNET_TIMED_OUT) { /* it was asked for long ago */
        status = ask(peer, f, f->number, error);
        if (status == LINNET_OK) status = listen_to(peer, f, end, error);
    }
    linnet_error ignored; /* the value is there */
    if (status == LINNET_OK && peer->failure.code == 0 && ask(peer, f, f->number + 1, &ignored) != LINNET_OK)
        unlink_peer(peer);
    return status;
}

linnet_status ln_host_fetch(host_connection *c, const host_fetch *f, linnet_error *error) {
    if (ln_host_span(c->client, f->buffer, f->offset, f->bytes, error) == NULL) return (linnet_status)error->code;
    host_peer *peer = peer_of(c, f, error);
    if (peer == NULL) return (linnet_status)error->code;
    if (peer->link == NULL)
        return ln_sync_fail(error, LINNET_CONNECTION_LOST, "the connection to the host at %s was lost", peer->address);
    ln_host_wait_begins(c);
    const linnet_status status = get(peer, f, error);
    ln_host_wait_ends(c);
    if (status != LINNET_OK) { /* the answer may still come, and nobody would know what it is */
        unlink_peer(peer);
        return from_peer(peer, error);
    }
    if (peer->failure.code == 0) return LINNET_OK;
    *error = peer->failure;
    return from_peer(peer, error);
}

void ln_host_peers_free(host_connection *c) {
    while (c->peers != NULL) {
        host_peer *peer = c->peers;
        c->peers = peer->next;
        unlink_peer(peer);
        free(peer);
    }
}
