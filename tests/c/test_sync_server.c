/* test_sync_server.c - the server's core against frames by the byte: who is let in, what counts once, what is refused,
 * what happens when memory is short or a reader slow. Clients are streams too; updates are plain subtraction. */
#include "check.h"

#include "sync/combine.h"
#include "sync/server_core.h"

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
    unsigned char journal[1 << 16];
    size_t sizes[64], journal_size;
    char table_text[1024];
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
    if (o->update_fails) { /* half of it is made */
        memset(error, 0, sizeof *error);
        strcpy(error->what, "the table is gone");
        return (linnet_status)(error->code = LINNET_OUT_OF_MEMORY);
    }
    for (uint64_t i = 0; i < o->rows_pushed; i++)
        for (int k = 0; k < WIDTH; k++) o->table[o->ids[i] * WIDTH + k] -= o->rows[i * WIDTH + (uint64_t)k];
    o->updates++;
    return LINNET_OK;
}

static linnet_status append(void *context, const ln_sync_slice *parts, int count, linnet_error *error) {
    struct world *o = context;
    size_t begin = o->journal_size;
    if (o->journal_fails) {
        memset(error, 0, sizeof *error);
        strcpy(error->what, "full");
        return (linnet_status)(error->code = LINNET_WRITE_FAILED);
    }
    for (int i = 0; i < count; i++) {
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
        CHECK_INT(ln_sync_manifest_take(world.manifest, bytes, ln_sync_tensor_write(&e, bytes)), LN_SYNC_FINE);
    }
    world.manifest->shards = 1;
    memset(world.manifest->job, 7, 16);
    unsigned char payload[LN_SYNC_CONTROL_MAX];
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
    const ln_sync_apply apply = {&world, value, prepare, place, update};
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
    ln_sync_stream *stream, *server;
    void *memory;
    uint32_t number;
    ln_sync_welcome welcome;
    ln_sync_refuse refused;
    ln_sync_ack ack;
    uint64_t ack_step, data_step;
    int acks, same, data;
    float w[W];
    ln_sync_saved saved;
    char report[1 << 14];
} client;

static client clients[CLIENTS];

static ln_sync_refusal client_place(void *context, ln_sync_stream *stream, const ln_sync_header *h, void **to) {
    client *c = ln_sync_stream_user(stream);
    (void)context;
    *to = (h->type == LN_SYNC_REPORT ? c->report : (char *)c->w) + h->offset;
    return LN_SYNC_FINE;
}

static ln_sync_refusal client_frame(void *context, ln_sync_stream *stream, const ln_sync_header *h, const void *p) {
    client *c = ln_sync_stream_user(stream);
    (void)context;
    switch (h->type) {
    case LN_SYNC_WELCOME: CHECK(ln_sync_welcome_read(&c->welcome, p, h->length)); break;
    case LN_SYNC_REFUSE: CHECK(ln_sync_refuse_read(&c->refused, p, h->length)); break;
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
    return LN_SYNC_FINE;
}

static void client_released(void *context, ln_sync_stream *stream, uint64_t tag) {
    (void)context, (void)stream, (void)tag;
}

/* Moves at most `most` bytes from one stream to another; returns how many. */
static size_t carry(ln_sync_stream *from, ln_sync_stream *to, size_t most) {
    ln_sync_slice slices[16];
    const int n = ln_sync_stream_pending(from, slices, 16);
    size_t moved = 0;
    for (int i = 0; i < n && moved < most; i++)
        for (size_t at = 0; at < slices[i].size && moved < most;) {
            void *space;
            size_t room, size = slices[i].size - at;
            ln_sync_stream_space(to, &space, &room);
            if (!room) goto full;
            if (size > room) size = room;
            if (size > most - moved) size = most - moved;
            memcpy(space, (const char *)slices[i].data + at, size);
            ln_sync_stream_received(to, size);
            at += size;
            moved += size;
        }
full:
    ln_sync_stream_sent(from, moved);
    return moved;
}

static void drop(client *c) {
    if (c->server) ln_sync_server_disconnect(world.server, c->server, world.now);
    c->server = NULL;
}

/* Until nothing moves any more. readers: bits of the clients that read. */
static void settle_but(unsigned readers) {
    for (bool moved = true; moved;) {
        ln_sync_stream *woken;
        moved = false;
        for (int i = 0; i < CLIENTS; i++) {
            client *c = &clients[i];
            if (!c->server) continue;
            ln_sync_server_heard(world.server, c->server, world.now);
            while (carry(c->stream, c->server, SIZE_MAX)) moved = true;
        }
        while ((woken = ln_sync_server_woken(world.server)))
            if (ln_sync_server_resumed(world.server, woken)) ln_sync_stream_received(woken, 0), moved = true;
        for (int i = 0; i < CLIENTS; i++) {
            client *c = &clients[i];
            if (!c->server || !(readers >> i & 1)) continue;
            if (!ln_sync_server_closing(world.server, c->server)) ln_sync_server_fill(world.server, c->server);
            while (carry(c->server, c->stream, SIZE_MAX)) moved = true;
            if (ln_sync_server_closing(world.server, c->server) && ln_sync_stream_idle(c->server)) drop(c);
        }
    }
}

static void settle(void) { settle_but(~0u); }

static void control(client *c, uint8_t type, uint64_t step, const void *payload, size_t size) {
    ln_sync_header h;
    memset(&h, 0, sizeof h);
    h.type = type;
    h.step = step;
    memset(&h.job, 7, 8);
    h.worker = c->number;
    CHECK(ln_sync_stream_control(c->stream, &h, payload, size));
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
    hello.chunk = LN_SYNC_CHUNK_MIN;
    strcpy(hello.name, "test");
    return hello;
}

static void greet(client *c, const ln_sync_hello *hello) {
    const ln_sync_handler handler = {NULL, client_place, client_frame, client_released};
    unsigned char bytes[LN_SYNC_HELLO_BYTES];
    void *memory = c->memory ? c->memory : malloc(ln_sync_stream_bytes(8));
    if (c->server) drop(c);
    memset(c, 0, sizeof *c);
    c->memory = memory;
    c->stream = ln_sync_stream_init(memory, 8, &handler);
    ln_sync_stream_set_user(c->stream, c);
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
    ln_sync_stream_open(c->stream, job, c->number, 0, c->welcome.chunk);
    settle();
}

static client *join(int i, uint32_t number, uint64_t incarnation) {
    const ln_sync_hello hello = hello_of(number, incarnation);
    greet(&clients[i], &hello);
    CHECK_INT(clients[i].refused.why, LN_SYNC_FINE);
    get_ready(&clients[i]);
    return &clients[i];
}

static void bulk(client *c, uint8_t type, uint32_t tensor, uint64_t step, const void *data, uint64_t size) {
    ln_sync_header h;
    memset(&h, 0, sizeof h);
    h.type = type;
    h.tensor = tensor;
    h.step = step;
    CHECK(ln_sync_stream_bulk(c->stream, &h, data, size, 1));
}

static void commit(client *c, uint64_t step, uint32_t pushes, double weight, uint32_t flags) {
    const ln_sync_commit made = {pushes, flags, weight, 0, 1000, 0, NAN};
    unsigned char bytes[LN_SYNC_COMMIT_BYTES];
    ln_sync_commit_write(&made, bytes);
    control(c, LN_SYNC_COMMIT, step, bytes, sizeof bytes);
    settle();
}

static float vectors[CLIENTS][W], means[CLIENTS][4];

/* Gradients that are all `x`, and the mean. */
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

/* ---- what is expected -------------------------------------------------------------------------------------------- */

static void handshake(void) {
    ln_sync_hello hello = hello_of(LN_SYNC_NO_WORKER, 11);
    begin(plain());
    greet(&clients[0], &hello);
    CHECK_INT(clients[0].welcome.worker, 0);
    CHECK_INT(clients[0].welcome.epoch, 5);
    CHECK_INT(clients[0].welcome.tensors, 3);
    CHECK_INT(clients[0].welcome.chunk, LN_SYNC_CHUNK_MIN);
    CHECK(clients[0].welcome.applied == LN_SYNC_NONE);
    greet(&clients[1], &hello); /* the number of a handshake that is under way is not given away */
    CHECK_INT(clients[1].welcome.worker, 1);
    get_ready(&clients[0]);
    hello.job[3] = 9;
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_SYNC_UNKNOWN_JOB);
    CHECK(!clients[1].server);
    hello = hello_of(0, 12); /* another process that claims a number that is connected */
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_SYNC_IN_USE);
    CHECK_INT(clients[1].refused.detail, 0);
    hello = hello_of(3, 13);
    hello.lowest = hello.highest = 9;
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_SYNC_BAD_VERSION);
    hello = hello_of(3, 13);
    greet(&clients[1], &hello);
    clients[1].welcome.server_nonce[0] ^= 1; /* a recording */
    get_ready(&clients[1]);
    CHECK_INT(clients[1].refused.why, LN_SYNC_REPLAY);
    greet(&clients[1], &hello);
    world.manifest->digest[0] ^= 1;
    clients[1].refused.why = LN_SYNC_FINE;
    unsigned char bytes[LN_SYNC_READY_BYTES] = {0};
    memcpy(bytes, clients[1].welcome.server_nonce, 16);
    world.manifest->digest[0] ^= 1;
    clients[1].number = 3;
    control(&clients[1], LN_SYNC_READY, 0, bytes, sizeof bytes);
    settle();
    CHECK_INT(clients[1].refused.why, LN_SYNC_MODEL_DIFFERS);
    greet(&clients[1], &hello);
    world.now += 11000 * (uint64_t)MS; /* nobody gets ready */
    ln_sync_server_tick(world.server, world.now);
    settle();
    CHECK_INT(clients[1].refused.why, LN_SYNC_TOO_SLOW);
    step(0, 0, 1); /* the job is as it was */
    CHECK_INT(clients[0].acks, 1);
    CHECK(world.w[0] == -1);
    hello = hello_of(3, 13);
    hello.epoch = 6; /* it has seen a later server */
    greet(&clients[1], &hello);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    get_ready(&clients[1]);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_SUPERSEDED);
    CHECK_INT(clients[1].refused.why, LN_SYNC_SUPERSEDED);
    CHECK_INT(clients[0].refused.why, LN_SYNC_SUPERSEDED);
    end();
}

static void once(void) {
    begin(plain());
    client *c = join(0, 4, 11);
    step(0, 0, 1);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(c->ack.version, 1);
    CHECK_INT(c->ack.next, 1);
    commit(c, 0, 2, 1, 0); /* the same again, over this connection */
    CHECK_INT(c->acks, 2);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    push(0, 1, 5); /* a connection is lost in the middle of a step */
    c = join(0, 4, 11);
    CHECK_INT(c->welcome.step, 1);
    CHECK_INT(c->welcome.applied, 0);
    push(0, 0, 9); /* it has not heard of step 0 */
    commit(c, 0, 2, 1, 0);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(c->ack_step, 0);
    push(0, 1, 2); /* what was left half is gone */
    commit(c, 1, 2, 1, 0);
    CHECK_INT(c->ack.version, 2);
    CHECK(world.w[0] == -3 && world.w[W - 1] == -3 && world.mean[3] == 2);
    CHECK_INT(world.updates, 2);
    c = join(1, 4, 11); /* the same process, while the old connection is not known to be gone */
    CHECK(ln_sync_server_closing(world.server, clients[1].server) == false);
    settle();
    CHECK(!clients[0].server);
    step(1, 2, 1);
    CHECK(world.w[7] == -4);
    c = join(1, 4, 99); /* a new process of that number, after the other has ended */
    CHECK_INT(c->welcome.step, 3);
    push(1, 2, 50);
    commit(c, 2, 2, 1, 0);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK(world.w[7] == -4);
    commit(c, 1, 2, 1, 0); /* older than the last: nobody knows */
    CHECK_INT(c->ack.outcome, LN_SYNC_LATE);
    end();
}

static void lost_between_commit_and_close(void) {
    ln_sync_server_config config = plain();
    config.workers = 2;
    begin(config);
    join(0, 0, 11);
    join(1, 1, 12);
    step(0, 0, 1);
    CHECK_INT(clients[0].acks, 0);
    join(0, 0, 11); /* its push counts, though its connection is lost, */
    step(0, 0, 1);  /* and again not twice */
    CHECK_INT(clients[0].acks, 0);
    step(1, 0, 3);
    CHECK_INT(clients[0].acks, 1);
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(clients[0].ack.workers, 2);
    CHECK(world.w[0] == -2 && world.mean[0] == 2);
    end();
}

static void quorum(void) {
    ln_sync_server_config config = plain();
    config.workers = 3;
    config.quorum = 2;
    begin(config);
    for (int i = 0; i < 3; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    bulk(&clients[2], LN_SYNC_PUSH, 2, 0, means[2], 16); /* begins, */
    settle();
    step(0, 0, 1);
    step(1, 0, 3);
    CHECK_INT(clients[0].acks, 1);
    CHECK_INT(clients[2].acks, 1); /* and hears at once that it is late */
    CHECK_INT(clients[2].ack.outcome, LN_SYNC_LATE);
    CHECK_INT(clients[2].ack.next, 1);
    bulk(&clients[2], LN_SYNC_PUSH, 0, 0, vectors[2], sizeof vectors[2]); /* was on its way */
    settle();
    commit(&clients[2], 0, 2, 1, 0);
    CHECK_INT(clients[2].acks, 2);
    CHECK_INT(clients[2].ack.outcome, LN_SYNC_LATE);
    CHECK(world.w[0] == -2);
    CHECK_INT(world.updates, 1);
    step(2, 1, 1);
    bulk(&clients[0], LN_SYNC_PUSH, 2, 1, means[0], 16);
    settle();
    commit(&clients[0], 1, 0, 0, LN_SYNC_COMMIT_ABANDON);
    step(0, 1, 1); /* what it gave up is forgotten */
    CHECK_INT(world.updates, 2);
    CHECK(world.w[0] == -3);
    char status[8192];
    ln_sync_server_status(world.server, status, sizeof status);
    CHECK(strstr(status, "\"late\":1,") != NULL);
    end();
}

static void refused(int i, ln_sync_refusal why) {
    settle();
    if (clients[i].refused.why != why) printf("refused with %d, not %d\n", (int)clients[i].refused.why, (int)why);
    CHECK_INT(clients[i].refused.why, why);
    CHECK(!clients[i].server);
    join(i, (uint32_t)i, 11);
}

static void wrong_pushes(void) {
    static const int64_t ids[] = {20, 22, 21}, outside[] = {19}, beyond[] = {70};
    static const float rows[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    client *c = &clients[0];
    begin(plain());
    join(0, 0, 11);
    bulk(c, LN_SYNC_PUSH, 3, 0, vectors[0], 4);
    refused(0, LN_SYNC_UNKNOWN_TENSOR);
    bulk(c, LN_SYNC_PUSH, 0, 0, vectors[0], 4);
    refused(0, LN_SYNC_WRONG_LENGTH);
    bulk(c, LN_SYNC_PUSH, 0, 7, vectors[0], sizeof vectors[0]); /* a step that nobody is in */
    refused(0, LN_SYNC_UNEXPECTED);
    bulk(c, LN_SYNC_PUSH, 1, 0, rows, 12); /* rows without numbers */
    refused(0, LN_SYNC_UNEXPECTED);
    bulk(c, LN_SYNC_IDS, 0, 0, ids, 8);
    refused(0, LN_SYNC_UNEXPECTED);
    bulk(c, LN_SYNC_IDS, 1, 0, ids, 24); /* not ascending */
    refused(0, LN_SYNC_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, outside, 8);
    refused(0, LN_SYNC_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, beyond, 8);
    refused(0, LN_SYNC_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, ids, 16);
    settle();
    bulk(c, LN_SYNC_PUSH, 1, 0, rows, 36); /* more rows than numbers */
    refused(0, LN_SYNC_WRONG_LENGTH);
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    settle();
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    refused(0, LN_SYNC_MALFORMED);
    push(0, 0, 1);
    commit(c, 0, 3, 1, 0);
    refused(0, LN_SYNC_MALFORMED);
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    settle();
    commit(c, 0, 1, 1, 0); /* a gradient is missing */
    refused(0, LN_SYNC_MALFORMED);
    push(0, 0, 1);
    commit(c, 0, 2, -1, 0);
    refused(0, LN_SYNC_MALFORMED);
    CHECK_INT(world.updates, 0);
    bulk(c, LN_SYNC_IDS, 1, 0, ids, 16);
    settle();
    bulk(c, LN_SYNC_PUSH, 1, 0, rows, 24);
    push(0, 0, 1);
    commit(c, 0, 3, 1, 0);
    CHECK_INT(world.updates, 1);
    CHECK(world.table[0] == -1 && world.table[6] == -4 && world.table[8] == -6);
    push(0, 1, INFINITY);
    commit(c, 1, 2, 1, 0);
    CHECK_INT(c->ack.outcome, LN_SYNC_NOT_FINITE);
    CHECK_INT(world.updates, 1);
    CHECK_INT(c->ack.next, 2);
    end();
}

static void pull(client *c, uint32_t tensor, uint64_t version) {
    const ln_sync_pull entry = {.tensor = tensor, .version = version};
    unsigned char bytes[LN_SYNC_PULL_BYTES];
    ln_sync_pull_write(&entry, bytes);
    control(c, LN_SYNC_PULL, 0, bytes, sizeof bytes);
}

static void pulls(void) {
    static const int64_t some[] = {69, 20, 33}, outside[] = {5};
    begin(plain());
    client *c = join(0, 0, 11), *other = join(1, 1, 12);
    for (int i = 0; i < ROWS * WIDTH; i++) world.table[i] = (float)i;
    pull(c, 0, LN_SYNC_NONE);
    settle();
    CHECK_INT(c->data, 1);
    pull(c, 0, 0);
    settle();
    CHECK_INT(c->data, 1);
    CHECK_INT(c->same, 1);
    bulk(c, LN_SYNC_ROWS, 1, 0, some, sizeof some);
    settle();
    CHECK_INT(c->data, 2);
    CHECK(c->w[0] == 147 && c->w[2] == 149 && c->w[3] == 0 && c->w[6] == 39);
    push(0, 0, 1);
    push(1, 0, 1);
    commit(other, 0, 2, 1, 0);
    commit(c, 0, 2, 1, LN_SYNC_COMMIT_PULL); /* values come behind the ACK, of what it holds */
    CHECK_INT(c->acks, 1);
    CHECK_INT(c->data, 3);
    CHECK_INT(c->data_step, 1);
    CHECK(c->w[0] == -1 && c->w[W - 1] == -1);
    CHECK_INT(other->data, 0);
    control(c, LN_SYNC_STATUS, 0, NULL, 0);
    control(c, LN_SYNC_SNAPSHOT, 0, NULL, 0);
    settle();
    CHECK(strstr(c->report, "\"version\":1,") != NULL);
    CHECK_INT(c->saved.status, LINNET_OK);
    CHECK_TEXT(world.table_text, "linnet-sync 1 1 1\ngroup 0 1\nworker 0 0 0 0\nworker 1 0 0 0\n");
    control(other, LN_SYNC_SNAPSHOT, 0, NULL, 0); /* nothing is new: it is answered, and not written again */
    settle();
    CHECK_TEXT(other->saved.text, "version 1");
    CHECK_INT(world.saves, 1);
    step(0, 1, 1);
    step(1, 1, 1);
    control(other, LN_SYNC_SNAPSHOT, 0, NULL, 0);
    settle();
    CHECK_INT(world.saves, 2);
    bulk(c, LN_SYNC_ROWS, 1, 0, outside, sizeof outside);
    refused(0, LN_SYNC_MALFORMED);
    end();
}

static uint64_t bytes_in_use(void) {
    char text[1 << 14];
    CHECK(ln_sync_server_status(world.server, text, sizeof text) < sizeof text);
    const char *at = strstr(text, ",\"bytes\":");
    CHECK(at != NULL);
    return at ? strtoull(at + 9, NULL, 10) : 0;
}

/* Row numbers are few bytes, and their rows many: what is asked for counts as soon as it is asked for. */
static void many_rows(void) {
    int64_t all[ROWS];
    ln_sync_server_config config = plain();
    config.max_bytes = sizeof vectors[0] + 16 + 100;
    for (int i = 0; i < ROWS; i++) all[i] = 20 + i;
    begin(config);
    for (int i = 0; i < CLIENTS; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    for (int i = 0; i < CLIENTS; i++) {
        bulk(&clients[i], LN_SYNC_ROWS, 1, 0, all, sizeof all);
        CHECK(carry(clients[i].stream, clients[i].server, LN_SYNC_HEADER + sizeof all - 1) > 0);
    }
    settle_but(0); /* the last byte; nobody takes the answer */
    CHECK(bytes_in_use() <= config.max_bytes);
    settle();
    for (int i = 0; i < CLIENTS; i++) CHECK_INT(clients[i].data, 1);
    CHECK_INT(bytes_in_use(), 0);
    end();
}

/* A reader gets one version, whole, whatever updates happen meanwhile; without memory for old versions it goes. */
static void slow_readers(void) {
    ln_sync_server_config config = plain();
    config.asynchronous = true;
    for (int pass = 0; pass < 2; pass++) {
        config.max_bytes = pass ? 3 * (sizeof vectors[0] + 16) / 2 : 0;
        begin(config);
        join(0, 0, 11);
        client *slow = join(1, 1, 12);
        for (int i = 0; i < W; i++) world.w[i] = 10;
        pull(slow, 0, LN_SYNC_NONE);
        settle_but(1); /* takes the question, and does not send the answer */
        ln_sync_server_fill(world.server, slow->server);
        CHECK(carry(slow->server, slow->stream, 1000) == 1000);
        for (uint64_t i = 0; i < 3; i++) {
            for (int k = 0; k < W; k++) vectors[0][k] = 1;
            bulk(&clients[0], LN_SYNC_PUSH, 0, i, vectors[0], sizeof vectors[0]);
            bulk(&clients[0], LN_SYNC_PUSH, 2, i, means[0], 16);
            settle_but(1);
            const ln_sync_commit made = {2, 0, 1, 0, 1000, 0, NAN};
            unsigned char bytes[LN_SYNC_COMMIT_BYTES];
            ln_sync_commit_write(&made, bytes);
            control(&clients[0], LN_SYNC_COMMIT, i, bytes, sizeof bytes);
            settle_but(1);
        }
        CHECK_INT(world.updates, 3);
        CHECK(world.w[0] == 7);
        settle();
        if (pass) {
            CHECK(!slow->server);
        } else {
            CHECK_INT(slow->data, 1);
            CHECK_INT(slow->data_step, 0);
            for (int i = 0; i < W; i++) CHECK(slow->w[i] == 10);
        }
        end();
    }
}

/* Room for little more than one push: the others wait, and are added in the order of their numbers. */
static void short_of_memory(void) {
    static const float x[4] = {1e8f, 1, -1e8f, 3};
    float expected = 0;
    for (int i = 0; i < 4; i++) expected += x[i];
    ln_sync_server_config config = plain();
    config.workers = 4;
    config.max_bytes = sizeof vectors[0] + 16 + 100;
    begin(config);
    for (int i = 0; i < 4; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    for (uint64_t n = 0; n < 3; n++) {
        for (int i = 3; i >= 0; i--) { /* the wrong way round */
            for (int k = 0; k < W; k++) vectors[i][k] = x[i];
            bulk(&clients[i], LN_SYNC_PUSH, 0, n, vectors[i], sizeof vectors[i]);
            bulk(&clients[i], LN_SYNC_PUSH, 2, n, means[i], 16);
            const ln_sync_commit made = {2, 0, 1, 0, 1000, 0, NAN};
            unsigned char bytes[LN_SYNC_COMMIT_BYTES];
            ln_sync_header h;
            memset(&h, 0, sizeof h);
            h.type = LN_SYNC_COMMIT;
            h.step = n;
            ln_sync_commit_write(&made, bytes);
            CHECK(ln_sync_stream_behind(clients[i].stream, &h, bytes, sizeof bytes));
        }
        settle();
        CHECK_INT(world.updates, (int)n + 1);
        for (int k = 0; k < W; k++) CHECK(world.gradient[k] == expected / 4);
    }
    end();
}

static void journal(void) {
    linnet_error error;
    ln_sync_server_config config = plain();
    config.workers = 2;
    begin(config);
    join(0, 0, 11);
    join(1, 7, 12);
    for (uint64_t i = 0; i < 3; i++) {
        step(0, i, 0.1f * (float)(i + 1));
        step(1, i, 0.3f);
    }
    const struct world before = world;
    end();
    for (int skip = 0; skip < 2; skip++) {
        begin(config);
        size_t at = 0;
        for (int i = 0; i < before.records; i++) {
            if (!(skip && i == 1))
                CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error),
                          skip && i == 2 ? LINNET_CORRUPT : LINNET_OK);
            if (i == 0) /* once more: it is known */
                CHECK_INT(ln_sync_server_replay(world.server, before.journal, before.sizes[0], &error), LINNET_OK);
            at += before.sizes[i];
        }
        for (size_t n = 0; !skip && n < before.sizes[0]; n++) { /* cut anywhere: refused, nothing is read beyond */
            void *cut = memcpy(malloc(n + 1), before.journal, n);
            CHECK(ln_sync_server_replay(world.server, cut, n, &error) || n >= 40);
            free(cut);
        }
        if (!skip) {
            CHECK(!memcmp(world.w, before.w, sizeof world.w) && !memcmp(world.mean, before.mean, sizeof world.mean));
            client *c = join(0, 7, 77);
            CHECK_INT(c->welcome.step, 3);
            CHECK_INT(c->welcome.applied, 2);
            commit(c, 2, 2, 1, 0); /* its ACK was lost with the old server */
            CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
            CHECK_INT(world.updates, 3);
        }
        end();
    }
    begin(plain());
    join(0, 0, 11);
    world.journal_fails = true;
    step(0, 0, 1);
    CHECK_INT(clients[0].acks, 0); /* what is not kept is not made, nor acknowledged */
    CHECK_INT(world.updates, 0);
    CHECK_INT(ln_sync_server_failure(world.server, &error), LINNET_WRITE_FAILED);
    end();
    begin(plain());
    join(0, 0, 11);
    world.update_fails = true;
    step(0, 0, 1);
    CHECK_INT(ln_sync_server_save(world.server, &error), LINNET_OUT_OF_MEMORY); /* half an update is no snapshot */
    CHECK_INT(world.saves, 0);
    CHECK_INT(world.records, 1);
    end();
}

static void leases(void) {
    ln_sync_server_config config = plain();
    config.workers = 1;
    config.elastic = true;
    begin(config);
    join(0, 0, 11);
    join(1, 1, 12);
    step(0, 0, 4);
    CHECK_INT(world.updates, 0);
    world.now += 14000 * (uint64_t)MS;
    control(&clients[0], LN_SYNC_HEARTBEAT, 0, (unsigned char[LN_SYNC_BEAT_BYTES]){1}, LN_SYNC_BEAT_BYTES);
    ln_sync_server_heard(world.server, clients[0].server, world.now);
    settle_but(1);
    drop(&clients[1]); /* lost: waited for until its lease ends */
    CHECK(ln_sync_server_tick(world.server, world.now) <= world.now + 15000 * (uint64_t)MS);
    CHECK_INT(world.updates, 0);
    world.now += 14000 * (uint64_t)MS;
    ln_sync_server_heard(world.server, clients[0].server, world.now);
    ln_sync_server_tick(world.server, world.now);
    CHECK_INT(world.updates, 0);
    world.now += 1001 * (uint64_t)MS;
    ln_sync_server_tick(world.server, world.now);
    settle();
    CHECK_INT(world.updates, 1);
    CHECK_INT(clients[0].acks, 1);
    CHECK(world.w[0] == -4);
    join(1, 1, 12); /* it comes in the middle of a step: who is in it does not wait for it */
    step(0, 1, 1);
    step(1, 1, 1);
    end();
}

static void arithmetic(void) {
    float a[700], b[700], out[700];
    double c[3] = {1, NAN, 2};
    for (int i = 0; i < 700; i++) a[i] = 0.1f * (float)i, b[i] = 1.0f / (float)(i + 1);
    const void *sources[] = {a, b};
    ln_sync_combine(sources, NULL, 2, 2, 700, LINNET_F32, out);
    for (int i = 0; i < 700; i++) CHECK(out[i] == (a[i] + b[i]) / 2);
    const double weights[] = {3, 5};
    ln_sync_combine(sources, weights, 2, 8, 700, LINNET_F32, out);
    for (int i = 0; i < 700; i++) {
        volatile float first = 3 * a[i], second = 5 * b[i]; /* each rounded: no fused multiply-add */
        CHECK(out[i] == (first + second) / 8);
    }
    CHECK(ln_sync_is_finite(a, 700, LINNET_F32));
    a[699] = -INFINITY;
    CHECK(!ln_sync_is_finite(a, 700, LINNET_F32));
    CHECK(ln_sync_is_finite(c, 1, LINNET_F64) && !ln_sync_is_finite(c, 3, LINNET_F64));
    uint64_t shares[4];
    ln_sync_share((const double[]){0, 0, 0}, 3, 10, shares);
    CHECK(shares[0] + shares[1] + shares[2] == 10 && shares[0] == 4 && shares[2] == 3);
    ln_sync_share((const double[]){3, 1, 0, 2}, 4, 80, shares);
    CHECK(shares[0] == 30 && shares[1] == 10 && shares[2] == 20 && shares[3] == 20);
    ln_sync_share(NULL, 0, 10, shares);
}

int main(void) {
    make_manifest();
    handshake();
    once();
    lost_between_commit_and_close();
    quorum();
    wrong_pushes();
    pulls();
    many_rows();
    slow_readers();
    short_of_memory();
    journal();
    leases();
    arithmetic();
    ln_sync_manifest_free(world.manifest);
    return check_end("test_sync_server");
}
