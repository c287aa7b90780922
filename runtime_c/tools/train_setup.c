/* train_setup.c - everything that has to be there before the first step, within the budget: model, variables, data,
 * plans. A budget that whole batches do not fit into is met by accumulating gradients over parts of them. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

program_options trainer_options(const trainer *t, const char *signature) {
    const tool_options *c = &t->o->common;
    return (program_options){t->tool, signature, c->isa_max, c->threads, &t->memory.allocator, false};
}

static const char *train_signature(const trainer *t) {
    return t->o->common.signature ? t->o->common.signature : "train";
}

static int find_signature(const trainer *t, const char *name, const char *option) {
    const int found = linnet_model_find_signature(t->model, name);
    if (found < 0) {
        char list[256] = "";
        for (int i = 0; i < linnet_model_signature_count(t->model); i++) {
            const size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, " %s", linnet_model_signature_name(t->model, i));
        }
        tool_fail(t->tool,
                  "%s has no signature '%s', it has:%s; give %s NAME, or make one in Python with "
                  "graph.signature",
                  t->o->common.model, name, list[0] ? list : " none", option);
    }
    return found;
}

static int open_model(trainer *t) {
    linnet_model_config config;
    linnet_error error;
    linnet_model_config_init(&config);
    config.allocator = &t->memory.allocator;
    if (linnet_model_open(t->o->common.model, &config, &t->model, &error) ||
        linnet_store_create(t->model, &t->memory.allocator, &t->store, &error))
        return tool_fail_record(t->tool, &error);
    return TOOL_OK;
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
        return tool_usage(t->tool, "--batch %ld: signature '%s' is made for batches of %lld", o->batch,
                          train_signature(t), fixed);
    t->batch = t->part = fixed ? fixed : o->batch;
    if (!t->batch)
        return tool_usage(t->tool, "signature '%s' takes batches of any size: give --batch N", train_signature(t));
    t->per_epoch = t->data.rows / t->batch;
    if (!t->per_epoch)
        return tool_fail(t->tool, "there are %lld examples, fewer than one batch of %lld; give --batch N, or more data",
                         t->data.rows, t->batch);
    t->steps = o->steps_given ? o->steps : (o->epochs ? o->epochs : 1) * t->per_epoch;
    if (!o->eval.n_files) return TOOL_OK;
    signature = find_signature(t, o->eval_signature, "--eval-signature");
    return signature < 0 ? TOOL_FAILED : data_open(&t->eval_data, "--eval", &o->eval, t->model, signature);
}

/* What the loop itself needs, from the budget like all else. */
static bool take_room(trainer *t) {
    for (int i = 0; i < linnet_model_variable_count(t->model); i++) {
        linnet_tensor_info info;
        if (linnet_model_variable(t->model, i, &info) == LINNET_OK && info.bytes > t->room_bytes)
            t->room_bytes = info.bytes;
    }
    const long long evaluated = t->eval_data.n ? data_fixed_batch(&t->eval_data) : 0;
    t->rows_bytes = (size_t)(evaluated > t->batch ? evaluated : t->batch) * sizeof *t->rows;
    t->room_bytes = (t->room_bytes + 63) / 64 * 64 + 64;
    t->rows_bytes = (t->rows_bytes + 63) / 64 * 64;
    t->room = t->memory.allocator.alloc(&t->memory, t->room_bytes, 64);
    t->rows = t->memory.allocator.alloc(&t->memory, t->rows_bytes, 64);
    return t->room && t->rows;
}

static void free_programs(trainer *t) {
    program_free(&t->train);
    program_free(&t->apply);
    program_free(&t->eval);
    program_free(&t->eval_rest);
}

static linnet_status make(trainer *t, program *p, const char *signature, const dataset *d, long long batch,
                          linnet_error *error) {
    const program_options o = trainer_options(t, signature);
    return program_make(p, &o, t->model, t->store, d, batch, error);
}

/* Everything that runs, with batches cut into parts of `part` examples. */
static linnet_status make_programs(trainer *t, long long part, linnet_error *error) {
    const bool accumulates = part < t->batch;
    linnet_status status = make(t, &t->train, accumulates ? "accumulate" : train_signature(t), &t->data, part, error);
    if (status == LINNET_OK && accumulates) status = make(t, &t->apply, "apply", NULL, 0, error);
    if (status == LINNET_OK && t->eval_data.n) {
        const long long fixed = data_fixed_batch(&t->eval_data), all = t->eval_data.rows;
        const long long batch = fixed ? fixed : part < all ? part : all;
        status = make(t, &t->eval, t->o->eval_signature, &t->eval_data, batch, error);
        if (status == LINNET_OK && !fixed && all % batch)
            status = make(t, &t->eval_rest, t->o->eval_signature, &t->eval_data, all % batch, error);
    }
    if (status) free_programs(t);
    t->accumulates = accumulates;
    t->part = part;
    return status;
}

static bool can_accumulate(const trainer *t) {
    return linnet_model_find_signature(t->model, "accumulate") >= 0 &&
           linnet_model_find_signature(t->model, "apply") >= 0 && !data_fixed_batch(&t->data);
}

/* Nothing fits: how much the least demanding way takes is found by taking it. */
static int refuse(trainer *t) {
    linnet_error error;
    const long long part = can_accumulate(t) ? 1 : t->batch;
    free_programs(t);
    t->memory.limit = 0;
    if (make_programs(t, part, &error)) return tool_fail_record(t->tool, &error);
    return tool_fail(t->tool, "--memory: %.2f MB are not enough; training needs at least %.2f MB (%zu bytes)%s",
                     (double)t->o->memory / 1e6, (double)t->memory.peak / 1e6, t->memory.peak,
                     can_accumulate(t) ? ", with gradients accumulated one example at a time"
                                       : "; less with a smaller --batch, or if the file had the signatures "
                                         "'accumulate' and 'apply' (linnet.training.signatures)");
}

static int plan_within(trainer *t) {
    linnet_error error;
    linnet_status status = make_programs(t, t->batch, &error);
    for (long long parts = 2; status == LINNET_OUT_OF_MEMORY && t->memory.refused && can_accumulate(t); parts++) {
        if (parts > t->batch) break;
        if (t->batch % parts == 0) status = make_programs(t, t->batch / parts, &error);
    }
    if (status == LINNET_OUT_OF_MEMORY && t->memory.refused) return refuse(t);
    if (status) return tool_fail_record(t->tool, &error);
    if (!t->train.n_scalars || strcmp(t->train.names[0], "loss") != 0)
        return tool_fail(t->tool, "signature '%s' has no output 'loss' of one number; name it so in graph.signature",
                         t->train.signature);
    return TOOL_OK;
}

/* ---- where the checkpoint left --------------------------------------------------------------------------------------
 */

static bool number_of(const linnet_model *checkpoint, const char *key, long long *value) {
    const char *text = linnet_model_metadata(checkpoint, key);
    char *end;
    if (!text || !*text) return false;
    *value = strtoll(text, &end, 10);
    return !*end && *value >= 0;
}

/* The order of the data must be that in which it began. */
static int take_position(trainer *t, const linnet_model *checkpoint) {
    const char *path = t->o->checkpoint;
    long long step = 0, seed = 0, batch = 0, examples = 0;
    if (!number_of(checkpoint, "step", &step) || !number_of(checkpoint, "seed", &seed) ||
        !number_of(checkpoint, "batch", &batch) || !number_of(checkpoint, "examples", &examples))
        return tool_fail(t->tool,
                         "%s does not say where training stood (step, seed, batch, examples): it was not made "
                         "by linnet-train; give --fresh to begin with the model's values",
                         path);
    if (batch != t->batch || examples != t->data.rows)
        return tool_fail(t->tool,
                         "%s is from training with batches of %lld out of %lld examples, this is %lld out of "
                         "%lld: the order of the data would be another; give those, or --fresh to begin anew",
                         path, batch, examples, t->batch, t->data.rows);
    if (t->o->seed_given && (uint64_t)seed != t->seed)
        return tool_usage(t->tool, "--seed %llu: %s is from training with seed %lld", (unsigned long long)t->seed, path,
                          seed);
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
    memory_init(&t->memory, o->memory);
    status = open_model(t);
    if (status == TOOL_OK) status = open_data(t);
    if (status == TOOL_OK && !take_room(t)) return refuse(t);
    if (status == TOOL_OK) status = plan_within(t);
    return status == TOOL_OK ? resume(t) : status;
}

void trainer_close(trainer *t) {
    free_programs(t);
    if (t->room) t->memory.allocator.free(&t->memory, t->room, t->room_bytes);
    if (t->rows) t->memory.allocator.free(&t->memory, t->rows, t->rows_bytes);
    data_close(&t->data);
    data_close(&t->eval_data);
    linnet_store_free(t->store);
    linnet_model_free(t->model);
}
