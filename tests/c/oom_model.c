/* oom_model.c - lets the k-th allocation fail, for every k, in model, store, plan, session and run.
 * usage: oom_model FILE.lnt [THREADS]. Each failure must return OUT_OF_MEMORY, leak nothing, and create no object. */
#include "linnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FAILURES = 100000, MOST_INPUTS = 16 };

typedef struct limited {
    long left;  /* number of allocations that still succeed */
    long calls; /* number of calls so far */
    size_t live;
} limited;

static void *limited_alloc(void *context, size_t size, size_t alignment) {
    limited *l = context;
    void *pointer;
    l->calls++;
    if (l->left <= 0) return NULL;
    l->left--;
    pointer = aligned_alloc(alignment, size);
    if (pointer) memset(pointer, 0xa5, size); /* no code may rely on zeros */
    l->live += pointer ? size : 0;
    return pointer;
}

static void limited_free(void *context, void *pointer, size_t size) {
    ((limited *)context)->live -= size;
    free(pointer);
}

static int add_shapes(const linnet_model *model, int signature, linnet_plan_config *config, linnet_shape *shapes) {
    config->shapes = shapes;
    for (int i = 0; i < linnet_model_input_count(model, signature) && i < MOST_INPUTS; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_shape *shape = &shapes[config->shape_count];
        int open = 0;
        if (linnet_model_get_input(model, signature, i, &info) || info.rank < 0) return 0;
        shape->input = info.name;
        shape->rank = info.rank;
        for (int d = 0; d < info.rank; d++) {
            open |= info.shape[d] < 0;
            shape->dims[d] = info.shape[d] < 0 ? 2 : info.shape[d];
        }
        config->shape_count += open;
    }
    return 1;
}

/* Runs the whole life of a model once. *where names the call that failed. */
static linnet_status whole_life(const char *path, int threads, limited *l, const char **where, linnet_error *error) {
    linnet_allocator allocator = {l, limited_alloc, limited_free};
    linnet_model_config model_config;
    linnet_plan_config plan_config;
    linnet_session_config session_config;
    linnet_shape shapes[MOST_INPUTS];
    linnet_model *model = NULL;
    linnet_store *store = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_status status;
    linnet_model_config_init(&model_config);
    linnet_plan_config_init(&plan_config);
    linnet_session_config_init(&session_config);
    model_config.allocator = plan_config.allocator = session_config.allocator = &allocator;
    plan_config.threads = threads;
    *where = "linnet_model_open";
    status = linnet_model_open(path, &model_config, &model, error);
    if (status == LINNET_OK) {
        plan_config.signature = linnet_model_signature_name(model, 0);
        add_shapes(model, 0, &plan_config, shapes);
        *where = "linnet_store_create";
        status = linnet_store_create(model, &allocator, &store, error);
    }
    if (status == LINNET_OK) {
        *where = "linnet_plan_create";
        status = linnet_plan_create(model, &plan_config, &plan, error);
    }
    if (status == LINNET_OK) {
        *where = "linnet_session_create";
        status = linnet_session_create(plan, store, &session_config, &session, error);
    }
    for (int i = 0; status == LINNET_OK && i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_plan_get_input(plan, i, &info) == LINNET_OK && info.bytes)
            memset(linnet_session_input(session, i), 0, info.bytes);
    }
    if (status == LINNET_OK) {
        *where = "linnet_run";
        status = linnet_run(session, error);
    }
    if (status == LINNET_OK) /* a run that failed must be able to run afterwards */
        status = linnet_run(session, error);
    linnet_model_free(model); /* in an order that needs the reference counts */
    linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_session_free(session);
    return status;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    if (argc < 2 || argc > 3 || threads < 1) {
        fprintf(stderr, "usage: oom_model FILE.lnt [THREADS]\n");
        return 2;
    }
    for (long k = 0; k < MOST_FAILURES; k++) {
        limited l = {k, 0, 0};
        const char *where = "";
        char text[1024];
        linnet_error error;
        linnet_status status;
        memset(&error, 0, sizeof error);
        status = whole_life(argv[1], threads, &l, &where, &error);
        linnet_error_format(&error, text, sizeof text);
        if (l.live) {
            printf("oom_model: allocation %ld failed in %s: %zu bytes were not given back\n", k, where, l.live);
            return 1;
        }
        if (status == LINNET_OK && l.calls <= k) {
            printf("oom_model: %s: each of %ld allocations failed once\n", argv[1], k);
            return k < 4; /* fewer than 4: the allocator was not used */
        }
        if (status != LINNET_OUT_OF_MEMORY || error.code != LINNET_OUT_OF_MEMORY) {
            printf("oom_model: allocation %ld failed in %s: expected out_of_memory, got %s (%s)\n", k, where,
                   linnet_status_name(status), text);
            return 1;
        }
    }
    printf("oom_model: it did not end\n");
    return 1;
}
