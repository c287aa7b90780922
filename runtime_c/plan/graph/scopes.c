/* scopes.c - device scopes and hints: reads device strings, compares them with the cluster and the devices of a plan,
 * and finds the hint of a node. */
#include "plan/graph/scopes.h"

#include "plan/graph/work.h"

#include <stdio.h>
#include <string.h>

/* ---- device strings ---------------------------------------------------------------------------------------------- */

/* Returns what follows "key:" in a part of `length` characters, or NULL if the part has another key. */
static const char *value_of(const char *part, size_t length, const char *key) {
    const size_t n = strlen(key);
    return length > n + 1 && strncmp(part, key, n) == 0 && part[n] == ':' ? part + n + 1 : NULL;
}

/* Reads a number of at most nine digits, or "*", which is -1. */
static bool read_number(const char *text, const char *end, int64_t *out) {
    *out = -1;
    if (end - text == 1 && *text == '*') return true;
    if (text == end || end - text > 9) return false;
    for (*out = 0; text < end; ++text) {
        if (*text < '0' || *text > '9') return false;
        *out = *out * 10 + (*text - '0');
    }
    return true;
}

static bool read_part(const char *part, size_t length, ln_device_spec *s) {
    const char *value, *end = part + length;
    if ((value = value_of(part, length, "job")) != NULL) {
        s->job = value;
        s->job_length = (size_t)(end - value);
        return true;
    }
    if ((value = value_of(part, length, "replica")) != NULL) return read_number(value, end, &s->replica);
    if ((value = value_of(part, length, "task")) != NULL) return read_number(value, end, &s->task);
    if ((value = value_of(part, length, "device")) == NULL) return false;
    const char *colon = memchr(value, ':', (size_t)(end - value));
    s->kind = value;
    s->kind_length = (size_t)((colon != NULL ? colon : end) - value);
    return colon == NULL || read_number(colon + 1, end, &s->index);
}

static bool read_spec(const char *text, ln_device_spec *s) {
    *s = (ln_device_spec){.replica = -1, .task = -1, .index = -1};
    while (*text != 0) {
        const size_t length = *text == '/' ? strcspn(text + 1, "/") : 0;
        if (length == 0 || !read_part(text + 1, length, s)) return false;
        text += 1 + length;
    }
    return true;
}

static bool same_text(const char *a, size_t n, const char *b, size_t m) { return n == m && memcmp(a, b, n) == 0; }

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Tells whether the device belongs to this machine: it is no task's. */
static bool is_local(const ln_work *w, uint8_t place) {
    for (int32_t t = 0; t < w->settings.n_tasks; ++t)
        if (w->settings.tasks[t].place == place) return false;
    return true;
}

/* Tells whether the device is of the kind: "opencl" is the device opencl, with the index 0, or opencl:N. */
static bool is_named(const ln_device *device, const ln_device_spec *s) {
    const char *name = device->is.name, *colon = strchr(name, ':');
    const size_t length = colon != NULL ? (size_t)(colon - name) : strlen(name);
    int64_t index = 0;
    if (!same_text(name, length, s->kind, s->kind_length)) return false;
    if (colon != NULL && !read_number(colon + 1, name + strlen(name), &index)) return false;
    return s->index < 0 || s->index == index;
}

/* Tells whether the device says that it is a GPU or an NPU, and the kind asks for one. */
static bool is_of_type(const ln_device *device, const ln_device_spec *s) {
    linnet_device_about about = {.struct_size = sizeof about};
    if (device->is.about == NULL || device->is.about(device->is.context, &about) != 0) return false;
    return (about.kind == LINNET_DEVICE_GPU && same_text("gpu", 3, s->kind, s->kind_length)) ||
           (about.kind == LINNET_DEVICE_NPU && same_text("npu", 3, s->kind, s->kind_length));
}

/* Returns the places of this machine that fit the kind and the index. */
static ln_places local_places(const ln_work *w, const ln_device_spec *s) {
    const bool cpu = s->kind == NULL || (same_text("cpu", 3, s->kind, s->kind_length) && s->index <= 0);
    ln_places places = cpu ? 1 : 0;
    int64_t number = 0; /* of the next GPU or NPU */
    for (int32_t d = 0; d < ln_device_count(w->settings.n_devices); ++d) {
        const ln_device *device = &w->settings.devices[d];
        if (!is_local(w, (uint8_t)(d + 1))) continue;
        bool fits = s->kind == NULL || is_named(device, s);
        if (!fits && is_of_type(device, s)) fits = s->index < 0 || s->index == number++;
        if (fits) places |= (ln_places)1 << (d + 1);
    }
    return places;
}

static bool is_task(const ln_task *task, const ln_device_spec *s) {
    return (s->job == NULL || same_text(task->spec.job, task->spec.job_length, s->job, s->job_length)) &&
           (s->task < 0 || s->task == task->spec.task) && s->replica <= 0;
}

ln_places ln_scope_places(const ln_work *w, const char *scope) {
    ln_device_spec s;
    ln_places places = 0;
    if (scope == NULL || *scope == 0) return LN_ANYWHERE;
    const bool good = read_spec(scope, &s);
    if (good && s.job == NULL && s.task < 0 && s.replica < 0)
        places = local_places(w, &s);
    else
        for (int32_t t = 0; good && t < w->settings.n_tasks; ++t)
            if (is_task(&w->settings.tasks[t], &s))
                places |= ln_on_cpu(w->settings.tasks[t].place) ? local_places(w, &s)
                                                                : (ln_places)1 << w->settings.tasks[t].place;
    return places == 0 && w->settings.n_tasks == 0 ? LN_ANYWHERE : places;
}

/* ---- hints ------------------------------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *text) {
    for (; *pattern != '*'; ++pattern, ++text) {
        if (*pattern != *text) return false;
        if (*text == 0) return true;
    }
    while (*pattern == '*') ++pattern;
    for (; *text != 0; ++text)
        if (matches(pattern, text)) return true;
    return *pattern == 0;
}

/* plan_create.c has checked the names of the devices. */
int32_t ln_hinted_place(const ln_work *w, const ln_work_node *node, bool *exact) {
    for (int32_t h = 0; h < w->settings.n_hints; ++h) {
        const linnet_placement *hint = &w->settings.hints[h];
        if (!matches(hint->node, node->name)) continue;
        *exact = strcmp(hint->node, node->name) == 0;
        for (int32_t d = 0; d < w->settings.n_devices; ++d)
            if (strcmp(w->settings.devices[d].is.name, hint->device) == 0) return d + 1;
        return LN_CPU;
    }
    return -1;
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

linnet_status ln_take_cluster(ln_pool *pool, const linnet_plan_config *config, const ln_device *devices, int32_t n,
                              ln_task **tasks, linnet_error *error) {
    *tasks = ln_pool_array(pool, config->cluster_count, sizeof **tasks);
    for (int32_t t = 0; *tasks != NULL && t < config->cluster_count; ++t) {
        const linnet_cluster_task *from = &config->cluster[t];
        if (from->task == NULL || from->device == NULL)
            return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.cluster has a NULL name");
        ln_task *to = &(*tasks)[t];
        to->name = ln_pool_text(pool, from->task, strlen(from->task));
        if (to->name == NULL) break;
        if (!read_spec(to->name, &to->spec) || to->spec.job == NULL || to->spec.task < 0 || to->spec.kind != NULL ||
            to->spec.replica >= 0) {
            ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_plan_config.cluster has a name that is no task");
            ln_expected(error, "as in /job:worker/task:0");
            return ln_got(error, "%s", from->task);
        }
        int32_t d = 0;
        while (d < n && strcmp(devices[d].is.name, from->device) != 0) ++d;
        if (d == n && strcmp(from->device, "cpu") != 0) {
            ln_fail(error, LINNET_UNKNOWN_NAME, "a cluster names a device that is not in linnet_plan_config.devices");
            ln_expected(error, "cpu%s%s", n > 0 ? ", " : "", n > 0 ? devices[0].is.name : "");
            return ln_got(error, "%s", from->device);
        }
        to->place = d == n ? LN_CPU : (uint8_t)(d + 1);
    }
    return pool->failed ? ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a plan") : LINNET_OK;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Adds a text to a list with commas. */
static void list(char *to, size_t size, const char *text) {
    const size_t used = strlen(to);
    snprintf(to + used, size - used, "%s%.40s", used > 0 ? ", " : "", text);
}

static bool is_unmet(const ln_work *w, int32_t i, const ln_places *places, const bool *stays) {
    const ln_work_node *node = ln_node_at(w, i);
    if (node->state != LN_NODE_READY || node->op == NULL || ln_has_place(places[i], node->device)) return false;
    return places[i] == 0 || !stays[i];
}

/* Describes the first node that does not run where its scope places it, and the others with the same scope. */
static linnet_status unmet(const ln_work *w, int32_t first, const ln_places *places, const bool *stays) {
    enum { NAMED = 3 };
    const char *scope = ln_node_at(w, first)->scope;
    char names[144] = "", known[192] = "", more[24] = "";
    int32_t count = 0;
    for (int32_t i = first; i < w->nodes.count; ++i) {
        if (!is_unmet(w, i, places, stays) || strcmp(ln_node_at(w, i)->scope, scope) != 0) continue;
        if (count++ < NAMED) list(names, sizeof names, ln_node_at(w, i)->name);
    }
    if (count > NAMED) snprintf(more, sizeof more, " and %d more", (int)(count - NAMED));
    const bool none = places[first] == 0;
    for (int32_t t = 0; none && t < w->settings.n_tasks; ++t) list(known, sizeof known, w->settings.tasks[t].name);
    for (uint8_t p = 0; p <= w->settings.n_devices; ++p) {
        if (!(none ? is_local(w, p) || p == LN_CPU : ln_has_place(places[first], p))) continue;
        list(known, sizeof known, ln_on_cpu(p) ? "/device:cpu:0" : ln_device_at(w, p)->is.name);
    }
    ln_fail(w->error, none ? LINNET_UNKNOWN_NAME : LINNET_UNSUPPORTED,
            "the device scope %.60s of %d node%s cannot be met: %s", scope, (int)count, count == 1 ? "" : "s",
            none ? "no task or device fits it" : "its device cannot run this");
    ln_at_node(w->error, ln_node_at(w, first)->index, ln_node_at(w, first)->name);
    ln_expected(w->error, none ? "%s" : "what %s can run", known);
    ln_got(w->error, "%.70s%s", names, more);
    return ln_hint(w->error, none ? "correct the scope or the cluster, or give `placement` for these nodes"
                                  : "place these nodes on /device:cpu:0, or give `placement` for them");
}

linnet_status ln_check_scopes(const ln_work *w, const ln_places *places, const bool *stays) {
    for (int32_t i = 0; w->settings.n_tasks > 0 && i < w->nodes.count; ++i)
        if (is_unmet(w, i, places, stays)) return unmet(w, i, places, stays);
    return LINNET_OK;
}
