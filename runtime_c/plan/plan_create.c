/* plan_create.c - linnet_plan: the public functions around ln_program_build, and the exact count of bytes.
 * The memory of planning is temporary; everything permanent is allocated through plan->memory and counted in the total.
 */
#include "plan/plan_create.h"

#include "plan/plan.h"
#include "plan/plan_devices.h"

#include "base/platform_machine.h"
#include "base/structs.h"
#include "kernel/cpu.h"
#include "kernel/machine.h"
#include "model/attributes.h"
#include "model/model.h"
#include "model/snapshot.h"
#include "plan/candidates.h"
#include "plan/compile/contents.h"
#include "plan/compile/expand.h"
#include "plan/compile/packed.h"
#include "plan/compile/pipeline.h"
#include "plan/config.h"
#include "plan/continue.h"
#include "plan/file_import.h"
#include "plan/graph/refusals.h"
#include "plan/graph/scopes.h"
#include "plan/session_layout.h"
#include "linnet_ext.h"

#include <stdio.h>
#include <string.h>

static linnet_status no_memory(linnet_error *error) {
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a plan");
}

linnet_plan *ln_plan_retain(linnet_plan *plan) {
    atomic_fetch_add(&plan->references.count, 1);
    return plan;
}

static void destroy(linnet_plan *plan) {
    ln_memory memory = plan->memory;
    linnet_model *model = plan->model;
    ln_program_free(&plan->program);
    for (int32_t d = 0; d < ln_device_count(plan->n_devices); ++d) ln_device_give_file(model, &plan->devices[d]);
    ln_pool_free(&plan->pool);
    memory.allocator.free(memory.allocator.context, plan, ln_round_up(sizeof *plan, LN_ALIGNMENT));
    linnet_model_free(model);
}

void linnet_plan_free(linnet_plan *plan) {
    if (plan != NULL && atomic_fetch_sub(&plan->references.count, 1) == 1) destroy(plan);
}

static linnet_status resolve_snapshot(linnet_plan *plan, linnet_error *error) {
    const linnet_model *model = plan->model;
    if (plan->writes_variables) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "a signature that assigns variables cannot run on a snapshot");
        ln_at_tensor(error, plan->signature->name);
        return ln_hint(error, "plan this signature without linnet_plan_config.snapshot");
    }
    plan->snapshot = ln_pool_array(&plan->pool, model->n_variables, sizeof *plan->snapshot);
    bool *seen = ln_pool_array(&plan->pool, model->n_functions, sizeof *seen);
    if (plan->pool.failed) return no_memory(error);
    ln_snapshot_reads(model, plan->signature->function, seen, plan->snapshot);
    return LINNET_OK;
}

/* Marks the variables that the function or one of its callees assigns. */
static void mark_assigned(const linnet_model *model, int32_t function, bool *seen, bool *read_only) {
    const ln_function *f = &model->functions[function];
    if (seen[function]) return;
    seen[function] = true;
    for (int32_t i = 0; i < f->n_nodes; ++i) {
        const ln_node *node = &f->nodes[i];
        int64_t callees[LN_MOST_CALLEES];
        const int32_t target = node->op->flags & LN_OP_WRITES ? f->values[node->inputs[0]].variable : -1;
        if (target >= 0) read_only[target] = false;
        for (int c = ln_callees(node, callees); c-- > 0;) mark_assigned(model, (int32_t)callees[c], seen, read_only);
    }
}

/* Finds the variables that may be packed: all that the signature does not assign. */
static linnet_status resolve_steady(linnet_plan *plan, linnet_error *error) {
    const linnet_model *model = plan->model;
    if (plan->reference || model->n_variables == 0) return LINNET_OK;
    plan->read_only =
        ln_pool_array(&plan->pool, (int64_t)model->n_variables + model->n_functions, sizeof *plan->read_only);
    if (plan->read_only == NULL) return no_memory(error);
    memset(plan->read_only, true, (size_t)model->n_variables * sizeof *plan->read_only);
    mark_assigned(model, plan->signature->function, plan->read_only + model->n_variables, plan->read_only);
    return LINNET_OK;
}

/* Tells whether the text names the device. The options by which a device was opened may stand after a comma. */
static bool names(const char *text, const char *device) {
    const size_t n = strlen(device);
    return strncmp(text, device, n) == 0 && (text[n] == 0 || text[n] == ',');
}

/* Opens the devices, and copies the hints, which later segments need too. */
static linnet_status resolve_devices(linnet_plan *plan, const linnet_plan_config *c, linnet_error *error) {
    if (!LN_HAS_DEVICES && c->device_count + c->cluster_count > 0)
        return ln_left_out("linnet_plan_config.devices", "LINNET_DEVICES", error);
    plan->devices = ln_pool_array(&plan->pool, c->device_count, sizeof *plan->devices);
    plan->hints = ln_pool_array(&plan->pool, c->placement_count, sizeof *plan->hints);
    if (c->device_count > 0) plan->config = ln_copy_plan_config(&plan->pool, c);
    if (plan->pool.failed) return no_memory(error);
    linnet_status status = LINNET_OK;
    for (; plan->n_devices < ln_device_count(c->device_count) && status == LINNET_OK; ++plan->n_devices)
        status = ln_device_open(c->devices[plan->n_devices], &plan->devices[plan->n_devices], error);
    for (int32_t d = 0; d < plan->n_devices && status == LINNET_OK; ++d)
        ln_device_take_file(plan->model, &plan->devices[d]);
    for (; plan->n_hints < c->placement_count && status == LINNET_OK; ++plan->n_hints) {
        const linnet_placement *from = &c->placement[plan->n_hints];
        if (from->node == NULL || from->device == NULL)
            return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.placement has a NULL name");
        const char *known = strcmp(from->device, "cpu") == 0 ? from->device : NULL;
        for (int32_t d = 0; d < plan->n_devices; ++d)
            if (names(from->device, plan->devices[d].is.name)) known = plan->devices[d].is.name;
        if (known == NULL) {
            ln_fail(error, LINNET_UNKNOWN_NAME, "a placement names a device that is not in linnet_plan_config.devices");
            ln_expected(error, "cpu%s%s", plan->n_devices > 0 ? ", " : "",
                        plan->n_devices > 0 ? plan->devices[0].is.name : "");
            return ln_got(error, "%s", from->device);
        }
        linnet_placement *to = &plan->hints[plan->n_hints];
        to->node = ln_pool_text(&plan->pool, from->node, strlen(from->node));
        to->device = ln_pool_text(&plan->pool, known, strlen(known));
    }
    if (status == LINNET_OK && LN_HAS_DEVICES)
        status = ln_take_cluster(&plan->pool, c, plan->devices, plan->n_devices, &plan->tasks, error);
    plan->n_tasks = c->cluster_count;
    return plan->pool.failed ? no_memory(error) : status;
}

static linnet_status resolve(linnet_plan *plan, const linnet_plan_config *c, linnet_error *error) {
    const char *name = c->signature ? c->signature : "infer";
    const int index = linnet_model_find_signature(plan->model, name);
    if (index < 0) {
        if (linnet_model_metadata(plan->model, "checkpoint_of") != NULL)
            return ln_fail(error, LINNET_OTHER_MODEL, "the file is a checkpoint, not a model");
        ln_fail(error, LINNET_UNKNOWN_NAME, "the model has no signature of this name");
        ln_at_tensor(error, name);
        if (plan->model->n_signatures > 0) ln_expected(error, "%s, ...", plan->model->signatures[0].name);
        return LINNET_UNKNOWN_NAME;
    }
    plan->signature = &plan->model->signatures[index];
    plan->features = ln_detect_features();
    if (c->isa_max != NULL) {
        const ln_isa_set *limit = ln_isa_find(c->isa_max);
        if (limit == NULL) {
            char levels[96];
            size_t used = 0;
            for (int i = 0; ln_isa_sets[i].name[0] != 0 && used < sizeof levels; ++i)
                used +=
                    (size_t)snprintf(levels + used, sizeof levels - used, "%s%s", i ? ", " : "", ln_isa_sets[i].name);
            ln_fail(error, LINNET_UNKNOWN_NAME, "this build has no instruction set of this name");
            ln_expected(error, "%s", levels);
            ln_got(error, "%s", c->isa_max);
            return ln_hint(error, "use one of these names; if the machine lacks part of a set, the rest is used");
        }
        plan->features &= limit->most;
    }
    if (c->reference) plan->features = LN_ISA_SCALAR;
    plan->reference = c->reference != 0;
    plan->separate = c->separate_outputs != 0;
    plan->whole_branches = c->whole_branches;
    plan->threads = c->threads ? c->threads : linnet_default_threads();
    if (plan->threads < 1) plan->threads = 1;
    plan->max_bytes = c->max_bytes;
    plan->info.precision = c->precision;
    plan->machine = ln_machine_of(plan->features);
    if (c->passes) {
        plan->changes = ln_pool_array(&plan->pool, LN_PASSES, sizeof *plan->changes);
        if (plan->changes == NULL) return no_memory(error);
    }
    const bool placed = c->device_count + c->placement_count + c->cluster_count > 0;
    linnet_status status = placed ? resolve_devices(plan, c, error) : LINNET_OK;
    for (int32_t d = 0; d < ln_device_count(plan->n_devices); ++d)
        plan->whole_branches |= plan->devices[d].limits.bodies;
    if (status == LINNET_OK) status = resolve_steady(plan, error);
    if (status == LINNET_OK && c->tuning != NULL)
        status = ln_tuning_read(c->tuning, &plan->pool, &plan->model->log, &plan->tuning, &plan->machine, error);
    if (status != LINNET_OK) return status;
    const ln_function *f = &plan->model->functions[plan->signature->function];
    for (int32_t i = 0; i < f->n_nodes; ++i) plan->writes_variables |= ln_node_assigns(plan->model, &f->nodes[i]);
    return c->snapshot ? resolve_snapshot(plan, error) : LINNET_OK;
}

/* Sets the names of inputs and outputs that the caller uses. */
static linnet_status name_ports(linnet_plan *plan, const linnet_plan_config *c, const ln_work *w) {
    const ln_signature *s = plan->signature;
    for (int32_t i = 0; i < plan->program.n_inputs; ++i) {
        ln_port *port = &plan->program.inputs[i]; /* a fed tensor has its name already */
        if (port->index < plan->model->functions[s->function].n_inputs) port->name = s->inputs[port->index];
    }
    plan->n_outputs = w->n_fetches;
    if (plan->outputs == NULL) plan->outputs = ln_pool_array(&plan->pool, w->n_fetches, sizeof *plan->outputs);
    if (plan->outputs == NULL) return no_memory(w->error);
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        plan->outputs[i].tensor = ln_value_at(w, w->request.fetches[i])->tensor;
        const ln_work_value *v = ln_value_at(w, w->request.fetches[i]);
        ln_tensor *t = &plan->outputs[i].tensor;
        /* A later segment computes the output. Neither its address nor its shape is known in advance, even if the file
         * declares a shape.
         */
        if (!v->known && !v->bounded && t->rank == 0) t->rank = -1;
        for (int d = 0; d < t->rank; ++d)
            if (!v->known && (!v->bounded || v->bounded >> d & 1)) t->dims[d] = -1;
        const char *name = c->fetches ? c->fetches[i] : s->outputs[i];
        if (plan->outputs[i].name == NULL) plan->outputs[i].name = ln_pool_text(&plan->pool, name, strlen(name));
        if (plan->outputs[i].name == NULL) return no_memory(w->error);
    }
    for (int32_t i = 0; i < plan->program.n_outputs; ++i)
        plan->program.outputs[i].name = plan->outputs[plan->program.outputs[i].index].name;
    return LINNET_OK;
}

static void count_bytes(linnet_plan *plan) {
    linnet_plan_info *info = &plan->info;
    const ln_program *p = &plan->program;
    info->activations = p->arena;
    info->scratch = ln_program_scratch(p, plan->threads);
    info->packed_weights = p->packed_bytes;
    info->stored_weights = p->stored_bytes;
    info->constants = p->constants;
    info->io = p->io;
    info->variables = ln_store_bytes_for(plan->model);
    if (plan->snapshot != NULL && plan->reads_variables) {
        info->snapshot = ln_snapshot_bytes_for(plan->model, plan->snapshot);
        info->committed = ln_store_committed_bytes_for(plan->model, plan->snapshot);
    }
    info->bookkeeping =
        plan->model->memory.bytes + plan->memory.bytes - (p->constants + p->packed_only) + ln_session_bookkeeping(plan);
    info->total = info->activations + info->scratch + info->packed_weights + info->constants + info->variables +
                  info->io + info->snapshot + info->committed + info->bookkeeping + p->device_bytes;
    info->devices = p->device_bytes;
    info->fallbacks = p->fallbacks;
    info->mapped = linnet_model_mapped_bytes(plan->model);
    info->lower_bound = p->lower_bound;
    info->naive = p->naive;
    info->gradients = p->gradients;
    info->folded = p->constants + p->packed_only;
    info->recomputed = p->recomputed;
    info->steps = p->n_steps;
    info->segments = p->rest != NULL || p->n_grown > 0 ? 2 : 1;
    info->threads = plan->threads;
    info->isa = ln_isa_of(plan->features)->name;
    info->modelled_ns = (uint64_t)p->ns;
}

/* Plans once. If `target` is not 0, a training step computes values again instead of keeping them, until the arena has
 * at most `target` bytes. */
static linnet_status build_once(linnet_plan *plan, const linnet_plan_config *c, uint64_t target, ln_frame *frame,
                                ln_refusals *refusals, linnet_error *error) {
    ln_memory temporary;
    ln_memory_init(&temporary, &plan->memory.allocator);
    ln_work w;
    ln_budget budget;
    ln_budget_init(&budget, plan->model, plan->max_bytes, &temporary, &plan->memory);
    ln_work_init(&w, plan->model, &temporary, &plan->memory, error);
    w.budget = &budget;
    w.kind = LN_WORK_SIGNATURE;
    w.settings = (ln_settings){
        .features = plan->features,
        .threads = plan->threads,
        .precision = plan->info.precision,
        .max_bytes = plan->max_bytes,
        .reference = plan->reference,
        .whole_branches = plan->whole_branches,
        .unpacked = plan->unpacked,
        .read_only = plan->read_only,
        .devices = plan->devices,
        .n_devices = plan->n_devices,
        .hints = plan->hints,
        .n_hints = plan->n_hints,
        .tasks = plan->tasks,
        .n_tasks = plan->n_tasks,
        .machine = plan->machine,
        .tuning = plan->tuning,
    };
    w.request = (ln_request){
        .signature = plan->signature,
        .config = c,
        .separate = plan->separate,
        .apart = plan->apart,
        .frame = frame,
        .changes = plan->changes,
    };
    w.recomputing.target = target;
    w.offload.refusals = refusals;
    linnet_status status = ln_program_build(&w, &plan->memory, &plan->program);
    if (status == LINNET_OK) status = name_ports(plan, c, &w);
    plan->forked = w.parallel.forks.count > 0;
    ln_work_free(&w);
    status = ln_budget_end(&budget, &plan->memory, status, error);
    if (status != LINNET_OK) return status;
    plan->reads_variables =
        plan->program.reads_variables || (plan->program.rest != NULL && plan->model->n_variables > 0);
    count_bytes(plan);
    return LINNET_OK;
}

static linnet_status build(linnet_plan *plan, const linnet_plan_config *c, uint64_t target, ln_frame *frame,
                           linnet_error *error) {
    ln_refusals refusals;
    linnet_status status;
    ln_refusals_init(&refusals, &plan->memory.allocator);
    if (LN_HAS_DEVICES && plan->refusals != NULL) refusals.first = plan->refusals->first;
    do status = build_once(plan, c, target, frame, &refusals, error);
    while (ln_build_again(&refusals));
    ln_refusals_free(&refusals);
    return status;
}

/* Makes a plan that takes its buffer offsets from the plan for the upper bounds. */
static linnet_status build_in_frame(linnet_plan *plan, const linnet_plan_config *c, linnet_error *error) {
    ln_memory temporary;
    ln_frame frame = {0};
    linnet_plan_config bounds = *c;
    ln_memory_init(&temporary, &plan->memory.allocator);
    ln_pool_init(&frame.pool, &temporary);
    bounds.shape_count = 0;
    linnet_status status = build(plan, &bounds, 0, &frame, error);
    if (status == LINNET_OK && c->shape_count > 0) {
        ln_program_free(&plan->program);
        status = build(plan, c, 0, &frame, error);
    }
    ln_pool_free(&frame.pool);
    return status != LINNET_OK ? status : ln_check_bound(plan->max_bytes, plan->info.total, error);
}

/* If a training step is too large, plans it again with fewer values kept. The memory outside the arena is known only
 * after planning, and it grows with the number of steps. The last attempt keeps only the values that it cannot
 * recompute. */
static linnet_status fit(linnet_plan *plan, const linnet_plan_config *c, linnet_error *error) {
    enum { ATTEMPTS = 8 };
    if (c->reference == 2) return build_in_frame(plan, c, error);
    linnet_status status = build(plan, c, 0, NULL, error);
    const uint64_t most = plan->max_bytes > 0 ? plan->max_bytes : UINT64_MAX;
    if (plan->forked && (status == LINNET_TOO_LARGE || (status == LINNET_OK && plan->info.total > most))) {
        plan->apart = true;
        ln_program_free(&plan->program);
        status = build(plan, c, 0, NULL, error);
    }
    if (status == LINNET_OK && plan->info.total > most && plan->program.packs_variables) {
        plan->unpacked = true;
        ln_program_free(&plan->program);
        status = build(plan, c, 0, NULL, error);
    }
    uint64_t least = plan->info.total, target = plan->info.lower_bound;
    for (int i = 1; status == LINNET_OK && plan->info.total > most && plan->program.ordered && target > 1; ++i) {
        const uint64_t over = (plan->info.total - most) * (uint64_t)i, held = plan->info.lower_bound;
        target = i < ATTEMPTS && held <= target && over < held ? held - over : 1;
        ln_program_free(&plan->program);
        status = build(plan, c, target, NULL, error);
    }
    if (status != LINNET_OK || plan->info.total <= most) return status;
    if (plan->info.total < least) least = plan->info.total;
    status = ln_check_bound(plan->max_bytes, least, error);
    if (plan->program.ordered) /* the text must begin with the number, because linnet-train reads it */
        ln_got(error, "%llu bytes or more, even if values are recomputed instead of kept", (unsigned long long)least);
    return status;
}

static linnet_status create(linnet_model *model, const linnet_plan_config *config, ln_refusals *refusals,
                            linnet_plan **out, linnet_error *error) {
    const uint64_t start = ln_now_ns();
    ln_memory memory;
    ln_memory_init(&memory, config->allocator ? config->allocator : &model->memory.allocator);
    linnet_plan *plan = ln_memory_alloc(&memory, sizeof *plan);
    if (plan == NULL) return no_memory(error);
    memset(plan, 0, sizeof *plan);
    plan->memory = memory;
    ln_pool_init(&plan->pool, &plan->memory);
    atomic_init(&plan->references.count, 1);
    plan->model = ln_model_retain(model);
    plan->refusals = refusals;
    linnet_status status = resolve(plan, config, error);
    if (status == LINNET_OK) status = fit(plan, config, error);
    if (status == LINNET_OK) status = ln_plan_reserve(plan, error);
    if (status == LINNET_OK && LN_HAS_DEVICES) status = ln_check_devices(plan, config->max_device_bytes, error);
    if (status != LINNET_OK) {
        linnet_plan_free(plan);
        return status;
    }
    plan->refusals = NULL;
    plan->info.plan_ns = ln_now_ns() - start;
    if (ln_device_count(plan->n_devices) > 0) ln_report_fallback(plan);
    ln_report_tuning(plan);
    if (plan->info.recomputed > 0)
        ln_log(&model->log, LINNET_LOG_INFO, "%d of %d steps compute a value again, to need at most %llu bytes",
               (int)plan->info.recomputed, (int)plan->info.steps, (unsigned long long)plan->max_bytes);
    *out = plan;
    return LINNET_OK;
}

linnet_status ln_plan_again(const linnet_plan *plan, ln_refusals *refusals, linnet_plan **out, linnet_error *error) {
    linnet_plan_config config = *plan->config;
    config.allocator = &plan->memory.allocator;
    return create(plan->model, &config, refusals, out, error);
}

linnet_status linnet_plan_create(linnet_model *model, const linnet_plan_config *given, linnet_plan **out,
                                 linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_plan_config taken;
    const linnet_plan_config *config = &taken;
    if (out == NULL) return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_create: `out` must not be NULL");
    *out = NULL;
    if (model == NULL) return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_create: `model` must not be NULL");
    linnet_plan_config_init(&taken);
    linnet_status status = given != NULL ? LN_TAKE(linnet_plan_config, snapshot, &taken, given, error) : LINNET_OK;
    if (status == LINNET_OK) status = ln_check_plan_config(config, error);
    return status == LINNET_OK ? create(model, config, NULL, out, error) : status;
}

uint64_t linnet_plan_share(linnet_plan *plan) { return plan != NULL ? ln_program_share(&plan->program) : 0; }
