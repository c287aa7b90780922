/* faults.c - injects faults: connections that are cut or silent; bytes that are changed, late or repeated; strangers
 * with other versions; processes that are killed at any moment. Each run has its own selection of faults. */
#include "sim.h"

#include "net/frame.h"
#include "sync/codec/payload.h"

#include <stdlib.h>
#include <string.h>

typedef enum fault {
    CUT,
    SILENT,    /* both ends continue but hear nothing, so only timeouts detect it */
    STALL,     /* a delay, shorter or longer than a lease */
    PARTITION, /* all connections of one worker stall */
    DAMAGE,    /* a byte changes in transit */
    SLOW,      /* a connection becomes slow */
    KILL_WORKER,
    KILL_SERVER,
    KILL_IN_APPEND,
    KILL_IN_SAVE,
    KILL_ALL,
    REPLAY,  /* a stranger repeats what a worker once sent */
    GARBAGE, /* bytes that do not follow the protocol */
    VERSION, /* a peer with another protocol version */
    MUTE,    /* a peer that connects and sends nothing, or only part of a frame */
    ZOMBIE,  /* a server that was thought dead answers */
    FAULTS
} fault;

void faults_choose(sim *s) {
    for (int i = 0; i < FAULTS; i++) s->faults[i] = sim_below(s, 3) == 0;
    s->faults[CUT] |= sim_below(s, 2) == 0;
    s->fault_rate = sim_chance(s, 0.1) ? 0 : (double)(1 + sim_below(s, 30)) / 1000;
    s->next_fault = 0;
}

/* Returns one of the connections of running workers, or NULL. */
static connection *some_connection(sim *s) {
    const int first = (int)sim_below(s, CONNECTIONS);
    for (int k = 0; k < CONNECTIONS; k++) {
        connection *c = &s->connections[(first + k) % CONNECTIONS];
        if (c->used && c->worker >= 0 && c->worker_side && c->server_side) return c;
    }
    return NULL;
}

static void stall(sim *s, connection *c, uint64_t until) {
    pipe *p = sim_below(s, 2) ? &c->to_server : &c->to_worker;
    if (p->stalled_until < until) p->stalled_until = until;
}

/* Opens a stranger's connection that sends these bytes. The stranger reads either nothing or the whole answer. */
static void stranger(sim *s, const void *bytes, size_t size) {
    connection *c = net_connect(s, -1, 0, (int)sim_below(s, (uint64_t)s->shards));
    if (!c) return;
    c->deaf = sim_below(s, 2);
    if (size > c->to_server.capacity) size = c->to_server.capacity;
    if (size) net_put(s, c, &c->to_server, bytes, size);
    if (sim_below(s, 2)) net_close_worker(s, c);
}

static void other_version(sim *s) {
    unsigned char frame[LN_NET_HEADER + LN_SYNC_HELLO_BYTES];
    ln_sync_hello hello = {.lowest = (uint8_t)(2 * sim_below(s, 2)), .worker = LN_NET_NO_WORKER, .chunk = 4096};
    hello.highest = hello.lowest ? 3 : 0;
    ln_sync_hello_write(&hello, frame + LN_NET_HEADER);
    const ln_net_header header = {
        .version = (uint8_t)(1 + sim_below(s, 2)),
        .type = LN_SYNC_HELLO,
        .length = LN_SYNC_HELLO_BYTES,
        .total = LN_SYNC_HELLO_BYTES,
        .payload_crc = ln_net_crc32c(0, frame + LN_NET_HEADER, LN_SYNC_HELLO_BYTES),
    };
    ln_net_header_write(&header, frame);
    stranger(s, frame, sizeof frame);
}

static void garbage(sim *s) {
    unsigned char bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)sim_random(s);
    stranger(s, bytes, sim_below(s, sizeof bytes));
}

/* Begins to record what a worker sends, or sends a recording. */
static void replay(sim *s) {
    if (s->recorded > LN_NET_HEADER) {
        stranger(s, s->recording, s->recorded);
        s->recorded = 0;
        s->recorded_from = NULL;
        return;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        if (s->connections[i].used && s->connections[i].worker >= 0 && s->connections[i].accept_at) {
            s->recorded_from = &s->connections[i]; /* from its HELLO on */
            s->recorded = 0;
            return;
        }
}

/* Starts a server from an old copy of the disk, with an outdated epoch, beside its successor. */
static void wake_zombie(sim *s) {
    const int shard = (int)sim_below(s, (uint64_t)s->shards);
    server *p = &s->servers[shard];
    if (s->zombie.core) {
        server_kill(s, &s->zombie);
        return;
    }
    if (!p->core || p->epoch < 2 || (s->zombie.manifest && s->zombie.shard != shard)) return;
    s->zombie.zombie = true;
    s->zombie_disk.epoch = p->epoch - 1;
    server_start(s, &s->zombie, shard, &s->zombie_disk);
}

static void kill_server(sim *s, server *p) {
    if (!p->core) return;
    s->master_kills++;
    server_kill(s, p);
    p->restart_at = s->now + sim_below(s, sim_below(s, 4) ? 200 * MS : 3000 * MS);
}

static void kill_worker(sim *s, worker *p) {
    if (!p->core || p->phase == LEAVING) return;
    s->kills++;
    worker_kill(s, p);
    p->restart_at = s->now + sim_below(s, sim_below(s, 4) ? 200 * MS : 3000 * MS);
}

static void happen(sim *s, fault kind) {
    connection *c = some_connection(s);
    server *p = &s->servers[sim_below(s, (uint64_t)s->shards)];
    worker *w = &s->worker[sim_below(s, (uint64_t)s->workers)];
    const uint64_t lease = s->config.lease * MS;
    switch (kind) {
    case CUT:
    case SILENT:
        if (c) net_cut(s, c, kind == SILENT);
        break;
    case STALL:
        if (c) stall(s, c, s->now + sim_below(s, 2 * lease));
        break;
    case PARTITION:
        for (int i = 0; i < CONNECTIONS; i++)
            if (s->connections[i].used && s->connections[i].worker == w->number) {
                s->connections[i].to_server.stalled_until = s->now + lease + lease / 2;
                s->connections[i].to_worker.stalled_until = s->now + lease + lease / 2;
            }
        break;
    case DAMAGE:
        if (c && c->to_server.used)
            c->to_server.bytes[(c->to_server.begin + sim_below(s, c->to_server.used)) % PIPE] ^= 4;
        if (c && c->to_worker.used)
            c->to_worker.bytes[(c->to_worker.begin + sim_below(s, c->to_worker.used)) % PIPE] ^= 4;
        break;
    case SLOW:
        if (c) c->to_worker.capacity = 50 + sim_below(s, 200), c->per_byte = sim_below(s, 2000);
        if (c && c->to_worker.capacity < c->to_worker.used) c->to_worker.capacity = c->to_worker.used;
        break;
    case KILL_WORKER: kill_worker(s, w); break;
    case KILL_SERVER: kill_server(s, p); break;
    case KILL_IN_APPEND: p->die_in_append = 1 + (int)sim_below(s, 4); break;
    case KILL_IN_SAVE: p->die_in_save = 1 + (int)sim_below(s, 2); break;
    case KILL_ALL:
        for (int i = 0; i < s->shards; i++) kill_server(s, &s->servers[i]);
        for (int i = 0; i < s->workers; i++) kill_worker(s, &s->worker[i]);
        break;
    case REPLAY: replay(s); break;
    case GARBAGE: garbage(s); break;
    case VERSION: other_version(s); break;
    case MUTE: stranger(s, "LNSY", sim_below(s, 5)); break;
    case ZOMBIE: wake_zombie(s); break;
    default: break;
    }
}

void faults_happen(sim *s) {
    if (s->now < s->next_fault) return;
    if (s->now >= s->faults_end) { /* no faults from here on */
        s->next_fault = UINT64_MAX;
        for (int i = 0; i < s->shards; i++) s->servers[i].die_in_append = s->servers[i].die_in_save = 0;
        for (int i = 0; i < CONNECTIONS; i++) net_mend(&s->connections[i]);
        if (s->zombie.core) server_kill(s, &s->zombie);
        return;
    }
    if (s->next_fault && s->fault_rate > 0) {
        fault kind = (fault)sim_below(s, FAULTS);
        for (int tries = 0; !s->faults[kind] && tries < 100; tries++) kind = (fault)sim_below(s, FAULTS);
        if (s->faults[kind]) {
            s->events++;
            sim_say(s, "fault %d", (int)kind);
            happen(s, kind);
        }
    }
    s->next_fault = s->fault_rate > 0 ? s->now + 1 + sim_below(s, (uint64_t)(2e6 / s->fault_rate)) : s->faults_end;
    if (s->next_fault > s->faults_end) s->next_fault = s->faults_end;
}
