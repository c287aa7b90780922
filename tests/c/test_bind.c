/* test_bind.c - runs that start at any tensor (linnet_plan_config.feeds), and memory of the caller in place of inputs
 * and outputs (linnet_session_bind_*): values, exact bytes, failing allocations, and what is refused. */
#include "builder.h"
#include "check.h"
#include "linnet_ext.h"

enum { ROWS = 3, SIDE = 32, COUNT = ROWS * SIDE };

static const ln_matmul_attributes matmul = {0};
static const ln_copy_attributes flat = {.kind = LN_COPY_KIND_RESHAPE};
static float weights[SIDE * SIDE], doubled[SIDE * SIDE];
static _Alignas(64) float x[COUNT], h[COUNT], r[COUNT], y[COUNT], z[COUNT], memory[COUNT + 16];

/* x -> matmul with w + w -> relu -> + variable. `sum` is folded, `h` is fused with `r`. */
static void net(builder *b) {
    memset(b, 0, sizeof *b);
    const int32_t in = build_input(b, "x", LINNET_F32, DIMS(-1, SIDE));
    const int32_t w = build_value(b, "w", LINNET_F32, DIMS(SIDE, SIDE), weights);
    const int32_t v = build_variable(b, "v", LINNET_F32, DIMS(SIDE), weights);
    const int32_t sum = NODE(b, LN_OP_MAP, &build_add, "sum", LINNET_F32, w, w);
    const int32_t product = NODE(b, LN_OP_MATMUL, &matmul, "h", LINNET_F32, in, sum);
    const int32_t positive = NODE(b, LN_OP_MAP, &build_relu, "r", LINNET_F32, product);
    build_output(b, positive);
    build_output(b, NODE(b, LN_OP_MAP, &build_add, "y", LINNET_F32, positive, v));
}

static void expected(void) {
    for (int i = 0; i < SIDE * SIDE; ++i) weights[i] = (float)(i * 37 % 19 - 9) / 16, doubled[i] = 2 * weights[i];
    for (int i = 0; i < COUNT; ++i) x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < SIDE; ++j) {
            float sum = 0;
            for (int k = 0; k < SIDE; ++k) sum += x[i * SIDE + k] * doubled[k * SIDE + j];
            h[i * SIDE + j] = sum;
            r[i * SIDE + j] = sum > 0 ? sum : 0;
            y[i * SIDE + j] = r[i * SIDE + j] + weights[j];
        }
}

typedef struct opened {
    linnet_model *model;
    linnet_plan *plan;
    linnet_session *session;
    linnet_error error;
    linnet_status status;
} opened;

static opened open_all(const linnet_allocator *allocator, const linnet_shape *feeds, int count, const char *fetch,
                       int separate) {
    static builder b;
    opened o = {.status = LINNET_OUT_OF_MEMORY};
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    const linnet_shape shape = {"x", 2, {ROWS, SIDE}};
    config.shapes = &shape;
    config.shape_count = 1;
    config.feeds = feeds;
    config.feed_count = count;
    config.threads = 1;
    config.separate_outputs = separate;
    if (fetch != NULL) config.fetches = &fetch, config.fetch_count = 1;
    net(&b);
    if ((o.model = build_model(&b, allocator)) == NULL) return o;
    o.status = linnet_plan_create(o.model, &config, &o.plan, &o.error);
    if (o.status == LINNET_OK) o.status = linnet_session_create(o.plan, NULL, NULL, &o.session, &o.error);
    return o;
}

static void close_all(opened *o) {
    linnet_session_free(o->session);
    linnet_plan_free(o->plan);
    linnet_model_free(o->model);
}

static linnet_plan_info info_of(const linnet_plan *plan) {
    linnet_plan_info info = {.struct_size = sizeof info};
    CHECK_INT(linnet_plan_get_info(plan, &info), LINNET_OK);
    return info;
}

static int near(const float *got, const float *wanted) {
    for (int i = 0; i < COUNT; ++i)
        if (!(got[i] - wanted[i] < 1e-4f && wanted[i] - got[i] < 1e-4f)) return 0;
    return 1;
}

static void runs_start_anywhere(void) {
    const struct {
        linnet_shape feed;
        const float *value;
        int inputs, steps;
    } cases[] = {{{"x", 2, {ROWS, SIDE}}, x, 1, -1},
                 {{"h", 2, {ROWS, SIDE}}, h, 1, -1},
                 {{"r", 2, {ROWS, SIDE}}, r, 1, 1},
                 {{"y", 2, {ROWS, SIDE}}, y, 1, 1},
                 {{"sum", 2, {SIDE, SIDE}}, doubled, 2, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        counting c = {0};
        const linnet_allocator allocator = counting_allocator(&c);
        opened o = open_all(&allocator, &cases[i].feed, 1, "y", 0);
        CHECK_INT(o.status, LINNET_OK);
        if (o.status != LINNET_OK) continue;
        const linnet_plan_info info = info_of(o.plan);
        CHECK_INT(c.live, info.total);
        CHECK_INT(linnet_plan_input_count(o.plan), cases[i].inputs);
        if (cases[i].steps >= 0) CHECK_INT(info.steps, cases[i].steps);
        linnet_tensor_info given = {.struct_size = sizeof given};
        CHECK_INT(linnet_plan_get_input(o.plan, cases[i].inputs - 1, &given), LINNET_OK);
        CHECK_TEXT(given.name, cases[i].feed.input);
        if (cases[i].inputs == 2) CHECK_INT(linnet_session_set(o.session, "x", x, sizeof x, &o.error), LINNET_OK);
        CHECK_INT(linnet_session_set(o.session, given.name, cases[i].value, given.bytes, &o.error), LINNET_OK);
        CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
        CHECK(near(linnet_session_output(o.session, 0), y));
        close_all(&o);
        CHECK_INT(c.live, 0);
    }
}

static void wrong_feeds_are_refused(void) {
    const struct {
        linnet_shape feeds[2];
        int count;
        linnet_status status;
    } cases[] = {{{{"nowhere", -1, {0}}}, 1, LINNET_UNKNOWN_NAME},
                 {{{NULL, -1, {0}}}, 1, LINNET_UNKNOWN_NAME},
                 {{{"v", -1, {0}}}, 1, LINNET_INVALID_ARGUMENT},
                 {{{"r", -1, {0}}}, 1, LINNET_UNKNOWN_SHAPE},
                 {{{"w", 2, {SIDE, SIDE}}}, 1, LINNET_INVALID_ARGUMENT}, /* a constant */
                 {{{"sum", 2, {SIDE, SIDE + 1}}}, 1, LINNET_SHAPE_MISMATCH},
                 {{{"sum", 9, {SIDE}}}, 1, LINNET_WRONG_SHAPE},
                 {{{"x", 2, {ROWS, SIDE + 1}}}, 1, LINNET_WRONG_SHAPE},
                 {{{"r", 2, {ROWS, SIDE - 1}}}, 1, LINNET_SHAPE_MISMATCH},
                 {{{"r", 2, {ROWS, SIDE}}, {"r", 2, {ROWS, SIDE}}}, 2, LINNET_INVALID_ARGUMENT},
                 {{{"r", 2, {ROWS, SIDE}}}, -1, LINNET_INVALID_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        opened o = open_all(NULL, cases[i].feeds, cases[i].count, "y", 0);
        CHECK_INT(o.status, cases[i].status);
        close_all(&o);
    }
}

static void every_allocation_may_fail(void) {
    const linnet_shape feed = {"h", 2, {ROWS, SIDE}};
    size_t calls = 1;
    for (size_t k = 1; k <= calls; ++k) {
        counting c = {.fail_at = k};
        const linnet_allocator allocator = counting_allocator(&c);
        opened o = open_all(&allocator, &feed, 1, NULL, 1);
        if (c.calls >= k) CHECK_INT(o.status, LINNET_OUT_OF_MEMORY);
        if (c.calls >= k) calls = k + 1;
        close_all(&o);
        CHECK_INT(c.live, 0);
    }
    CHECK(calls > 10);
}

static void memory_of_the_caller_is_used(void) {
    counting c = {0};
    const linnet_allocator allocator = counting_allocator(&c);
    opened o = open_all(&allocator, NULL, 0, "y", 1);
    CHECK_INT(o.status, LINNET_OK);
    float *own_x = linnet_session_input(o.session, 0);
    const float *own_y = linnet_session_output(o.session, 0);
    const size_t calls = c.calls;
    memset(own_x, 0, sizeof x);
    CHECK_INT(linnet_session_bind_input(o.session, 0, x, sizeof x, &o.error), LINNET_OK);
    CHECK_INT(linnet_session_bind_output(o.session, 0, z, sizeof z, &o.error), LINNET_OK);
    CHECK(linnet_session_input(o.session, 0) == x && linnet_session_output(o.session, 0) == z);
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    CHECK(near(z, y));
    for (int i = 0; i < COUNT; ++i) CHECK(own_x[i] == 0 && own_y[i] == 0); /* nothing goes through them */
    CHECK_INT(linnet_session_bind_input(o.session, 0, NULL, 0, &o.error), LINNET_OK);
    CHECK_INT(linnet_session_bind_output(o.session, 0, NULL, 0, &o.error), LINNET_OK);
    memcpy(linnet_session_input(o.session, 0), x, sizeof x);
    memset(z, 0, sizeof z);
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    CHECK(linnet_session_output(o.session, 0) == own_y && near(own_y, y));
    for (int i = 0; i < COUNT; ++i) CHECK(z[i] == 0);
    CHECK_INT(c.calls, calls); /* neither binding nor running allocates */
    close_all(&o);
}

static void a_session_may_have_only_memory_of_the_caller(void) {
    counting c = {0};
    const linnet_allocator allocator = counting_allocator(&c);
    opened o = open_all(&allocator, NULL, 0, "y", 1);
    const linnet_plan_info info = info_of(o.plan);
    const size_t live = c.live;
    linnet_session_config config;
    linnet_session_config_init(&config);
    config.binds_all = true;
    linnet_session *s = NULL;
    linnet_session_free(o.session);
    o.session = NULL;
    CHECK_INT(linnet_session_create(o.plan, NULL, &config, &s, &o.error), LINNET_OK);
    CHECK_INT(c.live, live - info.io);
    CHECK(linnet_session_input(s, 0) == NULL && linnet_session_output(s, 0) == NULL);
    CHECK_INT(linnet_session_set(s, "x", x, sizeof x, &o.error), LINNET_MISSING_INPUT);
    CHECK_INT(linnet_run(s, &o.error), LINNET_MISSING_INPUT);
    CHECK_TEXT(o.error.tensor, "x");
    CHECK_INT(linnet_session_bind_input(s, 0, x, sizeof x, &o.error), LINNET_OK);
    CHECK_INT(linnet_run(s, &o.error), LINNET_MISSING_INPUT);
    CHECK_TEXT(o.error.tensor, "y");
    CHECK_INT(linnet_session_bind_output(s, 0, z, sizeof z, &o.error), LINNET_OK);
    memset(z, 0, sizeof z);
    CHECK_INT(linnet_run(s, &o.error), LINNET_OK);
    CHECK(near(z, y));
    CHECK_INT(linnet_session_bind_output(s, 0, NULL, 0, &o.error), LINNET_OK);
    CHECK_INT(linnet_run(s, &o.error), LINNET_MISSING_INPUT);
    linnet_session_free(s);
    close_all(&o);
    o = open_all(NULL, NULL, 0, "y", 0); /* its output may share memory with another tensor */
    CHECK_INT(linnet_session_create(o.plan, NULL, &config, &s, &o.error), LINNET_UNSUPPORTED);
    CHECK(s == NULL);
    close_all(&o);
}

static void what_cannot_be_bound_is_refused(void) {
    opened o = open_all(NULL, NULL, 0, NULL, 1); /* r and y */
    linnet_session *s = o.session;
    CHECK_INT(linnet_session_bind_input(NULL, 0, x, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_input(s, 1, x, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_output(s, -1, x, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_output(s, 2, x, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_input(s, 0, memory + 1, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_TEXT(o.error.tensor, "x");
    CHECK_INT(linnet_session_bind_input(s, 0, x, sizeof x - 4, &o.error), LINNET_WRONG_SHAPE);
    CHECK_INT(linnet_session_bind_input(s, 0, x, sizeof x + 4, &o.error), LINNET_WRONG_SHAPE);
    CHECK_INT(linnet_session_bind_output(s, 0, memory, sizeof x, &o.error), LINNET_OK);
    CHECK_INT(linnet_session_bind_output(s, 1, memory + 16, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_input(s, 0, memory + 16, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_input(s, 0, x, sizeof x, &o.error), LINNET_OK);
    CHECK_INT(linnet_session_bind_output(s, 1, x, sizeof x, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_bind_output(s, 1, z, sizeof x, &o.error), LINNET_OK);
    CHECK_INT(linnet_run(s, &o.error), LINNET_OK);
    CHECK(near(memory, r) && near(z, y));
    close_all(&o);
    o = open_all(NULL, NULL, 0, NULL, 0);
    CHECK_INT(linnet_session_bind_output(o.session, 0, z, sizeof z, &o.error), LINNET_UNSUPPORTED);
    CHECK_INT(linnet_session_bind_input(o.session, 0, x, sizeof x, &o.error), LINNET_OK);
    close_all(&o);
}

/* Each output gets its own memory: of a tensor that is fetched twice, of a view, and of a constant. */
static void outputs_are_separate(void) {
    static builder b;
    static float out[4][64];
    memset(&b, 0, sizeof b);
    const int32_t in = build_input(&b, "x", LINNET_F32, DIMS(4, 8));
    const int32_t w = build_value(&b, "w", LINNET_F32, DIMS(4, 8), weights);
    const int32_t sum = NODE(&b, LN_OP_MAP, &build_add, "sum", LINNET_F32, in, w);
    build_output(&b, sum);
    build_output(&b, NODE(&b, LN_OP_COPY, &flat, "view", LINNET_F32, sum,
                          build_value(&b, "to", LINNET_I64, DIMS(1), (const int64_t[]){32})));
    build_output(&b, NODE(&b, LN_OP_MAP, &build_add, "constant", LINNET_F32, w, w));
    static const char *const fetches[] = {"sum", "view", "constant", "sum"};
    linnet_model *model = build_model(&b, NULL);
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_error error;
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.separate_outputs = 1;
    config.fetches = fetches;
    config.fetch_count = 4;
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_OK);
    CHECK_INT(linnet_session_create(plan, NULL, NULL, &session, &error), LINNET_OK);
    for (int i = 0; i < 4; ++i) {
        float *aligned = (float *)(((uintptr_t)out[i] + 63) / 64 * 64);
        CHECK_INT(linnet_session_bind_output(session, i, aligned, 128, &error), LINNET_OK);
    }
    memcpy(linnet_session_input(session, 0), x, 128);
    CHECK_INT(linnet_run(session, &error), LINNET_OK);
    for (int i = 0; i < 4; ++i) {
        const float *got = linnet_session_output(session, i);
        for (int k = 0; k < 32; ++k) CHECK(got[k] == (i == 2 ? doubled[k] : x[k] + weights[k]));
    }
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_model_free(model);
}

int main(void) {
    expected();
    runs_start_anywhere();
    wrong_feeds_are_refused();
    every_allocation_may_fail();
    memory_of_the_caller_is_used();
    a_session_may_have_only_memory_of_the_caller();
    what_cannot_be_bound_is_refused();
    outputs_are_separate();
    return check_end("test_bind");
}
