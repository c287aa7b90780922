/* session.c - creates and frees sessions, and gives access to their inputs, outputs and steps.
 * Everything that a run uses is allocated here, in at most four blocks. */
#include "plan/session_layout.h"

#include "base/platform_threads.h"
#include "base/structs.h"
#include "model/store.h"
#include "plan/compile/packed.h"
#include "plan/describe.h"
#include "plan/graph/refusals.h"
#include "plan/plan_create.h"
#include "run/device.h"
#include "run/drive.h"
#include "run/drive_devices.h"
#include "run/device_variables.h"
#include "run/instance.h"
#include "run/operand.h"
#include "run/segment.h"
#include "run/steps.h"
#include "run/submit.h"
#include "linnet_ext.h"

#include <string.h>

static linnet_status check_arena(const linnet_plan *plan, const linnet_session_config *config, linnet_error *error) {
    const uint64_t needed = plan->info.activations + plan->info.scratch;
    if (config->arena == NULL || needed == 0) return LINNET_OK;
    if ((uintptr_t)config->arena % LN_ALIGNMENT != 0) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_session_config.arena is not aligned");
        return ln_expected(error, "an address that is a multiple of %d", LN_ALIGNMENT);
    }
    if (config->arena_size >= needed) return LINNET_OK;
    ln_fail(error, LINNET_ARENA_TOO_SMALL, "the arena is smaller than the plan needs");
    ln_expected(error, "%llu bytes", (unsigned long long)needed);
    ln_got(error, "%zu bytes", config->arena_size);
    return ln_hint(error, "give linnet_plan_info.activations + scratch bytes");
}

size_t linnet_session_bytes(const linnet_session *s) {
    if (s == NULL) return 0;
    return s->memory.bytes + s->plan->memory.bytes + (s->snapshot != NULL ? (size_t)s->plan->info.snapshot : 0);
}

/* Allocates the memory of inputs and outputs: by a device if one has memory for transfers. A device that shares memory
 * with the host is preferred. */
static linnet_status allocate_io(linnet_session *s, linnet_error *error) {
    const linnet_plan *plan = s->plan;
    int32_t owner = -1;
    if (s->binds_all) return ln_expect_bindings(s, error);
    s->io_size = (size_t)plan->program.io;
    if (s->io_size == 0) return LINNET_OK;
    for (int32_t d = ln_device_count(plan->n_devices); d-- > 0;)
        if (plan->devices[d].is.allocate_host != NULL && (owner < 0 || plan->devices[d].limits.shared)) owner = d;
    if (owner < 0) {
        s->io = ln_memory_alloc(&s->memory, s->io_size);
        return LINNET_OK; /* the caller checks whether there is memory */
    }
    const ln_device *device = &plan->devices[owner];
    const int code = device->is.allocate_host(device->is.context, s->io_size, &s->io);
    if (code != 0) {
        s->io = NULL;
        return ln_device_failed(device, code, "allocate host memory", "", error);
    }
    s->io_owner = device;
    s->memory.bytes += ln_round_up(s->io_size, LN_ALIGNMENT);
    return LINNET_OK;
}

static void free_io(linnet_session *s) {
    if (s->io_owner == NULL)
        ln_memory_free(&s->memory, s->io, s->io_size);
    else
        s->io_owner->is.release_host(s->io_owner->is.context, s->io, s->io_size);
}

static linnet_status allocate(linnet_session *s, const linnet_session_config *config, linnet_error *error) {
    const linnet_plan *plan = s->plan;
    const size_t arena = (size_t)(plan->info.activations + plan->info.scratch);
    const linnet_status status = allocate_io(s, error);
    if (status != LINNET_OK) return status;
    if (s->io != NULL) memset(s->io, 0, s->io_size);
    if (config->arena != NULL) {
        s->arena = config->arena;
    } else if (arena > 0) {
        s->arena_size = arena;
        s->arena = ln_memory_alloc(&s->memory, arena);
    }
    if ((s->io_size == 0 || s->io != NULL) && (arena == 0 || s->arena != NULL)) return LINNET_OK;
    ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a session");
    return ln_expected(error, "%zu bytes for tensors, %zu for inputs and outputs", arena, s->io_size);
}

static linnet_status follow(linnet_session *s, const linnet_session_config *config, linnet_error *error) {
    const bool *reads = s->plan->snapshot;
    ln_snapshot *shared = config->share_snapshot != NULL ? config->share_snapshot->snapshot : NULL;
    if (shared == NULL) return ln_snapshot_create(s->store, reads, &s->memory.allocator, &s->snapshot, error);
    if (!ln_snapshot_fits(shared, s->store, reads)) {
        ln_fail(error, LINNET_INVALID_ARGUMENT,
                "linnet_session_config.share_snapshot is a session that reads other variables");
        return ln_expected(error, "a session of the same store whose signature reads the same variables");
    }
    s->snapshot = ln_snapshot_retain(shared);
    return LINNET_OK;
}

static linnet_status create(linnet_plan *plan, linnet_store *store, const linnet_session_config *config,
                            ln_refusals *refusals, linnet_session **out, linnet_error *error) {
    ln_memory memory;
    ln_memory_init(&memory, config->allocator ? config->allocator : &plan->memory.allocator);
    const uint64_t arena = config->arena == NULL ? plan->info.activations + plan->info.scratch : 0,
                   io = config->binds_all ? 0 : plan->program.io;
    linnet_status status = check_arena(plan, config, error);
    if (status == LINNET_OK)
        status = ln_memory_check(&memory, arena + io + plan->info.loop_values + linnet_plan_share(plan), error);
    if (status == LINNET_OK) status = ln_program_pack(&plan->program, error);
    if (status != LINNET_OK) return status;

    const bool parallel = ln_plan_parallel(plan), own_threads = parallel && config->parallel_for == NULL;
    ln_session_layout at;
    const size_t block_size = ln_session_measure(plan, own_threads, &at);
    char *block = ln_memory_alloc(&memory, block_size);
    if (block == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a session");
    memset(block, 0, block_size);
    linnet_session *s = (linnet_session *)block;
    s->memory = memory;
    s->block_size = block_size;
    s->plan = ln_plan_retain(plan);
    s->outputs = (ln_session_output *)(block + at.outputs);
    s->parallel_for = config->parallel_for;
    s->parallel_context = config->parallel_context;
    s->parallel = parallel;
    s->trace = config->trace != 0;
    s->count_special = config->count_special != 0;
    s->binds_all = config->binds_all;
    s->exclusive = plan->writes_variables;
    s->queues = (ln_queue *)(block + at.queues);
    s->host_bindings = (char **)(block + at.host_bindings);
    s->device_bindings = (ln_device_binding *)(block + at.device_bindings);
    s->program_cache = config->program_cache;
    s->max_bytes = config->max_bytes > 0 ? config->max_bytes : plan->max_bytes;
    if (store != NULL) {
        s->store = ln_store_retain(store);
    } else {
        status = linnet_store_create(plan->model, &memory.allocator, &s->store, error);
    }
    if (status == LINNET_OK && plan->snapshot != NULL && plan->reads_variables) status = follow(s, config, error);
    s->locks = status == LINNET_OK && s->snapshot == NULL && (plan->reads_variables || plan->writes_variables);
    if (status == LINNET_OK) status = allocate(s, config, error);
    if (status == LINNET_OK && own_threads)
        status = ln_threads_init(block + at.threads, plan->threads - 1, config->bind_threads != 0, &s->threads, error);
    if (status == LINNET_OK && ln_device_count(plan->n_devices) > 0) status = ln_queues_open(s, error);
    if (status == LINNET_OK) {
        s->root.program = &plan->program;
        s->root.io = s->io;
        s->root.arena = s->arena;
        status = ln_instance_bind(s, &s->root, block + at.instance, error);
    }
    if (status == LINNET_OK) status = ln_instance_reserve(s, &s->root, error);
    if (status != LINNET_OK) {
        status = ln_note_refused(s, refusals, status, error);
        linnet_session_free(s);
        return status;
    }
    s->last = &s->root;
    for (int32_t i = 0; i < plan->program.n_steps; ++i) { /* upper bounds, until a run sets the true dims */
        const ln_step *step = &plan->program.steps[i];
        for (int o = 0; step->dims_slot >= 0 && o < step->call.n_outputs; ++o)
            memcpy(s->root.dims + (size_t)(step->dims_slot + o) * LN_MAX_RANK, step->call.outputs[o].dims,
                   sizeof step->call.outputs[o].dims);
    }
    ln_session_no_outputs(s);
    s->run = ln_run_here;
    if (ln_device_count(plan->n_devices) > 0) {
        s->run = ln_run_with_devices;
        ln_submit_prepare(s);
        ln_device_variables_prepare(s);
    }
    ln_choose_steps(s);
    s->first_bytes = s->memory.bytes;
    *out = s;
    return LINNET_OK;
}

linnet_status linnet_session_create(linnet_plan *plan, linnet_store *store, const linnet_session_config *given,
                                    linnet_session **out, linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_session_config taken;
    const linnet_session_config *config = &taken;
    if (out == NULL) return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_session_create: `out` must not be NULL");
    *out = NULL;
    if (plan == NULL) return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_session_create: `plan` must not be NULL");
    linnet_session_config_init(&taken);
    linnet_status status = given != NULL ? LN_TAKE(linnet_session_config, max_bytes, &taken, given, error) : LINNET_OK;
    if (status != LINNET_OK) return status;
    if (store != NULL && ln_store_model(store) != plan->model)
        return ln_fail(error, LINNET_INVALID_ARGUMENT, "the store and the plan belong to different models");
    ln_refusals refusals;
    linnet_plan *own = NULL; /* a plan that replaces the given one, because a device has refused steps of it */
    ln_refusals_init(&refusals, &plan->memory.allocator);
    status = create(plan, store, config, &refusals, out, error);
    while (ln_build_again(&refusals)) {
        linnet_plan_free(own);
        own = NULL;
        status = ln_plan_again(plan, &refusals, &own, error);
        if (status == LINNET_OK) status = create(own, store, config, &refusals, out, error);
    }
    linnet_plan_free(own); /* if the session uses it, the session has a reference of its own */
    ln_refusals_free(&refusals);
    return status;
}

linnet_plan *linnet_session_plan(const linnet_session *s) { return s != NULL ? s->plan : NULL; }

void linnet_session_free(linnet_session *s) {
    if (s == NULL) return;
    if (LN_HAS_DEVICES) ln_device_variables_give(s);
    ln_segments_free(s, &s->root);
    if (s->root.program != NULL) ln_instance_unbind(s, &s->root);
    if (LN_HAS_DEVICES) ln_queues_close(s);
    if (s->threads != NULL) ln_threads_free(s->threads);
    if (s->io != NULL) free_io(s);
    if (s->arena_size) ln_memory_free(&s->memory, s->arena, s->arena_size);
    ln_snapshot_free(s->snapshot);
    linnet_store_free(s->store);
    ln_memory memory = s->memory;
    linnet_plan *plan = s->plan;
    ln_memory_free(&memory, s, s->block_size);
    linnet_plan_free(plan);
}

void *linnet_session_input(linnet_session *s, int i) {
    if (s == NULL || i < 0 || i >= s->plan->program.n_inputs) return NULL;
    return ln_instance_pointer(s, &s->root, &s->plan->program.inputs[i].operand);
}

const void *linnet_session_output(const linnet_session *s, int i) {
    return s == NULL || i < 0 || i >= s->plan->n_outputs ? NULL : s->outputs[i].data;
}

linnet_status linnet_session_get_output(const linnet_session *s, int i, linnet_tensor_info *out) {
    if (s == NULL || i < 0 || i >= s->plan->n_outputs) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&s->outputs[i].tensor, s->plan->outputs[i].name, out);
}

static void wrong_size(linnet_error *error, const char *what, const char *name, const ln_tensor *t, uint64_t want,
                       size_t got) {
    char text[96];
    ln_fail(error, LINNET_WRONG_SHAPE, "%s", what);
    ln_at_tensor(error, name);
    ln_expected(error, "%llu bytes, %s %s", (unsigned long long)want, linnet_dtype_name(t->dtype),
                ln_shape_text(t->dims, t->rank, text, sizeof text));
    ln_got(error, "%zu bytes", got);
}

linnet_status linnet_session_set(linnet_session *s, const char *input, const void *data, size_t bytes,
                                 linnet_error *error) {
    LN_WANT_ERROR(error);
    if (s == NULL || input == NULL || (data == NULL && bytes > 0))
        return ln_fail(error, LINNET_INVALID_ARGUMENT,
                       "linnet_session_set: `session`, `input` and `data` must not be NULL");
    const ln_program *p = &s->plan->program;
    const int i = linnet_plan_find_input(s->plan, input);
    if (i < 0) {
        ln_fail(error, LINNET_UNKNOWN_NAME, "the plan has no input of this name");
        ln_at_tensor(error, input);
        if (p->n_inputs > 0) ln_expected(error, "%s%s", p->inputs[0].name, p->n_inputs > 1 ? ", ..." : "");
        return ln_hint(error, "the plan leaves out inputs that the fetched tensors do not need");
    }
    if (p->inputs[i].bytes != bytes) {
        wrong_size(error, "the data size of an input differs from the plan", input, &p->inputs[i].tensor,
                   p->inputs[i].bytes, bytes);
        return ln_hint(error, "to use another shape, create a new plan");
    }
    void *to = ln_instance_pointer(s, &s->root, &p->inputs[i].operand);
    if (bytes > 0 && to == NULL) return ln_check_bindings(s, error);
    if (bytes > 0) memcpy(to, data, bytes);
    return LINNET_OK;
}

linnet_status linnet_session_get(const linnet_session *s, const char *output, void *data, size_t bytes,
                                 linnet_error *error) {
    LN_WANT_ERROR(error);
    if (s == NULL || output == NULL || (data == NULL && bytes > 0))
        return ln_fail(error, LINNET_INVALID_ARGUMENT,
                       "linnet_session_get: `session`, `output` and `data` must not be NULL");
    const int i = linnet_plan_find_output(s->plan, output);
    if (i < 0) {
        ln_fail(error, LINNET_UNKNOWN_NAME, "the plan has no output of this name");
        ln_at_tensor(error, output);
        ln_expected(error, "%s%s", s->plan->outputs[0].name, s->plan->n_outputs > 1 ? ", ..." : "");
        return ln_hint(error, "a plan has the outputs of its signature, or the tensors that its config fetches");
    }
    uint64_t size;
    const void *from = linnet_session_output(s, i);
    /* The shape depends on data and no run has computed it, or there is no value. */
    if (!ln_bytes(&s->outputs[i].tensor, &size) || (from == NULL && size > 0)) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "the output has no value yet");
        ln_at_tensor(error, output);
        return ln_hint(error, "run the session first");
    }
    if (size != bytes) {
        wrong_size(error, "the size of the memory differs from the output's", output, &s->outputs[i].tensor, size,
                   bytes);
        return ln_hint(error, "give memory of exactly this size");
    }
    if (bytes > 0) memcpy(data, from, bytes);
    return LINNET_OK;
}

linnet_status linnet_session_get_step(const linnet_session *s, int i, linnet_step_info *info) {
    linnet_step_info step;
    if (s == NULL || i < 0 || i >= s->plan->program.n_steps) return LINNET_INVALID_ARGUMENT;
    ln_step_describe(s->plan, &s->plan->program.steps[i], &step);
    step.runs = s->root.trace[i].runs;
    step.total_ns = s->root.trace[i].total_ns;
    step.device_ns = s->root.trace[i].device_ns;
    step.start_ns = s->root.trace[i].start_ns;
    step.saturated = s->root.trace[i].saturated;
    step.infinite = s->root.trace[i].infinite;
    step.not_a_number = s->root.trace[i].not_a_number;
    return LN_GIVE(linnet_step_info, not_a_number, &step, info);
}
