/* apply.c - runs the updates of a linnet model. Each update signature is a session over the server's store.
 * Gradients are written directly into the sessions' inputs. */
#include "sync/server/apply.h"

#include "net/error.h"
#include "sync/codec/manifest.h"

#include "linnet_ext.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEPT = 16,
    LEAST_ROWS = 8,
    LARGE = 1 << 20,
    BLOCK = 4096
}; /* KEPT: sessions kept per signature; LEAST_ROWS: least number of rows to plan for; LARGE: an update of this many
      bytes or more uses more threads */

/* Where the gradient of a tensor is written in a session. */
typedef struct place {
    int64_t *ids;
    void *values;
} place;

typedef struct prepared {
    linnet_plan *plan;
    linnet_session *session;
    uint64_t *rows; /* per tensor of the manifest; number of planned rows, for sparse tensors of this signature */
    place *places;  /* per tensor */
    uint64_t used;
} prepared;

typedef struct update {
    int32_t signature;
    bool sparse;
    prepared kept[KEPT];
    int count;
    prepared *now;
} update;

struct ln_sync_sessions {
    linnet_model *model;
    linnet_store *store;
    const ln_sync_manifest *manifest;
    const linnet_allocator *allocator;
    int32_t threads;
    update *updates;
    void **values;
    const uint64_t *pushed; /* number of rows per tensor in this step, as passed to prepare */
    uint64_t *rounded;
    void *unused; /* buffer for gradients that the update does not read */
    uint64_t unused_bytes, clock;
};

static uint64_t rounded_up(uint64_t n) {
    uint64_t rows = LEAST_ROWS;
    if (n == 0) return 0;
    while (rows < n) rows *= 2;
    return rows;
}

static void release(prepared *p) {
    linnet_session_free(p->session);
    linnet_plan_free(p->plan);
    free(p->rows);
    free(p->places);
    memset(p, 0, sizeof *p);
}

/* Finds the tensor whose gradient this input is. Sets *ids if the input holds row numbers. */
static const ln_sync_variable *tensor_of(const ln_sync_manifest *m, const char *input, bool *ids) {
    char name[320];
    const ln_sync_variable *v;
    size_t n;
    snprintf(name, sizeof name, "%s", input + strlen("gradient/"));
    *ids = false;
    if ((v = ln_sync_manifest_find(m, name)) && v->entry.kind != LN_SYNC_SPARSE) return v;
    n = strlen(name);
    if (n > 4 && !strcmp(name + n - 4, "/ids"))
        *ids = true, name[n - 4] = 0;
    else if (n > 5 && !strcmp(name + n - 5, "/rows"))
        name[n - 5] = 0;
    return ln_sync_manifest_find(m, name);
}

static uint64_t bytes_for(const ln_sync_variable *v, uint64_t rows) {
    return (v->entry.kind == LN_SYNC_SPARSE ? rows * v->row_elements : v->elements) * v->gradient_size;
}

static linnet_status make_plan(ln_sync_sessions *s, const update *u, const uint64_t *rows, prepared *p,
                               linnet_error *error) {
    const int n = linnet_model_input_count(s->model, u->signature);
    linnet_shape *shapes = calloc((size_t)n + 1, sizeof *shapes);
    linnet_plan_config config;
    linnet_status status;
    uint64_t bytes = 0;
    linnet_plan_config_init(&config);
    if (!shapes) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the input shapes of an update");
    for (int i = 0; i < n; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        bool ids;
        const ln_sync_variable *v;
        linnet_model_get_input(s->model, u->signature, i, &info);
        v = tensor_of(s->manifest, info.name, &ids);
        bytes += ids ? 0 : bytes_for(v, rows[v->entry.number]);
        if (v->entry.kind != LN_SYNC_SPARSE) continue;
        linnet_shape *shape = &shapes[config.shape_count++];
        shape->input = info.name;
        shape->rank = ids ? 1 : v->entry.rank;
        for (int d = 0; d < shape->rank; d++) shape->dims[d] = (int64_t)v->entry.dims[d];
        shape->dims[0] = (int64_t)rows[v->entry.number];
    }
    config.signature = linnet_model_signature_name(s->model, u->signature);
    config.shapes = shapes;
    config.threads = bytes < LARGE ? 1 : s->threads;
    config.allocator = s->allocator;
    status = linnet_plan_create(s->model, &config, &p->plan, error);
    if (!status) status = linnet_session_create(p->plan, s->store, NULL, &p->session, error);
    free(shapes);
    return status;
}

static void *unused(ln_sync_sessions *s, uint64_t bytes) {
    if (bytes > s->unused_bytes) {
        free(s->unused);
        s->unused = malloc((size_t)bytes);
        s->unused_bytes = s->unused ? bytes : 0;
    }
    return s->unused;
}

static linnet_status prepare_one(ln_sync_sessions *s, update *u, const uint64_t *rows, prepared *p,
                                 linnet_error *error) {
    const uint32_t n = s->manifest->count;
    linnet_status status = make_plan(s, u, rows, p, error);
    if (status) return status;
    p->rows = malloc((n + 1) * sizeof *p->rows);
    p->places = calloc(n + 1, sizeof *p->places);
    if (!p->rows || !p->places) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for an update");
    memcpy(p->rows, rows, n * sizeof *p->rows);
    for (int i = 0; i < linnet_plan_input_count(p->plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        bool ids;
        linnet_plan_get_input(p->plan, i, &info);
        place *to = &p->places[tensor_of(s->manifest, info.name, &ids)->entry.number];
        if (ids)
            to->ids = linnet_session_input(p->session, i);
        else
            to->values = linnet_session_input(p->session, i);
    }
    return LINNET_OK;
}

static bool fits(const ln_sync_sessions *s, const update *u, const prepared *p, const uint64_t *rows) {
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_tensor *e = &s->manifest->variables[t].entry;
        if (e->kind == LN_SYNC_SPARSE && &s->updates[e->group] == u && p->rows[t] != rows[t]) return false;
    }
    return true;
}

static linnet_status choose(ln_sync_sessions *s, update *u, const uint64_t *rows, linnet_error *error) {
    prepared *p = NULL;
    linnet_status status;
    for (int i = 0; i < u->count && !p; i++)
        if (!u->sparse || fits(s, u, &u->kept[i], rows)) p = &u->kept[i];
    if (!p) {
        if (u->count < KEPT) {
            p = &u->kept[u->count];
        } else {
            p = &u->kept[0];
            for (int i = 1; i < KEPT; i++)
                if (u->kept[i].used < p->used) p = &u->kept[i];
            release(p);
            const int last = --u->count; /* moves the free entry to the end */
            *p = u->kept[last];
            memset(&u->kept[last], 0, sizeof *p);
            p = &u->kept[last];
        }
        if ((status = prepare_one(s, u, rows, p, error)) != LINNET_OK) {
            release(p);
            return status;
        }
        u->count++;
    }
    p->used = ++s->clock;
    u->now = p;
    return LINNET_OK;
}

/* ---- called by the server's core -------------------------------------------------------------------------------- */

static void *value(void *context, uint32_t t, bool write) {
    ln_sync_sessions *s = context;
    if (write) linnet_store_data(s->store, s->manifest->variables[t].entry.name, LINNET_WRITE, NULL);
    return s->values[t];
}

static linnet_status prepare(void *context, const uint64_t *rows, linnet_error *error) {
    ln_sync_sessions *s = context;
    s->pushed = rows;
    for (uint32_t t = 0; t < s->manifest->count; t++) s->rounded[t] = rounded_up(rows[t]);
    for (int32_t u = 0; u < s->manifest->updates; u++) {
        linnet_status status = choose(s, &s->updates[u], s->rounded, error);
        if (status) return status;
    }
    return LINNET_OK;
}

static void place_gradient(void *context, uint32_t t, int64_t **ids, void **values) {
    ln_sync_sessions *s = context;
    const ln_sync_variable *v = &s->manifest->variables[t];
    const place *to = &s->updates[v->entry.group].now->places[t];
    *ids = to->ids;
    *values = to->values;
    if (!*values) *values = unused(s, bytes_for(v, s->rounded[t]) + 8 * s->rounded[t]);
    if (v->entry.kind == LN_SYNC_SPARSE && !*ids)
        *ids = (int64_t *)((char *)unused(s, 0) + bytes_for(v, s->rounded[t]) / 8 * 8);
}

/* Fills the rows up to the planned number with copies of the last row. Repeating a row changes nothing. */
static void pad(ln_sync_sessions *s, uint32_t t) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    const uint64_t n = s->pushed[t], bytes = v->row_elements * v->gradient_size;
    int64_t *ids;
    void *values;
    if (!n || n == s->rounded[t]) return;
    place_gradient(s, t, &ids, &values);
    for (uint64_t i = n; i < s->rounded[t]; i++) {
        ids[i] = ids[n - 1];
        memcpy((char *)values + i * bytes, (char *)values + (n - 1) * bytes, (size_t)bytes);
    }
}

static linnet_status run(void *context, linnet_error *error) {
    ln_sync_sessions *s = context;
    for (uint32_t t = 0; t < s->manifest->count; t++) pad(s, t);
    for (int32_t u = 0; u < s->manifest->updates; u++) {
        linnet_status status = linnet_run(s->updates[u].now->session, error);
        if (status) return status;
    }
    return LINNET_OK;
}

/* ---- an update that may overflow -------------------------------------------------------------------------------- */

/* Classifies the largest element of a variable; see ln_sync_size. */
static ln_sync_size size_of(const linnet_tensor_info *info, const void *data) {
    const float *f32 = data;
    const double *f64 = data;
    const uint16_t *half = data;
    bool large = info->dtype == LINNET_F16, infinite = false;
    if (info->dtype == LINNET_F32)
        for (size_t i = 0; i < info->bytes / 4; i++)
            large |= fabsf(f32[i]) >= 0x1p95f, infinite |= !(fabsf(f32[i]) <= FLT_MAX);
    else if (info->dtype == LINNET_F64)
        for (size_t i = 0; i < info->bytes / 8; i++)
            large |= fabs(f64[i]) >= 0x1p767, infinite |= !(fabs(f64[i]) <= DBL_MAX);
    else if (info->dtype == LINNET_BF16)
        for (size_t i = 0; i < info->bytes / 2; i++)
            large |= (half[i] & 0x7fff) >= 0x6f00, infinite |= (half[i] & 0x7fff) >= 0x7f80;
    else if (info->dtype == LINNET_F16)
        for (size_t i = 0; i < info->bytes / 2; i++) infinite |= (half[i] & 0x7fff) >= 0x7c00;
    return infinite ? LN_SYNC_INFINITE : large ? LN_SYNC_LARGE : LN_SYNC_ORDINARY;
}

/* A variable and a copy of its value before the update. */
typedef struct kept {
    linnet_tensor_info info;
    char *data, *copy;
    bool finite;
} kept;

/* Does not write blocks that are equal. A table of zeros therefore takes no memory until its rows are used. */
static void copy_blocks(char *to, const char *from, size_t size) {
    for (size_t at = 0; at < size; at += BLOCK) {
        const size_t n = size - at < BLOCK ? size - at : BLOCK;
        if (memcmp(to + at, from + at, n)) memcpy(to + at, from + at, n);
    }
}

static bool keep(ln_sync_sessions *s, kept *all, int count) {
    for (int i = 0; i < count; i++) {
        linnet_tensor_info_init(&all[i].info);
        linnet_model_get_variable(s->model, i, &all[i].info);
        all[i].data = linnet_store_data(s->store, all[i].info.name, LINNET_READ, NULL);
        all[i].copy = all[i].data ? calloc(all[i].info.bytes + 1, 1) : NULL;
        if (!all[i].copy) return false;
        copy_blocks(all[i].copy, all[i].data, all[i].info.bytes);
        all[i].finite = size_of(&all[i].info, all[i].data) != LN_SYNC_INFINITE;
    }
    return true;
}

/* Runs an update that may overflow, and checks the result. The check costs as much as the update, so the caller does
 * this only for gradients or variables that are unusually large. */
static linnet_status try_run(void *context, ln_sync_size *size, linnet_error *error) {
    ln_sync_sessions *s = context;
    const int count = linnet_model_variable_count(s->model);
    kept *all = calloc((size_t)count + 1, sizeof *all);
    const bool tried = all && keep(s, all, count);
    linnet_status status = tried ? run(s, error) : LINNET_OK;
    *size = tried ? LN_SYNC_ORDINARY : LN_SYNC_INFINITE; /* there is no memory for the copies, so the step is dropped */
    for (int i = 0; tried && !status && i < count; i++) {
        const ln_sync_size one = size_of(&all[i].info, all[i].data);
        if (one > *size && (all[i].finite || one != LN_SYNC_INFINITE)) *size = one;
    }
    for (int i = 0; tried && !status && *size == LN_SYNC_INFINITE && i < count; i++) {
        linnet_store_data(s->store, all[i].info.name, LINNET_WRITE,
                          NULL); /* tells the store that the value was written */
        copy_blocks(all[i].data, all[i].copy, all[i].info.bytes);
    }
    for (int i = 0; all && i < count; i++) free(all[i].copy);
    free(all);
    return status;
}

ln_sync_apply ln_sync_sessions_apply(ln_sync_sessions *s) {
    const ln_sync_apply apply = {s, value, prepare, place_gradient, run, try_run};
    return apply;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

void ln_sync_sessions_free(ln_sync_sessions *s) {
    if (!s) return;
    for (int32_t u = 0; s->updates && u < s->manifest->updates; u++)
        for (int i = 0; i < s->updates[u].count; i++) release(&s->updates[u].kept[i]);
    free(s->updates);
    free(s->values);
    free(s->rounded);
    free(s->unused);
    free(s);
}

static linnet_status fill(ln_sync_sessions *s, linnet_error *error) {
    const ln_sync_manifest *m = s->manifest;
    s->updates = calloc((size_t)m->updates + 1, sizeof *s->updates);
    s->values = calloc((size_t)m->count + 1, sizeof *s->values);
    s->rounded = calloc((size_t)m->count + 1, sizeof *s->rounded);
    if (!s->updates || !s->values || !s->rounded)
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the updates of a server");
    for (int32_t u = 0; u < m->updates; u++) s->updates[u].signature = m->signatures[u];
    for (uint32_t t = 0; t < m->count; t++) {
        const ln_sync_tensor *e = &m->variables[t].entry;
        if (!(s->values[t] = linnet_store_data(s->store, e->name, LINNET_READ, error))) return LINNET_UNKNOWN_NAME;
        if (e->kind == LN_SYNC_SPARSE) s->updates[e->group].sparse = true;
    }
    /* Plans a session now, so that a signature that cannot be planned is reported before the first push. */
    for (int32_t u = 0; u < m->updates; u++) {
        linnet_status status = s->updates[u].sparse ? LINNET_OK : choose(s, &s->updates[u], s->rounded, error);
        if (status) return status;
    }
    for (uint32_t t = 0; t < m->count; t++)
        s->rounded[t] = m->variables[t].entry.kind == LN_SYNC_SPARSE ? LEAST_ROWS : 0;
    for (int32_t u = 0; u < m->updates; u++) {
        linnet_status status = s->updates[u].sparse ? choose(s, &s->updates[u], s->rounded, error) : LINNET_OK;
        if (status) return status;
    }
    return LINNET_OK;
}

linnet_status ln_sync_sessions_create(linnet_model *model, linnet_store *store, const ln_sync_manifest *manifest,
                                      int32_t threads, const linnet_allocator *allocator, ln_sync_sessions **out,
                                      linnet_error *error) {
    ln_sync_sessions *s = calloc(1, sizeof *s);
    linnet_status status;
    *out = NULL;
    if (!s) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the updates of a server");
    s->model = model;
    s->store = store;
    s->manifest = manifest;
    s->allocator = allocator;
    s->threads = threads > 0 ? threads : linnet_default_threads();
    status = fill(s, error);
    if (status) {
        ln_sync_sessions_free(s);
        return status;
    }
    *out = s;
    return LINNET_OK;
}
