/* sim.h - a cluster in one process: servers, workers and the network between them, with a simulated clock and a seed.
 * network.c moves bytes, server.c and worker.c are the processes, faults.c injects faults, main.c checks the
 * invariants. */
#ifndef SIM_H
#define SIM_H

#include "linnet_sync.h"

#include "sync/server/journal_frame.h"
#include "sync/server/server_core.h"
#include "sync/worker/worker_core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORKERS = 6,
    SHARDS = 2,
    PUSHES = 128, /* pushes per worker; each has an element of `counts` and a row of `table` */
    CELLS = WORKERS * PUSHES,
    BIG = 3000,  /* elements of `big`: three chunks */
    ROWS = 2048, /* rows of `table`; the rows from CELLS on are shared by all workers */
    WIDTH = 2,
    PUSHED_ROWS = 1100, /* largest number of rows that one worker pushes */
    CONNECTIONS = 64,
    PIPE = 256 << 10,
    UNIT = 840, /* divisible by every number of workers, so that means are exact */
    TENSORS = 8,
};

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

typedef enum sim_mode { SYNCHRONOUS, BACKUP, ASYNCHRONOUS, GROUPS, MODES } sim_mode;

/* One direction of a connection: bytes in flight, in order. */
typedef struct pipe {
    unsigned char *bytes; /* a ring of PIPE bytes */
    size_t begin, used, capacity;
    struct segment {
        uint64_t due;
        size_t size;
    } segments[256];
    int first, count;
    uint64_t stalled_until;
    bool ended; /* no bytes follow, because the sender has closed */
    uint64_t ended_due;
} pipe;

typedef struct connection {
    bool used;
    int worker, link, shard;       /* worker -1: a stranger */
    bool worker_side, server_side; /* which ends are open */
    uint64_t accept_at;            /* when the server accepts it; 0: it already has */
    ln_net_stream *stream;         /* the server's stream */
    struct server *server;
    pipe to_server, to_worker;
    uint64_t latency, jitter, per_byte; /* ns */
    bool deaf;                          /* the worker's end reads nothing */
    bool lost_silently;                 /* neither end notices that the other end has closed */
} connection;

/* What survives a server process. */
typedef struct disk {
    bool locked;
    uint64_t epoch;
    bool has_snapshot;
    float *values[TENSORS];
    unsigned char *counts; /* [CELLS] number of times that each push had been applied at the time of the snapshot */
    char *table;
    unsigned char *journal; /* a file in the format of journal_frame.h; after a kill, part of the last record or some of
                               its pages may be missing */
    size_t size, room, safe; /* safe: size at the last return of append; up to here, steps may be acknowledged */
} disk;

typedef struct server {
    int shard;
    ln_sync_server *core; /* NULL: not running */
    ln_sync_manifest *manifest;
    void *context; /* context of its callbacks */
    disk *disk;
    uint64_t epoch;
    float *values[TENSORS], *gradients[TENSORS];
    int64_t *ids;
    uint64_t rows[TENSORS];
    unsigned char *counts; /* [CELLS] */
    uint64_t restart_at, tick_at;
    int die_in_append, die_in_save; /* dies at the n-th call from now; 0: does not die */
    float *left[TENSORS];           /* values when it was killed; a restart must give the same bits */
    bool left_whole, dying, zombie, replaying;
    uint64_t restarts, updates;
} server;

typedef enum worker_phase { AGREEING, PULLING, FETCHING, COMPUTING, PUSHING, SAVING, LEAVING, GONE } worker_phase;

typedef struct worker {
    int number;
    ln_sync_worker *core; /* NULL: not running */
    linnet_store *store;
    linnet_session *session;
    worker_phase phase;
    connection *connections[SHARDS];
    uint64_t restart_at, ready_at; /* ready_at: when its gradient is computed */
    uint64_t compute;              /* computing time of a step in ns */
    uint64_t epochs[SHARDS];
    uint64_t step, push; /* step that it computes or pushes; number of its pushes, including those before restarts */
    int64_t asked[64];   /* requested rows of `table`, and the received values */
    float fetched[64 * WIDTH];
    ln_sync_request request;
    bool recorded[SHARDS], poisoned, done;
    uint64_t restarts, steps;
} worker;

typedef struct sim {
    uint64_t seed, state, now;
    bool loud, half, leavers; /* half: gradients are sent as f16; leavers: workers leave normally and return */
    sim_mode mode;
    int workers, shards, groups, target;
    int64_t staleness;
    ln_sync_server_config config;
    uint64_t faults_end, deadline;
    double fault_rate; /* faults per simulated ms */
    bool faults[32];
    uint64_t next_fault;
    linnet_model *worker_model, *server_models[SHARDS];
    linnet_plan *plan;
    server servers[SHARDS], zombie;
    disk disks[SHARDS], zombie_disk;
    worker worker[WORKERS];
    connection connections[CONNECTIONS];
    /* the answer that a worker got about a push: outcome + 1, or 0 for no answer; then the step and the life of the
     * worker in which it was pushed */
    unsigned char acked[SHARDS][CELLS];
    uint64_t pushed_as[SHARDS][CELLS], pushed_in[CELLS];
    /* bytes that a worker once sent; a stranger repeats them */
    unsigned char *recording;
    size_t recorded;
    connection *recorded_from;
    uint64_t events, cuts, kills, master_kills, torn;
} sim;

/* main.c: ends the program with the seed and this text. */
_Noreturn void sim_fail(const sim *s, const char *format, ...);
void sim_say(const sim *s, const char *format, ...);
uint64_t sim_random(sim *s);
uint64_t sim_below(sim *s, uint64_t n);
bool sim_chance(sim *s, double p);
ln_sync_host sim_host(sim *s);

/* network.c */
connection *net_connect(sim *s, int worker, int link, int shard);
void net_put(sim *s, connection *c, pipe *p, const void *bytes, size_t size);
/* Returns true if something moved. */
bool net_move(sim *s);
uint64_t net_next(const sim *s);
void net_close_worker(sim *s, connection *c);
void net_close_server(sim *s, connection *c);
void net_mend(connection *c); /* makes the connection fast again */
/* Cuts a connection. Both ends notice this, in any order. Some or all bytes in flight are lost. */
void net_cut(sim *s, connection *c, bool silently);
void net_free(sim *s);

/* server.c */
void server_start(sim *s, server *p, int shard, disk *d);
void server_kill(sim *s, server *p);
bool server_turn(sim *s, server *p);
void server_check(const sim *s, const server *p);
server *server_for(sim *s, int worker, int shard);
void server_free(server *p);
void disk_free(disk *d);

/* worker.c */
void worker_start(sim *s, worker *p);
void worker_kill(sim *s, worker *p);
bool worker_turn(sim *s, worker *p);
uint64_t worker_next(const sim *s, const worker *p);

/* faults.c */
void faults_choose(sim *s);
void faults_happen(sim *s);

#endif
