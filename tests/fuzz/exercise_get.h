/* exercise_get.h - calls every function of linnet.h, linnet_ext.h and linnet_device.h that describes a model, a plan, a
 * session or a store, and reads all memory that they return. Sanitizers find what is not there. */
#ifndef EXERCISE_GET_H
#define EXERCISE_GET_H

#include "exercise_fuzz.h"
#include "linnet_device.h"
#include "model/graph.h"

static inline void touch(const void *memory, size_t bytes) {
    static volatile unsigned char kept;
    unsigned char all = 0;
    for (size_t i = 0; memory && i < bytes; i++) all ^= ((const unsigned char *)memory)[i];
    kept = all;
    (void)kept;
}

static inline void touch_text(const char *text) {
    if (text) touch(text, strlen(text) + 1);
}

static inline void touch_tensor(const linnet_tensor_info *info) {
    touch_text(info->name);
    touch_text(info->layout);
    if (info->scales) touch(info->scales, (size_t)info->quant_count * sizeof *info->scales);
    if (info->zeros) touch(info->zeros, (size_t)info->quant_count * sizeof *info->zeros);
}

static inline void touch_step(const linnet_step_info *step) {
    touch_text(step->name);
    touch_text(step->op);
    touch_text(step->kernel);
    touch_text(step->layout);
    touch_text(step->device);
    touch_text(step->fused);
    touch_text(step->placed);
}

static inline void expect(int holds, const char *what) {
    if (holds) return;
    printf("exercise: %s\n", what);
    exit(4);
}

/* The tensors of the signature's function. The public functions find a tensor by its name. */
static inline const ln_function *function_of(const linnet_model *model, int signature) {
    return &model->functions[model->signatures[signature].function];
}

static inline const char *tensor_name(fuzz *f, const linnet_model *model, int signature) {
    const ln_function *from = function_of(model, signature);
    return from->n_values ? from->values[mutant_below(&f->m, (size_t)from->n_values)].name : "none";
}

/* The result of a node from number `first` on, mostly; else any tensor. *number is the node's. */
static inline const char *result_name(fuzz *f, const linnet_model *model, int signature, int first, int *number) {
    const ln_function *from = function_of(model, signature);
    if (first >= from->n_nodes || mutant_below(&f->m, 8) == 0) return tensor_name(f, model, signature);
    *number = first + (int)mutant_below(&f->m, (size_t)(from->n_nodes - first));
    const ln_node *node = &from->nodes[*number];
    const int32_t value = node->outputs[mutant_below(&f->m, (size_t)node->n_outputs)];
    return value < 0 ? "none" : from->values[value].name;
}

static void get_model(fuzz *f, linnet_model *model) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    for (int s = -1; s <= linnet_model_signature_count(model); s++) {
        const char *name = linnet_model_signature_name(model, s);
        touch_text(name);
        if (name) expect(linnet_model_find_signature(model, name) >= 0, "a signature is not found by its name");
        for (int i = -1; i <= linnet_model_input_count(model, s); i++)
            if (linnet_model_get_input(model, s, i, &info) == LINNET_OK) touch_tensor(&info);
        for (int i = -1; i <= linnet_model_output_count(model, s); i++)
            if (linnet_model_get_output(model, s, i, &info) == LINNET_OK) touch_tensor(&info);
        for (int i = 0; name && i < 4; i++)
            if (linnet_model_get_tensor(model, s, tensor_name(f, model, s), &info) == LINNET_OK) touch_tensor(&info);
    }
    for (int i = -1; i <= linnet_model_variable_count(model); i++)
        if (linnet_model_get_variable(model, i, &info) == LINNET_OK) touch_tensor(&info);
    touch_text(linnet_model_metadata(model, "digest"));
    touch_text(linnet_model_metadata(model, "producer"));
    expect(linnet_model_bytes(model) <= f->live, "the bytes of the model exceed those that it allocated");
    expect(linnet_model_mapped_bytes(model) == 0, "a model in memory has mapped bytes");
}

/* Writes the line of a tuning file for a kernel of some step. */
static inline void tuning_line(fuzz *f, const linnet_plan *plan, int steps, char *text, size_t size) {
    linnet_plan_candidate candidate = {.struct_size = sizeof candidate};
    const int step = (int)mutant_below(&f->m, (size_t)steps);
    char key[4096];
    if (linnet_plan_get_key(plan, step, key, sizeof key) - 1 >= sizeof key - 1) return; /* no key, or a long one */
    if (linnet_plan_get_candidate(plan, step, (int)mutant_below(&f->m, 3), &candidate)) return;
    snprintf(text, size, "linnet-tuning 1\n%s = %s\n", key, candidate.kernel);
}

/* Gets what there is to know before the first session. `line` receives a line for a tuning file, or "". */
static void get_plan(fuzz *f, linnet_plan *plan, char *line, size_t size) {
    linnet_plan_info info = {.struct_size = sizeof info};
    linnet_plan_device_info device = {.struct_size = sizeof device};
    linnet_plan_candidate candidate = {.struct_size = sizeof candidate};
    linnet_step_info step = {.struct_size = sizeof step};
    linnet_tensor_info tensor = {.struct_size = sizeof tensor};
    linnet_error error;
    uint64_t bytes;
    line[0] = 0;
    expect(linnet_plan_get_info(plan, &info) == LINNET_OK, "a plan has no info");
    touch_text(info.isa);
    for (int i = -1; i <= info.steps; i++) {
        if (linnet_plan_get_step(plan, i, &step) == LINNET_OK) touch_step(&step);
        char key[64];
        const size_t length = linnet_plan_get_key(plan, i, key, sizeof key);
        if (length) expect(strlen(key) == (length < sizeof key ? length : sizeof key - 1), "a key has a wrong length");
        for (int k = 0; k < 40 && linnet_plan_get_candidate(plan, i, k, &candidate) == LINNET_OK; k++)
            touch_text(candidate.kernel);
    }
    linnet_packed packed = {.struct_size = sizeof packed};
    for (int i = -1; i < 8 && (i < 0 || linnet_plan_get_packed(plan, i, NULL, &packed) == LINNET_OK); i++) {
        void *copy = i < 0 || packed.bytes > 1 << 20 ? NULL : malloc((size_t)packed.bytes);
        if (i < 0) expect(linnet_plan_get_packed(plan, i, NULL, &packed) != LINNET_OK, "constants of number -1");
        if (copy) expect(linnet_plan_get_packed(plan, i, copy, &packed) == LINNET_OK, "constants are not packed again");
        free(copy);
    }
    linnet_plan_pass pass = {.struct_size = sizeof pass};
    for (int i = -1; i < 40; i++)
        if (linnet_plan_get_pass(plan, i, &pass) == LINNET_OK) touch_text(pass.name);
    for (int i = -1; i <= linnet_plan_input_count(plan); i++)
        if (linnet_plan_get_input(plan, i, &tensor) == LINNET_OK) touch_tensor(&tensor);
    for (int i = -1; i <= linnet_plan_output_count(plan); i++)
        if (linnet_plan_get_output(plan, i, &tensor) == LINNET_OK) touch_tensor(&tensor);
    for (int i = -1; linnet_plan_get_device(plan, i, &device) == LINNET_OK || i < 0; i++) touch_text(device.name);
    if (mutant_below(&f->m, 4) == 0) {
        const linnet_status status = linnet_plan_bound(plan, &bytes, &error);
        check_record(NULL, &error, status);
        if (status == LINNET_OK) expect(bytes >= info.total, "the bound of a plan is below its total");
    }
    if (info.steps && mutant_below(&f->m, 4) == 0) tuning_line(f, plan, info.steps, line, size);
    if (mutant_below(&f->m, 4) == 0) linnet_plan_share(plan);
}

static void get_session(linnet_session *session, const linnet_plan *plan) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    linnet_step_info step = {.struct_size = sizeof step};
    linnet_device_span span = {.struct_size = sizeof span};
    for (int i = -1; linnet_session_get_step(session, i, &step) == LINNET_OK || i < 0; i++) {
        touch_step(&step);
        for (int k = -1; linnet_session_get_span(session, i, k, &span) == LINNET_OK || k < 0; k++)
            touch_text(span.name);
    }
    for (int i = -1; i <= linnet_plan_output_count(plan); i++) {
        if (linnet_session_get_output(session, i, &info)) continue;
        touch_tensor(&info);
        touch(linnet_session_output(session, i), info.bytes);
    }
    expect(linnet_session_bytes(session) > 0, "a session has no bytes");
}

/* Reads, writes and changes in place the variables of a store. */
static void use_store(fuzz *f, linnet_model *model, linnet_store *store) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    linnet_error error;
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        if (linnet_model_get_variable(model, i, &info) || info.bytes > most_run_bytes) continue;
        unsigned char *value = malloc(info.bytes ? info.bytes : 1);
        if (!value) exit(3);
        check_record(NULL, &error, linnet_store_read(store, info.name, value, info.bytes, &error));
        switch (mutant_below(&f->m, 4)) {
        case 0: check_record(NULL, &error, linnet_store_read(store, info.name, value, info.bytes + 1, &error)); break;
        case 1:
            fill_input(f, &info, value);
            check_record(NULL, &error, linnet_store_write(store, info.name, value, info.bytes, &error));
            break;
        case 2: {
            unsigned char *own = linnet_store_data(store, info.name, LINNET_WRITE, &error);
            if (own) fill_input(f, &info, own);
            check_record(NULL, &error, linnet_store_publish(store, &error));
            break;
        }
        default: touch(linnet_store_data(store, info.name, LINNET_READ, &error), info.bytes);
        }
        free(value);
    }
    expect(linnet_store_bytes(store) <= f->live, "the bytes of the store exceed those that it allocated");
    linnet_store_packs(store);
}

#endif
