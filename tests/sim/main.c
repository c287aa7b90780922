/* main.c - many runs of a simulated cluster, each from its own seed. Checks in every run that a push counts at most
 * once and as it was acknowledged, that nothing acknowledged is lost, that pulled values are consistent, that staleness
 * is bounded, and that the run ends. Usage: sync_sim FOLDER FIRST COUNT [loud]. FOLDER holds the files that
 * tests/test_sync_sim.py made. */
#include "sim.h"

#include "sync/server/server_state.h"
#include "sync/server/server_status.h"
#include "sync/worker/worker_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[MODES] = {"synchronous", "backup", "asynchronous", "groups"};

void sim_say(const sim *s, const char *format, ...) {
    va_list arguments;
    if (!s->loud) return;
    printf("%10.3f ms  ", (double)s->now / 1e6);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

_Noreturn void sim_fail(const sim *s, const char *format, ...) {
    va_list arguments;
    printf("sync_sim: seed %llu fails at %.3f ms: ", (unsigned long long)s->seed, (double)s->now / 1e6);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\nmode %s, %d workers, %d shards; to see it again: sync_sim FOLDER %llu 1 loud\n", mode_names[s->mode],
           s->workers, s->shards, (unsigned long long)s->seed);
    exit(1);
}

uint64_t sim_random(sim *s) {
    uint64_t z = (s->state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t sim_below(sim *s, uint64_t n) { return n ? sim_random(s) % n : 0; }

bool sim_chance(sim *s, double p) { return (double)(sim_random(s) >> 11) * 0x1p-53 < p; }

static uint64_t host_clock(void *context) { return ((const sim *)context)->now; }

static void host_random(void *context, void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)bytes)[i] = (unsigned char)sim_random(context);
}

ln_sync_host sim_host(sim *s) { return (ln_sync_host){s, host_clock, host_random}; }

/* ---- invariants ------------------------------------------------------------------------------------------------- */

/* An update is identified by worker and step. If the worker pushed the same step before a restart, the earlier push
 * counts instead. */
static bool applied_before(const sim *s, int shard, int push) {
    for (int i = push / PUSHES * PUSHES; i < push; i++)
        if (s->pushed_as[shard][i] == s->pushed_as[shard][push] && s->pushed_in[i] < s->pushed_in[push] &&
            s->servers[shard].counts[i] == 1)
            return true;
    return false;
}

static void check_end(sim *s) {
    for (int shard = 0; shard < s->shards; shard++) {
        const server *p = &s->servers[shard];
        uint64_t applied = 0;
        for (int i = 0; i < CELLS; i++) {
            const int outcome = s->acked[shard][i] - 1, times = p->counts[i];
            applied += (uint64_t)times;
            if (outcome == LN_SYNC_APPLIED && times != 1 && !applied_before(s, shard, i))
                sim_fail(s, "shard %d: push %d of worker %d was acknowledged as applied and is lost", shard, i % PUSHES,
                         i / PUSHES);
            if (outcome > LN_SYNC_APPLIED && times != 0)
                sim_fail(s, "shard %d: push %d of worker %d was acknowledged as %s and is applied", shard, i % PUSHES,
                         i / PUSHES, outcome == LN_SYNC_LATE ? "late" : "not finite");
        }
        if (applied < p->core->version) sim_fail(s, "shard %d: updates without pushes", shard);
    }
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

static void choose(sim *s) {
    s->mode = (sim_mode)sim_below(s, MODES);
    s->workers = 1 + (int)sim_below(s, WORKERS);
    s->shards = 1 + (int)sim_below(s, SHARDS);
    s->groups = 1 + (int)sim_below(s, 3);
    if (s->mode == GROUPS) s->workers = s->groups * (1 + (int)sim_below(s, (uint64_t)(WORKERS / s->groups)));
    s->target = 8 + (int)sim_below(s, 60);
    s->staleness = -1;
    if (s->mode >= ASYNCHRONOUS && sim_below(s, 3)) s->staleness = (int64_t)sim_below(s, 4);
    ln_sync_server_config *c = &s->config;
    c->workers = s->mode == GROUPS         ? (uint32_t)(s->workers / s->groups)
                 : s->mode == ASYNCHRONOUS ? 1
                                           : (uint32_t)s->workers;
    c->quorum = s->mode == BACKUP ? 1 + (uint32_t)sim_below(s, (uint64_t)s->workers) : 0;
    c->elastic = sim_below(s, 3) == 0;
    c->asynchronous = s->mode == ASYNCHRONOUS;
    c->staleness = s->staleness;
    c->chunk = sim_below(s, 2) ? 4096 : 65536;
    c->heartbeat = 100;
    c->lease = 400;
    c->max_streams = 40;
    c->max_bytes = sim_below(s, 4) ? 1 << 24 : 300000 + sim_below(s, 300000);
    c->save_every = sim_below(s, 2) ? 0 : 1 + sim_below(s, 20);
    s->faults_end = 200 * MS + sim_below(s, 3000 * MS);
    s->deadline = s->faults_end + 60000 * MS;
    s->half = sim_below(s, 4) == 0;
    s->leavers = sim_below(s, 4) == 0;
    if (s->half) c->encodings = 1u << 1;
    faults_choose(s);
}

static bool over(const sim *s) {
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].phase != GONE) return false;
    for (int i = 0; i < s->shards; i++)
        if (!s->servers[i].core) return false;
    return true;
}

static uint64_t next_time(const sim *s) {
    uint64_t next = net_next(s);
    if (s->next_fault && s->next_fault < next) next = s->next_fault;
    for (int i = 0; i < s->workers; i++) {
        const uint64_t time = worker_next(s, &s->worker[i]);
        if (time < next) next = time;
    }
    for (int i = 0; i <= s->shards; i++) {
        const server *p = i < s->shards ? &s->servers[i] : &s->zombie;
        const uint64_t time = p->core ? p->tick_at : i < s->shards ? p->restart_at : UINT64_MAX;
        if (time < next) next = time;
    }
    return next > s->now ? next : s->now + US;
}

static void show(const sim *s) {
    char text[20000];
    if (!s->loud) return;
    for (int i = 0; i < s->shards; i++)
        if (s->servers[i].core && ln_sync_server_status(s->servers[i].core, text, sizeof text)) printf("%s\n", text);
    for (int i = 0; i < s->workers; i++) {
        const worker *w = &s->worker[i];
        printf("worker %d: phase %d, step %llu\n", i, (int)w->phase, (unsigned long long)w->step);
        for (int k = 0; w->core && k < s->shards; k++) {
            const worker_link *link = &w->core->links[k];
            printf("  link %d: state %d, step %llu, next %llu, last %llu, acked %d, committed %d, missing %u, ahead "
                   "%d, done %d\n",
                   k, (int)link->state, (unsigned long long)link->step, (unsigned long long)link->next,
                   (unsigned long long)link->last_step, link->acked, link->committed, link->missing, link->ahead,
                   link->done);
        }
    }
}

static void run(sim *s) {
    for (int i = 0; i < s->shards; i++) server_start(s, &s->servers[i], i, &s->disks[i]);
    for (int i = 0; i < s->workers; i++) {
        s->worker[i].number = i;
        s->worker[i].restart_at = sim_below(s, 20 * MS);
    }
    while (!over(s)) {
        int turns = 0;
        for (bool moved = true; moved; turns++) {
            faults_happen(s);
            moved = net_move(s);
            for (int i = 0; i < s->shards; i++) moved |= server_turn(s, &s->servers[i]);
            if (s->zombie.core) moved |= server_turn(s, &s->zombie);
            for (int i = 0; i < s->workers; i++) moved |= worker_turn(s, &s->worker[i]);
            if (turns > 100000) sim_fail(s, "time does not go on");
        }
        for (int i = 0; i < s->shards; i++) server_check(s, &s->servers[i]);
        if (s->now > s->deadline) {
            show(s);
            sim_fail(s, "no progress, %.0f s after the last fault", (double)(s->now - s->faults_end) / 1e9);
        }
        s->now = next_time(s);
    }
    check_end(s);
}

static void free_run(sim *s) {
    for (int i = 0; i < s->workers; i++) worker_kill(s, &s->worker[i]);
    for (int i = 0; i < SHARDS; i++) server_free(&s->servers[i]), disk_free(&s->disks[i]);
    server_free(&s->zombie), disk_free(&s->zombie_disk);
    net_free(s);
    free(s->recording);
}

/* ---- the files -------------------------------------------------------------------------------------------------- */

static linnet_model *open_model(const char *folder, const char *name) {
    char path[4096];
    linnet_model *model = NULL;
    linnet_error error;
    snprintf(path, sizeof path, "%s/%s.lnt", folder, name);
    if (linnet_model_open(path, NULL, &model, &error) == LINNET_OK) return model;
    printf("sync_sim: %s: %s\n", path, error.what);
    exit(2);
}

int main(int argc, char **argv) {
    /* The worker's file and the servers' files, for one server and for two servers. */
    linnet_model *models[SHARDS][1 + SHARDS] = {{NULL}};
    linnet_plan *plans[SHARDS];
    char name[64];
    if (argc < 4) {
        fprintf(stderr, "usage: sync_sim FOLDER FIRST COUNT [loud]\n");
        return 2;
    }
    for (int n = 1; n <= SHARDS; n++) {
        linnet_plan_config config;
        linnet_error error;
        snprintf(name, sizeof name, "worker_of_%d", n);
        models[n - 1][0] = open_model(argv[1], name);
        for (int k = 0; k < n; k++) {
            snprintf(name, sizeof name, "server_%d_of_%d", k, n);
            models[n - 1][1 + k] = open_model(argv[1], name);
        }
        linnet_plan_config_init(&config);
        config.signature = "grad";
        config.threads = 1;
        if (linnet_plan_create(models[n - 1][0], &config, &plans[n - 1], &error)) {
            printf("sync_sim: %s\n", error.what);
            return 2;
        }
    }
    const uint64_t first = strtoull(argv[2], NULL, 0), count = strtoull(argv[3], NULL, 0);
    uint64_t faults = 0, cuts = 0, kills = 0, restarts = 0, torn = 0, dropped = 0, updates = 0, steps = 0,
             by_mode[MODES] = {0};
    sim *s = malloc(sizeof *s);
    for (uint64_t seed = first; seed < first + count; seed++) {
        memset(s, 0, sizeof *s);
        s->seed = s->state = seed;
        s->loud = argc > 4;
        choose(s);
        s->recording = malloc(PIPE);
        s->worker_model = models[s->shards - 1][0];
        s->plan = plans[s->shards - 1];
        for (int k = 0; k < s->shards; k++) s->server_models[k] = models[s->shards - 1][1 + k];
        sim_say(s, "seed %llu: %s, %d workers, %d shards, staleness %lld, quorum %u, elastic %d",
                (unsigned long long)seed, mode_names[s->mode], s->workers, s->shards, (long long)s->staleness,
                s->config.quorum, s->config.elastic);
        run(s);
        faults += s->events, cuts += s->cuts, kills += s->kills, restarts += s->master_kills, torn += s->torn,
            by_mode[s->mode]++;
        for (int i = 0; i < s->shards; i++) {
            updates += s->servers[i].updates;
            dropped += s->servers[i].core->steps_not_finite;
        }
        for (int i = 0; i < s->workers; i++) steps += s->worker[i].steps;
        free_run(s);
    }
    printf("%llu runs: %llu faults, %llu cuts, %llu workers and %llu servers killed; %llu torn writes; %llu updates, "
           "%llu overflows, %llu steps;",
           (unsigned long long)count, (unsigned long long)faults, (unsigned long long)cuts, (unsigned long long)kills,
           (unsigned long long)restarts, (unsigned long long)torn, (unsigned long long)updates,
           (unsigned long long)dropped, (unsigned long long)steps);
    for (int i = 0; i < MODES; i++) printf(" %s %llu", mode_names[i], (unsigned long long)by_mode[i]);
    printf("\n");
    for (int n = 1; n <= SHARDS; n++) {
        linnet_plan_free(plans[n - 1]);
        for (int k = 0; k <= n; k++) linnet_model_free(models[n - 1][k]);
    }
    free(s);
    return 0;
}
