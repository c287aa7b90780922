/* test_shared_store.c - sessions over one store in separate threads: two train, one evaluates, two evaluate snapshots,
 * one reads. Must be clean under TSan. Every reader must see the state before or after an update, never half of an
 * update, although updates are made in place. */
#include "builder.h"
#include "check.h"

#include <pthread.h>

enum { RUNS = 500, SIZE = 16384 };

static const ln_cast_attributes unused = {0};

/* "infer": a <- a + 1, b <- b + 1, so they are always equal. "eval", in another function: a + b. */
static linnet_model *counter(builder *b, builder *eval) {
    static ln_function functions[2];
    static ln_signature signatures[2];
    memset(b, 0, sizeof *b);
    memset(eval, 0, sizeof *eval);
    static float one[1] = {1};
    const int32_t a = build_variable(b, "a", LINNET_F32, DIMS(SIZE), NULL);
    const int32_t c = build_variable(b, "b", LINNET_F32, DIMS(SIZE), NULL);
    const int32_t step = build_value(b, "one", LINNET_F32, DIMS(1), one);
    build_output(b, NODE(b, LN_OP_ASSIGN, &unused, "new_a", LINNET_F32, a,
                         NODE(b, LN_OP_MAP, &build_add, "sum_a", LINNET_F32, a, step)));
    NODE(b, LN_OP_ASSIGN, &unused, "new_b", LINNET_F32, c,
         NODE(b, LN_OP_MAP, &build_add, "sum_b", LINNET_F32, c, step));
    const int32_t read_a = build_variable(eval, "a", LINNET_F32, DIMS(SIZE), NULL);
    const int32_t read_b = build_variable(eval, "b", LINNET_F32, DIMS(SIZE), NULL);
    build_output(eval, NODE(eval, LN_OP_MAP, &build_add, "both", LINNET_F32, read_a, read_b));
    linnet_model *other = build_model(eval, NULL), *model = build_model(b, NULL);
    functions[0] = b->function, functions[1] = eval->function;
    signatures[0] = b->signature, signatures[1] = eval->signature;
    signatures[1].name = "eval";
    signatures[1].function = 1;
    model->functions = functions;
    model->signatures = signatures;
    model->n_functions = model->n_signatures = 2;
    linnet_model_free(other);
    return model;
}

typedef struct worker {
    linnet_session *session;
    int wrong, failed;
} worker;

static void *count(void *argument) {
    worker *w = argument;
    for (int i = 0; i < RUNS; ++i) {
        if (linnet_run(w->session, NULL) != LINNET_OK) ++w->failed;
        const float *y = linnet_session_output(w->session, 0);
        if (y[0] != y[SIZE - 1]) ++w->wrong;
    }
    return NULL;
}

static void *evaluate(void *argument) {
    worker *w = argument;
    float last = 0;
    for (int i = 0; i < RUNS; ++i) {
        if (linnet_run(w->session, NULL) != LINNET_OK) ++w->failed;
        const float *y = linnet_session_output(w->session, 0);
        for (int k = 0; k < SIZE; ++k) w->wrong += y[k] != y[0];
        w->wrong += y[0] < last || (int)y[0] % 2 != 0;
        last = y[0];
    }
    return NULL;
}

typedef struct reader {
    linnet_store *store;
    int wrong;
} reader;

static void *watch(void *argument) {
    reader *r = argument;
    float values[SIZE], last = 0;
    for (int i = 0; i < RUNS; ++i) {
        if (linnet_store_read(r->store, "b", values, sizeof values, NULL) != LINNET_OK) ++r->wrong;
        for (int k = 1; k < SIZE; ++k)
            if (values[k] != values[0]) ++r->wrong;
        if (values[0] < last) ++r->wrong;
        last = values[0];
    }
    return NULL;
}

int main(void) {
    static builder b, eval;
    linnet_model *model = counter(&b, &eval);
    linnet_store *store = NULL;
    linnet_plan *plan = NULL;
    linnet_error error;
    CHECK_INT(linnet_store_create(model, NULL, &store, &error), LINNET_OK);
    CHECK_INT(linnet_plan_create(model, NULL, &plan, &error), LINNET_OK);
    linnet_plan *reads = NULL;
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.signature = "eval";
    CHECK_INT(linnet_plan_create(model, &config, &reads, &error), LINNET_OK);
    linnet_plan *snapshot = NULL;
    config.snapshot = 1;
    CHECK_INT(linnet_plan_create(model, &config, &snapshot, &error), LINNET_OK);
    worker workers[5] = {{0}};
    reader watcher = {.store = store};
    pthread_t threads[6];
    for (int i = 0; i < 2; ++i)
        CHECK_INT(linnet_session_create(plan, store, NULL, &workers[i].session, &error), LINNET_OK);
    CHECK_INT(linnet_session_create(reads, store, NULL, &workers[2].session, &error), LINNET_OK);
    for (int i = 3; i < 5; ++i)
        CHECK_INT(linnet_session_create(snapshot, store, NULL, &workers[i].session, &error), LINNET_OK);
    for (int i = 0; i < 2; ++i) CHECK_INT(pthread_create(&threads[i], NULL, count, &workers[i]), 0);
    for (int i = 2; i < 5; ++i) CHECK_INT(pthread_create(&threads[i], NULL, evaluate, &workers[i]), 0);
    CHECK_INT(pthread_create(&threads[5], NULL, watch, &watcher), 0);
    for (int i = 0; i < 6; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < 5; ++i) CHECK(workers[i].wrong == 0 && workers[i].failed == 0);
    for (int i = 2; i < 5; ++i) { /* training has ended, so all sessions see the last update */
        CHECK_INT(linnet_run(workers[i].session, &error), LINNET_OK);
        CHECK(((const float *)linnet_session_output(workers[i].session, 0))[SIZE - 1] == 4 * RUNS);
    }
    CHECK_INT(watcher.wrong, 0);
    float end[SIZE];
    CHECK_INT(linnet_store_read(store, "a", end, sizeof end, &error), LINNET_OK);
    CHECK(end[0] == 2 * RUNS && end[SIZE - 1] == 2 * RUNS); /* no update was lost */
    for (int i = 0; i < 5; ++i) linnet_session_free(workers[i].session);
    linnet_plan_free(plan);
    linnet_plan_free(snapshot);
    linnet_plan_free(reads);
    linnet_store_free(store);
    linnet_model_free(model);
    return check_end("test_shared_store");
}
