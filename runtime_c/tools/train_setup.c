/* train_setup.c - prepares everything before the first step within the memory limit: model, variables, data, plans.
 * If whole batches do not fit, gradients are accumulated over parts of them. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "train_setup.h"

#include "linnet_ext.h"
#include "open.h"
#include "train_data.h"
#include "train_keep.h"
#include "train_lock.h"
#include "train_program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

program_options trainer_options(const trainer *t) {
    const tool_options *c = &t->o->common;
    return (program_options){.tool = t->tool,
                             .isa_max = c->isa_max,
                             .devices = c->devices,
                             .device_count = c->n_devices,
                             .placement = c->placement,
                             .placement_count = c->n_placement,
                             .cluster = c->cluster,
                             .cluster_count = c->n_tasks,
                             .threads = c->threads,
                             .allocator = &t->memory.allocator,
                             .arena = t->arena,
                             .arena_size = t->arena_bytes};
}

static const char *train_signature(const trainer *t) {
    return t->o->common.signature ? t->o->common.signature : "train";
}

static int find_signature(const trainer *t, const char *name, const char *option) {
    const int found = linnet_model_find_signature(t->model, name);
    if (found < 0) tool_no_signature(&t->o->common, t->model, name, option);
    return found;
}

/* If the model's structures do not fit into the limit, removes the limit to find how much memory would be enough.
 * memory.refused stays set. If the variables do not fit, they are only counted. */
static int open_model(trainer *t) {
    linnet_error error;
    linnet_model_config config;
    linnet_model_config_init(&config);
    config.allocator = &t->memory.allocator;
    if (!tool_user_ops(t->o->common.tool, t->o->common.user_ops, &config)) return TOOL_FAILED;
    linnet_status status = linnet_model_open(t->o->common.model, &config, &t->model, &error);
    if (status == LINNET_OUT_OF_MEMORY && t->memory.refused) {
        t->memory.limit = 0;
        status = linnet_model_open(t->o->common.model, &config, &t->model, &error);
    }
    if (status == LINNET_OK) {
        const size_t variables = linnet_model_store_bytes(t->model);
        if (t->memory.limit && variables > t->memory.limit - t->memory.live) t->memory.refused = true;
        if (t->memory.refused)
            t->memory.limit = 0, memory_count(&t->memory, variables);
        else
            status = linnet_store_create(t->model, &t->memory.allocator, &t->store, &error);
    }
    t->own_bytes = t->memory.live;
    return status == LINNET_OK ? TOOL_OK : tool_fail_record(t->tool, &error);
}

static int open_data(trainer *t) {
    const train_options *o = t->o;
    int signature = find_signature(t, train_signature(t), "--signature"), status;
    long long fixed;
    if (signature < 0) return TOOL_FAILED;
    t->data.tool = t->eval_data.tool = t->tool;
    if ((status = data_open(&t->data, "--data", &o->data, t->model, signature))) return status;
    fixed = data_fixed_batch(&t->data);
    if (fixed && o->batch && fixed != o->batch)
        return tool_usage(t->tool, "--batch %ld: the batch size of signature '%s' is fixed at %lld", o->batch,
                          train_signature(t), fixed);
    t->batch = t->part = fixed ? fixed : o->batch;
    if (!t->batch)
        return tool_usage(t->tool, "signature '%s' has no fixed batch size; give --batch N", train_signature(t));
    t->per_epoch = t->data.rows / t->batch;
    if (!t->per_epoch)
        return tool_fail(
            t->tool, "the data has %lld examples, fewer than one batch of %lld; give a smaller --batch or more data",
            t->data.rows, t->batch);
    t->steps = o->steps_given ? o->steps : (o->epochs ? o->epochs : 1) * t->per_epoch;
    if (!o->eval.n_files) return TOOL_OK;
    signature = find_signature(t, o->eval_signature, "--eval-signature");
    return signature < 0 ? TOOL_FAILED : data_open(&t->eval_data, "--eval", &o->eval, t->model, signature);
}

static void free_room(trainer *t) {
    if (t->room) t->memory.allocator.free(&t->memory, t->room, t->room_bytes);
    if (t->rows) t->memory.allocator.free(&t->memory, t->rows, t->rows_bytes);
    t->room = t->rows = NULL;
}

/* Finds the sizes of the loop's own buffers. */
static void measure_room(trainer *t) {
    t->room_bytes = 0;
    for (int i = 0; i < linnet_model_variable_count(t->model); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_model_get_variable(t->model, i, &info) == LINNET_OK && info.bytes > t->room_bytes)
            t->room_bytes = info.bytes;
    }
    const long long evaluated = t->eval_data.n ? data_fixed_batch(&t->eval_data) : 0;
    t->rows_bytes = (size_t)(evaluated > t->batch ? evaluated : t->batch) * sizeof *t->rows;
    t->room_bytes = (t->room_bytes + 63) / 64 * 64 + 64;
    t->rows_bytes = (t->rows_bytes + 63) / 64 * 64;
}

/* Allocates the loop's own buffers, which count towards the limit like everything else. */
static bool take_room(trainer *t) {
    measure_room(t);
    t->room = t->memory.allocator.alloc(&t->memory, t->room_bytes, 64);
    t->rows = t->memory.allocator.alloc(&t->memory, t->rows_bytes, 64);
    return t->room && t->rows;
}

static void free_programs(trainer *t) {
    for (int i = 0; i < PROGRAMS; i++) program_free(&t->programs[i]);
    if (t->arena) t->memory.allocator.free(&t->memory, t->arena, t->arena_bytes);
    t->arena = NULL;
}

/* `max_bytes` is 0 for all programs except TRAIN. */
static linnet_status plan(trainer *t, int which, const char *signature, const dataset *d, long long batch,
                          uint64_t max_bytes, linnet_error *error) {
    program *p = &t->programs[which];
    program_options o = trainer_options(t);
    const size_t before = t->memory.live;
    linnet_plan_info info = {.struct_size = sizeof info};
    linnet_status status;
    o.signature = signature;
    o.max_bytes = max_bytes;
    status = program_plan(p, &o, t->model, d, batch, error);
    if (status || linnet_plan_get_info(p->plan, &info)) return status;
    const uint64_t rest = t->own_bytes + (t->memory.live - before) + info.activations + info.scratch;
    t->session_bytes += info.total > rest ? (size_t)(info.total - rest) : 0;
    return status;
}

/* TRAIN is planned last, with the part of `budget` that the other programs leave (0: no limit, 1: the smallest possible
 * plan). If necessary, values are recomputed instead of kept. */
static linnet_status plan_all(trainer *t, size_t budget, linnet_error *error) {
    linnet_status status = LINNET_OK;
    size_t taken;
    t->session_bytes = 0;
    if (t->accumulates) status = plan(t, APPLY, "apply", NULL, 0, 0, error);
    if (status == LINNET_OK && t->eval_data.n) {
        const long long fixed = data_fixed_batch(&t->eval_data), all = t->eval_data.rows;
        const long long batch = fixed ? fixed : t->part < all ? t->part : all;
        status = plan(t, EVAL, t->o->eval_signature, &t->eval_data, batch, 0, error);
        if (status == LINNET_OK && !fixed && all % batch)
            status = plan(t, REST, t->o->eval_signature, &t->eval_data, all % batch, 0, error);
    }
    if (status) return status;
    taken = t->memory.live - t->own_bytes + t->session_bytes;
    return plan(t, TRAIN, t->accumulates ? "accumulate" : train_signature(t), &t->data, t->part,
                budget > taken ? budget - taken : budget > 0, error);
}

linnet_status trainer_start(trainer *t, bool count_special, linnet_error *error) {
    program_options o = trainer_options(t);
    linnet_status status = LINNET_OK;
    o.count_special = count_special;
    for (int i = 0; i < PROGRAMS && status == LINNET_OK; i++)
        if (t->programs[i].plan) status = program_start(&t->programs[i], &o, t->store, error);
    return status;
}

/* Plans all programs, with batches cut into parts of `part` examples, and finds the size of their arena. */
static linnet_status plan_parts(trainer *t, long long part, linnet_error *error) {
    linnet_status status;
    t->accumulates = part < t->batch;
    t->part = part;
    status = plan_all(t, t->memory.limit, error);
    t->arena_bytes = 64;
    for (int i = 0; i < PROGRAMS; i++) {
        const size_t bytes = program_arena(&t->programs[i]);
        if (bytes > t->arena_bytes) t->arena_bytes = bytes;
    }
    t->arena_bytes = (t->arena_bytes + 63) / 64 * 64;
    return status;
}

/* Plans and starts all programs. */
static linnet_status make_programs(trainer *t, long long part, linnet_error *error) {
    linnet_status status = plan_parts(t, part, error);
    if (status == LINNET_OK && !(t->arena = t->memory.allocator.alloc(&t->memory, t->arena_bytes, 64))) {
        *error = (linnet_error){.code = LINNET_OUT_OF_MEMORY, .what = "cannot allocate the activations"};
        status = LINNET_OUT_OF_MEMORY;
    }
    if (status == LINNET_OK) status = trainer_start(t, false, error);
    if (status) free_programs(t);
    return status;
}

static bool can_accumulate(const trainer *t) {
    return linnet_model_find_signature(t->model, "accumulate") >= 0 &&
           linnet_model_find_signature(t->model, "apply") >= 0 && !data_fixed_batch(&t->data);
}

static bool too_large(const trainer *t, linnet_status status) {
    return (status == LINNET_OUT_OF_MEMORY && t->memory.refused) || status == LINNET_TOO_LARGE;
}

/* Returns the smallest memory limit under which, according to the plans, the programs for this part size can run.
 * Returns 0 on an error. */
static size_t least_for(trainer *t, long long part, linnet_error *error) {
    unsigned long long train = 0;
    size_t beside;
    linnet_status status;
    t->accumulates = part < t->batch;
    t->part = part;
    t->memory.peak = t->memory.live;
    status = plan_all(t, 1, error);
    beside = t->memory.live - t->own_bytes + t->session_bytes;
    free_programs(t);
    if (status != LINNET_TOO_LARGE || sscanf(error->got, "%llu", &train) != 1) return 0;
    return t->memory.peak > beside + train ? t->memory.peak : (size_t)train + beside;
}

/* Whether planning for parts of this size, and what the programs then take, stay within the limit. */
static bool would_fit(trainer *t, long long part, linnet_error *error) {
    linnet_status status = plan_parts(t, part, error);
    const size_t plans = t->memory.live;
    if (status == LINNET_OK && !memory_count(&t->memory, t->arena_bytes + t->session_bytes)) status = LINNET_TOO_LARGE;
    error->code = status;
    t->memory.live = plans;
    free_programs(t);
    return status == LINNET_OK;
}

/* Called when nothing fits: finds and reports how much memory would be enough. From here on, variables, buffers and
 * arenas are only counted, because they may be larger than the machine's memory. */
static int refuse(trainer *t) {
    linnet_error error;
    size_t least = SIZE_MAX;
    long long part = t->batch;
    char way[160] = "", given[32];
    free_programs(t);
    t->memory.limit = 0;
    free_room(t);
    measure_room(t);
    memory_count(&t->memory, t->room_bytes + t->rows_bytes);
    for (long long parts = 1; parts <= (can_accumulate(t) ? t->batch : 1); parts++) {
        size_t bytes;
        if (t->batch % parts != 0) continue;
        if (!(bytes = least_for(t, t->batch / parts, &error))) return tool_fail_record(t->tool, &error);
        if (bytes >= least) continue;
        least = bytes;
        part = t->batch / parts;
    }
    /* Planning with this limit may need a little more than the plans say. The reported limit has been counted. */
    for (t->memory.limit = least; !would_fit(t, part, &error); t->memory.limit += t->memory.limit / 32)
        if (!too_large(t, (linnet_status)error.code)) return tool_fail_record(t->tool, &error);
    if (!can_accumulate(t))
        snprintf(way, sizeof way,
                 "; a smaller --batch needs less, and so does a file with the signatures 'accumulate' and 'apply' "
                 "(linnet.training.signatures)");
    else if (part < t->batch)
        snprintf(way, sizeof way, ", with gradients accumulated over parts of %lld example%s", part,
                 part == 1 ? "" : "s");
    if (t->o->common.memory < 10000) /* so few that they would be 0.00 MB */
        snprintf(given, sizeof given, "%zu byte%s", (size_t)t->o->common.memory,
                 t->o->common.memory == 1 ? " is" : "s are");
    else
        snprintf(given, sizeof given, "%.2f MB is", (double)t->o->common.memory / 1e6);
    return tool_fail(t->tool, "--memory: %s not enough; training needs %.2f MB (%zu bytes)%s", given,
                     (double)t->memory.limit / 1e6, t->memory.limit, way);
}

/* Tries whole batches first, if necessary with recomputation, which does not change the result. Then tries smaller and
 * smaller parts. */
static int plan_within(trainer *t) {
    linnet_error error;
    linnet_status status = make_programs(t, t->batch, &error);
    for (long long parts = 2; too_large(t, status) && can_accumulate(t) && parts <= t->batch; parts++)
        if (t->batch % parts == 0) status = make_programs(t, t->batch / parts, &error);
    if (too_large(t, status)) return refuse(t);
    if (status) return tool_fail_record(t->tool, &error);
    if (!t->programs[TRAIN].n_scalars || strcmp(t->programs[TRAIN].names[0], "loss") != 0)
        return tool_fail(t->tool,
                         "signature '%s' has no scalar output 'loss'; give the loss this name in graph.signature",
                         t->programs[TRAIN].signature);
    return TOOL_OK;
}

/* ---- continuing from a checkpoint ------------------------------------------------------------------------------- */

static bool number_of(const linnet_model *checkpoint, const char *key, long long *value) {
    const char *text = linnet_model_metadata(checkpoint, key);
    char *end;
    if (!text || !*text) return false;
    *value = strtoll(text, &end, 10);
    return !*end && *value >= 0;
}

/* Restores the position of the checkpoint. The order of the data must be the one with which the training began. */
static int take_position(trainer *t, const linnet_model *checkpoint) {
    const char *path = t->o->checkpoint;
    long long step = 0, seed = 0, batch = 0, examples = 0;
    if (!number_of(checkpoint, "step", &step) || !number_of(checkpoint, "seed", &seed) ||
        !number_of(checkpoint, "batch", &batch) || !number_of(checkpoint, "examples", &examples))
        return tool_fail(t->tool,
                         "%s does not record step, seed, batch and examples, so linnet-train did not write it; give "
                         "--fresh to start from the model's values",
                         path);
    if (batch != t->batch || examples != t->data.rows)
        return tool_fail(
            t->tool,
            "%s was written with batches of %lld out of %lld examples, but this run has %lld out of %lld, so the order "
            "of the data would differ; give the same data and --batch, or --fresh to start again",
            path, batch, examples, t->batch, t->data.rows);
    if (t->o->seed_given && (uint64_t)seed != t->seed)
        return tool_usage(t->tool,
                          "--seed %llu: %s was written with seed %lld; give that seed, or --fresh to start again",
                          (unsigned long long)t->seed, path, seed);
    t->seed = (uint64_t)seed;
    t->step = t->saved = step;
    return TOOL_OK;
}

static int resume(trainer *t) {
    const char *path = t->o->checkpoint;
    linnet_model *checkpoint = NULL;
    linnet_error error;
    int status;
    if (!path || t->o->fresh || access(path, F_OK) != 0) return TOOL_OK;
    if (linnet_store_load(t->store, path, &error) || linnet_model_open(path, NULL, &checkpoint, &error))
        return tool_fail_record(t->tool, &error);
    status = take_position(t, checkpoint);
    linnet_model_free(checkpoint);
    return status;
}

int trainer_open(trainer *t, const train_options *o) {
    int status;
    *t = (trainer){.o = o, .tool = o->common.tool, .seed = o->common.seed};
    memory_init(&t->memory, o->common.memory);
    status = trainer_check_checkpoint(t);
    if (status == TOOL_OK) status = trainer_lock(t);
    if (status == TOOL_OK) status = open_model(t);
    if (status == TOOL_OK) status = open_data(t);
    if (status == TOOL_OK && (!take_room(t) || t->memory.refused)) return refuse(t);
    if (status == TOOL_OK) status = plan_within(t);
    return status == TOOL_OK ? resume(t) : status;
}

void trainer_close(trainer *t) {
    trainer_unlock(t);
    free_programs(t);
    free_room(t);
    data_close(&t->data);
    data_close(&t->eval_data);
    linnet_store_free(t->store);
    linnet_model_free(t->model);
}
