/* config.c - refuses a linnet_plan_config with a value that is out of range, and copies one.
 */
#include "plan/config.h"

#include <string.h>

enum { MOST_THREADS = 1024 };

linnet_status ln_check_plan_config(const linnet_plan_config *c, linnet_error *error) {
    const char *wrong = NULL;
    if (c->shape_count < 0 || (c->shape_count > 0 && c->shapes == NULL))
        wrong = "shapes";
    else if (c->bound_count < 0 || (c->bound_count > 0 && c->bounds == NULL))
        wrong = "bounds";
    else if (c->fetch_count < 0 || (c->fetch_count > 0 && c->fetches == NULL))
        wrong = "fetches";
    else if (c->feed_count < 0 || (c->feed_count > 0 && c->feeds == NULL))
        wrong = "feeds";
    else if (c->reference < 0 || c->reference > 2)
        wrong = "reference";
    else if (c->threads < 0 || c->threads > MOST_THREADS)
        wrong = "threads";
    else if (c->device_count < 0 || c->device_count > 32 || (c->device_count > 0 && c->devices == NULL))
        wrong = "devices";
    else if (c->placement_count < 0 || (c->placement_count > 0 && c->placement == NULL))
        wrong = "placement";
    else if (c->cluster_count < 0 || (c->cluster_count > 0 && c->cluster == NULL))
        wrong = "cluster";
    if (wrong != NULL) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.%s is out of range", wrong);
        if (c->threads < 0 || c->threads > MOST_THREADS) {
            ln_expected(error, "0 (the machine's default) to %d", MOST_THREADS);
            ln_got(error, "%d", (int)c->threads);
            return ln_hint(error, "give a number of threads that the machine has cores for");
        }
        return ln_hint(error, "initialize linnet_plan_config with linnet_plan_config_init");
    }
    if (c->precision >= LINNET_PRECISION_F32 && c->precision <= LINNET_PRECISION_DIRECT) return LINNET_OK;
    ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.precision is out of range");
    ln_expected(error, "0 (f32), 1 (f16), 2 (bf16), 3 (tf32) or 4 (direct)");
    ln_got(error, "%d", (int)c->precision);
    return ln_hint(error, "use a linnet_precision of linnet.h");
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Memory that cannot be allocated marks the pool as failed. */
static const char *copy_text(ln_pool *pool, const char *from) {
    return from != NULL ? ln_pool_text(pool, from, strlen(from)) : NULL;
}

static void *copy_array(ln_pool *pool, const void *from, int32_t n, size_t size) {
    void *to = from != NULL ? ln_pool_array(pool, n, size) : NULL;
    if (to != NULL && n > 0) memcpy(to, from, (size_t)n * size);
    return to;
}

static const linnet_shape *copy_shapes(ln_pool *pool, const linnet_shape *from, int32_t n) {
    linnet_shape *to = copy_array(pool, from, n, sizeof *to);
    for (int32_t i = 0; to != NULL && i < n; ++i) to[i].input = copy_text(pool, from[i].input);
    return to;
}

const linnet_plan_config *ln_copy_plan_config(ln_pool *pool, const linnet_plan_config *from) {
    linnet_plan_config *to = copy_array(pool, from, 1, sizeof *to);
    if (to == NULL) return NULL;
    const char **fetches = copy_array(pool, from->fetches, from->fetch_count, sizeof *fetches);
    for (int32_t i = 0; fetches != NULL && i < from->fetch_count; ++i) fetches[i] = copy_text(pool, from->fetches[i]);
    linnet_placement *hints = copy_array(pool, from->placement, from->placement_count, sizeof *hints);
    for (int32_t i = 0; hints != NULL && i < from->placement_count; ++i)
        hints[i] = (linnet_placement){copy_text(pool, hints[i].node), copy_text(pool, hints[i].device)};
    linnet_cluster_task *tasks = copy_array(pool, from->cluster, from->cluster_count, sizeof *tasks);
    for (int32_t i = 0; tasks != NULL && i < from->cluster_count; ++i)
        tasks[i] = (linnet_cluster_task){copy_text(pool, tasks[i].task), copy_text(pool, tasks[i].device)};
    to->fetches = fetches;
    to->cluster = tasks;
    to->placement = hints;
    to->signature = copy_text(pool, from->signature);
    to->isa_max = copy_text(pool, from->isa_max);
    to->tuning = copy_text(pool, from->tuning);
    to->shapes = copy_shapes(pool, from->shapes, from->shape_count);
    to->bounds = copy_shapes(pool, from->bounds, from->bound_count);
    to->feeds = copy_shapes(pool, from->feeds, from->feed_count);
    to->devices = copy_array(pool, from->devices, from->device_count, sizeof(const linnet_device *));
    to->allocator = NULL; /* the plan has a copy of it */
    return pool->failed ? NULL : to;
}
