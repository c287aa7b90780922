/* main.c - many runs of a client and its hosts, each from its own seed. Checks that a run has the bits of one process,
 * or fails with one error that names a host and changes no variable; that the client can go on; and that hosts keep
 * nothing of a client that has gone. Usage: host_sim FOLDER FIRST COUNT [loud]. FOLDER holds the model that
 * tests/test_host_sim.py made, and folders `pieces1` and `pieces2` for two of the hosts. */
#define _POSIX_C_SOURCE 200809L
#include "sim.h"

#include "net/error.h"
#include "remote/device.h"
#include "remote/host.h"
#include "remote/host_state.h"

#include "linnet_device.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 4, MOST = 32, WITHIN_S = 120, PHASES = 3 + STEPS, SHORT_MS = 150, LONG_MS = 60000 };

typedef struct machine {
    ln_host *host;
    pthread_t thread;
    char address[200], name[220], folder[200];
} machine;

/* What one process computes: the outputs of each step, and the variables before and after each. */
typedef struct reference {
    unsigned char *output[STEPS], *variables[STEPS + 1][MOST];
} reference;

typedef struct client {
    const linnet_device *devices[HOSTS];
    linnet_plan *plan;
    linnet_store *store;
    linnet_session *session;
} client;

static machine machines[HOSTS];
static pthread_mutex_t stopping = PTHREAD_MUTEX_INITIALIZER;
static bool may_stop, stopped[HOSTS], loud;
static bool keeps; /* the hosts with a folder keep variables, and no other host has tasks */
static uint64_t seed, tokens, lucky, failures, repeated;
static linnet_model *model;
static reference alone;
static char folder[150];

_Noreturn static void fail(const char *format, ...) {
    va_list arguments;
    printf("host_sim: seed %llu fails: ", (unsigned long long)seed);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\nto see it again: host_sim FOLDER %llu 1 loud\n", (unsigned long long)seed);
    fflush(stdout);
    _exit(1);
}

static void hangs(int number) {
    char text[100];
    (void)number;
    const int size = snprintf(text, sizeof text, "host_sim: seed %llu hangs\n", (unsigned long long)seed);
    if (write(1, text, (size_t)size) < 0) _exit(2);
    _exit(1);
}

static void say(const char *format, ...) {
    va_list arguments;
    if (!loud) return;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

static uint64_t below(uint64_t *drawn, uint64_t n) { return draw(seed, (*drawn)++) % n; }

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static void *serve(void *context) {
    linnet_error error = {0};
    if (ln_host_run(((machine *)context)->host, &error) != LINNET_OK) fail("a host ends: %s", error.what);
    return NULL;
}

static void start(machine *m) {
    linnet_error error = {0};
    const ln_host_config config = {.address = m->address,
                                   .threads = 1,
                                   .max_bytes = 1 << 28,
                                   .send_timeout = 600,
                                   .folder = m == &machines[0] ? NULL : m->folder};
    if (ln_host_create(&config, &m->host, &error) != LINNET_OK) fail("a host does not start: %s", error.what);
    if (pthread_create(&m->thread, NULL, serve, m) != 0) fail("no thread for a host");
}

static void end(machine *m) {
    ln_host_stop(m->host);
    pthread_join(m->thread, NULL);
    if (atomic_load(&m->host->used) != 0 || m->host->clients != NULL || m->host->models != NULL)
        fail("%s is stopped and keeps %llu bytes", m->address, (unsigned long long)atomic_load(&m->host->used));
    ln_host_free(m->host);
}

void wire_stops(uint64_t random) {
    pthread_mutex_lock(&stopping);
    if (may_stop) {
        stopped[random % HOSTS] = true;
        ln_host_stop(machines[random % HOSTS].host);
    }
    pthread_mutex_unlock(&stopping);
}

/* Ends the faults, and starts the hosts again that were stopped. */
static void heal(void) {
    wire_heal();
    pthread_mutex_lock(&stopping);
    may_stop = false;
    pthread_mutex_unlock(&stopping);
    for (int i = 0; i < HOSTS; i++)
        if (stopped[i]) {
            end(&machines[i]);
            start(&machines[i]);
            stopped[i] = false;
        }
}

static bool keeps_something(ln_host *host) {
    pthread_mutex_lock(&host->lock);
    const bool keeps = host->clients != NULL || host->models != NULL;
    pthread_mutex_unlock(&host->lock);
    return keeps || atomic_load(&host->connections) > 0 || atomic_load(&host->used) > 0;
}

/* Hosts keep variables for a day, under the token of their client. */
static void forget_kept(void) {
    for (int i = 1; i < HOSTS; i++) {
        char path[600];
        DIR *files = opendir(machines[i].folder);
        for (const struct dirent *one; files != NULL && (one = readdir(files)) != NULL;) {
            const char *end = strrchr(one->d_name, '.');
            snprintf(path, sizeof path, "%s/%s", machines[i].folder, one->d_name);
            if (end != NULL && strcmp(end, ".kept") == 0) unlink(path);
        }
        if (files != NULL) closedir(files);
    }
}

/* Every client has gone: a host forgets it as soon as its threads see that. */
static void check_hosts(void) {
    const struct timespec moment = {0, 100000};
    for (int i = 0; i < HOSTS; i++) {
        const time_t until = time(NULL) + WITHIN_S / 2;
        while (keeps_something(machines[i].host) && time(NULL) < until) nanosleep(&moment, NULL);
        if (keeps_something(machines[i].host))
            fail("%s keeps %llu bytes and %d connections of clients that have gone", machines[i].address,
                 (unsigned long long)atomic_load(&machines[i].host->used), atomic_load(&machines[i].host->connections));
    }
}

/* ---- a client ---------------------------------------------------------------------------------------------------- */

static linnet_status connect_to(client *c, int lease_ms, linnet_error *error) {
    for (int i = 0; i < HOSTS; i++) {
        ln_remote_place place = {.lease_ms = lease_ms, .keep = keeps && i > 0};
        snprintf(place.address, sizeof place.address, "%s", machines[i].address);
        tokens++; /* as linnet_device_open, which draws one for each attempt */
        for (int k = 0; k < LN_REMOTE_TOKEN; k++)
            place.token[k] = (unsigned char)draw(seed ^ tokens << 40, (uint64_t)k);
        if (c->devices[i] == NULL) c->devices[i] = ln_remote_device_new(linnet_device_host(), &place, error);
        if (c->devices[i] == NULL) return (linnet_status)error->code;
    }
    return LINNET_OK;
}

/* Devices live until a process ends. This one ends many. */
static void disconnect(const linnet_device *device) {
    struct item {
        struct item *next;
    } *predictions;
    ln_remote_device *d = device != NULL ? device->context : NULL;
    if (d == NULL) return;
    for (predictions = (struct item *)d->predictions; predictions != NULL;) {
        struct item *next = predictions->next;
        free(predictions);
        predictions = next;
    }
    for (int i = 0; i < LN_REMOTE_TEXTS; i++) free(d->texts[i]);
    ln_remote_queue_free(d->control);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->reach_lock);
    free(d);
}

/* Task k of the model is at places[k], or here if that is HOSTS. */
static linnet_status plan_for(client *c, const int *places, linnet_error *error) {
    static const char *const tasks[] = {"/job:worker/task:0", "/job:worker/task:1", "/job:worker/task:2"};
    linnet_cluster_task cluster[3];
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    for (int k = 0; k < 3; k++)
        cluster[k] = (linnet_cluster_task){tasks[k], places[k] < HOSTS ? machines[places[k]].name : "cpu"};
    config.signature = "train", config.threads = 1;
    if (places != NULL) config.devices = c->devices, config.device_count = HOSTS;
    config.cluster = cluster, config.cluster_count = 3;
    return linnet_plan_create(model, &config, &c->plan, error);
}

static void leave_session(client *c) {
    linnet_session_free(c->session);
    linnet_plan_free(c->plan);
    c->session = NULL, c->plan = NULL;
}

static void leave(client *c) {
    leave_session(c);
    linnet_store_free(c->store);
    for (int i = 0; i < HOSTS; i++) disconnect(c->devices[i]);
    *c = (client){0};
}

static void feed(client *c, int step) {
    for (int i = 0;; i++) {
        linnet_tensor_info info;
        linnet_tensor_info_init(&info);
        if (linnet_plan_get_input(c->plan, i, &info) != LINNET_OK) return;
        float *to = linnet_session_input(c->session, i);
        for (size_t k = 0; k < info.bytes / sizeof *to; k++)
            to[k] = (float)(draw((uint64_t)(step + 1), k) % 1000) / 500 - 1;
    }
}

static size_t output_bytes(const client *c, linnet_tensor_info *info) {
    linnet_tensor_info_init(info);
    if (linnet_plan_get_output(c->plan, 0, info) != LINNET_OK) fail("the model has no output");
    return info->bytes;
}

/* Compares the variables with those after `steps` steps. Returns the number of those that are lost with their host. A
 * host may be lost while the new values of a step are put in place: then all others have them, and *late is true. */
static int check_variables(client *c, int steps, bool *late) {
    int lost = 0, before = 0, after = 0;
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        linnet_tensor_info info;
        linnet_error error = {0};
        linnet_tensor_info_init(&info);
        linnet_model_get_variable(model, i, &info);
        unsigned char *value = malloc(info.bytes);
        const bool read = linnet_store_read(c->store, info.name, value, info.bytes, &error) == LINNET_OK;
        const bool old = read && memcmp(value, alone.variables[steps][i], info.bytes) == 0;
        const bool new = read && steps < STEPS && memcmp(value, alone.variables[steps + 1][i], info.bytes) == 0;
        lost += !read, before += old && !new, after += new && !old;
        if (read && !old && !new) fail("after %d steps, the variable %s has other bits", steps, info.name);
        if (new && !old) say("  %s is from after the step", info.name);
        free(value);
    }
    say("variables: %d from before the step, %d from after it, %d lost", before, after, lost);
    if (before > 0 && after > 0)
        fail("of the variables, %d are from before a step and %d from after it", before, after);
    if (after > 0 && lost == 0) fail("a step fails and has changed all variables");
    if (keeps && lost > 0) fail("hosts that keep variables have lost %d", lost);
    *late = after > 0;
    return lost;
}

static void check_error(const linnet_error *error, const char *when) {
    char text[1500];
    linnet_error_format(error, text, sizeof text);
    say("%s: %s", when, text);
    for (int i = 0; i < HOSTS; i++)
        if (strstr(text, machines[i].address) != NULL) return;
    fail("%s, an error names no host: %s", when, text);
}

/* Runs the steps from `first` on. Returns the number of steps that are done; less than STEPS: one has failed. */
static int run_steps(client *c, int first, int arm, linnet_error *error) {
    for (int step = first; step < STEPS; step++) {
        linnet_tensor_info info;
        if (arm == 3 + step) wire_arm();
        feed(c, step);
        if (linnet_run(c->session, error) != LINNET_OK) return step;
        if (memcmp(linnet_session_output(c->session, 0), alone.output[step], output_bytes(c, &info)) != 0)
            fail("step %d has other bits", step);
    }
    return STEPS;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void refer(void) {
    client c = {0};
    linnet_error error = {0};
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.signature = "train", config.threads = 1;
    if (linnet_plan_create(model, &config, &c.plan, &error) || linnet_store_create(model, NULL, &c.store, &error) ||
        linnet_session_create(c.plan, c.store, NULL, &c.session, &error))
        fail("one process: %s", error.what);
    for (int step = 0; step <= STEPS; step++) {
        linnet_tensor_info info;
        for (int i = 0; i < linnet_model_variable_count(model); i++) {
            linnet_tensor_info_init(&info);
            linnet_model_get_variable(model, i, &info);
            alone.variables[step][i] = malloc(info.bytes);
            linnet_store_read(c.store, info.name, alone.variables[step][i], info.bytes, &error);
        }
        if (step == STEPS) break;
        feed(&c, step);
        if (linnet_run(c.session, &error) != LINNET_OK) fail("one process: %s", error.what);
        const size_t bytes = output_bytes(&c, &info);
        alone.output[step] = malloc(bytes);
        memcpy(alone.output[step], linnet_session_output(c.session, 0), bytes);
    }
    leave(&c);
}

/* Chooses what the wire does. Returns the phase from which on faults happen. */
static int choose(wire_plan *plan, uint64_t *drawn) {
    const int phase = (int)below(drawn, PHASES);
    plan->seed = seed;
    plan->split = below(drawn, 2) ? (double)below(drawn, 100) / 100 : 0;
    plan->delay = below(drawn, 2) ? (double)below(drawn, 50) / 100 : 0;
    plan->most_us = 1 + (int)below(drawn, below(drawn, 20) ? 100 : 3000);
    plan->faults = (int)below(drawn, FAULTS + 1);
    for (int i = 0; i < plan->faults; i++) {
        plan->at[i] = below(drawn, phase < 3 ? 120 : 40);
        const uint64_t kind = below(drawn, 32); /* silences and stops take their time */
        plan->kind[i] = kind == 0 ? SILENCE : kind < 3 ? STOP : CUT;
    }
    return phase;
}

static void simulate(void) {
    uint64_t drawn = 0;
    wire_plan plan = {0};
    client c = {0};
    linnet_error error = {0};
    int places[3], done = 0, lease_ms = LONG_MS;
    bool late;
    const int phase = choose(&plan, &drawn);
    for (int i = 0; i < plan.faults; i++)
        if (plan.kind[i] == SILENCE) lease_ms = SHORT_MS;
    const int shift = (int)below(&drawn, HOSTS), used = 2 + (int)below(&drawn, 2);
    keeps = below(&drawn, 3) == 0;
    for (int k = 0; k < 3; k++) {
        places[k] = below(&drawn, 12) ? (k % used + shift) % HOSTS : HOSTS;
        if (keeps && places[k] == 0) places[k] = 1;
    }
    say("seed %llu: faults from phase %d on: %d; tasks at %d, %d and %d%s", (unsigned long long)seed, phase,
        plan.faults, places[0], places[1], places[2], keeps ? ", which keep variables" : "");
    for (int i = 0; i < plan.faults; i++) say("  at transfer %d: %d", (int)plan.at[i], (int)plan.kind[i]);

    wire_begin(&plan);
    may_stop = true;
    if (linnet_store_create(model, NULL, &c.store, &error) != LINNET_OK) fail("no store: %s", error.what);
    if (phase == 0) wire_arm();
    const char *when = "connecting";
    linnet_status status = connect_to(&c, lease_ms, &error);
    if (status == LINNET_OK) {
        when = "planning";
        if (phase == 1) wire_arm();
        status = plan_for(&c, places, &error);
    }
    if (status == LINNET_OK) {
        when = "making a session";
        if (phase == 2) wire_arm();
        status = linnet_session_create(c.plan, c.store, NULL, &c.session, &error);
    }
    if (status == LINNET_OK) {
        when = "running";
        done = run_steps(&c, 0, phase, &error);
        status = done == STEPS ? LINNET_OK : (linnet_status)error.code;
    }
    say("%llu transfers", (unsigned long long)wire_transfers());
    for (int i = 0; i < HOSTS; i++)
        say("host %d uses %llu", i, (unsigned long long)atomic_load(&machines[i].host->used));
    if (status != LINNET_OK) {
        if (plan.faults == 0) fail("%s fails without a fault: %s; %s", when, error.what, error.got);
        check_error(&error, when);
        failures++;
    } else {
        lucky++;
    }
    heal();
    if (status != LINNET_OK && keeps) leave_session(&c); /* what it cannot fetch is asked of those who keep it */
    const int lost = check_variables(&c, done, &late);
    if (status != LINNET_OK) { /* the client goes on, where it was if nothing is lost */
        leave_session(&c);
        if (lost > 0) { /* nobody trains on with what is left */
            if (connect_to(&c, LONG_MS, &error) || plan_for(&c, places, &error) ||
                (linnet_session_create(c.plan, c.store, NULL, &c.session, &error) == LINNET_OK &&
                 linnet_run(c.session, &error) == LINNET_OK))
                fail("a run goes on with lost variables");
            leave_session(&c);
            linnet_store_free(c.store);
            if (linnet_store_create(model, NULL, &c.store, &error) != LINNET_OK) fail("no store: %s", error.what);
            done = 0;
        }
        if (connect_to(&c, LONG_MS, &error) || plan_for(&c, places, &error) ||
            linnet_session_create(c.plan, c.store, NULL, &c.session, &error) || run_steps(&c, done, -1, &error) < STEPS)
            fail("after %s, a second session fails: %s; %s", when, error.what, error.got);
        if (check_variables(&c, STEPS, &late) > 0) fail("variables are lost without a fault");
        repeated++;
    }
    leave(&c);
    check_hosts();
    if (keeps) forget_kept();
}

int main(int count, char **words) {
    char path[200];
    linnet_error error = {0};
    if (count < 4) return 2;
    loud = count > 4;
    snprintf(folder, sizeof folder, "%s", words[1]);
    snprintf(path, sizeof path, "%s/model.lnt", folder);
    if (linnet_model_open(path, NULL, &model, &error) != LINNET_OK) fail("%s", error.what);
    signal(SIGALRM, hangs);
    wire_begin(&(wire_plan){0});
    refer();
    for (int i = 0; i < HOSTS; i++) {
        snprintf(machines[i].address, sizeof machines[i].address, "unix:%s/host%d", folder, i);
        snprintf(machines[i].name, sizeof machines[i].name, "remote:%s", machines[i].address);
        snprintf(machines[i].folder, sizeof machines[i].folder, "%s/pieces%d", folder, i);
        start(&machines[i]);
    }
    const uint64_t first = strtoull(words[2], NULL, 10), runs = strtoull(words[3], NULL, 10);
    for (seed = first; seed < first + runs; seed++) {
        alarm(WITHIN_S);
        simulate();
    }
    for (int i = 0; i < HOSTS; i++) end(&machines[i]);
    printf("%llu runs, %llu finished, %llu failed, %llu repeated; %llu cuts, %llu silences, %llu stops\n",
           (unsigned long long)runs, (unsigned long long)lucky, (unsigned long long)failures,
           (unsigned long long)repeated, (unsigned long long)wire_count(CUT), (unsigned long long)wire_count(SILENCE),
           (unsigned long long)wire_count(STOP));
    for (int step = 0; step <= STEPS; step++) {
        if (step < STEPS) free(alone.output[step]);
        for (int i = 0; i < linnet_model_variable_count(model); i++) free(alone.variables[step][i]);
    }
    linnet_model_free(model);
    return 0;
}
