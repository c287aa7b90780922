/* test_sync_members.c - the members that a server remembers: workers that are ahead of it, workers that were forgotten
 * and return, and a table that does not grow while thousands of workers come and go and the server restarts. */
#include "sync_clients.h"

#include "sync/codec/manifest.h"
#include "sync/server/record.h"
#include "sync/server/server_connections.h"
#include "sync/server/server_core.h"
#include "sync/server/server_members.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync/server/server_status.h"

static client *come(int i, const ln_sync_hello *hello) {
    greet(&clients[i], hello);
    if (!clients[i].refused.why) get_ready(&clients[i]);
    return &clients[i];
}

static ln_sync_hello known(uint32_t number, uint64_t incarnation, uint64_t last_step, uint64_t epoch) {
    ln_sync_hello hello = hello_of(number, incarnation);
    hello.last_step = last_step;
    hello.epoch = epoch;
    return hello;
}

/* ---- workers that are ahead ------------------------------------------------------------------------------------- */

/* A worker that has the ACK of a step which the server does not know. */
static void ahead(void) {
    linnet_error error;
    ln_sync_hello hello = known(0, 11, 2, 5);
    ln_sync_server_config config = plain();
    begin(config);
    join(1, 1, 12);
    for (uint64_t i = 0; i < 2; i++) step(1, i, 1); /* steps 0 and 1 are made */
    hello.last_step = 1;
    come(0, &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_FINE);
    hello.last_step = 2; /* step 2 was acknowledged by a server that no longer exists */
    greet(&clients[0], &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_FINE); /* a HELLO may be a recording, so it ends nothing */
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    get_ready(&clients[0]);
    CHECK_INT(clients[0].refused.why, LN_NET_BEHIND);
    CHECK(strstr(clients[0].refused.text, "step 2 was acknowledged to worker 0, but step 2 is next here") != NULL);
    CHECK_INT(ln_sync_server_failure(world.server, &error), LINNET_CORRUPT);
    CHECK(strstr(error.what, "acknowledged updates are missing") && strstr(error.hint, "--repair"));
    CHECK_INT(clients[1].refused.why, LN_NET_SHUTTING_DOWN);
    CHECK_INT(ln_sync_server_save(world.server, &error), LINNET_CORRUPT); /* the old snapshot is kept */
    end();
    config.repaired = true; /* the server is known to be older, so only such a worker is refused */
    begin(config);
    join(1, 1, 12);
    come(0, &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_BEHIND);
    CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
    step(1, 0, 1);
    CHECK_INT(clients[1].ack.outcome, LN_SYNC_APPLIED);
    hello = known(0, 13, LN_SYNC_NONE, 0); /* a restarted worker knows no steps, so it is accepted */
    come(0, &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_FINE);
    end();
    begin(plain()); /* a read-only worker has no steps */
    hello = known(LN_NET_NO_WORKER, 11, 7, 5);
    hello.role = LN_SYNC_READER;
    come(0, &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_FINE);
    end();
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

enum { CONNECTIONS = 8, MOST = 2 * CONNECTIONS };

static ln_sync_server_config changing(bool asynchronous) {
    ln_sync_server_config config = plain();
    config.max_streams = CONNECTIONS;
    config.asynchronous = asynchronous;
    config.elastic = true;
    config.lease = 100;
    config.heartbeat = 10;
    return config;
}

/* Lets the lease of this client end, while the other clients send something. */
static void lose(int i) {
    drop(&clients[i]);
    world.now += 200 * (uint64_t)MS;
    for (int k = 0; k < CLIENTS; k++)
        if (clients[k].server) ln_sync_server_heard(world.server, clients[k].server, world.now);
    ln_sync_server_tick(world.server, world.now);
}

/* New worker numbers arrive for weeks. The tables of members and groups do not grow. */
static void many(bool asynchronous) {
    begin(changing(asynchronous));
    for (uint32_t k = 0; k < 1000; k++) {
        client *c = join(0, 1000 + k, 50 + k);
        CHECK_INT(c->welcome.step, asynchronous ? 0 : k);
        push(0, c->welcome.step, 1);
        commit(c, c->welcome.step, 2, 1, 0);
        CHECK_INT(c->ack.outcome, LN_SYNC_APPLIED);
        lose(0);
        CHECK(world.server->member_count <= MOST);
        CHECK(world.server->group_count <= MOST);
        if (k > 3) CHECK(world.server->member_count > 4); /* the latest workers are remembered */
        world.records = 0;
        world.journal_size = 0;
    }
    CHECK_INT(world.updates, 1000);
    CHECK(ln_sync_server_status(world.server, NULL, 0) < 20000);
    end();
}

/* A worker whose ACK was lost returns. If it returns soon, it hears the outcome of its push. If so many other workers
 * came that it was forgotten, it is refused. Its push is never applied twice. */
static void again(bool asynchronous, bool restart) {
    for (uint32_t others = 0; others < 3 * MOST; others += MOST / 4) {
        static struct world before;
        ln_sync_hello hello = known(3, 77, LN_SYNC_NONE, 5);
        ln_sync_server_config config = changing(asynchronous);
        begin(config);
        join(0, 3, 77);
        step(0, 0, 1);
        lose(0);
        for (uint32_t k = 0; k < others; k++) {
            client *c = join(1, 1000 + k, 500 + k);
            push(1, c->welcome.step, 1);
            commit(c, c->welcome.step, 2, 1, 0);
            lose(1);
        }
        if (restart) { /* from the table of a new snapshot, or from the journal */
            linnet_error error;
            size_t at = 0;
            CHECK_INT(ln_sync_server_save(world.server, &error), LINNET_OK);
            before = world;
            end();
            config.epoch = 9;
            begin(config);
            world.updates = before.updates;
            if (others % MOST)
                CHECK_INT(ln_sync_server_restore(world.server, before.table_text, &error), LINNET_OK);
            else
                for (int i = 0; i < before.records; at += before.sizes[i++])
                    CHECK_INT(ln_sync_server_replay(world.server, before.journal + at, before.sizes[i], &error),
                              LINNET_OK);
            world.updates = before.updates;
        }
        const int updates = world.updates;
        come(0, &hello);
        if (clients[0].refused.why) {
            CHECK_INT(clients[0].refused.why, LN_NET_FORGOTTEN);
            CHECK(others >= MOST - 2);
            CHECK_INT(ln_sync_server_failure(world.server, NULL), LINNET_OK);
        } else {
            CHECK(others < MOST);
            CHECK(clients[0].welcome.applied == 0);
            push(0, 0, 1);
            commit(&clients[0], 0, 2, 1, 0);
            CHECK_INT(clients[0].ack.outcome, LN_SYNC_APPLIED);
        }
        CHECK_INT(world.updates, updates);
        hello = known(3, 78, LN_SYNC_NONE, 0); /* a new process with that number has nothing that could be lost */
        come(2, &hello);
        CHECK_INT(clients[2].refused.why, clients[0].refused.why ? LN_NET_FINE : LN_NET_IN_USE);
        end();
    }
}

/* A worker that says BYE knows all outcomes, so forgetting it refuses nobody later. */
static void parted(void) {
    ln_sync_hello hello = known(3, 77, LN_SYNC_NONE, 5);
    begin(changing(false));
    for (uint32_t k = 0; k < 3 * MOST; k++) {
        client *c = join(1, 1000 + k, 500 + k);
        push(1, c->welcome.step, 1);
        commit(c, c->welcome.step, 2, 1, 0);
        control(c, LN_SYNC_BYE, 0, NULL, 0);
        settle();
    }
    come(0, &hello);
    CHECK_INT(clients[0].refused.why, LN_NET_FINE);
    end();
}

/* Members that are connected, within their lease, or waiting in an open step are never forgotten. */
static void the_living(void) {
    ln_sync_server_config config = changing(false);
    config.workers = 5;
    config.elastic = false;
    begin(config);
    for (uint32_t k = 0; k < 3; k++) join((int)k, k, 11 + k);
    step(0, 0, 1);
    lose(0); /* its push is waiting, and counts */
    for (uint32_t k = 0; k < 3 * MOST; k++) {
        join(4, 100 + k, 100 + k);
        lose(4);
    }
    for (uint32_t k = 0; k < 2; k++) CHECK(ln_sync_member(world.server, k, false) != NULL);
    CHECK(ln_sync_member(world.server, 0, false)->committed);
    CHECK(world.server->member_count <= MOST);
    end();
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

/* Invalid records are refused and change nothing. */
static void records(void) {
    linnet_error error;
    ln_sync_server_config config = plain();
    config.workers = 2;
    begin(config);
    join(0, 0, 11);
    join(1, 7, 12);
    step(0, 0, 1);
    step(1, 0, 1);
    static struct world before;
    before = world;
    const size_t size = before.sizes[0], tensors = 40 + 2 * 8, second = tensors + 16 + 4 * W;
    end();
    for (int what = 0; what < 6; what++) {
        unsigned char *bytes = memcpy(malloc(size), before.journal, size);
        switch (what) {
        case 1: memcpy(bytes + second, bytes + tensors, 8); break; /* a tensor twice */
        case 2: memcpy(bytes + 48, bytes + 40, 4); break;          /* a worker twice */
        case 3: bytes[44] = 9; break;                              /* an unknown outcome */
        case 4: bytes[tensors] = 2, bytes[second] = 0; break;      /* out of order */
        case 5: bytes[tensors] = 200; break;                       /* no such tensor */
        default: break;
        }
        begin(config);
        CHECK_INT(ln_sync_server_replay(world.server, bytes, size, &error), what ? LINNET_CORRUPT : LINNET_OK);
        if (what == 1) CHECK(strstr(error.what, "a tensor occurs twice") != NULL);
        CHECK_INT(world.updates, what ? 0 : 1);
        CHECK_INT(world.server->sequence, what ? 0 : 1);
        CHECK_INT(world.server->member_count, what ? 0 : 2);
        end();
        free(bytes);
    }
}

int main(void) {
    make_manifest();
    ahead();
    many(false);
    many(true);
    for (int i = 0; i < 4; i++) again(i & 1, i & 2);
    parted();
    the_living();
    records();
    ln_sync_manifest_free(world.manifest);
    return check_end("test_sync_members");
}
