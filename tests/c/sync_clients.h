/* sync_clients.h - the core of a server with three tensors, whose update is a plain subtraction, and clients that send
 * it single frames. Used by test_sync_server.c and the other test_sync_*.c files. */
#ifndef SYNC_CLIENTS_H
#define SYNC_CLIENTS_H

#include "check.h"

#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/digest.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"

#include "linnet_sync.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { W = 1000, ROWS = 50, WIDTH = 3, CLIENTS = 8, MS = 1000000 };

/* ---- a server of a vector, a table and a mean ------------------------------------------------------------------- */

static struct world {
    ln_sync_manifest *manifest;
    ln_sync_server *server;
    uint64_t now, rows_pushed;
    float w[W], table[ROWS * WIDTH], mean[4], gradient[W], rows[ROWS * WIDTH];
    int64_t ids[ROWS];
    int updates, records, saves;
    unsigned char journal[1 << 19];
    size_t sizes[2048], journal_size;
    char table_text[1 << 13];
    bool journal_fails, update_fails;
} world;

static uint64_t clock_of(void *context) { return ((struct world *)context)->now; }

static void random_of(void *context, void *bytes, size_t size) {
    static unsigned char next;
    (void)context;
    for (size_t i = 0; i < size; i++) ((unsigned char *)bytes)[i] = next++;
}

static void *value(void *context, uint32_t t, bool write) {
    struct world *o = context;
    (void)write;
    return t == 0 ? (void *)o->w : t == 1 ? (void *)o->table : (void *)o->mean;
}

static linnet_status prepare(void *context, const uint64_t *rows, linnet_error *error) {
    (void)error;
    ((struct world *)context)->rows_pushed = rows[1];
    return LINNET_OK;
}

static void place(void *context, uint32_t t, int64_t **ids, void **gradient) {
    struct world *o = context;
    *ids = t == 1 ? o->ids : NULL;
    *gradient = t == 1 ? o->rows : o->gradient;
}

static linnet_status update(void *context, linnet_error *error) {
    struct world *o = context;
    for (int i = 0; i < W; i++) o->w[i] -= o->gradient[i];
    if (o->update_fails) { /* after half of the update */
        memset(error, 0, sizeof *error);
        strcpy(error->what, "the table is gone");
        return (linnet_status)(error->code = LINNET_OUT_OF_MEMORY);
    }
    for (uint64_t i = 0; i < o->rows_pushed; i++)
        for (int k = 0; k < WIDTH; k++) o->table[o->ids[i] * WIDTH + k] -= o->rows[i * WIDTH + (uint64_t)k];
    o->updates++;
    return LINNET_OK;
}

static linnet_status append(void *context, const ln_net_slice *parts, int count, linnet_error *error) {
    struct world *o = context;
    size_t begin = o->journal_size;
    if (o->journal_fails) {
        memset(error, 0, sizeof *error);
        strcpy(error->what, "full");
        return (linnet_status)(error->code = LINNET_WRITE_FAILED);
    }
    for (int i = 0; i < count; i++) {
        if (parts[i].size > sizeof o->journal - o->journal_size ||
            o->records == (int)(sizeof o->sizes / sizeof *o->sizes)) {
            fputs("world.journal or world.sizes is full: make it larger, or reset it in the test\n", stderr);
            abort();
        }
        memcpy(o->journal + o->journal_size, parts[i].data, parts[i].size);
        o->journal_size += parts[i].size;
    }
    o->sizes[o->records++] = o->journal_size - begin;
    return LINNET_OK;
}

static linnet_status save(void *context, const char *table, char *where, size_t size, linnet_error *error) {
    (void)where, (void)size, (void)error;
    world.saves++;
    snprintf(((struct world *)context)->table_text, sizeof world.table_text, "%s", table);
    return LINNET_OK;
}

static void make_manifest(void) {
    static const struct {
        const char *name;
        uint8_t kind, rank;
        uint64_t dims[2];
    } all[] = {
        {"w", LN_SYNC_DENSE, 1, {W, 0}}, {"t", LN_SYNC_SPARSE, 2, {ROWS, WIDTH}}, {"m", LN_SYNC_AVERAGED, 1, {4, 0}}};
    CHECK_INT(ln_sync_manifest_create(3, &world.manifest, NULL), LINNET_OK);
    for (uint32_t i = 0; i < 3; i++) {
        unsigned char bytes[LN_SYNC_TENSOR_BYTES];
        ln_sync_tensor e;
        memset(&e, 0, sizeof e);
        e.number = i;
        e.dtype = LINNET_F32;
        e.kind = all[i].kind;
        e.rank = all[i].rank;
        e.dims[0] = e.rows = all[i].dims[0];
        e.dims[1] = all[i].dims[1];
        if (i == 1) e.rows = 100, e.first_row = 20; /* a part of a table of 100 rows */
        strcpy(e.name, all[i].name);
        e.name_size = 1;
        CHECK_INT(ln_sync_manifest_take(world.manifest, bytes, ln_sync_tensor_write(&e, bytes)), LN_NET_FINE);
    }
    world.manifest->shards = 1;
    memset(world.manifest->job, 7, 16);
    unsigned char payload[LN_NET_CONTROL_MAX];
    uint32_t next = 0;
    const size_t bytes = ln_sync_manifest_payload(world.manifest, &next, payload);
    CHECK_INT(next, 3);
    world.manifest->digest[0] = world.manifest->digest[1] = 0;
    ln_sync_digest(payload, bytes, world.manifest->digest);
}

static ln_sync_server_config plain(void) {
    return (ln_sync_server_config){.workers = 1, .staleness = -1, .epoch = 5, .encodings = 0x3f};
}

static void begin(ln_sync_server_config config) {
    const ln_sync_apply apply = {&world, value, prepare, place, update, NULL};
    const ln_sync_storage storage = {&world, append, save};
    const ln_sync_host host = {&world, clock_of, random_of};
    ln_sync_manifest *manifest = world.manifest;
    memset(&world, 0, sizeof world);
    world.manifest = manifest;
    world.now = 1000 * MS;
    CHECK_INT(ln_sync_server_new(manifest, &config, &apply, &storage, &host, &world.server, NULL), LINNET_OK);
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

typedef struct client {
    ln_net_stream *stream, *server;
    void *memory;
    uint32_t number;
    ln_sync_welcome welcome;
    ln_net_refuse refused;
    ln_sync_ack ack;
    uint64_t ack_step, data_step;
    int acks, same, data;
    float w[W];
    ln_sync_saved saved;
    char report[1 << 14];
} client;

static client clients[CLIENTS];

static ln_net_refusal client_place(void *context, ln_net_stream *stream, const ln_net_header *h, void **to) {
    client *c = ln_net_stream_user(stream);
    (void)context;
    *to = (h->type == LN_SYNC_REPORT ? c->report : (char *)c->w) + h->offset;
    return LN_NET_FINE;
}

static ln_net_refusal client_frame(void *context, ln_net_stream *stream, const ln_net_header *h, const void *p) {
    client *c = ln_net_stream_user(stream);
    (void)context;
    switch (h->type) {
    case LN_SYNC_WELCOME: CHECK(ln_sync_welcome_read(&c->welcome, p, h->length)); break;
    case LN_SYNC_REFUSE: CHECK(ln_net_refuse_read(&c->refused, p, h->length)); break;
    case LN_SYNC_ACK:
        CHECK(ln_sync_ack_read(&c->ack, p, h->length));
        c->ack_step = h->step;
        c->acks++;
        break;
    case LN_SYNC_SAME: c->same += (int)(h->length / LN_SYNC_SAME_BYTES); break;
    case LN_SYNC_DATA:
        if (h->offset + h->length == h->total) c->data++, c->data_step = h->step;
        break;
    case LN_SYNC_SAVED: CHECK(ln_sync_saved_read(&c->saved, p, h->length)); break;
    default: break;
    }
    return LN_NET_FINE;
}

static void client_released(void *context, ln_net_stream *stream, uint64_t tag) {
    (void)context, (void)stream, (void)tag;
}

/* Moves at most `most` bytes from one stream to another. Returns how many. */
static size_t carry(ln_net_stream *from, ln_net_stream *to, size_t most) {
    ln_net_slice slices[16];
    const int n = ln_net_stream_pending(from, slices, 16);
    size_t moved = 0;
    for (int i = 0; i < n && moved < most; i++)
        for (size_t at = 0; at < slices[i].size && moved < most;) {
            void *space;
            size_t room, size = slices[i].size - at;
            ln_net_stream_space(to, &space, &room);
            if (!room) goto full;
            if (size > room) size = room;
            if (size > most - moved) size = most - moved;
            memcpy(space, (const char *)slices[i].data + at, size);
            ln_net_stream_received(to, size);
            at += size;
            moved += size;
        }
full:
    ln_net_stream_sent(from, moved);
    return moved;
}

static void drop(client *c) {
    if (c->server) ln_sync_server_disconnect(world.server, c->server, world.now);
    c->server = NULL;
}

/* Moves bytes until nothing moves any more. readers: bits of the clients that read. */
static void settle_but(unsigned readers) {
    for (bool moved = true; moved;) {
        ln_net_stream *woken;
        moved = false;
        for (int i = 0; i < CLIENTS; i++) {
            client *c = &clients[i];
            if (!c->server) continue;
            ln_sync_server_heard(world.server, c->server, world.now);
            while (carry(c->stream, c->server, SIZE_MAX)) moved = true;
        }
        while ((woken = ln_sync_server_woken(world.server)))
            if (ln_sync_server_resumed(world.server, woken)) ln_net_stream_received(woken, 0), moved = true;
        for (int i = 0; i < CLIENTS; i++) {
            client *c = &clients[i];
            if (!c->server || !(readers >> i & 1)) continue;
            if (!ln_sync_server_closing(world.server, c->server)) ln_sync_server_fill(world.server, c->server);
            while (carry(c->server, c->stream, SIZE_MAX)) moved = true;
            if (ln_sync_server_closing(world.server, c->server) && ln_net_stream_idle(c->server)) drop(c);
        }
    }
}

static void settle(void) { settle_but(~0u); }

static void control(client *c, uint8_t type, uint64_t step, const void *payload, size_t size) {
    ln_net_header h;
    memset(&h, 0, sizeof h);
    h.type = type;
    h.step = step;
    memset(&h.job, 7, 8);
    h.worker = c->number;
    CHECK(ln_net_stream_control(c->stream, &h, payload, size));
}

static ln_sync_hello hello_of(uint32_t number, uint64_t incarnation) {
    ln_sync_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.lowest = hello.highest = 1;
    hello.encodings = 0x3f;
    memset(hello.job, 7, 16);
    memset(hello.nonce, 3, 16);
    hello.incarnation = incarnation;
    hello.last_step = LN_SYNC_NONE;
    hello.worker = number;
    hello.chunk = LN_NET_CHUNK_MIN;
    strcpy(hello.name, "test");
    return hello;
}

static void greet(client *c, const ln_sync_hello *hello) {
    const ln_net_handler handler = {NULL, client_place, client_frame, client_released};
    unsigned char bytes[LN_SYNC_HELLO_BYTES];
    void *memory = c->memory ? c->memory : malloc(ln_net_stream_bytes(8));
    if (c->server) drop(c);
    memset(c, 0, sizeof *c);
    c->memory = memory;
    c->stream = ln_net_stream_init(memory, 8, &ln_sync_protocol, &handler);
    ln_net_stream_set_user(c->stream, c);
    c->server = ln_sync_server_connect(world.server, "here", world.now);
    CHECK(c->server != NULL);
    c->number = hello->worker;
    ln_sync_hello_write(hello, bytes);
    control(c, LN_SYNC_HELLO, 0, bytes, sizeof bytes);
    settle();
}

static void get_ready(client *c) {
    unsigned char bytes[LN_SYNC_READY_BYTES];
    ln_sync_ready ready;
    memcpy(ready.server_nonce, c->welcome.server_nonce, 16);
    for (int i = 0; i < 16; i++) ready.manifest[i] = (unsigned char)(world.manifest->digest[i / 8] >> 8 * (i % 8));
    ln_sync_ready_write(&ready, bytes);
    c->number = c->welcome.worker;
    control(c, LN_SYNC_READY, 0, bytes, sizeof bytes);
    uint64_t job;
    memset(&job, 7, 8);
    ln_net_stream_open(c->stream, job, c->number, 0, c->welcome.chunk);
    settle();
}

static client *join(int i, uint32_t number, uint64_t incarnation) {
    const ln_sync_hello hello = hello_of(number, incarnation);
    greet(&clients[i], &hello);
    CHECK_INT(clients[i].refused.why, LN_NET_FINE);
    get_ready(&clients[i]);
    return &clients[i];
}

static void bulk(client *c, uint8_t type, uint32_t tensor, uint64_t step, const void *data, uint64_t size) {
    ln_net_header h;
    memset(&h, 0, sizeof h);
    h.type = type;
    h.tensor = tensor;
    h.step = step;
    CHECK(ln_net_stream_bulk(c->stream, &h, data, size, 1));
}

static void commit(client *c, uint64_t step, uint32_t pushes, double weight, uint32_t flags) {
    const ln_sync_commit made = {pushes, flags, weight, 0, 1000, 0, NAN};
    unsigned char bytes[LN_SYNC_COMMIT_BYTES];
    ln_sync_commit_write(&made, bytes);
    control(c, LN_SYNC_COMMIT, step, bytes, sizeof bytes);
    settle();
}

static float vectors[CLIENTS][W], means[CLIENTS][4];

/* Pushes gradients whose elements are all `x`, and the mean. */
static void push(int i, uint64_t step, float x) {
    for (int k = 0; k < W; k++) vectors[i][k] = x;
    for (int k = 0; k < 4; k++) means[i][k] = x;
    bulk(&clients[i], LN_SYNC_PUSH, 0, step, vectors[i], sizeof vectors[i]);
    bulk(&clients[i], LN_SYNC_PUSH, 2, step, means[i], sizeof means[i]);
    settle();
}

static void step(int i, uint64_t number, float x) {
    push(i, number, x);
    commit(&clients[i], number, 2, 1, 0);
}

static void end(void) {
    for (int i = 0; i < CLIENTS; i++) {
        drop(&clients[i]);
        free(clients[i].memory);
        memset(&clients[i], 0, sizeof clients[i]);
    }
    ln_sync_server_release(world.server);
    world.server = NULL;
}

#endif
