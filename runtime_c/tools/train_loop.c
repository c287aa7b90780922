/* train_loop.c - steps, evaluation, checkpoints, log lines, and the error messages of a step that fails.
 * Results depend only on the model file, the data and the seed, no matter where the training was interrupted. */
#include "train_loop.h"

#include "clock.h"
#include "train_data.h"
#include "train_keep.h"
#include "train_nan.h"
#include "train_order.h"
#include "train_program.h"
#include "train_setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void take_values(trainer *t, const program *p) {
    for (int i = 0; i < p->n_scalars; i++) t->sums[i] += program_value(p, i);
    t->runs++;
}

/* Describes the range of the integers in the last batch, because an index out of range is most likely a label. */
static void describe_integers(const trainer *t, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < linnet_plan_input_count(t->programs[TRAIN].plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        long long least = 0, most = 0, least_at = 0, most_at = 0;
        linnet_plan_get_input(t->programs[TRAIN].plan, i, &info);
        if ((info.dtype != LINNET_I32 && info.dtype != LINNET_I64) || info.rank < 1 || !info.bytes) continue;
        const void *data = linnet_session_input(t->programs[TRAIN].session, i);
        const long long count = (long long)(info.bytes / linnet_dtype_size(info.dtype)), each = count / info.shape[0];
        for (long long k = 0; k < count; k++) {
            const long long value =
                info.dtype == LINNET_I32 ? ((const int32_t *)data)[k] : (long long)((const int64_t *)data)[k];
            if (!k || value < least) least = value, least_at = t->rows[k / each];
            if (!k || value > most) most = value, most_at = t->rows[k / each];
        }
        if (used < size)
            used += (size_t)snprintf(
                text + used, size - used,
                "; in this batch input '%s' ranges from %lld (row %lld of the data) to %lld (row %lld)", info.name,
                least, least_at, most, most_at);
    }
}

static int run_failed(const trainer *t, long long step, const linnet_error *error) {
    char text[1024], integers[512] = "";
    tool_message(error, text, sizeof text);
    if (error->code == LINNET_INDEX_OUT_OF_RANGE) describe_integers(t, integers, sizeof integers);
    return tool_fail(t->tool, "step %lld: %s%s; the step changed no variable", step + 1, text, integers);
}

int trainer_step(trainer *t, long long step) {
    const uint64_t epoch = (uint64_t)(step / t->per_epoch);
    const long long first = step % t->per_epoch * t->batch;
    linnet_error error;
    for (long long part = 0; part < t->batch; part += t->part) {
        int status;
        for (long long i = 0; i < t->part; i++) {
            const long long at = first + part + i;
            t->rows[i] =
                t->o->in_order ? at : (long long)train_order((uint64_t)t->data.rows, t->seed, epoch, (uint64_t)at);
        }
        status = data_fill(&t->data, t->programs[TRAIN].plan, t->programs[TRAIN].session, t->rows, t->part);
        if (status) return status;
        if (linnet_run(t->programs[TRAIN].session, &error)) return run_failed(t, step, &error);
        take_values(t, &t->programs[TRAIN]);
        if (!isfinite(program_value(&t->programs[TRAIN], 0))) return TOOL_OK; /* trainer_check reports the details */
    }
    if (t->accumulates && linnet_run(t->programs[APPLY].session, &error)) return run_failed(t, step, &error);
    return TOOL_OK;
}

/* ---- NaN -------------------------------------------------------------------------------------------------------- */

/* Creates sessions that count NaN, and restores the last good values. The store is freed with its last session. */
static linnet_status begin_again(trainer *t, linnet_error *error) {
    linnet_status status;
    for (int i = 0; i < PROGRAMS; i++) {
        linnet_session_free(t->programs[i].session);
        t->programs[i].session = NULL;
    }
    linnet_store_free(t->store);
    t->store = NULL;
    status = linnet_store_create(t->model, &t->memory.allocator, &t->store, error);
    if (status == LINNET_OK && t->saved) status = linnet_store_load(t->store, t->o->checkpoint, error);
    return status == LINNET_OK ? trainer_start(t, true, error) : status;
}

/* Repeats the steps from the last good values up to the one that showed a NaN. Describes the cause of the first NaN and
 * how to avoid it. */
static bool search(trainer *t, bool infinite, char *text, size_t size) {
    linnet_error error;
    char what[400];
    if (begin_again(t, &error)) return false;
    for (long long step = t->saved; step <= t->step; step++) {
        const bool last = infinite && step == t->step;
        const char *advice = "try a smaller learning rate, or clip gradients";
        if (trainer_step(t, step)) return false;
        if (nan_in_inputs(&t->programs[TRAIN], t->rows, what, sizeof what))
            advice = "correct the data";
        else if (!nan_find(&t->programs[TRAIN], last, what, sizeof what) &&
                 !(t->accumulates && nan_find(&t->programs[APPLY], last, what, sizeof what)))
            continue;
        snprintf(text, size, "; it first appears in step %lld: %s; %s", step + 1, what, advice);
        return true;
    }
    return false;
}

int trainer_check(trainer *t, bool variables) {
    const double loss = program_value(&t->programs[TRAIN], 0);
    char where[512] = "", name[128] = "", what[192], kept[256] = "no checkpoint was written";
    if (isfinite(loss) && !(variables && nan_in_variables(t->model, t->store, t->room, name, sizeof name)))
        return TOOL_OK;
    if (t->saved) snprintf(kept, sizeof kept, "%.180s still holds step %lld", t->o->checkpoint, t->saved);
    snprintf(what, sizeof what, name[0] ? "variable '%s' holds NaN or infinity" : "the loss is %s",
             name[0]       ? name
             : isnan(loss) ? "NaN"
                           : "infinite");
    if (t->step - t->saved > 1000)
        fprintf(stderr, "%s: repeating steps %lld to %lld to find the cause\n", t->tool, t->saved + 1, t->step + 1);
    search(t, !isnan(loss), where, sizeof where);
    return tool_fail(t->tool, "step %lld: %s%s; %s", t->step + 1, what, where, kept);
}

/* ---- evaluation, checkpoints, log lines ------------------------------------------------------------------------- */

static void print_values(const trainer *t, const program *p, const double *sums, double divisor) {
    for (int i = 0; i < p->n_scalars; i++) {
        const double value = sums[i] / divisor;
        if (!t->o->json)
            printf("  %s %.6g", p->names[i], value);
        else if (isfinite(value))
            printf(", \"%s\": %.9g", p->names[i], value);
        else
            printf(", \"%s\": null", p->names[i]);
    }
}

int trainer_eval(trainer *t) {
    double sums[MOST_SCALARS] = {0};
    long long done = 0;
    linnet_error error;
    if (!t->eval_data.n) return TOOL_OK;
    while (done < t->eval_data.rows) {
        const program *p =
            done + t->programs[EVAL].batch <= t->eval_data.rows ? &t->programs[EVAL] : &t->programs[REST];
        int status;
        if (!p->session) break; /* the signature accepts only whole batches */
        for (long long i = 0; i < p->batch; i++) t->rows[i] = done + i;
        status = data_fill(&t->eval_data, p->plan, p->session, t->rows, p->batch);
        if (status) return status;
        if (linnet_run(p->session, &error)) return tool_fail_record(t->tool, &error);
        for (int i = 0; i < p->n_scalars; i++) sums[i] += program_value(p, i) * (double)p->batch;
        done += p->batch;
    }
    printf(t->o->json ? "{\"kind\": \"eval\", \"step\": %lld, \"examples\": %lld" : "eval  step %lld  examples %lld",
           t->step, done);
    print_values(t, &t->programs[EVAL], sums, (double)done);
    puts(t->o->json ? "}" : "");
    fflush(stdout);
    for (int i = 0; i < t->programs[EVAL].n_scalars; i++) sums[i] /= (double)done;
    return trainer_keep_best(t, sums);
}

void trainer_report(trainer *t) {
    const double now = tool_now(), steps = (double)(t->runs * t->part) / (double)t->batch;
    const double ms = (now - t->since) * 1e3 / (steps > 0 ? steps : 1);
    const long long epoch = (t->step - 1) / t->per_epoch + 1;
    if (t->o->json)
        printf("{\"kind\": \"train\", \"step\": %lld, \"epoch\": %lld", t->step, epoch);
    else
        printf("step %lld  epoch %lld", t->step, epoch);
    print_values(t, &t->programs[TRAIN], t->sums, t->runs ? (double)t->runs : 1);
    printf(t->o->json ? ", \"ms\": %.3f}\n" : "  %.3g ms per step\n", ms);
    fflush(stdout);
    memset(t->sums, 0, sizeof t->sums);
    t->runs = 0;
    t->since = now;
}
