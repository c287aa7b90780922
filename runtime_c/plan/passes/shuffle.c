/* shuffle.c - makes one copy of a channel shuffle: a reshape that splits the channels into groups, a transpose that
 * exchanges the two new axes, and a reshape that joins them. A single copy can run in any layout. The three
 * copies need dense memory, and so conversions before and after them. */
#include "kernel/common/copy_kinds.h"
#include "plan/passes/passes.h"

enum { CHANNELS = 1 };

static bool is_copy(const ln_work_node *node, int64_t kind) {
    return node->state == LN_NODE_READY && ln_is_family(node, LN_FAMILY_COPY) && ln_on_cpu(node->device) &&
           ln_copy_is(node->attributes, kind) && node->n_outputs == 1 && node->outputs[0] >= 0 && node->inputs[0] >= 0;
}

/* Tells whether only one node reads the value. */
static bool is_inner(const ln_work *w, int32_t value) {
    const ln_work_value *v = ln_value_at(w, value);
    return v->uses == 1 && v->host == NULL && !v->fetched && !v->exported && !v->committed && v->known;
}

/* Returns the number of groups if x becomes `split` by splitting its channels; 0: it does not. */
static int64_t groups_of(const ln_tensor *x, const ln_tensor *split) {
    if (x->rank < 3 || split->rank != x->rank + 1) return 0;
    for (int d = 0; d < x->rank; ++d)
        if (d != CHANNELS && x->dims[d] != split->dims[d + (d > CHANNELS)]) return 0;
    return split->dims[CHANNELS];
}

static bool exchanges(const ln_copy_attributes *a, int rank) {
    bool does = a->perm.n == rank;
    for (int d = 0; does && d < rank; ++d)
        does = ln_axis(a->perm.v[d], rank) == (d == CHANNELS ? CHANNELS + 1 : d == CHANNELS + 1 ? CHANNELS : d);
    return does;
}

static bool same_dims(const ln_tensor *a, const ln_tensor *b) {
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; ++d) same = a->dims[d] == b->dims[d];
    return same;
}

linnet_status ln_pass_shuffle(ln_work *w) {
    const linnet_status status = ln_work_sweep(w); /* counts uses again, because transfers have changed them */
    if (status != LINNET_OK) return status;
    const int32_t *makers = ln_find_makers(w);
    if (makers == NULL) return ln_work_no_memory(w);
    bool any = false;
    for (int32_t i = 0; i < w->nodes.count; ++i) {
        ln_work_node *join = ln_node_at(w, i);
        if (!is_copy(join, LN_COPY_KIND_RESHAPE) || !is_inner(w, join->inputs[0])) continue;
        const int32_t second = makers[join->inputs[0]];
        ln_work_node *turn = second >= 0 ? ln_node_at(w, second) : NULL;
        if (turn == NULL || !is_copy(turn, LN_COPY_KIND_TRANSPOSE) || !is_inner(w, turn->inputs[0])) continue;
        const int32_t first = makers[turn->inputs[0]];
        ln_work_node *split = first >= 0 ? ln_node_at(w, first) : NULL;
        if (split == NULL || !is_copy(split, LN_COPY_KIND_RESHAPE)) continue;
        const ln_tensor *x = &ln_value_at(w, split->inputs[0])->tensor, *y = &ln_value_at(w, join->outputs[0])->tensor;
        const ln_tensor *between = &ln_value_at(w, split->outputs[0])->tensor;
        const int64_t groups = groups_of(x, between);
        if (groups < 2 || x->dims[CHANNELS] == groups || !same_dims(x, y) ||
            !exchanges(turn->attributes, between->rank))
            continue;
        ln_copy_attributes *a = ln_pool_alloc(w->result.pool, sizeof *a);
        if (a == NULL) return ln_work_no_memory(w);
        a->kind = LN_COPY_SHUFFLE;
        a->axis = CHANNELS;
        a->block = groups;
        join->attributes = a;
        join->inputs[0] = split->inputs[0];
        join->n_inputs = 1;
        split->state = turn->state = LN_NODE_GONE;
        any = true;
    }
    return any ? ln_work_sweep(w) : LINNET_OK;
}
