/* test_plan.c - plans and sessions from models built in memory: exact bytes, failing allocations, aliasing, variables,
 * data-dependent segments, a device of an extension. */
#include "builder.h"
#include "check.h"
#include "plan/session_layout.h"
#include "model/store.h"
#include "linnet_ext.h"

int toy_count(int what); /* from the toy device, which is compiled in */
#include "../ext/toy_device.c"

static const ln_matmul_attributes matmul = {0};
static const ln_copy_attributes concat0 = {.kind = LN_COPY_KIND_CONCAT, .axis = 0};
static const ln_copy_attributes shape_of_one = {.kind = LN_COPY_KIND_IDENTITY};
static float weights[64 * 64];

static void fill_weights(void) {
    for (int i = 0; i < 64 * 64; ++i) weights[i] = (float)((i * 37) % 19 - 9) / 16;
}

/* x [m, 64] -> matmul -> relu -> matmul -> + variable. */
static void two_layers(builder *b, int64_t m) {
    memset(b, 0, sizeof *b);
    const int32_t x = build_input(b, "x", LINNET_F32, DIMS(m, 64));
    const int32_t w = build_value(b, "w", LINNET_F32, DIMS(64, 64), weights);
    const int32_t v = build_variable(b, "v", LINNET_F32, DIMS(64), weights);
    const int32_t h = NODE(b, LN_OP_MATMUL, &matmul, "h", LINNET_F32, x, w);
    const int32_t r = NODE(b, LN_OP_MAP, &build_relu, "r", LINNET_F32, h);
    const int32_t g = NODE(b, LN_OP_MATMUL, &matmul, "g", LINNET_F32, r, w);
    build_output(b, NODE(b, LN_OP_MAP, &build_add, "y", LINNET_F32, g, v));
}

static void expect_two_layers(const float *x, const float *y, int m) {
    double worst = 0;
    for (int i = 0; i < m; ++i) {
        double h[64];
        for (int j = 0; j < 64; ++j) {
            h[j] = 0;
            for (int k = 0; k < 64; ++k) h[j] += (double)x[i * 64 + k] * weights[k * 64 + j];
            h[j] = h[j] > 0 ? h[j] : 0;
        }
        for (int j = 0; j < 64; ++j) {
            double sum = weights[j];
            for (int k = 0; k < 64; ++k) sum += h[k] * weights[k * 64 + j];
            const double error = sum > y[i * 64 + j] ? sum - y[i * 64 + j] : y[i * 64 + j] - sum;
            if (error > worst) worst = error;
        }
    }
    CHECK(worst < 1e-3);
}

typedef struct opened {
    linnet_model *model;
    linnet_plan *plan;
    linnet_session *session;
    linnet_status status;
    linnet_error error;
} opened;

static opened open_all(builder *b, const linnet_allocator *allocator, const linnet_plan_config *config) {
    opened o = {.status = LINNET_OUT_OF_MEMORY};
    o.model = build_model(b, allocator);
    if (o.model == NULL) return o;
    o.status = linnet_plan_create(o.model, config, &o.plan, &o.error);
    if (o.status == LINNET_OK) o.status = linnet_session_create(o.plan, NULL, NULL, &o.session, &o.error);
    return o;
}

static void close_all(opened *o) {
    linnet_session_free(o->session);
    linnet_plan_free(o->plan);
    linnet_model_free(o->model);
}

static void must(const opened *o) {
    char text[512] = "";
    if (o->status != LINNET_OK) linnet_error_format(&o->error, text, sizeof text);
    CHECK_TEXT(text, "");
}

static linnet_plan_info info_of(const linnet_plan *plan) {
    linnet_plan_info info = {.struct_size = sizeof info};
    CHECK_INT(linnet_plan_get_info(plan, &info), LINNET_OK);
    return info;
}

static void total_is_exact(void) {
    for (int threads = 1; threads <= 2; ++threads)
        for (int reference = 0; reference <= 1; ++reference)
            for (int64_t m = 1; m <= 300; m += 299) {
                builder b;
                two_layers(&b, m);
                counting c = {0};
                const linnet_allocator allocator = counting_allocator(&c);
                linnet_plan_config config;
                linnet_plan_config_init(&config);
                config.threads = threads;
                config.reference = reference;
                opened o = open_all(&b, &allocator, &config);
                must(&o);
                const linnet_plan_info info = info_of(o.plan);
                CHECK_INT(c.live, info.total);
                const size_t calls = c.calls;
                float *x = linnet_session_input(o.session, 0);
                for (int i = 0; i < m * 64; ++i) x[i] = (float)(i % 7) - 3;
                CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
                expect_two_layers(x, linnet_session_output(o.session, 0), (int)m);
                CHECK_INT(c.calls, calls); /* a run allocates nothing */
                CHECK_INT(c.live, info.total);
                close_all(&o);
                CHECK_INT(c.live, 0);
            }
}

/* Sessions for several shapes pack each constant once. The last one that needs it frees it. */
static void plans_share_packed_weights(void) {
    enum { PLANS = 4 };
    static const int64_t rows[PLANS] = {3, 40, 500, 17};
    builder b;
    two_layers(&b, -1);
    counting c = {0};
    const linnet_allocator allocator = counting_allocator(&c);
    linnet_model *model = build_model(&b, &allocator);
    const size_t structure = c.live;
    CHECK_INT(linnet_model_bytes(model), structure);
    linnet_store *store = NULL;
    CHECK_INT(linnet_store_create(model, &allocator, &store, NULL), LINNET_OK);
    const size_t base = c.live;
    linnet_plan *plans[PLANS];
    linnet_session *sessions[PLANS];
    size_t expected = base, packed = 0;
    for (int i = 0; i < PLANS; ++i) {
        linnet_shape shape = {.input = "x", .rank = 2, .dims = {rows[i], 64}};
        linnet_plan_config config;
        linnet_plan_config_init(&config);
        config.shapes = &shape;
        config.shape_count = 1;
        config.threads = 1;
        CHECK_INT(linnet_plan_create(model, &config, &plans[i], NULL), LINNET_OK);
        CHECK_INT(linnet_session_create(plans[i], store, NULL, &sessions[i], NULL), LINNET_OK);
        const linnet_plan_info info = info_of(plans[i]);
        if (linnet_isa_name(1) != NULL) /* references pack nothing; other kernels pack once for both layers */
            CHECK(info.packed_weights >= 64 * 64 * 4 && info.packed_weights < 2 * 64 * 64 * 4);
        if (i == 0) packed = (size_t)info.packed_weights;
        CHECK_INT(info.packed_weights, packed);
        expected += (size_t)(info.total - info.packed_weights) - base + (i == 0 ? packed : 0);
        CHECK_INT(c.live, expected);
        CHECK_INT(linnet_model_bytes(model), structure + packed);
    }
    for (int i = 0; i < PLANS; ++i) { /* frees the packing session first, while the others still use the weights */
        float *x = linnet_session_input(sessions[i], 0);
        for (int k = 0; k < rows[i] * 64; ++k) x[k] = (float)(k % 7) - 3;
        CHECK_INT(linnet_run(sessions[i], NULL), LINNET_OK);
        expect_two_layers(x, linnet_session_output(sessions[i], 0), (int)rows[i]);
        linnet_session_free(sessions[i]);
        linnet_plan_free(plans[i]);
        CHECK_INT(linnet_model_bytes(model), structure + (i + 1 < PLANS ? packed : 0));
    }
    CHECK_INT(c.live, base);
    linnet_store_free(store);
    linnet_model_free(model);
    CHECK_INT(c.live, 0);
}

static void every_allocation_may_fail(void) {
    builder b;
    size_t calls = 1;
    for (size_t k = 1; k <= calls; ++k) {
        two_layers(&b, 3);
        counting c = {.fail_at = k};
        const linnet_allocator allocator = counting_allocator(&c);
        linnet_plan_config config;
        linnet_plan_config_init(&config);
        config.threads = 1;
        opened o = open_all(&b, &allocator, &config);
        if (c.calls >= k) CHECK_INT(o.status, LINNET_OUT_OF_MEMORY);
        if (c.calls >= k) calls = k + 1;
        close_all(&o);
        CHECK_INT(c.live, 0);
    }
    CHECK(calls > 10);
}

static void arena_of_the_caller(void) {
    builder b;
    two_layers(&b, 5);
    linnet_model *model = build_model(&b, NULL);
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_error error;
    CHECK_INT(linnet_plan_create(model, NULL, &plan, &error), LINNET_OK);
    const linnet_plan_info info = info_of(plan);
    const size_t size = (size_t)(info.activations + info.scratch);
    linnet_session_config config;
    linnet_session_config_init(&config);
    config.arena = aligned_alloc(64, (size + 127) / 64 * 64);
    config.arena_size = size - 1;
    CHECK(size > 0);
    CHECK_INT(linnet_session_create(plan, NULL, &config, &session, &error), LINNET_ARENA_TOO_SMALL);
    CHECK(session == NULL && strstr(error.expected, "bytes") && strstr(error.got, "bytes"));
    config.arena_size = size;
    CHECK_INT(linnet_session_create(plan, NULL, &config, &session, &error), LINNET_OK);
    ((char *)config.arena)[size] = 0x77; /* nothing after the arena may change */
    CHECK_INT(linnet_run(session, &error), LINNET_OK);
    CHECK_INT(((char *)config.arena)[size], 0x77);
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_model_free(model);
    free(config.arena);
}

/* A relu of a relu runs in place, and joining two halves copies nothing. */
static void memory_is_shared(void) {
    builder b;
    memset(&b, 0, sizeof b);
    const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(2, 64));
    const int32_t p = NODE(&b, LN_OP_MAP, &build_relu, "p", LINNET_F32, x);
    const int32_t q = NODE(&b, LN_OP_MAP, &build_add, "q", LINNET_F32, x, x);
    const int32_t j = NODE(&b, LN_OP_COPY, &concat0, "j", LINNET_F32, p, q);
    const int32_t k = NODE(&b, LN_OP_MAP, &build_relu, "k", LINNET_F32, j);
    const int32_t l = NODE(&b, LN_OP_MAP, &build_add, "l", LINNET_F32, k, j);
    const int32_t i = NODE(&b, LN_OP_COPY, &shape_of_one, "i", LINNET_F32, l);
    const int32_t m = NODE(&b, LN_OP_MAP, &build_relu, "m", LINNET_F32, i);
    build_output(&b, NODE(&b, LN_OP_MAP, &build_add, "y", LINNET_F32, m, m));
    build_value(&b, "unused", LINNET_F32, DIMS(4), NULL);
    opened o = open_all(&b, NULL, NULL);
    must(&o);
    const linnet_plan_info info = info_of(o.plan);
    CHECK_INT(info.steps, 6);                /* p, q, k, l, m, y */
    CHECK_INT(info.activations, 4 * 64 * 4); /* j, and one buffer for k, l, m and y, which is the output itself */
    float *in = linnet_session_input(o.session, 0);
    for (int n = 0; n < 128; ++n) in[n] = (float)(n - 60);
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    const float *y = linnet_session_output(o.session, 0);
    for (int n = 0; n < 256; ++n) {
        const float v = n < 128 ? (in[n] > 0 ? in[n] : 0) : 2 * in[n - 128];
        CHECK(y[n] == (v > 0 ? 4 * v : 0));
    }
    close_all(&o);
}

/* v <- v + x; u <- v: readers see the old values, and the order of the updates does not matter. */
static void variables_change_at_the_end(void) {
    builder b;
    memset(&b, 0, sizeof b);
    static const float start[4] = {1, 2, 3, 4};
    const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(4));
    const int32_t v = build_variable(&b, "v", LINNET_F32, DIMS(4), start);
    const int32_t u = build_variable(&b, "u", LINNET_F32, DIMS(4), NULL);
    const int32_t sum = NODE(&b, LN_OP_MAP, &build_add, "sum", LINNET_F32, v, x);
    const int32_t now = NODE(&b, LN_OP_ASSIGN, &matmul, "now", LINNET_F32, v, sum);
    NODE(&b, LN_OP_ASSIGN, &matmul, "then", LINNET_F32, u, v);
    build_output(&b, NODE(&b, LN_OP_MAP, &build_add, "old", LINNET_F32, v, u));
    build_output(&b, now);
    linnet_model *model = build_model(&b, NULL);
    linnet_store *store = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_error error;
    CHECK_INT(linnet_store_create(model, NULL, &store, &error), LINNET_OK);
    CHECK_INT(linnet_plan_create(model, NULL, &plan, &error), LINNET_OK);
    CHECK_INT(linnet_session_create(plan, store, NULL, &session, &error), LINNET_OK);
    float before[4] = {1, 2, 3, 4}, before_u[4] = {0};
    for (int run = 1; run <= 3; ++run) {
        float add[4] = {(float)run, 0, -1, 10}, read[4];
        CHECK_INT(linnet_session_set(session, "x", add, sizeof add, &error), LINNET_OK);
        CHECK_INT(linnet_run(session, &error), LINNET_OK);
        const float *old = linnet_session_output(session, 0), *fresh = linnet_session_output(session, 1);
        for (int i = 0; i < 4; ++i) CHECK(old[i] == before[i] + before_u[i] && fresh[i] == before[i] + add[i]);
        CHECK_INT(linnet_store_read(store, "u", read, sizeof read, &error), LINNET_OK);
        for (int i = 0; i < 4; ++i) CHECK(read[i] == before[i]);
        memcpy(before_u, before, sizeof before);
        CHECK_INT(linnet_store_read(store, "v", read, sizeof read, &error), LINNET_OK);
        for (int i = 0; i < 4; ++i) CHECK(read[i] == before[i] + add[i]);
        memcpy(before, read, sizeof before);
    }
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_store_free(store);
    linnet_model_free(model);
}

/* A failing run leaves variables unchanged: in one run the gather index is out of range. */
static void failed_run_commits_nothing(void) {
    builder b;
    memset(&b, 0, sizeof b);
    static const ln_gather_attributes take = {0};
    const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(4));
    const int32_t i = build_input(&b, "i", LINNET_I64, DIMS(2));
    const int32_t v = build_variable(&b, "v", LINNET_F32, DIMS(4), NULL);
    const int32_t sum = NODE(&b, LN_OP_MAP, &build_add, "sum", LINNET_F32, v, x);
    NODE(&b, LN_OP_ASSIGN, &matmul, "now", LINNET_F32, v, sum);
    build_output(&b, NODE(&b, LN_OP_GATHER, &take, "picked", LINNET_F32, x, i));
    opened o = open_all(&b, NULL, NULL);
    must(&o);
    float ones[4] = {1, 1, 1, 1};
    int64_t good[2] = {0, 3}, bad[2] = {0, 4};
    linnet_session_set(o.session, "x", ones, sizeof ones, NULL);
    linnet_session_set(o.session, "i", bad, sizeof bad, NULL);
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_INDEX_OUT_OF_RANGE);
    CHECK_TEXT(o.error.op, "picked");
    CHECK_TEXT(o.error.got, "4");
    linnet_session_set(o.session, "i", good, sizeof good, NULL);
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    linnet_session *s = o.session;
    const float *value = ln_store_data(s->store, 0);
    CHECK(value[0] == 1 && value[3] == 1); /* once, not twice */
    close_all(&o);
}

/* nonzero -> take -> relu: two segments; the second is planned for each count. */
static void segments(void) {
    builder b;
    memset(&b, 0, sizeof b);
    static const ln_gather_attributes take = {0};
    const int32_t x = build_input(&b, "x", LINNET_F32, DIMS(16));
    const int32_t nz = NODE(&b, LN_OP_NONZERO, &matmul, "nz", LINNET_I64, x);
    const int32_t some = NODE(&b, LN_OP_GATHER, &take, "some", LINNET_F32, x, nz);
    build_output(&b, NODE(&b, LN_OP_MAP, &build_add, "y", LINNET_F32, some, some));
    build_output(&b, nz);
    counting c = {0};
    const linnet_allocator allocator = counting_allocator(&c);
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.max_bytes = 200000;
    opened o = open_all(&b, &allocator, &config);
    must(&o);
    CHECK_INT(info_of(o.plan).segments, 2);
    CHECK_INT(c.live, info_of(o.plan).total);
    uint64_t bound = 0; /* computing the bound leaks nothing, whichever allocation fails */
    const size_t before = c.live, begun = c.calls;
    CHECK_INT(linnet_plan_bound(o.plan, &bound, &o.error), LINNET_OK);
    const size_t needed = c.calls - begun;
    CHECK(bound > info_of(o.plan).total + 16 * 8 && needed > 3);
    CHECK_INT(c.live, before);
    for (size_t k = 1; k <= needed; ++k) {
        c.fail_at = c.calls + k;
        CHECK_INT(linnet_plan_bound(o.plan, &bound, &o.error), LINNET_OUT_OF_MEMORY);
        CHECK_INT(c.live, before);
    }
    c.fail_at = 0;
    char name[96];
    linnet_tensor_info y = {.struct_size = sizeof y};
    CHECK_INT(linnet_plan_get_output(o.plan, 1, &y), LINNET_OK);
    snprintf(name, sizeof name, "%s", y.name);
    CHECK_INT(linnet_plan_find_output(o.plan, name), 1);
    CHECK_INT(linnet_plan_find_output(o.plan, "no such"), -1);
    CHECK_INT(linnet_plan_find_output(NULL, name), -1);
    CHECK_INT(linnet_plan_find_input(o.plan, name), -1);
    float *in = linnet_session_input(o.session, 0);
    CHECK_INT(linnet_plan_get_output(o.plan, 0, &y),
              LINNET_OK); /* its shape depends on data: no run has given it yet */
    CHECK_INT(linnet_session_get(o.session, y.name, in, 0, &o.error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_session_get(o.session, "no such", in, 8, &o.error), LINNET_UNKNOWN_NAME);
    for (int round = 0; round < 64; ++round) {
        int count = 0, seen = 0;
        for (int i = 0; i < 16; ++i) {
            in[i] = (i * 7 + round) % 17 < round % 17 ? (float)(i + 1) : 0;
            count += in[i] != 0;
        }
        CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
        CHECK_INT(linnet_session_get_output(o.session, 0, &y), LINNET_OK);
        CHECK(y.rank == 2 && y.shape[0] == 1 && y.shape[1] == count);
        const float *data = linnet_session_output(o.session, 0);
        int64_t indices[17];
        const size_t bytes = (size_t)count * sizeof *indices;
        CHECK_INT(linnet_session_get(o.session, name, indices, bytes, &o.error), LINNET_OK);
        CHECK_INT(linnet_session_get(o.session, name, indices, bytes + 1, &o.error), LINNET_WRONG_SHAPE);
        for (int i = 0; i < 16; ++i)
            if (in[i] != 0) {
                CHECK_INT(indices[seen], i);
                CHECK(data[seen++] == 2 * in[i]);
            }
    }
    CHECK(c.live <= config.max_bytes && c.live > info_of(o.plan).total);
    const size_t calls = c.calls;
    CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    CHECK_INT(c.calls, calls); /* known shapes allocate nothing */
    close_all(&o);
    CHECK_INT(c.live, 0);
}

static void a_device_takes_its_part(void) {
    builder b;
    two_layers(&b, 4);
    linnet_device_list list;
    linnet_device_list_init(&list);
    CHECK_INT(linnet_extension_devices(linnet_device_host(), "", &list), 0);
    CHECK_INT(list.count, 1);
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.devices = list.devices;
    config.device_count = list.count;
    opened o = open_all(&b, NULL, &config);
    must(&o);
    int on_device = 0, on_cpu = 0;
    for (int i = 0; i < info_of(o.plan).steps; ++i) {
        linnet_step_info step = {.struct_size = sizeof step};
        CHECK_INT(linnet_plan_get_step(o.plan, i, &step), LINNET_OK);
        if (strcmp(step.op, "matmul") == 0) {
            CHECK_TEXT(step.device, "toy");
            ++on_device;
        }
        if (strcmp(step.op, "map") == 0) {
            CHECK_TEXT(step.device, "cpu");
            ++on_cpu;
        }
    }
    CHECK_INT(on_device, 2);
    CHECK_INT(on_cpu, 2);
    float *x = linnet_session_input(o.session, 0);
    for (int i = 0; i < 4 * 64; ++i) x[i] = (float)(i % 5) - 2;
    const int uploaded = toy_count(1);
    CHECK_INT(uploaded, 1); /* the constant is uploaded once */
    linnet_plan_device_info toy;
    linnet_plan_device_info_init(&toy);
    CHECK_INT(linnet_plan_get_device(o.plan, 0, &toy), LINNET_OK);
    CHECK_INT(linnet_plan_get_device(o.plan, 1, &toy), LINNET_INVALID_ARGUMENT);
    CHECK_TEXT(toy.name, "toy");
    CHECK_INT(toy.steps, 2);
    CHECK(toy.total > 0 && toy.total == toy.activations + toy.constants);
    CHECK_INT(toy.total, toy_count(5));
    CHECK_INT(info_of(o.plan).devices, toy_count(5));
    for (int run = 0; run < 2; ++run) CHECK_INT(linnet_run(o.session, &o.error), LINNET_OK);
    expect_two_layers(x, linnet_session_output(o.session, 0), 4);
    CHECK_INT(toy_count(0), 4);
    CHECK_INT(toy_count(1), uploaded + 4);
    CHECK_INT(toy_count(2), 4);
    close_all(&o);
    CHECK_INT(toy_count(3), 0);
    CHECK_INT(toy_count(4), 0);
}

static void errors_name_what(void) {
    builder b;
    two_layers(&b, -1);
    linnet_model *model = build_model(&b, NULL);
    linnet_plan *plan;
    linnet_error error;
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_UNKNOWN_SHAPE);
    CHECK_TEXT(error.tensor, "x");
    linnet_shape shape = {"x", 2, {7, 63}};
    config.shapes = &shape;
    config.shape_count = 1;
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_WRONG_SHAPE);
    shape.dims[1] = 64;
    config.signature = "other";
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_UNKNOWN_NAME);
    config.signature = NULL;
    config.max_bytes = 1000;
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_TOO_LARGE);
    CHECK(plan == NULL);
    config.max_bytes = 0;
    const char *fetch = "nowhere";
    config.fetches = &fetch;
    config.fetch_count = 1;
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_UNKNOWN_NAME);
    CHECK_TEXT(error.tensor, "nowhere");
    fetch = "r";
    CHECK_INT(linnet_plan_create(model, &config, &plan, &error), LINNET_OK);
    CHECK(info_of(plan).steps <= 2); /* steps that the fetched outputs do not need are left out */
    linnet_plan_free(plan);
    linnet_model_free(model);
}

int main(void) {
    fill_weights();
    total_is_exact();
    plans_share_packed_weights();
    every_allocation_may_fail();
    arena_of_the_caller();
    memory_is_shared();
    variables_change_at_the_end();
    failed_run_commits_nothing();
    segments();
    a_device_takes_its_part();
    errors_name_what();
    return check_end("test_plan");
}
