/* test_sync_finite.c - finite pushes never lead to variables that are not finite. Tests sums, weights and updates that
 * overflow, in every way in which pushes are combined. A step that overflows is dropped as a whole: its workers are
 * told, journal and status record it, and the next step continues. */
#include "sync_clients.h"

#include "net/stream_send.h"
#include "sync/codec/manifest.h"
#include "sync/common/combine.h"
#include "sync/server/record.h"
#include "sync/server/server_core.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync/server/server_status.h"
#include "sync/server/server_value.h"

#include <float.h>

static int tries;
static bool overflows;
static ln_sync_size leaves; /* class of the variables afterwards */

/* An update that overflows if the test says so, and is then undone as the core requires. */
static linnet_status try_update(void *context, ln_sync_size *size, linnet_error *error) {
    tries++;
    *size = overflows ? LN_SYNC_INFINITE : leaves;
    return overflows ? LINNET_OK : update(context, error);
}

static void begin_trying(ln_sync_server_config config) {
    const ln_sync_apply apply = {&world, value, prepare, place, update, try_update};
    const ln_sync_storage storage = {&world, append, save};
    const ln_sync_host host = {&world, clock_of, random_of};
    begin(config);
    ln_sync_server_release(world.server);
    CHECK_INT(ln_sync_server_new(world.manifest, &config, &apply, &storage, &host, &world.server, NULL), LINNET_OK);
    tries = 0;
}

static bool all_finite(void) {
    return (ln_sync_size_of(world.w, W, LINNET_F32) != LN_SYNC_INFINITE) &&
           (ln_sync_size_of(world.table, ROWS * WIDTH, LINNET_F32) != LN_SYNC_INFINITE) &&
           (ln_sync_size_of(world.mean, 4, LINNET_F32) != LN_SYNC_INFINITE);
}

static bool says(const char *text) {
    static char status[1 << 14];
    ln_sync_server_status(world.server, status, sizeof status);
    return strstr(status, text) != NULL;
}

/* Checks that the step of these pushes was dropped: all workers are told, nothing changed, the journal has it, and the
 * next step is made. */
static void dropped(const int *who, int count, uint64_t number) {
    const float before = world.w[0];
    const int updates = world.updates, records = world.records;
    CHECK(all_finite());
    for (int i = 0; i < count; i++) {
        CHECK_INT(clients[who[i]].ack.outcome, LN_SYNC_NOT_FINITE);
        CHECK_INT(clients[who[i]].ack_step, number);
        CHECK_INT(clients[who[i]].ack.next, number + 1);
        CHECK_INT(clients[who[i]].ack.workers, 0);
    }
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    CHECK(says("\"steps_not_finite\":1"));
    for (int i = 0; i < count; i++) step(who[i], number + 1, 2);
    CHECK_INT(world.updates, updates + 1);
    CHECK_INT(world.records, records + 1);
    CHECK(world.w[0] == before - 2);
    for (int i = 0; i < count; i++) CHECK_INT(clients[who[i]].ack.outcome, LN_SYNC_APPLIED);
}

/* Checks that its journal brings another server to the same state. */
static void replayed(ln_sync_server_config config) {
    static struct world before;
    linnet_error error;
    size_t at = 0;
    before = world;
    end();
    begin(config);
    for (int i = 0; i < before.records; at += before.sizes[i++])
        CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error), LINNET_OK);
    CHECK(!memcmp(world.w, before.w, sizeof world.w) && !memcmp(world.mean, before.mean, sizeof world.mean));
    CHECK(!memcmp(world.table, before.table, sizeof world.table));
    CHECK_INT(world.updates, before.updates);
    end();
}

static const int BOTH[] = {0, 1};

static ln_sync_server_config of(uint32_t workers) {
    ln_sync_server_config config = plain();
    config.workers = workers;
    return config;
}

static void gradients(void) {
    begin(of(2));
    join(0, 0, 11);
    join(1, 1, 12);
    step(0, 0, 3e38f);
    step(1, 0, 3e38f);
    dropped(BOTH, 2, 0);
    CHECK(says("\"not_finite\":1"));
    replayed(of(2));
}

static void weights(void) {
    static const double pairs[][2] = {{1e300, 1},       {1, 1e300},       {2e38, 1.9e38},
                                      {1e308, 1.5e308}, {1e-300, 2e-300}, {1e-40, 1}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        begin(of(2));
        for (int i = 0; i < 2; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
        for (int i = 0; i < 2; i++) {
            push(i, 0, 1);
            commit(&clients[i], 0, 2, pairs[k][i], 0);
        }
        dropped(BOTH, 2, 0);
        replayed(of(2));
    }
    begin(of(2)); /* equal weights are not used in the arithmetic, however large they are */
    for (int i = 0; i < 2; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    for (int i = 0; i < 2; i++) {
        push(i, 0, 1);
        commit(&clients[i], 0, 2, 1e300, 0);
    }
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
    CHECK(world.w[0] == -1);
    end();
}

/* Backup workers: the members of the quorum are told, and the late one is late. */
static void quorum(void) {
    ln_sync_server_config config = of(3);
    config.quorum = 2;
    begin(config);
    for (int i = 0; i < 3; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    step(0, 0, -3e38f);
    step(1, 0, -3e38f);
    CHECK_INT(clients[2].ack.outcome, LN_SYNC_LATE);
    dropped(BOTH, 2, 0);
    replayed(config);
}

/* Rows of a table: each part is finite, their sum is not. */
static void rows(void) {
    static int64_t ids[2] = {21, 30};
    static float values[2 * WIDTH];
    begin(of(2));
    join(0, 0, 11);
    join(1, 1, 12);
    for (int i = 0; i < 2 * WIDTH; i++) values[i] = 2e38f;
    for (int i = 0; i < 2; i++) {
        ln_net_header h = {.type = LN_SYNC_PUSH, .flags = LN_SYNC_FLAG_ROWS, .tensor = 1};
        push(i, 0, 1);
        bulk(&clients[i], LN_SYNC_IDS, 1, 0, ids, sizeof ids);
        CHECK(ln_net_stream_bulk(clients[i].stream, &h, values, sizeof values, 1));
        settle();
        commit(&clients[i], 0, 3, 1, 0);
    }
    dropped(BOTH, 2, 0);
    replayed(of(2));
}

static void push_means(int i, uint64_t number, float x) {
    for (int k = 0; k < W; k++) vectors[i][k] = 1;
    for (int k = 0; k < 4; k++) means[i][k] = k == 2 ? x : 1;
    bulk(&clients[i], LN_SYNC_PUSH, 0, number, vectors[i], sizeof vectors[i]);
    bulk(&clients[i], LN_SYNC_PUSH, 2, number, means[i], sizeof means[i]);
    settle();
}

/* Averaged values, as of batch normalization or federated rounds. */
static void averages(void) {
    begin(of(2));
    for (int i = 0; i < 2; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    for (int i = 0; i < 2; i++) {
        push_means(i, 0, FLT_MAX);
        commit(&clients[i], 0, 2, 1, 0);
    }
    dropped(BOTH, 2, 0);
    replayed(of(2));
    begin_trying(of(1)); /* large averaged values are not gradients, so nothing is tried */
    join(0, 0, 11);
    push_means(0, 0, 1e30f);
    commit(&clients[0], 0, 2, 1, 0);
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(tries, 0);
    CHECK(world.mean[2] == 1e30f);
    end();
}

/* Pushes that were already summed because memory is short. */
static void folded(void) {
    static const int all[] = {0, 1, 2, 3};
    for (int weighted = 0; weighted < 2; weighted++) {
        ln_sync_server_config config = of(4);
        config.max_bytes = 4 * (4 * W + 16) + 4000;
        begin(config);
        for (int i = 0; i < 4; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
        for (int i = 0; i < 4; i++) {
            push(i, 0, i < 2 ? 3e38f : 1);
            commit(&clients[i], 0, 2, weighted && i == 3 ? 2 : 1, 0);
        }
        dropped(all, 4, 0);
        replayed(config);
    }
}

/* Asynchronous workers: a push that is not finite is dropped on arrival. The weight of a push does not matter. */
static void asynchronous(void) {
    ln_sync_server_config config = of(1);
    config.asynchronous = true;
    begin(config);
    join(0, 0, 11);
    push(0, 0, FLT_MAX);
    commit(&clients[0], 0, 2, 1e300, 0);
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
    CHECK(all_finite());
    end();
}

/* Gradients so large that the update itself may overflow are tried, and undone if it does. */
static void updates(void) {
    for (int k = 0; k < 3; k++) {
        const float large = k == 2 ? 0x1.fffffep30f : 0x1p31f;
        begin_trying(of(2));
        overflows = k == 0;
        leaves = LN_SYNC_ORDINARY;
        for (int i = 0; i < 2; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
        step(0, 0, large);
        step(1, 0, large);
        CHECK_INT(tries, k < 2);
        if (k == 0) {
            CHECK_INT(world.updates, 0);
            dropped(BOTH, 2, 0);
        } else {
            CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
            CHECK_INT(clients[0].ack.version, 1);
            CHECK_INT(world.updates, 1);
            CHECK(world.w[5] == -large);
        }
        replayed(of(2));
    }
}

/* After a large gradient, even an ordinary one may overflow the variables. As long as they are large, all updates are
 * tried, also in a server that continues from a snapshot or a journal. */
static void large_variables(void) {
    static struct world before;
    linnet_error error;
    for (int k = 0; k < 2; k++) {
        size_t at = 0;
        begin_trying(of(1));
        overflows = false;
        leaves = LN_SYNC_LARGE;
        join(0, 0, 11);
        step(0, 0, 1);
        CHECK_INT(tries, 0);
        step(0, 1, 0x1p100f);
        step(0, 2, 1);
        CHECK_INT(tries, 2);
        CHECK_INT(ln_sync_server_save(world.server, &error), LINNET_OK);
        before = world;
        end();
        begin_trying(of(1));
        if (k)
            CHECK_INT(ln_sync_server_restore(world.server, before.table_text, &error), LINNET_OK);
        else
            for (int i = 0; i < before.records; at += before.sizes[i++])
                CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error), LINNET_OK);
        CHECK_INT(tries, k ? 0 : 2);
        tries = 0;
        join(0, 0, 12);
        overflows = true;
        step(0, 3, 1);
        CHECK_INT(tries, 1);
        CHECK_INT(clients[0].ack.outcome, LN_SYNC_NOT_FINITE);
        overflows = false;
        leaves = LN_SYNC_ORDINARY; /* the variables have become small again */
        step(0, 4, 1);
        step(0, 5, 1);
        CHECK_INT(tries, 2);
        CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
        end();
    }
}

/* A put may make variables large, so the update after it is tried, also in a server that repeats the put. */
static void large_puts(void) {
    static struct world before;
    linnet_error error;
    for (int k = 0; k < 3; k++) {
        const float put = k == 0 ? 3e38f : k == 1 ? -0x1p100f : 1e6f;
        const bool large = k < 2;
        float stored[W] = {0};
        ln_sync_hello hello = hello_of(LN_NET_NO_WORKER, 12);
        begin_trying(of(1));
        overflows = large;
        leaves = LN_SYNC_ORDINARY;
        join(0, 0, 11);
        hello.role = LN_SYNC_WRITER;
        greet(&clients[1], &hello);
        get_ready(&clients[1]);
        step(0, 0, 1);
        stored[W - 1] = put;
        bulk(&clients[1], LN_SYNC_PUT, 0, 1, stored, sizeof stored);
        settle();
        CHECK(world.w[W - 1] == put);
        CHECK_INT(tries, 0);
        before = world;
        step(0, 1, 1);
        CHECK_INT(tries, large);
        CHECK_INT(clients[0].ack.outcome, large ? LN_SYNC_NOT_FINITE : LN_SYNC_APPLIED);
        end();
        begin_trying(of(1));
        for (int i = 0, at = 0; i < before.records; at += (int)before.sizes[i++])
            CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error), LINNET_OK);
        CHECK(world.w[W - 1] == put);
        join(0, 0, 13);
        step(0, 1, 1);
        CHECK_INT(tries, large);
        end();
    }
}

/* An optimizer that handles infinities itself, as a dynamic loss scale does, gets to see them. */
static void lenient(void) {
    begin(of(2));
    world.manifest->takes_not_finite = true;
    for (int i = 0; i < 2; i++) join(i, (uint32_t)i, 11 + (uint64_t)i);
    step(0, 0, 3e38f);
    step(1, 0, 3e38f);
    CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
    CHECK_INT(world.updates, 1);
    CHECK(says("\"steps_not_finite\":0"));
    world.manifest->takes_not_finite = false;
    end();
}

/* Classifies a pushed value at every position in a block and after it. */
static void sizes(void) {
    static float values[1500];
    static double wide[1500];
    for (int at = 0; at < 1500; at += 1 + at / 7)
        for (int k = 0; k < 4; k++) {
            const float x[] = {0x1.fffffep30f, -0x1p31f, -INFINITY, NAN};
            const double y[] = {0x1.fffffffffffffp254, -0x1p255, INFINITY, -(double)NAN};
            const ln_sync_size expected[] = {LN_SYNC_ORDINARY, LN_SYNC_LARGE, LN_SYNC_INFINITE, LN_SYNC_INFINITE};
            values[at] = x[k];
            wide[at] = y[k];
            CHECK_INT(ln_sync_size_of(values, 1500, LINNET_F32), expected[k]);
            CHECK_INT(ln_sync_size_of(wide, 1500, LINNET_F64), expected[k]);
            values[at] = 0;
            wide[at] = 0;
        }
}

/* Classifies values that are put. 16 bits have room for few ordinary sizes, so all of them count as large. */
static void sizes_of_values(void) {
    static const struct {
        uint32_t dtype;
        uint16_t bits;
        ln_sync_size size;
    } halves[] = {{LINNET_F16, 0x3c00, LN_SYNC_LARGE},    {LINNET_F16, 0x7bff, LN_SYNC_LARGE},
                  {LINNET_F16, 0xfc00, LN_SYNC_INFINITE}, {LINNET_F16, 0x7e00, LN_SYNC_INFINITE},
                  {LINNET_BF16, 0x3f80, LN_SYNC_LARGE},   {LINNET_BF16, 0x7c00, LN_SYNC_LARGE},
                  {LINNET_BF16, 0xff7f, LN_SYNC_LARGE},   {LINNET_BF16, 0xff80, LN_SYNC_INFINITE},
                  {LINNET_BF16, 0x7fc0, LN_SYNC_INFINITE}};
    uint16_t values[5] = {0};
    int32_t integers[5] = {INT32_MAX, INT32_MIN, -1, 0x7f800000, 0};
    ln_sync_variable v;
    memset(&v, 0, sizeof v);
    v.elements = 5;
    for (size_t k = 0; k < sizeof halves / sizeof *halves; k++)
        for (int at = 0; at < 5; at++) {
            v.entry.dtype = (uint8_t)halves[k].dtype;
            values[at] = halves[k].bits;
            CHECK_INT(ln_sync_size_of_value(&v, values), halves[k].size);
            values[at] = 0;
        }
    v.entry.dtype = LINNET_I32;
    CHECK_INT(ln_sync_size_of_value(&v, integers), LN_SYNC_ORDINARY);
}

int main(void) {
    make_manifest();
    gradients();
    weights();
    quorum();
    rows();
    averages();
    folded();
    asynchronous();
    updates();
    large_variables();
    large_puts();
    lenient();
    sizes();
    sizes_of_values();
    ln_sync_manifest_free(world.manifest);
    return check_end("test_sync_finite");
}
