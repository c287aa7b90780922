/* test_packed_variables.c - packed copies of variables: packed once for all sessions of a store, again after each kind
 * of write and never otherwise, counted, and freed. Threads that train and serve at the same time must be clean under
 * TSan. */
#include "builder.h"
#include "check.h"
#include "linnet_ext.h"
#include "model/store.h"

#include <pthread.h>

enum { ROWS = 40, INNER = 24, COLUMNS = 33, RUNS = 300 };

static const ln_cast_attributes unused = {0};
static const ln_matmul_attributes product = {0};
static float ones[ROWS * INNER], start[INNER * COLUMNS];

/* "infer": x @ w with the variable w. "train", in another function: w <- w + 1, other <- other + 1. */
static linnet_model *trained(builder *infer, builder *train, const linnet_allocator *allocator) {
    static ln_function functions[2];
    static ln_signature signatures[2];
    static float one[1] = {1};
    memset(infer, 0, sizeof *infer);
    memset(train, 0, sizeof *train);
    for (int i = 0; i < ROWS * INNER; i++) ones[i] = 1;
    const int32_t read = build_variable(infer, "w", LINNET_F32, DIMS(INNER, COLUMNS), start);
    build_variable(infer, "other", LINNET_F32, DIMS(1), NULL);
    const int32_t x = build_input(infer, "x", LINNET_F32, DIMS(ROWS, INNER));
    build_output(infer, NODE(infer, LN_OP_MATMUL, &product, "y", LINNET_F32, x, read));
    const int32_t w = build_variable(train, "w", LINNET_F32, DIMS(INNER, COLUMNS), NULL);
    const int32_t other = build_variable(train, "other", LINNET_F32, DIMS(1), NULL);
    const int32_t step = build_value(train, "one", LINNET_F32, DIMS(1), one);
    NODE(train, LN_OP_ASSIGN, &unused, "new_w", LINNET_F32, w,
         NODE(train, LN_OP_MAP, &build_add, "sum_w", LINNET_F32, w, step));
    NODE(train, LN_OP_ASSIGN, &unused, "new_other", LINNET_F32, other,
         NODE(train, LN_OP_MAP, &build_add, "sum_other", LINNET_F32, other, step));
    linnet_model_free(build_model(train, NULL));
    linnet_model *model = build_model(infer, allocator);
    functions[0] = infer->function, functions[1] = train->function;
    signatures[0] = infer->signature, signatures[1] = train->signature;
    signatures[1].name = "train";
    signatures[1].function = 1;
    model->functions = functions;
    model->signatures = signatures;
    model->n_functions = model->n_signatures = 2;
    return model;
}

static linnet_plan *plan_of(linnet_model *model, const char *signature, int snapshot) {
    linnet_plan *plan = NULL;
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.signature = signature;
    config.snapshot = snapshot;
    config.threads = 2;
    CHECK_INT(linnet_plan_create(model, &config, &plan, NULL), LINNET_OK);
    return plan;
}

static linnet_session *session_of(linnet_plan *plan, linnet_store *store) {
    linnet_session *session = NULL;
    CHECK_INT(linnet_session_create(plan, store, NULL, &session, NULL), LINNET_OK);
    return session;
}

/* Runs x @ w with x = 1, and returns the result if all its numbers are equal; else -1. */
static float served(linnet_session *s) {
    memcpy(linnet_session_input(s, 0), ones, sizeof ones);
    if (linnet_run(s, NULL) != LINNET_OK) return -1;
    const float *y = linnet_session_output(s, 0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (y[i] != y[0]) return -1;
    return y[0];
}

static void test_counts(void) {
    static builder infer, train;
    counting memory = {0};
    const linnet_allocator allocator = counting_allocator(&memory);
    linnet_model *model = trained(&infer, &train, &allocator);
    linnet_store *store = NULL;
    CHECK_INT(linnet_store_create(model, NULL, &store, NULL), LINNET_OK);
    linnet_plan *plan = plan_of(model, "infer", 0), *again = plan_of(model, "infer", 0);
    linnet_plan *step = plan_of(model, "train", 0), *snapshot = plan_of(model, "infer", 1);
    const size_t unpacked = linnet_store_bytes(store);
    linnet_session *a = session_of(plan, store), *b = session_of(again, store), *trains = session_of(step, store);
    linnet_plan_info info;
    linnet_plan_info_init(&info);
    CHECK_INT(linnet_plan_get_info(plan, &info), LINNET_OK);
    CHECK(info.packed_weights >= sizeof start);
    CHECK_INT(linnet_store_bytes(store) - unpacked, info.packed_weights); /* both sessions share one copy */
    CHECK_INT(linnet_store_packs(store), 0);
    for (int i = 0; i < 3; i++) CHECK(served(a) == 0 && served(b) == 0);
    CHECK_INT(linnet_store_packs(store), 1);

    float values[INNER * COLUMNS], other = 7;
    for (int i = 0; i < INNER * COLUMNS; i++) values[i] = 2;
    CHECK_INT(linnet_store_write(store, "w", values, sizeof values, NULL), LINNET_OK);
    CHECK(served(a) == 2 * INNER && served(b) == 2 * INNER && served(a) == 2 * INNER);
    CHECK_INT(linnet_store_packs(store), 2);
    CHECK_INT(linnet_store_write(store, "other", &other, sizeof other, NULL), LINNET_OK);
    CHECK(served(b) == 2 * INNER && served(a) == 2 * INNER);
    CHECK_INT(linnet_store_packs(store), 2);
    CHECK_INT(linnet_run(trains, NULL), LINNET_OK);
    CHECK_INT(linnet_run(trains, NULL), LINNET_OK);
    CHECK_INT(linnet_store_packs(store), 2); /* the training run does not pack what it assigns */
    CHECK(served(b) == 4 * INNER && served(a) == 4 * INNER);
    CHECK_INT(linnet_store_packs(store), 3);
    float *data = linnet_store_data(store, "w", 1, NULL);
    for (int i = 0; i < INNER * COLUMNS; i++) data[i] = 9;
    CHECK(served(a) == 9 * INNER && served(b) == 9 * INNER);
    CHECK_INT(linnet_store_packs(store), 4);

    linnet_session *frozen = session_of(snapshot, store); /* packs the snapshot's values into a copy of its own */
    CHECK(served(frozen) == 9 * INNER && served(frozen) == 9 * INNER);
    CHECK_INT(linnet_store_packs(store), 5);
    CHECK_INT(linnet_run(trains, NULL), LINNET_OK);
    CHECK(served(frozen) == 10 * INNER && served(frozen) == 10 * INNER);
    CHECK_INT(linnet_store_packs(store), 6);
    linnet_session_free(frozen);
    linnet_session_free(a);
    CHECK(served(b) == 10 * INNER);
    linnet_session_free(b);
    linnet_session_free(trains);
    linnet_plan_free(plan), linnet_plan_free(again), linnet_plan_free(step), linnet_plan_free(snapshot);
    CHECK_INT(linnet_run(trains = session_of(plan = plan_of(model, "train", 0), store), NULL), LINNET_OK);
    CHECK_INT(linnet_store_bytes(store), unpacked); /* the last session frees the copies */
    linnet_session_free(trains), linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_model_free(model);
    CHECK_INT(memory.live, 0);
    CHECK_INT(linnet_store_packs(NULL), 0);
}

/* A copy that cannot be allocated is an error of linnet_session_create, and nothing is lost. */
static void test_no_memory(void) {
    static builder infer, train;
    linnet_model *model = trained(&infer, &train, NULL);
    linnet_plan *plan = plan_of(model, "infer", 0);
    counting memory = {0};
    const linnet_allocator allocator = counting_allocator(&memory);
    linnet_store *store = NULL;
    CHECK_INT(linnet_store_create(model, &allocator, &store, NULL), LINNET_OK);
    const size_t before = memory.live;
    memory.fail_at = memory.calls + 1;
    linnet_session *session = NULL;
    linnet_error error;
    CHECK_INT(linnet_session_create(plan, store, NULL, &session, &error), LINNET_OUT_OF_MEMORY);
    CHECK(session == NULL);
    CHECK_INT(memory.live, before);
    session = session_of(plan, store);
    CHECK(served(session) == 0);
    linnet_session_free(session);
    linnet_store_free(store);
    CHECK_INT(memory.live, 0);
    linnet_plan_free(plan);
    linnet_model_free(model);
}

typedef struct worker {
    linnet_plan *plan;
    linnet_store *store;
    int wrong;
} worker;

static void *trains(void *argument) {
    worker *w = argument;
    linnet_session *s = NULL;
    w->wrong += linnet_session_create(w->plan, w->store, NULL, &s, NULL) != LINNET_OK;
    for (int i = 0; i < RUNS; i++) w->wrong += linnet_run(s, NULL) != LINNET_OK;
    linnet_session_free(s);
    return NULL;
}

/* Results are those of one state, and never of an earlier one. Sessions come and go while others run. */
static void *serves(void *argument) {
    worker *w = argument;
    float last = 0;
    for (int i = 0; i < 10; i++) {
        linnet_session *s = NULL;
        w->wrong += linnet_session_create(w->plan, w->store, NULL, &s, NULL) != LINNET_OK;
        for (int k = 0; k < RUNS / 10; k++) {
            const float y = served(s);
            w->wrong += y < last || (int)y % INNER != 0;
            last = y;
        }
        linnet_session_free(s);
    }
    return NULL;
}

static void test_threads(void) {
    static builder infer, train;
    linnet_model *model = trained(&infer, &train, NULL);
    linnet_store *store = NULL;
    CHECK_INT(linnet_store_create(model, NULL, &store, NULL), LINNET_OK);
    linnet_plan *plans[] = {plan_of(model, "train", 0), plan_of(model, "infer", 0), plan_of(model, "infer", 1)};
    worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.plan = plans[i < 2 ? i : i - 1], .store = store};
        CHECK_INT(pthread_create(&threads[i], NULL, i == 0 ? trains : serves, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(workers[i].wrong, 0);
    }
    for (int i = 1; i < 3; i++) {
        linnet_session *s = session_of(plans[i], store);
        CHECK(served(s) == RUNS * INNER);
        linnet_session_free(s);
    }
    for (int i = 0; i < 3; i++) linnet_plan_free(plans[i]);
    linnet_store_free(store);
    linnet_model_free(model);
}

int main(void) {
    if (linnet_isa_name(1) != NULL) { /* references pack nothing */
        test_counts();
        test_no_memory();
    }
    test_threads();
    return check_end("test_packed_variables");
}
