/* null_worker.c - a worker without Python for null_workers.py: null steps, or pulls of random rows.
 * `null_worker step|rows|sparse FILE RANK KEY|- COUNT SIZE TABLE ADDRESS`; stdin gives the number of steps or pulls;
 * their times in us are written to stdout. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "linnet_sync.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static linnet_error error;

static void check(linnet_status status) {
    char text[512];
    if (!status) return;
    linnet_error_format(&error, text, sizeof text);
    fprintf(stderr, "null_worker: %s\n", text);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Creates the session of a signature with `count` examples, and rows of `width` floats for inputs that take rows. */
static linnet_session *session_of(linnet_model *model, linnet_store *store, const char *signature, int64_t count,
                                  int64_t width) {
    const linnet_shape shapes[] = {{.input = "x", .rank = 1, .dims = {count}},
                                   {.input = "rows/table", .rank = 2, .dims = {count, width}}};
    linnet_plan_config config;
    linnet_plan *plan;
    linnet_session *session;
    linnet_plan_config_init(&config);
    config.signature = signature;
    config.threads = 1;
    config.shapes = shapes;
    config.shape_count = width ? 2 : 1;
    check(linnet_plan_create(model, &config, &plan, &error));
    check(linnet_session_create(plan, store, NULL, &session, &error));
    linnet_plan_free(plan);
    return session;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: null_worker step|rows|sparse FILE RANK KEY|- COUNT SIZE TABLE ADDRESS\n");
        return 2;
    }
    const bool rows = !strcmp(argv[1], "rows"), sparse = !strcmp(argv[1], "sparse");
    const size_t count = strtoull(argv[5], NULL, 10), size = strtoull(argv[6], NULL, 10);
    const uint64_t height = strtoull(argv[7], NULL, 10) / size;
    const char *servers[] = {argv[8]};
    linnet_worker_config config;
    linnet_link_config link;
    linnet_model *model;
    linnet_store *store;
    linnet_worker *worker;
    linnet_worker_config_init(&config);
    config.worker = atoi(argv[3]);
    linnet_link_config_init(&link);
    link.key_file = strcmp(argv[4], "-") ? argv[4] : NULL;
    config.link = &link;
    check(linnet_model_open(argv[2], NULL, &model, &error));
    check(linnet_store_create(model, NULL, &store, &error));
    check(linnet_worker_create(model, store, servers, 1, &config, &worker, &error));
    linnet_session *grad = NULL, *ids = NULL;
    int64_t *numbers = malloc(count * sizeof *numbers);
    if (sparse) {
        ids = session_of(model, store, "ids", (int64_t)count, 0);
        grad = session_of(model, store, "grad", (int64_t)count, (int64_t)size / 4);
    } else if (!rows) { /* the inputs of one example: the number 1, or the row with this worker's number */
        grad = session_of(model, store, "grad", 1, 0);
        if (size == 4)
            *(float *)linnet_session_input(grad, 0) = 1;
        else
            *(int64_t *)linnet_session_input(grad, 0) = config.worker;
    }
    void *values = malloc(rows ? count * size : 1);
    uint64_t random = (uint64_t)(config.worker + 1) * 0x9e3779b97f4a7c15u;
    char line[64];
    if (!numbers || !values) return 1;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (long step = strtol(line, NULL, 10); step > 0; step--) {
            for (size_t i = 0; i < count; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                numbers[i] = (int64_t)((random >> 16) % height);
            }
            if (sparse) {
                memcpy(linnet_session_input(ids, 0), numbers, count * sizeof *numbers);
                memcpy(linnet_session_input(grad, 0), numbers, count * sizeof *numbers);
            }
            const double begin = now();
            if (rows)
                check(linnet_worker_pull_rows(worker, "table", numbers, count, values, count * size, &error));
            else
                check(linnet_worker_step(worker, grad, ids, 1, &error));
            printf("%.1f ", 1e6 * (now() - begin));
        }
        printf("\n");
        fflush(stdout);
    }
    linnet_session_free(grad);
    linnet_session_free(ids);
    linnet_worker_free(worker);
    linnet_store_free(store);
    linnet_model_free(model);
    free(numbers);
    free(values);
    return 0;
}
