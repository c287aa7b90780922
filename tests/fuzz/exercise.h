/* exercise.h - opens a model in memory, plans its signatures in random ways and runs them with hostile inputs, in
 * bounded memory. Every failure must have an error record and leak nothing; sanitizers find the rest. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include "exercise_get.h"

enum { EXERCISE_SHAPES = 16, EXERCISE_NAMES = 3, EXERCISE_PORTS = 8, LOOP_NS = 200000000 };

/* What a plan is made with, for as long as the plan is being made. */
typedef struct wishes {
    linnet_shape shapes[EXERCISE_SHAPES], bounds[EXERCISE_SHAPES], feeds[EXERCISE_NAMES];
    const char *fetches[EXERCISE_NAMES];
    linnet_placement placement;
    char tuning[5000];
} wishes;

/* The memory that is bound to a session's inputs and outputs. */
typedef struct bound {
    void *memory[2 * EXERCISE_PORTS];
    int count;
} bound;

static bool go_on(void *context) {
    (void)context;
    return false;
}

/* The host's own threads, which take the parts of the work from the last to the first. */
static void backwards(void *context, linnet_task task, void *task_context, int count) {
    (void)context;
    while (count-- > 0) task(task_context, count);
}

static void *exact_memory(bound *b, size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? bytes : 1)) exit(3);
    return b->memory[b->count++] = memory;
}

/* Binds a random part of the inputs and outputs to memory of exactly their size. */
static void bind_some(fuzz *f, linnet_session *session, const linnet_plan *plan, bound *b) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    linnet_error error;
    for (int i = 0; i < linnet_plan_input_count(plan) && i < EXERCISE_PORTS; i++) {
        if (mutant_below(&f->m, 3) || linnet_plan_get_input(plan, i, &info)) continue;
        const linnet_status status =
            linnet_session_bind_input(session, i, exact_memory(b, info.bytes), info.bytes, &error);
        check_record(NULL, &error, status);
        f->bound += status == LINNET_OK;
    }
    for (int i = 0; i < linnet_plan_output_count(plan) && i < EXERCISE_PORTS; i++) {
        if (mutant_below(&f->m, 3) || linnet_plan_get_output(plan, i, &info)) continue;
        const linnet_status status =
            linnet_session_bind_output(session, i, exact_memory(b, info.bytes), info.bytes, &error);
        check_record(NULL, &error, status);
        f->bound += status == LINNET_OK;
    }
    if (mutant_below(&f->m, 4) == 0) check_record(NULL, &error, linnet_session_bind_input(session, 0, NULL, 0, &error));
    if (f->devices != NULL && mutant_below(&f->m, 4) == 0) { /* tests/ext/mock_driver.c binds memory that exists */
        const linnet_span wrong = {.buffer = 1, .offset = 32, .bytes = 1 + (uint64_t)mutant_below(&f->m, 64)};
        const int output = (int)mutant_below(&f->m, 2), at = (int)mutant_below(&f->m, 3) - 1;
        const linnet_span *span = mutant_below(&f->m, 2) ? &wrong : NULL;
        check_record(NULL, &error, linnet_session_bind_device(session, output, at, f->devices[0], span, &error));
    }
    if (mutant_below(&f->m, 4) == 0)
        check_record(NULL, &error, linnet_session_bind_output(session, 0, NULL, 0, &error));
}

static void give_inputs(fuzz *f, linnet_session *session, const linnet_plan *plan) {
    linnet_tensor_info input = {.struct_size = sizeof input};
    linnet_error error;
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        if (linnet_plan_get_input(plan, i, &input)) continue;
        unsigned char *to = linnet_session_input(session, i);
        fill_input(f, &input, to);
        if (mutant_below(&f->m, 8)) continue;
        unsigned char *copy = malloc(input.bytes ? input.bytes : 1);
        if (!copy) exit(3);
        fill_input(f, &input, copy);
        check_record(NULL, &error, linnet_session_set(session, input.name, copy, input.bytes, &error));
        free(copy);
    }
}

/* Copies outputs by name, some of them into too little memory. */
static void get_outputs(fuzz *f, const linnet_session *session, const linnet_plan *plan) {
    linnet_tensor_info output = {.struct_size = sizeof output};
    linnet_error error;
    for (int i = 0; i < linnet_plan_output_count(plan); i++) {
        if (linnet_session_get_output(session, i, &output) || output.bytes > 1 << 20) continue;
        if (linnet_plan_find_output(plan, output.name) < 0 || linnet_plan_find_input(plan, output.name) < -1) exit(3);
        const size_t bytes = mutant_below(&f->m, 8) ? output.bytes : output.bytes / 2;
        unsigned char *copy = malloc(bytes ? bytes : 1);
        if (!copy) exit(3);
        check_record(NULL, &error, linnet_session_get(session, output.name, copy, bytes, &error));
        free(copy);
    }
}

static void run_once(fuzz *f, linnet_session *session, const linnet_plan *plan, int stage) {
    static const int ended = 1, goes_on = 0;
    linnet_run_config how;
    linnet_error error;
    linnet_run_config_init(&how);
    linnet_plan_info info = {.struct_size = sizeof info};
    /* A later segment, which nobody has planned yet, may have an endless loop too. */
    const bool loops = stage == AT_LOOP || linnet_plan_get_info(plan, &info) || info.segments > 1;
    if (loops) how.timeout_ns = LOOP_NS;
    if (mutant_below(&f->m, 4) == 0) how.poll = go_on;
    if (mutant_below(&f->m, 4) == 0) how.cancel = mutant_below(&f->m, 4) ? &goes_on : &ended;
    if (mutant_below(&f->m, 32) == 0) how.timeout_ns = 1;
    give_inputs(f, session, plan);
    linnet_status status;
    if (!loops && mutant_below(&f->m, 4) == 0) {
        status = linnet_session_submit(session, &error);
        if (status == LINNET_OK) status = linnet_session_wait(session, NULL, &error);
    } else {
        status =
            !loops && mutant_below(&f->m, 2) ? linnet_run(session, &error) : linnet_run_with(session, &how, &error);
    }
    check_record(NULL, &error, status);
    f->codes[status < 600 ? status : 599]++;
    f->ran += status == LINNET_OK;
    if (status == LINNET_OK) get_outputs(f, session, plan);
    get_session(session, plan);
}

/* Creates a session, and perhaps another one that shares its snapshot, and runs them. */
static void run_session(fuzz *f, linnet_model *model, linnet_plan *plan, const linnet_plan_info *info, bool snapshot,
                        int stage) {
    linnet_store *store = NULL;
    linnet_session *session = NULL, *second = NULL;
    linnet_session_config config;
    linnet_error error;
    bound b = {.count = 0};
    void *arena = NULL;
    linnet_session_config_init(&config);
    if (mutant_below(&f->m, 64) == 0) { /* seldom, because it reads a file per core */
        config.bind_threads = 1;
        linnet_bind_thread((int)mutant_below(&f->m, 4) - 2, NULL);
        linnet_bind_thread(-1, NULL);
    }
    config.trace = mutant_below(&f->m, 4) == 0;
    config.count_special = mutant_below(&f->m, 8) == 0;
    config.parallel_for = mutant_below(&f->m, 4) == 0 ? backwards : NULL;
    config.max_bytes = mutant_below(&f->m, 8) == 0 ? info->total : 0;
    if (mutant_below(&f->m, 8) == 0) {
        config.arena_size = info->activations + info->scratch;
        if (posix_memalign(&arena, 64, config.arena_size ? config.arena_size : 1)) exit(3);
        config.arena = arena;
    }
    if (mutant_below(&f->m, 2)) {
        const size_t needed = linnet_model_store_bytes(model);
        check_record(store, &error, linnet_store_create(model, NULL, &store, &error));
        if (store && needed == 0) abort(); /* a store without variables takes a few bytes too */
        if (store) use_store(f, model, store);
    }
    const linnet_status status = linnet_session_create(plan, store, &config, &session, &error);
    check_record(session, &error, status);
    if (session && snapshot && store && mutant_below(&f->m, 2)) {
        config.arena = NULL;
        config.share_snapshot = session;
        check_record(second, &error, linnet_session_create(plan, store, &config, &second, &error));
    }
    /* A device that refuses a step at `prepare` gives the session a plan of its own. */
    if (session && mutant_below(&f->m, 2)) bind_some(f, session, linnet_session_plan(session), &b);
    for (int round = 0; session && round < 2; round++) {
        run_once(f, session, linnet_session_plan(session), stage);
        if (second) run_once(f, second, linnet_session_plan(second), stage);
        if (store && mutant_below(&f->m, 2)) use_store(f, model, store);
    }
    linnet_session_free(second);
    linnet_session_free(session);
    linnet_store_free(store);
    while (b.count > 0) free(b.memory[--b.count]);
    free(arena);
}

/* Runs the plan if this takes only moments. */
static void run(fuzz *f, linnet_model *model, linnet_plan *plan, bool snapshot) {
    linnet_plan_info info = {.struct_size = sizeof info};
    uint64_t flops = 0, bytes = 0;
    int stage = AT_RUN;
    if (linnet_plan_get_info(plan, &info)) return;
    for (int i = 0; i < info.steps; i++) {
        linnet_step_info step = {.struct_size = sizeof step};
        if (linnet_plan_get_step(plan, i, &step)) return;
        if (!strcmp(step.op, "while")) stage = AT_LOOP;
        f->placed += strcmp(step.device, "cpu") != 0;
        flops += step.flops;
        bytes += step.bytes;
    }
    if (flops > most_flops || bytes > most_run_bytes || (stage == AT_LOOP && !f->stage)) return;
    exercise_at(f, stage);
    run_session(f, model, plan, &info, snapshot, stage);
}

/* Gives every open dimension a size. Returns whether there is one. */
static bool fill_shape(fuzz *f, const linnet_tensor_info *info, linnet_shape *shape, size_t most) {
    bool open = info->rank < 0;
    shape->input = info->name;
    shape->rank = open ? (int)mutant_below(&f->m, 4) : info->rank;
    for (int d = 0; d < shape->rank; d++) {
        const bool unknown = info->rank < 0 || info->shape[d] < 0;
        shape->dims[d] = unknown ? (int64_t)mutant_below(&f->m, most) : info->shape[d];
        open |= unknown;
    }
    return open;
}

static void choose_names(fuzz *f, const linnet_model *model, int signature, wishes *w, linnet_plan_config *config) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    config->feeds = w->feeds;
    config->fetches = w->fetches;
    while (config->feed_count < EXERCISE_NAMES && mutant_below(&f->m, 4) == 0) {
        linnet_shape *feed = &w->feeds[config->feed_count];
        int node = 0;
        feed->input = result_name(f, model, signature, 0, &node);
        feed->rank = -1;
        if (linnet_model_get_tensor(model, signature, feed->input, &info) == LINNET_OK &&
            (info.bytes == 0 || mutant_below(&f->m, 4) == 0)) {
            const char *name = feed->input;
            fill_shape(f, &info, feed, 5);
            feed->input = name;
        }
        config->feed_count++;
        if (mutant_below(&f->m, 2)) /* what is computed from the fed tensor is needed only if it is fetched */
            w->fetches[config->fetch_count++] = result_name(f, model, signature, node, &node);
    }
    while (config->fetch_count < EXERCISE_NAMES && mutant_below(&f->m, 6) == 0)
        w->fetches[config->fetch_count++] = tensor_name(f, model, signature);
    if (config->fetch_count == 0) config->fetches = NULL;
}

static void choose(fuzz *f, linnet_model *model, int signature, wishes *w, linnet_plan_config *config) {
    int levels = 0;
    while (linnet_isa_name(levels)) levels++;
    linnet_plan_config_init(config);
    config->signature = linnet_model_signature_name(model, signature);
    config->threads = 1 + (int)mutant_below(&f->m, 2);
    config->max_bytes = most_bytes;
    config->reference = mutant_below(&f->m, 3) == 0;
    config->isa_max = mutant_below(&f->m, 2) ? linnet_isa_name((int)mutant_below(&f->m, (size_t)levels)) : NULL;
    config->strict_dims = mutant_below(&f->m, 8) == 0;
    config->snapshot = mutant_below(&f->m, 4) == 0;
    config->separate_outputs = mutant_below(&f->m, 3) == 0;
    /* Choices of their own would change the meaning of the corpus. */
    config->passes = config->separate_outputs;
    config->whole_branches = config->separate_outputs;
    config->precision = 2 * config->separate_outputs + config->snapshot;
    config->shapes = w->shapes;
    const bool bounds = mutant_below(&f->m, 8) == 0;
    for (int i = 0; i < linnet_model_input_count(model, signature) && i < EXERCISE_SHAPES; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_model_get_input(model, signature, i, &info)) continue;
        config->shape_count += fill_shape(f, &info, &w->shapes[config->shape_count], 5);
        if (bounds) config->bound_count += fill_shape(f, &info, &w->bounds[config->bound_count], 9);
    }
    if (bounds) {
        config->bounds = w->bounds;
        config->reference = (int)mutant_below(&f->m, 3);
    }
    choose_names(f, model, signature, w, config);
    if (f->devices == NULL || mutant_below(&f->m, 2)) return;
    f->change_devices(f);
    config->devices = f->devices;
    config->device_count = 1 + (int)mutant_below(&f->m, (size_t)f->device_count);
    w->placement = (linnet_placement){mutant_below(&f->m, 2) ? "*" : tensor_name(f, model, signature),
                                      mutant_below(&f->m, 2) ? "cpu" : "mock"};
    config->placement = &w->placement;
    config->placement_count = mutant_below(&f->m, 6) == 0;
}

static void plan(fuzz *f, linnet_model *model, int signature) {
    static wishes w;
    linnet_plan_config config;
    linnet_plan *made = NULL;
    linnet_error error;
    choose(f, model, signature, &w, &config);
    for (int round = 0; round < 2; round++) {
        exercise_at(f, AT_PLAN);
        const linnet_status status = linnet_plan_create(model, &config, &made, &error);
        f->codes[status < 600 ? status : 599]++;
        check_record(made, &error, status);
        w.tuning[0] = 0;
        if (status == LINNET_OK) {
            f->planned += round == 0;
            f->fed += config.feed_count > 0;
            get_plan(f, made, w.tuning, sizeof w.tuning);
            run(f, model, made, config.snapshot);
        }
        linnet_plan_free(made);
        made = NULL;
        if (w.tuning[0] == 0) return; /* otherwise plans again, with another kernel */
        config.tuning = w.tuning;
    }
}

/* Exercises the model in `bytes`, whose end AddressSanitizer should know. */
static void exercise(fuzz *f, const void *bytes, size_t size) {
    linnet_allocator allocator = {f, bounded_alloc, bounded_free};
    linnet_model_config config;
    linnet_verified found = {.struct_size = sizeof found};
    linnet_model *model = NULL;
    linnet_error error;
    linnet_status status;
    exercise_at(f, AT_OPEN);
    linnet_model_config_init(&config);
    config.allocator = &allocator;
    config.verify = -1; /* otherwise few mutants would get further than verification */
    config.user_ops = f->user_ops;
    config.user_op_count = f->user_op_count;
    status = linnet_model_open_memory(bytes, size, mutant_below(&f->m, 4) == 0, &config, &model, &error);
    f->codes[status < 600 ? status : 599]++;
    check_record(model, &error, status);
    if (status == LINNET_OK) {
        f->opened++;
        get_model(f, model);
        check_record(NULL, &error, linnet_model_verify(model, (int)mutant_below(&f->m, 2), &found, &error));
        for (int i = 0; i < linnet_model_signature_count(model) && i < 4; i++) plan(f, model, i);
    }
    linnet_model_free(model);
    if (f->live) {
        printf("exercise: %zu bytes were not given back\n", f->live);
        exit(4);
    }
}

static void exercise_counts(const fuzz *f) {
    for (int code = 1; code < 600; code++)
        if (f->codes[code]) printf(" %s %ld", linnet_status_name(code), f->codes[code]);
    printf("\n");
}

#endif
