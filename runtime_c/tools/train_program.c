/* train_program.c - plans a signature, creates its session, and reads the scalar outputs that are reported.
 * The library allocates through an allocator that counts bytes and refuses requests beyond the memory limit. */
#include "train_program.h"

#include "train_data.h"

#include <stdlib.h>
#include <string.h>

bool memory_count(memory *m, size_t size) {
    if (m->limit && (m->live > m->limit || size > m->limit - m->live)) {
        m->refused = true;
        return false;
    }
    m->live += size;
    if (m->live > m->peak) m->peak = m->live;
    return true;
}

static void *take(void *context, size_t size, size_t alignment) {
    memory *m = context;
    void *pointer = NULL;
    if (!memory_count(m, size)) return NULL;
    if (!(pointer = aligned_alloc(alignment, size))) m->live -= size;
    return pointer;
}

static void give(void *context, void *pointer, size_t size) {
    memory *m = context;
    m->live -= size;
    free(pointer);
}

void memory_init(memory *m, size_t limit) { *m = (memory){.limit = limit, .allocator = {m, take, give}}; }

/* Chooses the scalar outputs, the loss first. Only these outputs are fetched, so the other outputs of the signature are
 * not computed. */
static void choose_scalars(program *p, const linnet_model *model) {
    const int signature = linnet_model_find_signature(model, p->signature);
    p->n_scalars = 0;
    for (int i = 0; i < linnet_model_output_count(model, signature) && p->n_scalars < MOST_SCALARS; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_model_get_output(model, signature, i, &info);
        if (!info.bytes || info.bytes != linnet_dtype_size(info.dtype) || info.dtype == LINNET_F16 ||
            info.dtype == LINNET_BF16)
            continue;
        p->names[p->n_scalars++] = info.name;
        if (!strcmp(info.name, "loss")) {
            p->names[p->n_scalars - 1] = p->names[0];
            p->names[0] = info.name;
        }
    }
}

linnet_status program_plan(program *p, const program_options *o, linnet_model *model, const dataset *d, long long batch,
                           linnet_error *error) {
    linnet_shape shapes[MOST_INPUTS];
    linnet_plan_config config;
    *p = (program){.signature = o->signature, .batch = batch};
    choose_scalars(p, model);
    linnet_plan_config_init(&config);
    config.signature = o->signature;
    config.threads = (int32_t)o->threads;
    config.isa_max = o->isa_max;
    config.devices = o->device_count ? o->devices : NULL;
    config.device_count = o->device_count;
    config.placement = o->placement_count ? o->placement : NULL;
    config.placement_count = o->placement_count;
    config.cluster = o->cluster_count ? o->cluster : NULL;
    config.cluster_count = o->cluster_count;
    config.allocator = o->allocator;
    config.shapes = shapes;
    config.shape_count = d ? data_shapes(d, batch, shapes) : 0;
    config.max_bytes = o->max_bytes;
    config.fetches = p->names;
    config.fetch_count = p->n_scalars;
    return linnet_plan_create(model, &config, &p->plan, error);
}

size_t program_arena(const program *p) {
    linnet_plan_info info = {.struct_size = sizeof info};
    return p->plan && linnet_plan_get_info(p->plan, &info) == LINNET_OK ? (size_t)(info.activations + info.scratch) : 0;
}

linnet_status program_start(program *p, const program_options *o, linnet_store *store, linnet_error *error) {
    linnet_session_config config;
    linnet_session_config_init(&config);
    config.allocator = o->allocator;
    config.arena = o->arena;
    config.arena_size = o->arena_size;
    config.count_special = o->count_special;
    return linnet_session_create(p->plan, store, &config, &p->session, error);
}

void program_free(program *p) {
    linnet_session_free(p->session);
    linnet_plan_free(p->plan);
    p->session = NULL;
    p->plan = NULL;
}

double program_value(const program *p, int i) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    const void *data = linnet_session_output(p->session, i);
    int64_t number = 0;
    if (linnet_session_get_output(p->session, i, &info) || !data) return 0;
    if (info.dtype == LINNET_F32) return (double)*(const float *)data;
    if (info.dtype == LINNET_F64) return *(const double *)data;
    memcpy(&number, data, linnet_dtype_size(info.dtype)); /* little endian */
    if (info.dtype == LINNET_I32) return (double)(int32_t)number;
    if (info.dtype == LINNET_I16) return (double)(int16_t)number;
    if (info.dtype == LINNET_I8) return (double)(int8_t)number;
    return (double)number;
}
