/* test_sync_server.c - the server's core against single frames: which workers are admitted, which pushes count once,
 * which frames are refused, and what happens when memory is short or a reader is slow. sync_clients.h has the
 * clients. */
#include "sync_clients.h"

#include "net/stream_send.h"
#include "sync/codec/manifest.h"
#include "sync/common/combine.h"
#include "sync/server/record.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_status.h"
#include "sync/server/share.h"

/* ---- normal operation ------------------------------------------------------------------------------------------- */

static void handshake(void) {
    ln_sync_hello hello = hello_of(LN_NET_NO_WORKER, 11);
    begin(plain());
    greet(&clients[0], &hello);
    CHECK_INT(clients[0].welcome.worker, 0);
    CHECK_INT(clients[0].welcome.epoch, 5);
    CHECK_INT(clients[0].welcome.tensors, 3);
    CHECK_INT(clients[0].welcome.chunk, LN_NET_CHUNK_MIN);
    CHECK(clients[0].welcome.applied == LN_SYNC_NONE);
    greet(&clients[1], &hello); /* the number of an unfinished handshake is not assigned again */
    CHECK_INT(clients[1].welcome.worker, 1);
    get_ready(&clients[0]);
    hello.job[3] = 9;
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_NET_UNKNOWN_JOB);
    CHECK(!clients[1].server);
    hello = hello_of(0, 12); /* another process claims a number that is connected */
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_NET_IN_USE);
    CHECK_INT(clients[1].refused.detail, 0);
    hello = hello_of(3, 13);
    hello.lowest = hello.highest = 9;
    greet(&clients[1], &hello);
    CHECK_INT(clients[1].refused.why, LN_NET_BAD_VERSION);
    CHECK_INT(clients[1].refused.detail, 257);
    hello = hello_of(LN_NET_NO_WORKER, 14); /* an observer knows no epochs */
    hello.role = LN_SYNC_OBSERVER;
    hello.epoch = 99;
    greet(&clients[2], &hello);
    get_ready(&clients[2]);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    control(&clients[2], LN_SYNC_SNAPSHOT, 0, NULL, 0);
    settle();
    CHECK_INT(clients[2].refused.why, LN_NET_UNEXPECTED);
    CHECK_INT(world.saves, 0);
    hello = hello_of(3, 13);
    greet(&clients[1], &hello);
    clients[1].welcome.server_nonce[0] ^= 1; /* looks like a recording */
    get_ready(&clients[1]);
    CHECK_INT(clients[1].refused.why, LN_NET_REPLAY);
    greet(&clients[1], &hello);
    world.manifest->digest[0] ^= 1;
    clients[1].refused.why = LN_NET_FINE;
    unsigned char bytes[LN_SYNC_READY_BYTES] = {0};
    memcpy(bytes, clients[1].welcome.server_nonce, 16);
    world.manifest->digest[0] ^= 1;
    clients[1].number = 3;
    control(&clients[1], LN_SYNC_READY, 0, bytes, sizeof bytes);
    settle();
    CHECK_INT(clients[1].refused.why, LN_NET_MODEL_DIFFERS);
    greet(&clients[1], &hello);
    world.now += 11000 * (uint64_t)MS; /* nobody sends READY */
    ln_sync_server_tick(world.server, world.now);
    settle();
    CHECK_INT(clients[1].refused.why, LN_NET_TOO_SLOW);
    step(0, 0, 1); /* the job is unchanged */
    CHECK_INT(clients[0].acks, 1);
    CHECK(world.w[0] == -1);
    for (int role = 0; role < 2; role++) { /* peers that end only their own connection */
        hello = hello_of(3, 13);
        hello.role = role == 0 ? LN_SYNC_READER : LN_SYNC_WORKER;
        hello.epoch = role == 0 ? 6 : (uint64_t)1 << 62;
        clients[1].refused.why = LN_NET_FINE;
        greet(&clients[1], &hello);
        if (role == 0) get_ready(&clients[1]);
        CHECK_INT(clients[1].refused.why, role == 0 ? LN_NET_SUPERSEDED : LN_NET_MALFORMED);
        CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    }
    step(0, 1, 1);
    CHECK_INT(clients[0].acks, 2);
    hello = hello_of(3, 13);
    hello.epoch = 6; /* the worker has seen a newer server */
    greet(&clients[1], &hello);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    get_ready(&clients[1]);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_SUPERSEDED);
    CHECK_INT(clients[1].refused.why, LN_NET_SUPERSEDED);
    CHECK_INT(clients[0].refused.why, LN_NET_SUPERSEDED);
    end();
}

static void once(void) {
    begin(plain());
    client *c = join(0, 4, 11);
    step(0, 0, 1);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(c->ack.version, 1);
    CHECK_INT(c->ack.next, 1);
    commit(c, 0, 2, 1, 0); /* the same push again, over this connection */
    CHECK_INT(c->acks, 2);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    push(0, 1, 5); /* the connection is lost in the middle of a step */
    c = join(0, 4, 11);
    CHECK_INT(c->welcome.step, 1);
    CHECK_INT(c->welcome.applied, 0);
    push(0, 0, 9); /* the worker does not know that step 0 was made */
    commit(c, 0, 2, 1, 0);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(c->ack_step, 0);
    push(0, 1, 2); /* the incomplete push is gone */
    commit(c, 1, 2, 1, 0);
    CHECK_INT(c->ack.version, 2);
    CHECK(world.w[0] == -3 && world.w[W - 1] == -3 && world.mean[3] == 2);
    CHECK_INT(world.updates, 2);
    c = join(1, 4, 11); /* the same process, while the old connection is not yet known to be lost */
    CHECK(ln_sync_server_closing(world.server, clients[1].server) == false);
    settle();
    CHECK(!clients[0].server);
    step(1, 2, 1);
    CHECK(world.w[7] == -4);
    c = join(1, 4, 99); /* a new process with that number, after the other one has ended */
    CHECK_INT(c->welcome.step, 3);
    push(1, 2, 50);
    commit(c, 2, 2, 1, 0);
    CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
    CHECK(world.w[7] == -4);
    commit(c, 1, 2, 1, 0); /* older than the last step: its outcome is unknown */
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
    join(0, 0, 11); /* the push counts although the connection is lost, */
    step(0, 0, 1);  /* and does not count twice */
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
    bulk(&clients[2], LN_SYNC_PUSH, 2, 0, means[2], 16); /* its push begins, */
    settle();
    step(0, 0, 1);
    step(1, 0, 3);
    CHECK_INT(clients[0].acks, 1);
    CHECK_INT(clients[2].acks, 1); /* the worker is told at once that it is late */
    CHECK_INT(clients[2].ack.outcome, LN_SYNC_LATE);
    CHECK_INT(clients[2].ack.next, 1);
    bulk(&clients[2], LN_SYNC_PUSH, 0, 0, vectors[2], sizeof vectors[2]); /* was still in transit */
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
    step(0, 1, 1); /* the abandoned push is forgotten */
    CHECK_INT(world.updates, 2);
    CHECK(world.w[0] == -3);
    char status[8192];
    ln_sync_server_status(world.server, status, sizeof status);
    CHECK(strstr(status, "\"late\":1,") != NULL);
    end();
}

static void refused(int i, ln_net_refusal why) {
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
    refused(0, LN_NET_UNKNOWN_TENSOR);
    bulk(c, LN_SYNC_PUSH, 0, 0, vectors[0], 4);
    refused(0, LN_NET_WRONG_LENGTH);
    bulk(c, LN_SYNC_PUSH, 0, 7, vectors[0], sizeof vectors[0]); /* a step that nobody is making */
    refused(0, LN_NET_UNEXPECTED);
    bulk(c, LN_SYNC_PUSH, 1, 0, rows, 12); /* rows without row numbers */
    refused(0, LN_NET_UNEXPECTED);
    bulk(c, LN_SYNC_IDS, 0, 0, ids, 8);
    refused(0, LN_NET_UNEXPECTED);
    bulk(c, LN_SYNC_IDS, 1, 0, ids, 24); /* row numbers that do not ascend */
    refused(0, LN_NET_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, outside, 8);
    refused(0, LN_NET_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, beyond, 8);
    refused(0, LN_NET_MALFORMED);
    bulk(c, LN_SYNC_IDS, 1, 0, ids, 16);
    settle();
    bulk(c, LN_SYNC_PUSH, 1, 0, rows, 36); /* more rows than row numbers */
    refused(0, LN_NET_WRONG_LENGTH);
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    settle();
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    refused(0, LN_NET_MALFORMED);
    push(0, 0, 1);
    commit(c, 0, 3, 1, 0);
    refused(0, LN_NET_MALFORMED);
    bulk(c, LN_SYNC_PUSH, 2, 0, means[0], 16);
    settle();
    commit(c, 0, 1, 1, 0); /* a gradient is missing */
    refused(0, LN_NET_MALFORMED);
    push(0, 0, 1);
    commit(c, 0, 2, -1, 0);
    refused(0, LN_NET_MALFORMED);
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
    pull(other, 0, 7); /* a version of a server that has since started again with older values */
    settle();
    CHECK_INT(other->data, 1);
    CHECK_INT(other->same, 0);
    CHECK_INT(other->data_step, 0);
    bulk(c, LN_SYNC_ROWS, 1, 0, some, sizeof some);
    settle();
    CHECK_INT(c->data, 2);
    CHECK(c->w[0] == 147 && c->w[2] == 149 && c->w[3] == 0 && c->w[6] == 39);
    push(0, 0, 1);
    push(1, 0, 1);
    commit(other, 0, 2, 1, 0);
    commit(c, 0, 2, 1, LN_SYNC_COMMIT_PULL); /* the ACK is followed by the values that the worker holds */
    CHECK_INT(c->acks, 1);
    CHECK_INT(c->data, 3);
    CHECK_INT(c->data_step, 1);
    CHECK(c->w[0] == -1 && c->w[W - 1] == -1);
    CHECK_INT(other->data, 1);
    control(c, LN_SYNC_STATUS, 0, NULL, 0);
    control(c, LN_SYNC_SNAPSHOT, 0, NULL, 0);
    settle();
    CHECK(strstr(c->report, "\"version\":1,") != NULL);
    CHECK_INT(c->saved.status, LINNET_OK);
    CHECK_TEXT(world.table_text, "linnet-sync 1 1 1\ngroup 0 1\nworker 0 0 0 0\nworker 1 0 0 0\n");
    control(other, LN_SYNC_SNAPSHOT, 0, NULL, 0); /* nothing has changed: answered without writing again */
    settle();
    CHECK_TEXT(other->saved.text, "version 1");
    CHECK_INT(world.saves, 1);
    step(0, 1, 1);
    step(1, 1, 1);
    control(other, LN_SYNC_SNAPSHOT, 0, NULL, 0);
    settle();
    CHECK_INT(world.saves, 2);
    bulk(c, LN_SYNC_ROWS, 1, 0, outside, sizeof outside);
    refused(0, LN_NET_MALFORMED);
    end();
}

/* After a restart nobody knows which values changed in which step: a worker gets all that are newer than its own. */
static void pulls_from_a_restored_server(void) {
    linnet_error error;
    begin(plain());
    CHECK_INT(ln_sync_server_restore(world.server, "linnet-sync 1 4 3\ngroup 0 4\n", &error), LINNET_OK);
    client *c = join(0, 0, 11);
    pull(c, 0, 2);
    settle();
    CHECK_INT(c->data, 1);
    CHECK_INT(c->same, 0);
    CHECK_INT(c->data_step, 3);
    pull(c, 0, 3);
    settle();
    CHECK_INT(c->data, 1);
    CHECK_INT(c->same, 1);
    end();
}

static uint64_t bytes_in_use(void) {
    char text[1 << 14];
    CHECK(ln_sync_server_status(world.server, text, sizeof text) < sizeof text);
    const char *at = strstr(text, ",\"bytes\":");
    CHECK(at != NULL);
    return at ? strtoull(at + 9, NULL, 10) : 0;
}

/* A few bytes of row numbers ask for many bytes of rows. The rows count as soon as they are requested. */
static void many_rows(void) {
    int64_t all[ROWS];
    ln_sync_server_config config = plain();
    config.max_bytes = sizeof vectors[0] + 16 + 100;
    for (int i = 0; i < ROWS; i++) all[i] = 20 + i;
    begin(config);
    for (int i = 0; i < CLIENTS; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    for (int i = 0; i < CLIENTS; i++) {
        bulk(&clients[i], LN_SYNC_ROWS, 1, 0, all, sizeof all);
        CHECK(carry(clients[i].stream, clients[i].server, LN_NET_HEADER + sizeof all - 1) > 0);
    }
    settle_but(0); /* the last byte; nobody reads the answer */
    CHECK(bytes_in_use() <= config.max_bytes);
    settle();
    for (int i = 0; i < CLIENTS; i++) CHECK_INT(clients[i].data, 1);
    CHECK_INT(bytes_in_use(), 0);
    bulk(&clients[0], LN_SYNC_ROWS, 1, 0, all, sizeof all);
    CHECK(carry(clients[0].stream, clients[0].server, LN_NET_HEADER + sizeof all - 1) > 0);
    CHECK(bytes_in_use() > 0);
    drop(&clients[0]); /* the request never becomes whole */
    CHECK_INT(bytes_in_use(), 0);
    end();
}

/* A reader gets one complete version, even if updates happen while it reads. Without memory for old versions, its
 * connection is closed. */
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
        settle_but(1); /* receives the request without sending the answer */
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
            CHECK(bytes_in_use() < 2 * sizeof vectors[0]); /* room for the next push, and no copy for the reader */
        }
        end();
    }
}

/* A reader that is slow while a client puts other values gets all of the value that it began to read. */
static void slow_readers_of_puts(void) {
    static float stored[W];
    ln_sync_hello hello = hello_of(LN_NET_NO_WORKER, 13);
    begin(plain());
    client *slow = join(0, 0, 11), *writer = &clients[1];
    hello.role = LN_SYNC_WRITER;
    greet(writer, &hello);
    get_ready(writer);
    for (int i = 0; i < W; i++) world.w[i] = 10, stored[i] = 20;
    pull(slow, 0, LN_SYNC_NONE);
    settle_but(2); /* receives the request without sending the answer */
    ln_sync_server_fill(world.server, slow->server);
    CHECK(carry(slow->server, slow->stream, 1000) == 1000);
    bulk(writer, LN_SYNC_PUT, 0, 1, stored, sizeof stored);
    settle_but(2);
    CHECK(world.w[0] == 20 && world.w[W - 1] == 20);
    settle();
    CHECK_INT(slow->data, 1);
    CHECK_INT(slow->data_step, 0);
    for (int i = 0; i < W; i++) CHECK(slow->w[i] == 10);
    end();
}

/* The same for a reader of f16: the encoded value is made once for all readers of a version, and kept for this reader
 * without a copy. The manifest says that w is a part of a larger tensor, because small ones are not encoded. */
static void slow_readers_of_f16(void) {
    const uint64_t rows = world.manifest->variables[0].entry.rows;
    const uint16_t ten = 0x4900, seven = 0x4700;
    ln_sync_server_config config = plain();
    config.asynchronous = true;
    config.encodings |= LN_SYNC_PULL_ENCODINGS;
    world.manifest->variables[0].entry.rows = 2000;
    for (int pass = 0; pass < 3; pass++) {
        config.max_bytes = pass == 1 ? W * 4 + 4096 : pass == 2 ? W * 4 + 64 : 0; /* room for an old value, or not */
        begin(config);
        join(0, 0, 11);
        for (uint32_t i = 1; i < 4; i++) { /* the last one reads f32 */
            ln_sync_hello hello = hello_of(i, 11 + i);
            if (i < 3) hello.encodings |= LN_SYNC_PULL_ENCODINGS;
            greet(&clients[i], &hello);
            CHECK_INT(clients[i].welcome.encodings, i < 3 ? 0x3f | 1u << 17 : 0x3f); /* one of both is granted */
            get_ready(&clients[i]);
        }
        client *slow = &clients[1], *fast = &clients[2], *exact = &clients[3];
        for (int i = 0; i < W; i++) world.w[i] = 10;
        for (int i = 1; i < 4; i++) pull(&clients[i], 0, LN_SYNC_NONE);
        settle_but(1u << 2 | 1u << 3 | 1);
        CHECK_INT(fast->data, 1);
        for (int i = 0; i < W; i++) CHECK(((uint16_t *)(void *)fast->w)[i] == ten && exact->w[i] == 10);
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
            pull(fast, 0, i); /* the next version is encoded into other memory while the old one is read */
            settle_but(1u << 2 | 1);
        }
        CHECK_INT(world.updates, 3);
        CHECK_INT(fast->data, 4);
        for (int i = 0; i < W; i++) CHECK(((uint16_t *)(void *)fast->w)[i] == seven);
        settle();
        if (pass == 2) {
            CHECK(!slow->server);
        } else {
            CHECK_INT(slow->data_step, 0);
            for (int i = 0; i < W; i++) CHECK(((uint16_t *)(void *)slow->w)[i] == ten);
        }
        end();
    }
    world.manifest->variables[0].entry.rows = rows;
}

/* Memory for little more than one push: the other workers wait, and their pushes are added in the order of the worker
 * numbers. */
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
        for (int i = 3; i >= 0; i--) { /* in reverse order */
            for (int k = 0; k < W; k++) vectors[i][k] = x[i];
            bulk(&clients[i], LN_SYNC_PUSH, 0, n, vectors[i], sizeof vectors[i]);
            bulk(&clients[i], LN_SYNC_PUSH, 2, n, means[i], 16);
            const ln_sync_commit made = {2, 0, 1, 0, 1000, 0, NAN};
            unsigned char bytes[LN_SYNC_COMMIT_BYTES];
            ln_net_header h;
            memset(&h, 0, sizeof h);
            h.type = LN_SYNC_COMMIT;
            h.step = n;
            ln_sync_commit_write(&made, bytes);
            CHECK(ln_net_stream_behind(clients[i].stream, &h, bytes, sizeof bytes));
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
    static struct world before;
    before = world;
    end();
    for (int skip = 0; skip < 2; skip++) {
        begin(config);
        size_t at = 0;
        for (int i = 0; i < before.records; i++) {
            if (!(skip && i == 1))
                CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error),
                          skip && i == 2 ? LINNET_CORRUPT : LINNET_OK);
            if (i == 0) /* once more: the server knows the push */
                CHECK_INT(ln_sync_server_replay(world.server, before.journal, before.sizes[0], &error), LINNET_OK);
            at += before.sizes[i];
        }
        for (size_t n = 0; !skip && n < before.sizes[0]; n++) { /* truncated anywhere: refused, no read beyond the
                                                                 * end */
            void *cut = memcpy(malloc(n + 1), before.journal, n);
            CHECK(ln_sync_server_replay(world.server, cut, n, &error) || n >= 40);
            free(cut);
        }
        if (!skip) {
            CHECK(!memcmp(world.w, before.w, sizeof world.w) && !memcmp(world.mean, before.mean, sizeof world.mean));
            client *c = join(0, 7, 77);
            CHECK_INT(c->welcome.step, 3);
            CHECK_INT(c->welcome.applied, 2);
            commit(c, 2, 2, 1, 0); /* the ACK was lost with the old server */
            CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
            CHECK_INT(world.updates, 3);
        }
        end();
    }
    begin(plain());
    join(0, 0, 11);
    world.journal_fails = true;
    step(0, 0, 1);
    CHECK_INT(clients[0].acks, 0); /* a step that is not in the journal is neither made nor acknowledged */
    CHECK_INT(world.updates, 0);
    CHECK_INT(ln_sync_server_failure(world.server, &error), LINNET_WRITE_FAILED);
    end();
    begin(plain());
    join(0, 0, 11);
    world.update_fails = true;
    step(0, 0, 1);
    CHECK_INT(ln_sync_server_save(world.server, &error), LINNET_OUT_OF_MEMORY); /* half an update is not saved */
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
    control(&clients[0], LN_SYNC_HEARTBEAT, 0, (unsigned char[LN_SYNC_HEARTBEAT_BYTES]){1}, LN_SYNC_HEARTBEAT_BYTES);
    ln_sync_server_heard(world.server, clients[0].server, world.now);
    settle_but(1);
    drop(&clients[1]); /* the worker is lost, and the others wait until its lease ends */
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
    join(1, 1, 12); /* this client joins in the middle of a step, and the members of the step do not wait for it */
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
        volatile float first = 3 * a[i], second = 5 * b[i]; /* both are rounded; there is no fused multiply-add */
        CHECK(out[i] == (first + second) / 8);
    }
    CHECK((ln_sync_size_of(a, 700, LINNET_F32) != LN_SYNC_INFINITE));
    a[699] = -INFINITY;
    CHECK(!(ln_sync_size_of(a, 700, LINNET_F32) != LN_SYNC_INFINITE));
    CHECK((ln_sync_size_of(c, 1, LINNET_F64) != LN_SYNC_INFINITE) &&
          !(ln_sync_size_of(c, 3, LINNET_F64) != LN_SYNC_INFINITE));
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
    pulls_from_a_restored_server();
    many_rows();
    slow_readers();
    slow_readers_of_puts();
    slow_readers_of_f16();
    short_of_memory();
    journal();
    leases();
    arithmetic();
    ln_sync_manifest_free(world.manifest);
    return check_end("test_sync_server");
}
