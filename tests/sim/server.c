/* server.c - a server process: the core, variables in plain arrays (the update is gradient descent with rate 1), and a
 * disk that survives it. Kills happen between events, within a write to the journal, or within a snapshot. */
#include "sim.h"

#include "sync/codec/manifest.h"
#include "sync/codec/manifest_model.h"
#include "sync/server/journal_frame.h"
#include "sync/server/record.h"
#include "sync/server/server_core.h"
#include "sync/server/server_members.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ln_sync_variable *variable(const server *p, uint32_t tensor) { return &p->manifest->variables[tensor]; }

static bool named(const server *p, uint32_t tensor, const char *name) {
    return strcmp(variable(p, tensor)->entry.name, name) == 0;
}

/* ---- the update ------------------------------------------------------------------------------------------------- */

typedef struct host_context {
    sim *s;
    server *p;
} host_context;

static void *value(void *context, uint32_t tensor, bool write) {
    host_context *h = context;
    (void)write;
    return h->p->values[tensor];
}

static linnet_status prepare(void *context, const uint64_t *rows, linnet_error *error) {
    host_context *h = context;
    (void)error;
    for (uint32_t t = 0; t < h->p->manifest->count; t++) h->p->rows[t] = rows[t];
    return LINNET_OK;
}

static void place(void *context, uint32_t tensor, int64_t **ids, void **gradient) {
    host_context *h = context;
    *ids = h->p->ids;
    *gradient = h->p->gradients[tensor];
}

/* Checks bounded staleness: no closed step may be further ahead of the slowest worker than the config allows. */
static void check_staleness(const sim *s, const server *p, int worker) {
    if (p->replaying || s->staleness < 0) return;
    for (uint32_t i = 0; i < p->core->member_count; i++) {
        const sync_member *m = p->core->members[i];
        const uint64_t most = ln_sync_slowest(p->core) + (uint64_t)s->staleness;
        if (m->id == (uint32_t)worker && m->group->step > most)
            sim_fail(s, "worker %d closes step %llu, at most %llu may be", worker, (unsigned long long)m->group->step,
                     (unsigned long long)most);
    }
}

/* Makes the update, and finds from each tensor which pushes it contains. */
static linnet_status update(void *context, linnet_error *error) {
    host_context *h = context;
    server *p = h->p;
    bool cells[CELLS] = {false}, rows[CELLS] = {false}, have_cells = false, have_rows = false;
    (void)error;
    for (uint32_t t = 0; t < p->manifest->count; t++) {
        const ln_sync_variable *v = variable(p, t);
        float *values = p->values[t], *g = p->gradients[t];
        double sum = 0;
        if (v->entry.kind == LN_SYNC_SPARSE) {
            have_rows = true;
            for (uint64_t i = 0; i < p->rows[t]; i++) {
                const int64_t row = p->ids[i];
                if (row < 0 || row >= ROWS || (i && row <= p->ids[i - 1]))
                    sim_fail(h->s, "row numbers are not ascending");
                if (row < CELLS) rows[row] = true;
                for (int k = 0; k < WIDTH; k++) values[row * WIDTH + k] -= g[i * WIDTH + k];
            }
            continue;
        }
        for (uint64_t i = 0; i < v->elements; i++) {
            if (!isfinite(g[i])) sim_fail(h->s, "an update with what is not finite");
            values[i] -= g[i];
            sum += g[i];
        }
        if (named(p, t, "big") && (sum != (double)UNIT * BIG || g[0] != UNIT))
            sim_fail(h->s, "big: the mean of equal gradients is %g", sum / BIG);
        if (!named(p, t, "counts")) continue;
        have_cells = true;
        if (fabs(sum - UNIT) > 1e-2) sim_fail(h->s, "counts: the means of gradients add up to %g", sum);
        for (int i = 0; i < CELLS; i++) cells[i] = g[i] != 0;
    }
    for (int i = 0; i < CELLS; i++) {
        if (have_cells && have_rows && cells[i] != rows[i])
            sim_fail(h->s, "cell %d: dense and sparse gradients differ", i);
        if (!(have_cells ? cells[i] : rows[i])) continue;
        check_staleness(h->s, p, i / PUSHES);
        sim_say(h->s, "server %d %s push %d of worker %d", p->shard, p->replaying ? "replays" : "applies", i % PUSHES,
                i / PUSHES);
        if (p->counts[i]++) sim_fail(h->s, "push %d of worker %d was applied twice", i % PUSHES, i / PUSHES);
    }
    p->updates++;
    return LINNET_OK;
}

/* ---- the disk --------------------------------------------------------------------------------------------------- */

static linnet_status write_failed(linnet_error *error) {
    memset(error, 0, sizeof *error);
    error->code = LINNET_WRITE_FAILED;
    strcpy(error->what, "killed");
    return LINNET_WRITE_FAILED;
}

static void clear_journal(disk *d) { d->size = d->safe = LN_SYNC_JOURNAL_HEAD; }

/* Decides which part of a record remains if a kill or a power failure interrupts its write: all of it, its beginning,
 * or some of its pages, with zeros in place of the other pages. */
static void tear(sim *s, disk *d) {
    const size_t begin = d->safe;
    const uint64_t kind = sim_below(s, 3);
    s->torn += kind > 0;
    if (kind == 1) d->size = begin + sim_below(s, d->size - begin);
    for (size_t page = begin / LN_SYNC_JOURNAL_PAGE; kind == 2 && page * LN_SYNC_JOURNAL_PAGE < d->size; page++) {
        const size_t from = page * LN_SYNC_JOURNAL_PAGE < begin ? begin : page * LN_SYNC_JOURNAL_PAGE;
        const size_t end = (page + 1) * LN_SYNC_JOURNAL_PAGE, to = end < d->size ? end : d->size;
        if (sim_below(s, 2)) memset(d->journal + from, 0, to - from);
    }
}

static linnet_status append(void *context, const ln_net_slice *parts, int count, linnet_error *error) {
    host_context *h = context;
    disk *d = h->p->disk;
    size_t size = LN_SYNC_JOURNAL_FRAME + LN_SYNC_JOURNAL_ALIGN, at = d->size + LN_SYNC_JOURNAL_FRAME;
    if (h->p->dying) return write_failed(error);
    for (int i = 0; i < count; i++) size += parts[i].size;
    if (d->size + size > d->room) {
        d->room = 2 * (d->size + size);
        d->journal = realloc(d->journal, d->room);
    }
    memset(d->journal + d->size, 0, size);
    size = (size_t)ln_sync_journal_frame(parts, count, d->size, d->journal + d->size);
    for (int i = 0; i < count; at += parts[i++].size) memcpy(d->journal + at, parts[i].data, parts[i].size);
    d->size += size;
    if (h->p->die_in_append && --h->p->die_in_append == 0) {
        h->p->dying = true;
        tear(h->s, d); /* and no worker was told of the step */
        return write_failed(error);
    }
    d->safe = d->size;
    return LINNET_OK;
}

static linnet_status save(void *context, const char *table, char *where, size_t size, linnet_error *error) {
    host_context *h = context;
    server *p = h->p;
    disk *d = p->disk;
    if (p->dying) return write_failed(error);
    const bool dies = p->die_in_save && --p->die_in_save == 0;
    if (dies && sim_below(h->s, 2)) { /* before the new file is renamed */
        p->dying = true;
        return write_failed(error);
    }
    for (uint32_t t = 0; t < p->manifest->count; t++) {
        if (!d->values[t]) d->values[t] = malloc(variable(p, t)->bytes);
        memcpy(d->values[t], p->values[t], variable(p, t)->bytes);
    }
    if (!d->counts) d->counts = malloc(CELLS);
    memcpy(d->counts, p->counts, CELLS);
    free(d->table);
    d->table = malloc(strlen(table) + 1);
    strcpy(d->table, table);
    d->has_snapshot = true;
    if (dies) { /* before the journal is cleared */
        p->dying = true;
        return write_failed(error);
    }
    clear_journal(d);
    if (size) strncpy(where, "the simulated disk", size - 1), where[size - 1] = 0;
    return LINNET_OK;
}

void server_free(server *p) {
    ln_sync_server_release(p->core);
    for (int t = 0; t < TENSORS; t++) free(p->values[t]), free(p->gradients[t]), free(p->left[t]);
    free(p->ids), free(p->counts), free(p->context);
    ln_sync_manifest_free(p->manifest);
}

void disk_free(disk *d) {
    for (int t = 0; t < TENSORS; t++) free(d->values[t]);
    free(d->counts), free(d->table), free(d->journal);
}

/* ---- the process ------------------------------------------------------------------------------------------------ */

/* Loads the state on disk into the process's memory and the core. */
static void load(sim *s, server *p, disk *d) {
    linnet_error error;
    for (uint32_t t = 0; t < p->manifest->count; t++) {
        if (d->has_snapshot)
            memcpy(p->values[t], d->values[t], variable(p, t)->bytes);
        else
            memset(p->values[t], 0, variable(p, t)->bytes);
    }
    if (d->has_snapshot)
        memcpy(p->counts, d->counts, CELLS);
    else
        memset(p->counts, 0, CELLS);
    if (d->has_snapshot && ln_sync_server_restore(p->core, d->table, &error))
        sim_fail(s, "a snapshot is refused: %s", error.what);
    if (!d->size) clear_journal(d);
    for (uint64_t at = LN_SYNC_JOURNAL_HEAD, length, next;; at = next) {
        const ln_sync_journal_state state = ln_sync_journal_look(d->journal, d->size, at, &length, &next);
        if (state == LN_SYNC_JOURNAL_DAMAGED) sim_fail(s, "a write that a kill has ended is taken for damage");
        if (state != LN_SYNC_JOURNAL_WHOLE) {
            if (at < d->safe) sim_fail(s, "a record that was acknowledged is passed over");
            d->size = d->safe = at;
            return;
        }
        if (ln_sync_server_replay(p->core, d->journal + at + LN_SYNC_JOURNAL_FRAME, length, &error))
            sim_fail(s, "the record at %llu of the journal is refused: %s", (unsigned long long)at, error.what);
    }
}

void server_start(sim *s, server *p, int shard, disk *d) {
    linnet_error error;
    if (!p->manifest) {
        if (ln_sync_manifest_from_model(s->server_models[shard], &p->manifest, &error)) sim_fail(s, "%s", error.what);
        for (uint32_t t = 0; t < p->manifest->count; t++) {
            p->values[t] = calloc(1, variable(p, t)->bytes);
            p->gradients[t] = calloc(1, variable(p, t)->bytes);
            p->left[t] = malloc(variable(p, t)->bytes);
        }
        p->ids = calloc(ROWS, sizeof *p->ids);
        p->counts = calloc(1, CELLS);
        p->context = malloc(sizeof(host_context));
        *(host_context *)p->context = (host_context){s, p};
    }
    void *context = p->context;
    const ln_sync_apply apply = {context, value, prepare, place, update, NULL};
    const ln_sync_storage storage = {context, append, save};
    const ln_sync_host host = sim_host(s);
    ln_sync_server_config config = s->config;
    p->shard = shard;
    p->disk = d;
    if (!p->zombie && d->locked) sim_fail(s, "two servers hold one disk");
    d->locked = !p->zombie;
    p->epoch = config.epoch = p->zombie ? d->epoch : ++d->epoch;
    p->dying = false;
    p->die_in_append = p->die_in_save = 0;
    p->tick_at = s->now;
    if (ln_sync_server_new(p->manifest, &config, &apply, &storage, &host, &p->core, &error))
        sim_fail(s, "%s", error.what);
    p->replaying = true;
    load(s, p, d);
    p->replaying = false;
    for (uint32_t t = 0; p->left_whole && t < p->manifest->count; t++)
        if (memcmp(p->values[t], p->left[t], variable(p, t)->bytes))
            sim_fail(s, "server %d does not go on with the bits it was killed at: %s", shard,
                     variable(p, t)->entry.name);
    sim_say(s, "server %d starts, epoch %llu, version %llu", shard, (unsigned long long)p->epoch,
            (unsigned long long)ln_sync_server_version(p->core));
}

void server_kill(sim *s, server *p) {
    if (!p->core) return;
    sim_say(s, "server %d dies at version %llu", p->shard, (unsigned long long)ln_sync_server_version(p->core));
    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->used && c->server_side && c->server == p) net_close_server(s, c);
    }
    p->left_whole = !p->dying && !p->zombie;
    for (uint32_t t = 0; p->left_whole && t < p->manifest->count; t++)
        memcpy(p->left[t], p->values[t], variable(p, t)->bytes);
    p->dying = true; /* a kill writes nothing, so the disk does not change */
    ln_sync_server_release(p->core);
    p->core = NULL;
    if (!p->zombie) p->disk->locked = false;
    p->restarts++;
}

bool server_turn(sim *s, server *p) {
    linnet_error error;
    if (!p->core) {
        if (p->zombie || s->now < p->restart_at) return false;
        server_start(s, p, p->shard, p->disk);
        return true;
    }
    p->tick_at = ln_sync_server_tick(p->core, s->now);
    while (ln_sync_server_woken(p->core)) continue; /* every stream is checked anyway */
    const linnet_status failure = ln_sync_server_failure(p->core, &error);
    if (failure == LINNET_OK && !p->dying) return false;
    if (!p->dying && !(p->zombie && failure == LINNET_SUPERSEDED))
        sim_fail(s, "server %d fails: %s", p->shard, error.what);
    server_kill(s, p);
    p->restart_at = s->now + sim_below(s, 300 * MS);
    return true;
}

server *server_for(sim *s, int worker, int shard) {
    /* Sometimes an outdated server answers a worker that already knows the successor of this server. */
    if (s->zombie.core && shard == s->zombie.shard && worker >= 0 && s->worker[worker].core &&
        s->worker[worker].epochs[shard] > s->zombie.epoch && sim_below(s, 2))
        return &s->zombie;
    return s->servers[shard].core ? &s->servers[shard] : NULL;
}

void server_check(const sim *s, const server *p) {
    const ln_sync_server *core = p->core;
    if (!core) return;
    /* Only the worker that all others wait for may exceed max_bytes, by the gradients of one step (decoded and as
     * received). */
    const uint64_t most = core->config.max_bytes + 4 * core->manifest->push_bytes + 4 * ROWS * (8 + 4 * WIDTH);
    if (core->used > most)
        sim_fail(s, "server %d holds %llu bytes, at most %llu are right", p->shard, (unsigned long long)core->used,
                 (unsigned long long)most);
    for (uint32_t t = 0; t < core->manifest->count; t++)
        if (named(p, t, "big") && p->values[t][BIG - 1] != -(float)UNIT * (float)core->version)
            sim_fail(s, "big is %g at version %llu", p->values[t][BIG - 1], (unsigned long long)core->version);
}
