/* test_user.c - user ops in plans and runs: threads, scratch, in-place results, folding, failures, failing allocations.
 * Registration and files are in tests/test_user_ops.py. */
#include "builder.h"
#include "check.h"
#include "kernel/step.h"
#include "kernel/user.h"
#include "linnet_device.h"
#include "model/user.h"
#include "plan/session_layout.h"

#include "../ext/user_ops.c"

enum { SCALE, NEGATE, BROKEN, DESCRIBE, POSITIVE, PERMITTED, ROWS = 64, COLUMNS = 33 };
static ln_user_op rows[6];

static ln_user_attributes named(int op) {
    return (ln_user_attributes){.op = {rows[op].host.name, (int64_t)strlen(rows[op].host.name) + 1}, .version = 1};
}

static int32_t user_node(builder *b, int op, const ln_user_attributes *a, const char *name, const int32_t *inputs) {
    const int32_t y = build_node(b, LN_OP_USER, a, name, LINNET_F32, inputs);
    b->nodes[b->function.n_nodes - 1].op = &rows[op].op;
    return y;
}

#define USER(b, op, a, name, ...) user_node((b), (op), (a), (name), (const int32_t[]){__VA_ARGS__, -2})

static const int64_t scalar_float[] = {LINNET_USER_FLOATS, -1}, scalar_integer[] = {LINNET_USER_INTEGERS, -1};

static ln_user_attributes scaling(const double *factor) {
    ln_user_attributes a = named(SCALE);
    a.names = (ln_text){"factor", 7};
    a.kinds = (ln_ints){scalar_float, 2};
    a.floats = (ln_floats){factor, 1};
    return a;
}

typedef struct opened {
    linnet_model *model;
    linnet_plan *plan;
    linnet_session *session;
    linnet_status status;
    linnet_error error;
} opened;

static opened open_all(builder *b, const linnet_allocator *allocator, const linnet_plan_config *config) {
    opened o = {0};
    o.model = build_model(b, allocator);
    o.status = o.model ? linnet_plan_create(o.model, config, &o.plan, &o.error) : LINNET_OUT_OF_MEMORY;
    if (o.status == LINNET_OK) o.status = linnet_session_create(o.plan, NULL, NULL, &o.session, &o.error);
    return o;
}

static void close_all(opened *o) {
    linnet_session_free(o->session);
    linnet_plan_free(o->plan);
    linnet_model_free(o->model);
}

/* x -> scale by 3 -> relu -> scale by -2 -> negate: the second scale may overwrite its operand. */
static void chain(builder *b, ln_user_attributes a[3]) {
    static const double three = 3, minus_two = -2;
    memset(b, 0, sizeof *b);
    a[0] = scaling(&three);
    a[1] = scaling(&minus_two);
    a[2] = named(NEGATE);
    const int32_t x = build_input(b, "x", LINNET_F32, DIMS(ROWS, COLUMNS));
    const int32_t u = USER(b, SCALE, &a[0], "u", x);
    const int32_t r = NODE(b, LN_OP_MAP, &build_relu, "r", LINNET_F32, u);
    const int32_t v = USER(b, SCALE, &a[1], "v", r);
    const int32_t y = USER(b, NEGATE, &a[2], "y", v);
    b->values[y].rank = 2; /* negate has no shape rule */
    b->dims[y][0] = ROWS;
    b->dims[y][1] = COLUMNS;
    build_output(b, y);
}

static void expect_chain(opened *o) {
    float *x = linnet_session_input(o->session, 0);
    for (int i = 0; i < ROWS * COLUMNS; ++i) x[i] = (float)(i % 7 - 3);
    linnet_error error;
    for (int again = 0; again < 3; ++again) {
        CHECK_INT(linnet_run(o->session, &error), LINNET_OK);
        const float *y = linnet_session_output(o->session, 0);
        int wrong = 0;
        for (int i = 0; i < ROWS * COLUMNS; ++i) wrong += y[i] != (x[i] > 0 ? 6 * x[i] : 0.0f);
        CHECK_INT(wrong, 0);
    }
}

static void test_chain(void) {
    builder b;
    ln_user_attributes a[3];
    for (int reference = 0; reference < 2; ++reference)
        for (int threads = 1; threads <= 3; ++threads) {
            linnet_plan_config config;
            linnet_plan_config_init(&config);
            config.threads = threads;
            config.reference = reference;
            chain(&b, a);
            opened o = open_all(&b, NULL, &config);
            CHECK_INT(o.status, LINNET_OK);
            linnet_plan_info info = {.struct_size = sizeof info};
            CHECK_INT(linnet_plan_get_info(o.plan, &info), LINNET_OK);
            const uint64_t bytes = ROWS * COLUMNS * sizeof(float);
            CHECK(info.scratch >= 64 * (uint64_t)threads);
            /* in place: two buffers instead of three */
            CHECK(reference ? info.naive >= 3 * bytes : info.activations <= 2 * (bytes + 64));
            expect_chain(&o);
            linnet_step_info step = {.struct_size = sizeof step};
            CHECK_INT(linnet_plan_get_step(o.plan, 0, &step), LINNET_OK);
            CHECK_TEXT(step.op, "user");
            CHECK_TEXT(step.kernel, "com.example.scale");
            CHECK_TEXT(step.name, "u");
            close_all(&o);
        }
}

/* Every allocation of planning and of the session may fail. */
static void test_allocations(void) {
    builder b;
    ln_user_attributes a[3];
    for (size_t k = 1;; ++k) {
        counting c = {.fail_at = k};
        const linnet_allocator allocator = counting_allocator(&c);
        chain(&b, a);
        opened o = open_all(&b, &allocator, NULL);
        const linnet_status status = o.status;
        if (status == LINNET_OK) expect_chain(&o);
        close_all(&o);
        CHECK_INT(c.live, 0);
        if (status == LINNET_OK) break;
        CHECK_INT(status, LINNET_OUT_OF_MEMORY);
    }
}

static atomic_int runs;
static int counted_run(linnet_user_call *call) {
    ++runs;
    return scale_run(call);
}

/* A constant result is computed once if the op is exact, and in every run otherwise. */
static void test_folding(void) {
    static const double two = 2;
    static const float constant[4] = {1, 2, 3, 4};
    const ln_user_op saved = rows[SCALE];
    for (int exact = 0; exact < 2; ++exact) {
        linnet_user_op op = ops[SCALE];
        op.run = counted_run;
        op.flags = exact ? LINNET_USER_OP_EXACT : 0;
        CHECK_INT(ln_user_row(&op, &rows[SCALE], NULL), LINNET_OK);
        builder b;
        memset(&b, 0, sizeof b);
        const ln_user_attributes a = scaling(&two);
        const int32_t c = build_value(&b, "c", LINNET_F32, DIMS(4), constant);
        const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(4));
        const int32_t u = USER(&b, SCALE, &a, "u", c);
        build_output(&b, NODE(&b, LN_OP_MAP, &build_add, "y", LINNET_F32, x, u));
        runs = 0;
        opened o = open_all(&b, NULL, NULL);
        CHECK_INT(o.status, LINNET_OK);
        CHECK_INT(runs, exact);
        memset(linnet_session_input(o.session, 0), 0, 16);
        for (int i = 0; i < 3; ++i) CHECK_INT(linnet_run(o.session, NULL), LINNET_OK);
        CHECK_INT(runs > 1, !exact);
        CHECK(((const float *)linnet_session_output(o.session, 0))[3] == 8);
        close_all(&o);
    }
    rows[SCALE] = saved;
}

/* What a callback does wrong is an error that names the op, and nothing leaks. */
static void test_broken(void) {
    static const struct {
        int64_t how;
        linnet_status planned, run;
        const char *what;
    } cases[] = {
        {0, LINNET_OK, LINNET_OK, ""},
        {INFER_FAILS, LINNET_USER_OP_FAILED, 0, "the shape rule of user op com.example.broken failed: told to fail"},
        {WRONG_DTYPE, LINNET_USER_OP_FAILED, 0, "gives output 0 a wrong dtype"},
        {NO_DTYPE, LINNET_USER_OP_FAILED, 0, "gives output 0 a wrong dtype"},
        {WRONG_RANK, LINNET_USER_OP_FAILED, 0, "gives output 0 a wrong rank"},
        {HUGE_RANK, LINNET_USER_OP_FAILED, 0, "gives output 0 a wrong rank"},
        {NEGATIVE, LINNET_USER_OP_FAILED, 0, "gives output 0 a wrong shape"},
        {TOO_LARGE, LINNET_TOO_LARGE, 0, "too large"},
        {OPEN, LINNET_OK, LINNET_UNKNOWN_SHAPE, "cannot infer the shape"},
        {RUN_FAILS, LINNET_OK, LINNET_USER_OP_FAILED, "user op com.example.broken failed: xxxx"},
        {HUGE_SCRATCH, LINNET_USER_OP_FAILED, 0, "cannot prepare kernel user"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        builder b;
        memset(&b, 0, sizeof b);
        ln_user_attributes a = named(BROKEN);
        a.names = (ln_text){"how", 4};
        a.kinds = (ln_ints){scalar_integer, 2};
        a.integers = (ln_ints){&cases[i].how, 1};
        const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(2, 3));
        const int32_t y = USER(&b, BROKEN, &a, "y", x);
        if (cases[i].how != TOO_LARGE && cases[i].how != OPEN && cases[i].how != NEGATIVE) {
            b.values[y].rank = 2;
            b.dims[y][0] = -1;
            b.dims[y][1] = 3;
        }
        build_output(&b, y);
        counting c = {0};
        const linnet_allocator allocator = counting_allocator(&c);
        opened o = open_all(&b, &allocator, NULL);
        CHECK_INT(o.status, cases[i].planned);
        if (o.status == LINNET_OK) CHECK_INT(linnet_run(o.session, &o.error), cases[i].run);
        if (o.error.code != LINNET_OK) {
            CHECK(strstr(o.error.what, cases[i].what) != NULL);
            CHECK_TEXT(o.error.op, "y");
        }
        close_all(&o);
        CHECK_INT(c.live, 0);
    }
}

/* positive -> relu: the second segment has the size that the kernel has decided. */
static void test_decided_sizes(void) {
    static const struct {
        const char *attribute;
        int64_t value;
        linnet_status planned, run;
        const char *what;
    } cases[] = {
        {"other", 0, LINNET_OK, LINNET_OK, ""},
        {"lie", ROWS + 1, LINNET_OK, LINNET_USER_OP_FAILED, "expected at most 64"},
        {"lie", -ROWS - 1, LINNET_OK, LINNET_USER_OP_FAILED, "gives output 0 the size -"},
        {"items", 2, LINNET_USER_OP_FAILED, 0, "cannot prepare kernel user"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        builder b;
        memset(&b, 0, sizeof b);
        ln_user_attributes a = named(POSITIVE);
        a.names = (ln_text){cases[i].attribute, (int64_t)strlen(cases[i].attribute) + 1};
        a.kinds = (ln_ints){scalar_integer, 2};
        a.integers = (ln_ints){&cases[i].value, 1};
        const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(ROWS));
        build_output(&b, NODE(&b, LN_OP_MAP, &build_relu, "r", LINNET_F32, USER(&b, POSITIVE, &a, "y", x)));
        counting c = {0};
        const linnet_allocator allocator = counting_allocator(&c);
        opened o = open_all(&b, &allocator, NULL);
        CHECK_INT(o.status, cases[i].planned);
        for (int n = 0; o.session && n <= ROWS; n += 16) {
            float *values = linnet_session_input(o.session, 0);
            linnet_tensor_info info = {.struct_size = sizeof info};
            for (int k = 0; k < ROWS; ++k) values[k] = k < n ? (float)(k + 1) : -1;
            const linnet_status status = linnet_run(o.session, &o.error);
            if (n == 16) CHECK_INT(status, cases[i].run);
            if (status != LINNET_OK) continue;
            CHECK_INT(linnet_session_get_output(o.session, 0, &info), LINNET_OK);
            CHECK_INT(info.shape[0], n);
            const float *y = linnet_session_output(o.session, 0);
            for (int k = 0; k < n; ++k) CHECK(y[k] == (float)(k + 1));
        }
        if (cases[i].what[0]) {
            CHECK(strstr(o.error.what, cases[i].what) != NULL);
            CHECK_TEXT(o.error.op, "y");
        }
        close_all(&o);
        CHECK_INT(c.live, 0);
    }
    CHECK_INT(linnet_user_at_most(-1), -1);
    CHECK_INT(linnet_user_at_most(0), -2);
    CHECK_INT(linnet_user_at_most(INT64_MAX), -1);
}

/* The precision of a plan is in the call of every step, and a user op sees it; planning itself computes in f32. */
static void test_precision(void) {
    static const float constant[2] = {1, 2};
    for (int32_t precision = LINNET_PRECISION_F32; precision <= LINNET_PRECISION_TF32; ++precision)
        for (int exact = 0; exact < 2; ++exact) {
            linnet_user_op op = ops[PERMITTED];
            op.flags = exact ? LINNET_USER_OP_EXACT : 0;
            CHECK_INT(ln_user_row(&op, &rows[PERMITTED], NULL), LINNET_OK);
            builder b;
            memset(&b, 0, sizeof b);
            ln_user_attributes a = named(PERMITTED);
            const int32_t c = build_value(&b, "c", LINNET_F32, DIMS(2), constant);
            const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(2));
            const int32_t u = USER(&b, PERMITTED, &a, "u", c), v = USER(&b, PERMITTED, &a, "v", x);
            build_output(&b, NODE(&b, LN_OP_MAP, &build_relu, "r", LINNET_F32, u));
            build_output(&b, NODE(&b, LN_OP_MAP, &build_relu, "s", LINNET_F32, v));
            linnet_plan_config config;
            linnet_plan_config_init(&config);
            config.precision = precision;
            opened o = open_all(&b, NULL, &config);
            CHECK_INT(o.status, LINNET_OK);
            for (int32_t i = 0; i < o.plan->program.n_steps; ++i)
                CHECK_INT(o.plan->program.steps[i].call.precision, precision);
            CHECK_INT(linnet_run(o.session, NULL), LINNET_OK);
            CHECK(((const float *)linnet_session_output(o.session, 0))[1] == (exact ? 0.0f : 11.0f * (float)precision));
            CHECK(((const float *)linnet_session_output(o.session, 1))[1] == 11.0f * (float)precision);
            close_all(&o);
        }
    CHECK_INT(ln_user_row(&ops[PERMITTED], &rows[PERMITTED], NULL), LINNET_OK);
    linnet_user_call older = {.struct_size = offsetof(linnet_user_call, precision), .precision = 3};
    CHECK_INT(linnet_user_precision(&older), LINNET_PRECISION_F32);
}

/* A node whose lists contradict each other is refused. */
static void test_check(void) {
    static const int64_t numbers[] = {1, 2, 3}, kinds[] = {LINNET_USER_INTEGERS, 2, LINNET_USER_TEXT, 1},
                         unknown[] = {4, 1}, below[] = {LINNET_USER_INTEGERS, -2}, two[] = {2}, three[] = {3},
                         negative[] = {-1};
    ln_user_attributes good = named(SCALE);
    good.names = (ln_text){"a\0b", 4};
    good.kinds = (ln_ints){kinds, 4};
    good.integers = (ln_ints){numbers, 2};
    good.text = (ln_text){"x\0", 3};
    good.sizes = (ln_ints){two, 1};
    linnet_error error;
    CHECK_INT(ln_user_check(&good, &error), LINNET_OK);
#define BAD(change)                                                                                                    \
    do {                                                                                                               \
        ln_user_attributes bad = good;                                                                                 \
        change;                                                                                                        \
        CHECK_INT(ln_user_check(&bad, &error), LINNET_BAD_ATTRIBUTE);                                                  \
    } while (0)
    BAD(bad.op = ((ln_text){"", 0}));
    BAD(bad.op = ((ln_text){"abc", 3})); /* no NUL */
    BAD(bad.op = ((ln_text){"a\0b", 4}));
    BAD(bad.op = ((ln_text){"\xff", 2}));
    BAD(bad.version = 0);
    BAD(bad.version = INT64_MAX);
    BAD(bad.names.n = 2);
    BAD(bad.names.n = 3);
    BAD(bad.kinds.n = 3);
    BAD(bad.kinds.n = 2);
    BAD(bad.kinds = ((ln_ints){unknown, 2}); bad.names.n = 2);
    BAD(bad.kinds = ((ln_ints){below, 2}); bad.names.n = 2);
    BAD(bad.integers.n = 3);
    BAD(bad.floats.n = 1);
    BAD(bad.text.n = 2);
    BAD(bad.sizes.n = 0);
    BAD(bad.sizes = ((ln_ints){three, 1}));
    BAD(bad.sizes = ((ln_ints){negative, 1}));
}

/* A device sees the op's own name and attributes. */
static void test_device_view(void) {
    static const double two = 2;
    const ln_user_attributes a = scaling(&two);
    const linnet_step step = {.call = {.op = &rows[SCALE].op, .attributes = &a}};
    int count = -1;
    CHECK_TEXT(linnet_step_op(&step), "com.example.scale");
    CHECK(*linnet_step_floats(&step, "factor", &count) == 2 && count == 1);
    CHECK(linnet_step_integers(&step, "factor", &count) == NULL);
    CHECK(linnet_step_floats(&step, "op", &count) == NULL);
}

static void test_rows(void) {
    linnet_error error;
    ln_user_op row;
#define REFUSED(change)                                                                                                \
    do {                                                                                                               \
        linnet_user_op op = ops[SCALE];                                                                                \
        change;                                                                                                        \
        CHECK_INT(ln_user_row(&op, &row, &error), LINNET_INVALID_ARGUMENT);                                            \
        CHECK(error.expected[0] != 0);                                                                                 \
    } while (0)
    CHECK_INT(ln_user_row(NULL, &row, &error), LINNET_INVALID_ARGUMENT);
    REFUSED(op.struct_size = 0);
    REFUSED(op.name = NULL);
    REFUSED(op.name = "scale");
    REFUSED(op.name = "com.example.\xff");
    REFUSED(op.name = "com.example.a_name_that_is_longer_than_ninety_five_bytes_and_that_therefore_does_not_fit_into_"
                      "an_error_record");
    REFUSED(op.run = NULL);
    REFUSED(op.infer = NULL; op.flags = LINNET_USER_OP_DECIDES_SIZES);
    REFUSED(op.version = 0);
    REFUSED(op.least_inputs = -1);
    REFUSED(op.most_inputs = 0);
    REFUSED(op.least_outputs = 0);
    REFUSED(op.most_outputs = 0);
}

int main(void) {
    int count;
    const linnet_user_op *const *list = linnet_extension_user_ops(&count);
    for (int i = 0; i < count; ++i) CHECK_INT(ln_user_row(list[i], &rows[i], NULL), LINNET_OK);
    test_chain();
    test_allocations();
    test_folding();
    test_broken();
    test_decided_sizes();
    test_precision();
    test_check();
    test_device_view();
    test_rows();
    return check_end("user");
}
