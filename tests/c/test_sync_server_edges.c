/* test_sync_server_edges.c - changes every byte that a handshake compares, and tries the first values that are out of
 * range: requested rows and tensors, and digests that differ in the last byte. */
#include "sync_clients.h"

#include "net/bytes.h"
#include "net/frame.h"
#include "net/stream.h"
#include "sync/codec/digest.h"
#include "sync/server/record.h"
#include "sync/server/server_core.h"

/* Sends a READY with a changed byte at `at`. */
static ln_net_refusal ready_with(int at) {
    unsigned char bytes[LN_SYNC_READY_BYTES];
    const ln_sync_hello hello = hello_of(0, 11);
    client *c = &clients[0];
    greet(c, &hello);
    memcpy(bytes, c->welcome.server_nonce, 16);
    for (int i = 0; i < 16; i++) bytes[16 + i] = (unsigned char)(world.manifest->digest[i / 8] >> 8 * (i % 8));
    if (at >= 0) bytes[at] ^= 0x20;
    c->number = c->welcome.worker;
    control(c, LN_SYNC_READY, 0, bytes, sizeof bytes);
    settle();
    return c->refused.why;
}

static void handshakes(void) {
    begin(plain());
    for (int at = 0; at < 16; at++) CHECK_INT(ready_with(at), LN_NET_REPLAY);
    for (int at = 16; at < 32; at++) CHECK_INT(ready_with(at), LN_NET_MODEL_DIFFERS);
    for (int at = 0; at < 16; at++) {
        ln_sync_hello hello = hello_of(0, 11);
        hello.job[at] ^= 0x20;
        greet(&clients[0], &hello);
        CHECK_INT(clients[0].refused.why, LN_NET_UNKNOWN_JOB);
    }
    CHECK_INT(ready_with(-1), LN_NET_FINE);
    join(0, 0, 11);
    step(0, 0, 1); /* the job is unchanged */
    CHECK(world.updates == 1 && world.w[0] == -1);
    end();
}

static ln_net_refusal rows_of(int64_t row) {
    client *c = join(0, 0, 11);
    bulk(c, LN_SYNC_ROWS, 1, 0, &row, sizeof row);
    settle();
    return c->refused.why;
}

static ln_net_refusal pushed_row(int64_t row) {
    client *c = join(0, 0, 11);
    bulk(c, LN_SYNC_IDS, 1, 0, &row, sizeof row);
    settle();
    return c->refused.why;
}

static int data_of(uint32_t tensor, const unsigned char digest[16], ln_net_refusal *why) {
    ln_sync_pull entry = {.tensor = tensor, .version = LN_SYNC_NONE, .flags = digest ? LN_SYNC_PULL_DIGEST : 0};
    unsigned char bytes[LN_SYNC_PULL_BYTES];
    client *c = join(0, 0, 11);
    if (digest) memcpy(entry.digest, digest, 16);
    ln_sync_pull_write(&entry, bytes);
    control(c, LN_SYNC_PULL, 0, bytes, sizeof bytes);
    settle();
    *why = c->refused.why;
    return c->data;
}

/* The shard's part of the table is rows 20 to 69. */
static void ranges(void) {
    unsigned char digest[16];
    uint64_t sum[2] = {0, 0};
    ln_net_refusal why;
    begin(plain());
    for (int i = 0; i < W; i++) world.w[i] = (float)i;
    CHECK_INT(rows_of(20), LN_NET_FINE);
    CHECK_INT(rows_of(69), LN_NET_FINE);
    CHECK_INT(rows_of(19), LN_NET_MALFORMED);
    CHECK_INT(rows_of(70), LN_NET_MALFORMED);
    CHECK_INT(rows_of(INT64_MIN), LN_NET_MALFORMED);
    CHECK_INT(rows_of(INT64_MAX), LN_NET_MALFORMED);
    CHECK_INT(pushed_row(20), LN_NET_FINE);
    CHECK_INT(pushed_row(69), LN_NET_FINE);
    CHECK_INT(pushed_row(19), LN_NET_MALFORMED);
    CHECK_INT(pushed_row(70), LN_NET_MALFORMED);
    CHECK_INT(data_of(2, NULL, &why), 1);
    CHECK_INT(why, LN_NET_FINE);
    CHECK_INT(data_of(3, NULL, &why), 0);
    CHECK_INT(why, LN_NET_UNKNOWN_TENSOR);
    ln_sync_digest(world.w, sizeof world.w, sum);
    for (int i = 0; i < 16; i++) digest[i] = (unsigned char)(sum[i / 8] >> 8 * (i % 8));
    CHECK_INT(data_of(0, digest, &why), 0); /* the peer already has the values */
    for (int i = 0; i < 16; i++) {
        digest[i] ^= 1;
        CHECK_INT(data_of(0, digest, &why), 1);
        digest[i] ^= 1;
    }
    step(0, 0, 1); /* now the digest is that of an earlier version, and was compared before */
    CHECK_INT(world.updates, 1);
    CHECK_INT(data_of(0, digest, &why), 1);
    CHECK_INT(why, LN_NET_FINE);
    end();
}

/* Sends a chunk of a gradient of W floats as bytes, which our own streams would never send. */
static void piece(client *c, uint64_t offset, uint32_t length) {
    unsigned char bytes[LN_NET_HEADER + sizeof vectors[0]];
    ln_net_header h;
    memset(&h, 0, sizeof h);
    memset(bytes, 0, sizeof bytes);
    h.version = 1;
    h.type = LN_SYNC_PUSH;
    memset(&h.job, 7, 8);
    h.worker = c->number;
    h.length = length;
    h.total = sizeof vectors[0];
    h.offset = offset;
    h.payload_crc = ln_net_crc32c(0, bytes + LN_NET_HEADER, length);
    ln_net_header_write(&h, bytes);
    ln_net_stream_feed(c->server, bytes, LN_NET_HEADER + length);
    settle();
}

/* Chunks must follow one another without gaps or repeats. */
static void pieces(void) {
    static const struct {
        uint64_t offsets[3];
        int good; /* number of chunks of 1,000 bytes before the wrong one */
    } cases[] = {{{1000}, 0},          {{0, 2000}, 1},       {{0, 0}, 1},
                 {{0, 1000, 1000}, 2}, {{0, 1000, 3000}, 2}, {{0, 1000, 2000}, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(plain());
        client *c = join(0, 0, 11);
        for (int k = 0; k < 3 && k <= cases[i].good; k++) {
            CHECK_INT(c->refused.why, LN_NET_FINE);
            piece(c, cases[i].offsets[k], 1000);
        }
        CHECK_INT(c->refused.why, cases[i].good == 3 ? LN_NET_FINE : LN_NET_MALFORMED);
        end();
    }
}

/* The row numbers of a push must ascend; a repeated number is refused. */
static void rows_twice(void) {
    static const int64_t ids[][3] = {{20, 21, 21}, {20, 20, 21}, {21, 20, 22}, {20, 21, 69}};
    for (int i = 0; i < 4; i++) {
        begin(plain());
        client *c = join(0, 0, 11);
        bulk(c, LN_SYNC_IDS, 1, 0, ids[i], sizeof ids[i]);
        settle();
        CHECK_INT(c->refused.why, i < 3 ? LN_NET_MALFORMED : LN_NET_FINE);
        end();
    }
}

/* Replays a journal record without members and tensors: one more step of group 0. */
static linnet_status replayed(uint64_t sequence, uint64_t version) {
    unsigned char record[40] = {0};
    linnet_error error;
    memcpy(record, &sequence, 8);
    memcpy(record + 8, &version, 8);
    return ln_sync_server_replay(world.server, record, sizeof record, &error);
}

/* Replays a record with the gradient of tensor `first` (the vector) and of one more tensor, which takes as many
 * bytes. */
static linnet_status replayed_pair(uint64_t first, uint64_t second) {
    static unsigned char record[40 + 2 * (16 + sizeof vectors[0])];
    const uint32_t tensors = 2;
    linnet_error error;
    memset(record, 0, sizeof record);
    memcpy(record + 32, &tensors, 4);
    memcpy(record + 40, &first, 8);
    memcpy(record + 56 + sizeof vectors[0], &second, 8);
    /* The mean has four numbers. */
    return ln_sync_server_replay(world.server, record, sizeof record - (second == 2 ? sizeof vectors[0] - 16 : 0),
                                 &error);
}

/* Replays a record in which worker 0 has this outcome, and worker 1 or `second` the outcome APPLIED. */
static linnet_status replayed_outcome(uint32_t outcome, uint32_t second) {
    unsigned char record[40 + 2 * 8] = {0};
    const uint32_t members = 2;
    linnet_error error;
    memcpy(record + 28, &members, 4);
    memcpy(record + 44, &outcome, 4);
    memcpy(record + 48, &second, 4);
    return ln_sync_server_replay(world.server, record, sizeof record, &error);
}

/* Records must follow one another, and each must begin with the version from which it was made. */
static void records(void) {
    begin(plain());
    CHECK_INT(replayed(0, 1), LINNET_CORRUPT);
    CHECK_INT(replayed(1, 0), LINNET_CORRUPT);
    CHECK_INT(replayed_pair(0, 0), LINNET_CORRUPT); /* the same tensor twice */
    CHECK_INT(world.updates, 0);
    CHECK_INT(replayed_pair(0, 2), LINNET_OK);
    CHECK_INT(world.updates, 1);
    end();
    begin(plain());
    CHECK_INT(replayed(0, 0), LINNET_OK);
    CHECK_INT(replayed(0, 0), LINNET_OK); /* the snapshot contains it */
    CHECK_INT(replayed(2, 0), LINNET_CORRUPT);
    CHECK_INT(replayed(1, 1), LINNET_CORRUPT);
    CHECK_INT(replayed(1, 0), LINNET_OK);
    end();
    begin(plain());
    CHECK_INT(replayed_outcome(LN_SYNC_NOT_FINITE + 1, 1), LINNET_CORRUPT);
    CHECK_INT(replayed_outcome(UINT32_MAX, 1), LINNET_CORRUPT);
    CHECK_INT(replayed_outcome(LN_SYNC_NOT_FINITE, 0), LINNET_CORRUPT); /* the same worker twice */
    CHECK_INT(replayed_outcome(LN_SYNC_NOT_FINITE, 1), LINNET_OK);
    end();
}

/* The server remembers the last puts of 1024 processes. A process that was forgotten is refused if it may repeat a put,
 * and a new one is not. */
static void forgotten_puts(void) {
    float value[W] = {0};
    begin(plain());
    for (uint64_t i = 0; i <= 1024; i++) {
        ln_sync_hello hello = hello_of(LN_NET_NO_WORKER, 100 + i);
        hello.role = LN_SYNC_WRITER;
        greet(&clients[0], &hello);
        get_ready(&clients[0]);
        world.journal_size = 0; /* nothing here reads the records, which are long */
        value[0] = (float)i;
        bulk(&clients[0], LN_SYNC_PUT, 0, 1, value, sizeof value);
        settle();
        CHECK_INT(clients[0].refused.why, LN_NET_FINE);
    }
    CHECK(world.w[0] == 1024 && world.updates == 0);
    CHECK_INT(world.records, 1025);
    for (int again = 0; again < 3; again++) { /* forgotten and back; remembered and back; the same number, but new */
        ln_sync_hello hello = hello_of(LN_NET_NO_WORKER, again == 1 ? 101 : 100);
        hello.role = LN_SYNC_WRITER;
        hello.epoch = again == 2 ? 0 : 5;
        greet(&clients[0], &hello);
        get_ready(&clients[0]);
        value[0] = -1;
        bulk(&clients[0], LN_SYNC_PUT, 0, 1, value, sizeof value);
        settle();
        CHECK_INT(clients[0].refused.why, again == 0 ? LN_NET_FORGOTTEN : LN_NET_FINE);
        CHECK(world.w[0] == (again == 2 ? -1 : 1024));
    }
    end();
}

/* Replays a record of a put of `w` whose fields are changed: sequence, number of the tensor, bytes too many, value. */
static linnet_status replayed_put(uint64_t sequence, uint32_t tensor, size_t more, float x) {
    unsigned char record[48 + 4 * W + 8] = {0};
    linnet_error error;
    put64(record, sequence);
    put64(record + 8, sequence);
    put64(record + 16, 1);
    put32(record + 24, tensor);
    put32(record + 32, UINT32_MAX);
    put64(record + 40, 77);
    for (int i = 0; i < W; i++) memcpy(record + 48 + 4 * i, &x, 4);
    return ln_sync_server_replay(world.server, record, 48 + 4 * W + more, &error);
}

static void records_of_puts(void) {
    begin(plain());
    CHECK_INT(replayed_put(1, 0, 0, 3), LINNET_CORRUPT); /* a step is missing */
    CHECK_INT(replayed_put(0, 3, 0, 3), LINNET_CORRUPT);
    CHECK_INT(replayed_put(0, 1, 0, 3), LINNET_CORRUPT);
    CHECK_INT(replayed_put(0, 0, 4, 3), LINNET_CORRUPT);
    CHECK_INT(replayed_put(0, 0, (size_t)-4, 3), LINNET_CORRUPT);
    CHECK_INT(replayed_put(0, 0, (size_t)-4 * W - 4, 3), LINNET_CORRUPT);
    CHECK_INT(replayed_put(0, 0, 0, NAN), LINNET_CORRUPT);
    CHECK(world.w[0] == 0);
    CHECK_INT(replayed_put(0, 0, 0, 3), LINNET_OK);
    CHECK_INT(replayed_put(0, 0, 0, 4), LINNET_OK); /* the snapshot contains it */
    CHECK(world.w[0] == 3 && world.w[W - 1] == 3);
    CHECK_INT(ln_sync_server_version(world.server), 1);
    end();
}

/* If one worker's push is infinite, the step is made from the other workers' pushes. */
static void one_is_not_finite(void) {
    ln_sync_server_config config = plain();
    config.workers = 2;
    begin(config);
    join(0, 0, 11);
    join(1, 1, 12);
    step(0, 0, INFINITY);
    step(1, 0, 3);
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_NOT_FINITE);
    CHECK_INT(clients[1].ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(world.updates, 1);
    CHECK(world.w[0] == -3 && world.w[W - 1] == -3);
    end();
}

int main(void) {
    make_manifest();
    handshakes();
    ranges();
    pieces();
    rows_twice();
    records();
    one_is_not_finite();
    forgotten_puts();
    records_of_puts();
    return check_end("test_sync_server_edges");
}
