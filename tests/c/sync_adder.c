/* sync_adder.c - a worker for tests of faults. Its gradient is its input: whole numbers computed from the worker's
 * number and the step, so that the sum at the server shows whether a push was lost or counted twice. Usage: sync_adder
 * MODEL SERVER NUMBER END. When the file END exists, it names the last step. */
#define _POSIX_C_SOURCE 200809L
#include "linnet_sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 64 };

static int fail(const linnet_error *error) {
    char text[1024];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "sync_adder: %s\n", text);
    return 1;
}

static unsigned long long end_of(const char *path) {
    unsigned long long end = ~0ull;
    FILE *file = fopen(path, "r");
    if (!file) return end;
    if (fscanf(file, "%llu", &end) != 1) end = ~0ull;
    fclose(file);
    return end;
}

int main(int argc, char **argv) {
    linnet_model *model;
    linnet_store *store;
    linnet_plan *plan;
    linnet_session *session;
    linnet_worker *worker;
    linnet_error error;
    linnet_plan_config config;
    linnet_worker_config with;
    linnet_link_config link;
    linnet_worker_info info;
    if (argc != 5) return 2;
    const char *const servers[1] = {argv[2]};
    linnet_plan_config_init(&config);
    config.signature = "grad";
    config.threads = 1;
    linnet_worker_config_init(&with);
    with.worker = atoi(argv[3]);
    linnet_link_config_init(&link);
    link.insecure = 1; /* only the test uses this network */
    with.link = &link;
    linnet_worker_info_init(&info);
    with.lost_ms = 120000;
    if (linnet_model_open(argv[1], NULL, &model, &error) || linnet_store_create(model, NULL, &store, &error) ||
        linnet_plan_create(model, &config, &plan, &error) ||
        linnet_session_create(plan, store, NULL, &session, &error) ||
        linnet_worker_create(model, store, servers, 1, &with, &worker, &error))
        return fail(&error);
    float *x = linnet_session_input(session, 0);
    while (!linnet_worker_get_info(worker, &info) && info.step < end_of(argv[4])) {
        const struct timespec moment = {.tv_nsec = 1000000};
        for (int i = 0; i < SIZE; i++)
            x[i] = (float)((info.step * 31 + (unsigned long long)with.worker * 17 + (unsigned)i) % 64);
        if (linnet_worker_step(worker, session, NULL, 1, &error)) return fail(&error);
        nanosleep(&moment, NULL);
    }
    linnet_worker_free(worker);
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_model_free(model);
    return 0;
}
