/* snapshot.c - copies of a store's variables (snapshot.h). One block of memory has the struct, then a pointer and a
 * version for each variable, then the values. */
#include "model/snapshot.h"

#include "model/attributes.h"

struct ln_snapshot {
    ln_memory memory;
    ln_references references;
    linnet_store *store;
    uint64_t commit; /* the store's commit number when this was last refreshed */
    size_t block_bytes;
    bool follows; /* ln_store_follow has succeeded, so the end of the snapshot calls ln_store_unfollow */
    char **data;  /* [variable]: its value; NULL: the snapshot does not contain it */
    uint64_t *versions;
};

/* ---- variables that a function reads ----------------------------------------------------------------------------- */

void ln_snapshot_reads(const linnet_model *model, int32_t function, bool *seen, bool *reads) {
    const ln_function *f = &model->functions[function];
    if (seen[function]) return;
    seen[function] = true;
    for (int32_t i = 0; i < f->n_values; ++i)
        if (f->values[i].variable >= 0) reads[f->values[i].variable] = true;
    for (int32_t i = 0; i < f->n_nodes; ++i) {
        int64_t callees[LN_MOST_CALLEES];
        for (int c = ln_callees(&f->nodes[i], callees); c-- > 0;)
            ln_snapshot_reads(model, (int32_t)callees[c], seen, reads);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static size_t head_bytes(const linnet_model *model) {
    const size_t each = sizeof(char *) + sizeof(uint64_t);
    return ln_round_up(sizeof(ln_snapshot) + (size_t)model->n_variables * each, LN_ALIGNMENT);
}

size_t ln_snapshot_bytes_for(const linnet_model *model, const bool *reads) {
    size_t total = head_bytes(model);
    for (int32_t i = 0; i < model->n_variables; ++i)
        if (reads[i]) total += ln_round_up((size_t)model->variables[i].bytes, LN_ALIGNMENT);
    return total;
}

linnet_status ln_snapshot_create(linnet_store *store, const bool *reads, const linnet_allocator *allocator,
                                 ln_snapshot **out, linnet_error *error) {
    const linnet_model *model = ln_store_model(store);
    const size_t bytes = ln_snapshot_bytes_for(model, reads);
    ln_memory memory;
    ln_memory_init(&memory, allocator);
    *out = NULL;
    char *block = ln_memory_alloc_zeroed(&memory, bytes); /* pages of zeros take no memory here either */
    linnet_status status = LINNET_OUT_OF_MEMORY;
    if (block == NULL)
        return ln_fail(error, status, "cannot allocate %zu bytes for a snapshot of the variables", bytes);
    ln_snapshot *s = (ln_snapshot *)block;
    s->memory = memory;
    s->block_bytes = bytes;
    atomic_init(&s->references.count, 1);
    s->data = (char **)(s + 1);
    s->versions = (uint64_t *)(s->data + model->n_variables);
    char *at = block + head_bytes(model);
    for (int32_t i = 0; i < model->n_variables; ++i) {
        if (!reads[i]) continue;
        s->data[i] = at;
        s->versions[i] = UINT64_MAX;
        at += ln_round_up((size_t)model->variables[i].bytes, LN_ALIGNMENT);
    }
    s->commit = UINT64_MAX;
    s->store = ln_store_retain(store);
    status = ln_store_follow(store, reads, error);
    if (status != LINNET_OK) {
        ln_snapshot_free(s);
        return status;
    }
    s->follows = true;
    ln_snapshot_refresh(s);
    *out = s;
    return LINNET_OK;
}

ln_snapshot *ln_snapshot_retain(ln_snapshot *s) {
    atomic_fetch_add_explicit(&s->references.count, 1, memory_order_relaxed);
    return s;
}

void ln_snapshot_free(ln_snapshot *s) {
    if (s == NULL || atomic_fetch_sub_explicit(&s->references.count, 1, memory_order_acq_rel) != 1) return;
    ln_memory memory = s->memory;
    linnet_store *store = s->store;
    if (s->follows) ln_store_unfollow(store);
    ln_memory_free_zeroed(&memory, s, s->block_bytes);
    linnet_store_free(store);
}

bool ln_snapshot_fits(const ln_snapshot *s, const linnet_store *store, const bool *reads) {
    if (s->store != store) return false;
    for (int32_t i = 0; i < ln_store_model(store)->n_variables; ++i)
        if (reads[i] && s->data[i] == NULL) return false;
    return true;
}

void ln_snapshot_refresh(ln_snapshot *s) {
    if (ln_store_commit_number(s->store) == s->commit) return;
    s->commit = ln_store_copy_committed(s->store, s->data, s->versions);
}

void *ln_snapshot_data(const ln_snapshot *s, int i) { return s->data[i]; }

uint64_t ln_snapshot_version(const ln_snapshot *s, int i) { return s->versions[i]; }

uint64_t ln_snapshot_commit(const ln_snapshot *s) { return s->commit; }
