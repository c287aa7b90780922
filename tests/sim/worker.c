/* worker.c - a worker process: pulls, computes for a while, and pushes a gradient that shows its worker and its step.
 * Checks that the pulled values are one consistent state. */
#include "sim.h"

#include "sync/codec/manifest.h"
#include "sync/worker/worker_core.h"
#include "sync/worker/worker_pull.h"
#include "sync/worker/worker_push.h"
#include "sync/worker/worker_state.h"
#include "sync/worker/worker_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void begin(worker *p, worker_phase phase) { p->phase = phase; }

static linnet_worker_config config_of(const sim *s, const worker *p, linnet_link_config *link) {
    linnet_worker_config config;
    linnet_worker_config_init(&config);
    linnet_link_config_init(link);
    link->heartbeat_ms = (int32_t)s->config.heartbeat;
    link->lease_ms = (int32_t)s->config.lease;
    link->chunk = (int32_t)s->config.chunk;
    config.link = link;
    config.worker = p->number;
    config.group = s->mode == GROUPS ? p->number % s->groups : 0;
    config.lost_ms = 600000;
    if (s->half) config.compression = LINNET_SYNC_F16; /* f16 holds UNIT and its neighbours exactly */
    return config;
}

void worker_start(sim *s, worker *p) {
    static const char *const names[SHARDS] = {"server 0", "server 1"};
    const ln_sync_host host = sim_host(s);
    linnet_link_config link;
    const linnet_worker_config config = config_of(s, p, &link);
    linnet_error error;
    if (linnet_store_create(s->worker_model, NULL, &p->store, &error) ||
        linnet_session_create(s->plan, p->store, NULL, &p->session, &error) ||
        ln_sync_worker_create(s->worker_model, p->store, names, s->shards, &config, &host, &p->core, &error))
        sim_fail(s, "a worker cannot start: %s", error.what);
    memset(p->epochs, 0, sizeof p->epochs);
    p->compute = MS + sim_below(s, sim_below(s, 4) ? 5 * MS : 40 * MS);
    ln_sync_worker_begin_agreement(p->core);
    begin(p, AGREEING);
    sim_say(s, "worker %d starts", p->number);
}

void worker_kill(sim *s, worker *p) {
    if (!p->core) return;
    sim_say(s, "worker %d dies in step %llu", p->number, (unsigned long long)p->step);
    for (int i = 0; i < s->shards; i++)
        if (p->connections[i]) net_close_worker(s, p->connections[i]);
    ln_sync_worker_free(p->core);
    linnet_session_free(p->session);
    linnet_store_free(p->store);
    p->core = NULL;
    p->session = NULL;
    p->store = NULL;
    p->restarts++;
}

static void *input(const sim *s, const worker *p, const char *name) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    for (int i = 0; i < linnet_plan_input_count(s->plan); i++)
        if (linnet_plan_get_input(s->plan, i, &info) == LINNET_OK && strcmp(info.name, name) == 0)
            return linnet_session_input(p->session, i);
    sim_fail(s, "the model has no input %s", name);
}

/* Computes the gradient: UNIT in the cell of this worker and step, in all of `big`, and in this cell's row and some
 * others. */
static void compute(sim *s, worker *p) {
    linnet_error error;
    const uint64_t cell = (uint64_t)p->number * PUSHES + p->push;
    float *counts = input(s, p, "cells");
    float *big = input(s, p, "all");
    float *rows = input(s, p, "rows");
    int64_t *ids = input(s, p, "ids");
    p->poisoned = sim_below(s, 30) == 0;
    for (int i = 0; i < CELLS; i++) counts[i] = 0;
    counts[cell] = UNIT;
    for (int i = 0; i < BIG; i++) big[i] = UNIT;
    if (p->poisoned) big[sim_below(s, BIG)] = sim_below(s, 2) ? NAN : INFINITY;
    /* Usually there are few different rows, but sometimes there are so many that their numbers take several chunks. */
    const uint64_t different = sim_below(s, 10) ? 1 + sim_below(s, 20) : 1 + sim_below(s, ROWS - CELLS);
    for (int i = 0; i < PUSHED_ROWS; i++) {
        ids[i] = i == 0 ? (int64_t)cell : CELLS + (int64_t)((uint64_t)i % different);
        rows[i * WIDTH] = rows[i * WIDTH + 1] = i == 0 ? UNIT : 1;
    }
    if (linnet_run(p->session, &error)) sim_fail(s, "linnet_run: %s", error.what);
}

/* Checks the pulled values: every element of `big` shows the same version, which is the version that the server
 * reported. */
static void check_pulled(sim *s, worker *p) {
    for (int i = 0; i < s->shards; i++) {
        const worker_link *link = &p->core->links[i];
        for (uint32_t t = 0; t < link->manifest->count; t++) {
            const worker_part *part = &link->parts[t];
            if (strcmp(part->variable->entry.name, "big")) continue;
            const float *big = (const float *)part->data;
            for (int k = 1; k < BIG; k++)
                if (big[k] != big[0])
                    sim_fail(s, "worker %d pulled a torn value: %g and %g", p->number, big[0], big[k]);
            /* A server that was restarted after the pull has other versions. */
            if (part->version != LN_SYNC_NONE && big[0] != -(float)UNIT * (float)part->version)
                sim_fail(s, "worker %d has %g as version %llu", p->number, big[0], (unsigned long long)part->version);
        }
    }
}

static bool has_big(const worker_link *link) { return ln_sync_manifest_find(link->manifest, "big") != NULL; }

/* Records the servers' answers to the current push as soon as they arrive. */
static void record(sim *s, worker *p) {
    for (int i = 0; i < s->shards; i++) {
        const worker_link *link = &p->core->links[i];
        if (!link->agreed) continue;
        if (link->epoch < p->epochs[link->shard])
            sim_fail(s, "worker %d went back to epoch %llu", p->number, (unsigned long long)link->epoch);
        p->epochs[link->shard] = link->epoch;
        const uint64_t cell = (uint64_t)p->number * PUSHES + p->push;
        if (p->phase != PUSHING || p->recorded[i]) continue;
        if (s->pushed_as[link->shard][cell] != link->step)
            sim_say(s, "worker %d pushes its %d. as step %llu", p->number, (int)p->push,
                    (unsigned long long)link->step);
        s->pushed_as[link->shard][cell] = link->step;
        if (!link->acked) continue;
        p->recorded[i] = true;
        sim_say(s, "worker %d, step %llu, shard %u: outcome %d%s", p->number, (unsigned long long)link->step,
                link->shard, link->outcome, p->poisoned ? " (NaN)" : "");
        s->acked[link->shard][cell] = (unsigned char)(link->outcome + 1);
        /* If another process with this number pushed the step before it died, that gradient counts. */
        if (p->poisoned && has_big(link) && link->outcome == LN_SYNC_APPLIED && p->restarts == 0 &&
            link->reconnects == 0)
            sim_fail(s, "worker %d: NaN was applied", p->number);
    }
}

/* Fetches some rows by their numbers, as for a table that is too large for a worker. */
static void fetch(sim *s, worker *p) {
    linnet_error error;
    size_t count = 0;
    for (int64_t row = (int64_t)sim_below(s, 200); row < ROWS && count < 64; row += 1 + (int64_t)sim_below(s, 100))
        p->asked[count++] = row;
    for (size_t i = 0; i < count * WIDTH; i++) p->fetched[i] = NAN;
    p->request = (ln_sync_request){"table", p->asked, count, p->fetched};
    if (ln_sync_worker_begin_rows(p->core, &p->request, 1, &error)) sim_fail(s, "rows are refused: %s", error.what);
    begin(p, FETCHING);
}

/* Checks the fetched rows: in the row of a push, all columns have the push's share of UNIT, or all are still zero. */
static void check_fetched(sim *s, const worker *p) {
    for (size_t i = 0; i < p->request.count; i++) {
        const float *row = p->fetched + i * WIDTH;
        if (!(row[0] <= 0) || row[1] != row[0] || (p->asked[i] < CELLS && row[0] < -UNIT))
            sim_fail(s, "worker %d fetched %g, %g as row %d", p->number, row[0], row[1], (int)p->asked[i]);
    }
}

static void next_step(sim *s, worker *p) {
    p->step = p->core->step;
    if (p->step >= (uint64_t)s->target || p->push == PUSHES - 1) {
        p->done = true;
    }
    if (p->done || (s->leavers && s->now < s->faults_end && sim_below(s, 20) == 0)) {
        ln_sync_worker_begin_leave(p->core);
        begin(p, LEAVING);
        return;
    }
    p->ready_at = s->now + p->compute + sim_below(s, p->compute);
    begin(p, COMPUTING);
}

static void finished(sim *s, worker *p, linnet_status status, const linnet_error *error) {
    const bool disk_died = p->phase == SAVING && status == LINNET_WRITE_FAILED;
    if (status && p->phase != LEAVING && !disk_died)
        sim_fail(s, "worker %d gives up: %s: %s (got %s)", p->number, error->tensor, error->what, error->got);
    switch (p->phase) {
    case AGREEING:
    case SAVING:
        ln_sync_worker_begin_pull(p->core);
        begin(p, PULLING);
        break;
    case PULLING:
    case PUSHING:
        p->steps += p->phase == PUSHING;
        if (p->phase == PUSHING && sim_below(s, 20) == 0) {
            ln_sync_worker_begin_save(p->core);
            begin(p, SAVING);
        } else if (!ln_sync_worker_fresh(p->core) && p->core->step < (uint64_t)s->target) {
            ln_sync_worker_begin_pull(p->core);
            begin(p, PULLING);
        } else {
            if (ln_sync_worker_fresh(p->core)) check_pulled(s, p);
            if (sim_below(s, 8) == 0)
                fetch(s, p);
            else
                next_step(s, p);
        }
        break;
    case FETCHING:
        check_fetched(s, p);
        next_step(s, p);
        break;
    case LEAVING:
        sim_say(s, "worker %d has left", p->number);
        worker_kill(s, p);
        begin(p, p->done ? GONE : AGREEING);
        p->restart_at = s->now + sim_below(s, 500 * MS); /* restarts later, if it is not done */
        break;
    default: break;
    }
}

static void push(sim *s, worker *p) {
    linnet_error error;
    p->push++;
    s->pushed_in[(uint64_t)p->number * PUSHES + p->push] = p->restarts;
    compute(s, p);
    memset(p->recorded, 0, sizeof p->recorded);
    /* Sometimes uses a weight that makes the mean overflow, so that the step of all workers is dropped. */
    const double weight = sim_below(s, 30) ? (double)(1 + sim_below(s, 3)) : 1e300;
    if (ln_sync_worker_begin_push(p->core, p->session, weight, sim_below(s, 8) > 0, &error))
        sim_fail(s, "a push cannot begin: %s", error.what);
    begin(p, PUSHING);
}

/* Opens and closes connections as the core requests. */
static bool connect_and_close(sim *s, worker *p) {
    bool moved = false;
    for (int i = 0; i < s->shards; i++) {
        switch (ln_sync_worker_wish(p->core, i)) {
        case LN_SYNC_WISH_CONNECT:
            p->connections[i] = net_connect(s, p->number, i, i);
            if (p->connections[i])
                ln_sync_worker_connected(p->core, i);
            else
                ln_sync_worker_lost(p->core, i, NULL);
            moved = true;
            break;
        case LN_SYNC_WISH_CLOSE:
            if (p->connections[i]) net_close_worker(s, p->connections[i]);
            ln_sync_worker_lost(p->core, i, NULL);
            moved = true;
            break;
        default: break;
        }
    }
    return moved;
}

bool worker_turn(sim *s, worker *p) {
    linnet_status status;
    linnet_error error;
    if (p->phase == GONE) return false;
    if (!p->core) {
        if (s->now < p->restart_at) return false;
        worker_start(s, p);
    }
    bool moved = connect_and_close(s, p);
    ln_sync_worker_advance(p->core);
    record(s, p);
    if (p->phase == COMPUTING) {
        if (s->now < p->ready_at) return moved;
        push(s, p);
        ln_sync_worker_advance(p->core);
        moved = true;
    }
    if (!ln_sync_worker_finished(p->core, &status, &error)) return moved;
    record(s, p);
    finished(s, p, status, &error);
    return true;
}

uint64_t worker_next(const sim *s, const worker *p) {
    if (p->phase == GONE) return UINT64_MAX;
    if (!p->core) return p->restart_at;
    const uint64_t deadline = ln_sync_worker_deadline(p->core);
    if (p->phase == COMPUTING && p->ready_at < deadline) return p->ready_at;
    return deadline > s->now ? deadline : s->now + 100 * US;
}
