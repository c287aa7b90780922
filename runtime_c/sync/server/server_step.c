/* server_step.c - closes a step: combines the gradients of its workers, writes the journal, and makes the update.
 * Nothing changes before the journal has the step. A later failure ends the server, and a restarted server tries the
 * step again. A step that overflows is dropped before it is written to the journal, so variables stay finite if pushes
 * are finite. */
#include "sync/server/server_step.h"

#include "net/error.h"
#include "sync/common/combine.h"
#include "sync/common/rows.h"
#include "sync/server/record.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_state.h"
#include "sync/server/server_update.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* The members whose gradients are summed, and their weights. */
typedef struct contributors {
    sync_member **members;
    const void **sources;
    double *weights; /* NULL: all weights are equal */
    ln_sync_rows_part *parts;
    uint32_t count; /* number of members without the folded members */
    double divisor;
} contributors;

static void free_contributors(contributors *all) {
    free(all->members);
    free((void *)all->sources);
    free(all->weights);
    free(all->parts);
}

static bool gather(const sync_group *g, contributors *all) {
    const size_t n = g->count + 1;
    double total = g->folded ? g->weights : 0, first = g->folded ? g->weight : 0;
    bool equal = !g->folded || g->equal;
    memset(all, 0, sizeof *all);
    all->members = malloc(n * sizeof *all->members);
    all->sources = malloc(n * sizeof *all->sources);
    all->weights = malloc(n * sizeof *all->weights);
    all->parts = malloc(n * sizeof *all->parts);
    if (!all->members || !all->sources || !all->weights || !all->parts) return false;
    for (uint32_t i = 0; i < g->count; i++) {
        sync_member *m = g->members[i];
        if (!m->committed || !m->finite || m->folded) continue;
        if (!all->count && !g->folded) first = m->commit.weight;
        equal = equal && m->commit.weight == first;
        total += m->commit.weight;
        all->members[all->count++] = m;
    }
    all->divisor = equal ? (double)(g->folded + all->count) : total;
    if (equal) {
        free(all->weights);
        all->weights = NULL;
    }
    return true;
}

/* Called when a weight differs but the sums were made as if all weights were equal: multiplies the sums by their common
 * weight. */
static void scale_sums(const ln_sync_server *s, sync_group *g) {
    if (!g->folded || !g->equal) return;
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_variable *v = &s->manifest->variables[t];
        const void *sum = g->sums[t].data;
        if (sum) ln_sync_combine(&sum, &g->weight, 1, 0, v->elements, v->gradient, g->sums[t].data);
    }
    g->equal = false;
}

static void combine_dense(const ln_sync_server *s, const sync_group *g, contributors *all, uint32_t t, void *out) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    uint32_t n = 0;
    if (g->folded) {
        if (all->weights) all->weights[n] = 1;
        all->sources[n++] = g->sums[t].data;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->weights) all->weights[n] = all->members[i]->commit.weight;
        all->sources[n++] = all->members[i]->pushes[t].values.data;
    }
    ln_sync_combine(all->sources, all->weights, n, all->divisor, v->elements, v->gradient, out);
}

/* Sums the pushed rows of a sparse tensor, and sets s->rows[t] to the number of rows of the sum. */
static bool combine_rows(ln_sync_server *s, const sync_group *g, const contributors *all, uint32_t t) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    sync_tensor *tensor = &s->tensors[t];
    uint64_t total = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->count; i++) { /* includes folded members, because rows stay with the members */
        const sync_member *m = g->members[i];
        const sync_push *p = m->committed && m->finite ? &m->pushes[t] : NULL;
        if (!p || !p->rows) continue;
        all->parts[n].ids = p->ids.data;
        all->parts[n].rows = p->values.data;
        all->parts[n].count = (size_t)p->rows;
        all->parts[n++].weight = all->weights ? m->commit.weight : 1;
        total += p->rows;
    }
    s->rows[t] = 0;
    if (!total) return true;
    if (!ln_sync_grow(s, &tensor->ids, 8 * total) ||
        !ln_sync_grow(s, &tensor->rows, total * v->row_elements * v->gradient_size) ||
        !ln_sync_grow(s, &s->merged, 2 * total * sizeof(ln_sync_rows_place)))
        return false;
    s->rows[t] = ln_sync_rows_sum(all->parts, n, (size_t)v->row_elements, v->gradient == LINNET_F64, all->divisor,
                                  s->merged.data, tensor->ids.data, tensor->rows.data);
    return true;
}

static linnet_status combine(ln_sync_server *s, sync_group *g, contributors *all, linnet_error *error) {
    linnet_status status;
    if (all->weights) scale_sums(s, g);
    for (uint32_t t = 0; t < s->manifest->count; t++)
        if (s->manifest->variables[t].entry.kind == LN_SYNC_SPARSE && !combine_rows(s, g, all, t))
            return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the rows of a step");
    if ((status = ln_sync_prepare_step(s, error)) != LINNET_OK) return status;
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_variable *v = &s->manifest->variables[t];
        int64_t *ids;
        void *values;
        if (!v->gradient || (v->entry.kind == LN_SYNC_SPARSE && !s->rows[t])) continue;
        ln_sync_placed(s, t, &ids, &values);
        if (v->entry.kind == LN_SYNC_SPARSE) {
            memcpy(ids, s->tensors[t].ids.data, (size_t)(8 * s->rows[t]));
            memcpy(values, s->tensors[t].rows.data, (size_t)(s->rows[t] * v->row_elements * v->gradient_size));
        } else {
            combine_dense(s, g, all, t, values);
        }
    }
    return LINNET_OK;
}

/* Checks that the gradients' dtype can represent the weights. A weight that it cannot represent would make the
 * gradients infinite or 0. */
static bool are_weights(const ln_sync_server *s, const sync_group *g, const contributors *all) {
    double least = DBL_MIN, most = DBL_MAX;
    if (!all->weights) return true;
    for (uint32_t t = 0; t < s->manifest->count; t++)
        if (s->manifest->variables[t].gradient == LINNET_F32) least = (double)FLT_MIN, most = (double)FLT_MAX;
    for (uint32_t i = 0; i < g->count; i++) {
        const sync_member *m = g->members[i];
        if (m->committed && m->finite && !(m->commit.weight >= least && m->commit.weight <= most)) return false;
    }
    return all->divisor >= least && all->divisor <= most;
}

/* Classifies the combined gradients. A mean never exceeds its largest input. If all inputs were ordinary when they
 * arrived, the mean therefore needs no check. */
static ln_sync_size size_of_step(ln_sync_server *s, const sync_group *g, const contributors *all) {
    bool ordinary = true;
    for (uint32_t i = 0; i < g->count; i++) {
        const sync_member *m = g->members[i];
        if (!m->committed || !m->finite) continue;
        ordinary = ordinary && m->size == LN_SYNC_ORDINARY && (!all->weights || m->commit.weight < 0x1p64);
    }
    return ordinary ? LN_SYNC_ORDINARY : ln_sync_size_placed(s);
}

/* Drops the step. Each of its pushes was finite, but their combination is not. */
static void drop(ln_sync_server *s, sync_group *g) {
    for (uint32_t i = 0; i < g->count; i++)
        if (g->members[i]->committed) g->members[i]->finite = false;
    g->finite = 0;
    g->not_finite++;
    s->steps_not_finite++;
}

linnet_status ln_sync_apply_step(ln_sync_server *s, sync_group *g, linnet_error *error) {
    contributors all;
    linnet_status status = LINNET_OK;
    if (!gather(g, &all)) {
        free_contributors(&all);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the workers of a step");
    }
    bool some = all.count + g->folded > 0, finite = true, made = false;
    if (some) status = combine(s, g, &all, error);
    if (!status && some) {
        const ln_sync_size size = size_of_step(s, g, &all);
        finite = s->manifest->takes_not_finite || (size != LN_SYNC_INFINITE && are_weights(s, g, &all));
        if (finite) status = ln_sync_try_update(s, size, &made, &finite, error);
    }
    if (!status && !finite) {
        drop(s, g);
        some = false;
    }
    if (!status) status = ln_sync_append_record(s, g, some, error);
    if (!status && some) status = ln_sync_make_update(s, made, error);
    if (!status) s->sequence++;
    free_contributors(&all);
    return status;
}

/* ---- when memory is short --------------------------------------------------------------------------------------- */

static bool fold(ln_sync_server *s, sync_group *g, sync_member *m) {
    if (!g->sums && !(g->sums = calloc(s->manifest->count, sizeof *g->sums))) return false;
    for (uint32_t t = 0; t < s->manifest->count; t++) { /* check first: half a push cannot be taken back */
        const ln_sync_variable *v = &s->manifest->variables[t];
        if (!v->gradient || v->entry.kind == LN_SYNC_SPARSE) continue;
        if (!ln_sync_grow(s, &g->sums[t], v->elements * v->gradient_size)) return false;
    }
    if (!g->folded) g->weight = m->commit.weight, g->weights = 0, g->equal = true;
    if (m->commit.weight != g->weight) scale_sums(s, g);
    for (uint32_t t = 0; t < s->manifest->count; t++) {
        const ln_sync_variable *v = &s->manifest->variables[t];
        const void *sources[2];
        double weights[2] = {1, m->commit.weight};
        if (!v->gradient || v->entry.kind == LN_SYNC_SPARSE) continue;
        if (!g->folded) memset(g->sums[t].data, 0, (size_t)(v->elements * v->gradient_size));
        sources[0] = g->sums[t].data;
        sources[1] = m->pushes[t].values.data;
        ln_sync_combine(sources, g->equal ? NULL : weights, 2, 0, v->elements, v->gradient, g->sums[t].data);
        ln_sync_empty(s, &m->pushes[t].values);
        ln_sync_empty(s, &m->pushes[t].coded);
    }
    g->weights += m->commit.weight;
    g->folded++;
    return m->folded = true;
}

void ln_sync_fold(ln_sync_server *s, sync_group *g) {
    if (s->config.quorum || s->config.asynchronous || (!s->config.elastic && g->count < s->config.workers)) return;
    for (uint32_t i = 0; i < g->count; i++) {
        sync_member *m = g->members[i];
        if (m->folded || (m->committed && !m->finite) || (s->config.elastic && !m->live && !m->committed)) continue;
        if (!m->committed || !fold(s, g, m)) return;
    }
}
