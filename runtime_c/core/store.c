/* store.c - the variables of a model in one aligned block, with a version each and one readers-writer lock.
 * A store may be shared by sessions of several plans; it keeps its model alive. */
#include "core/store.h"

#include <string.h>

struct linnet_store {
    ln_memory memory;
    ln_references references;
    linnet_model *model;
    ln_lock lock;
    char *block;
    size_t block_bytes;
    size_t *offsets; /* per variable; in the same allocation as the struct */
    uint64_t *versions;
};

static size_t struct_bytes(int32_t variables) {
    return sizeof(linnet_store) + (size_t)variables * (sizeof(size_t) + sizeof(uint64_t));
}

size_t ln_store_bytes_for(const linnet_model *model) {
    size_t total = 0;
    for (int32_t i = 0; i < model->n_variables; i++)
        total += ln_round_up((size_t)model->variables[i].bytes, LN_ALIGNMENT);
    return ln_round_up(struct_bytes(model->n_variables), LN_ALIGNMENT) + total;
}

/* Piece by piece, so that large variables are not in memory twice, even for a moment. Zeros take none. */
static void take_values(const linnet_model *model, char *to, const char *from, size_t bytes) {
    enum { PIECE = 4 << 20 }; /* pages come in folios: a piece may bring a part of the one before back */
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t size = bytes - at < PIECE ? bytes - at : PIECE;
        ln_copy_sparse(to + at, from + at, size);
        if (model->file_kind == LN_FILE_MAPPED) ln_file_forget(from, at + size);
    }
}

linnet_status linnet_store_create(linnet_model *model, const linnet_allocator *allocator, linnet_store **out,
                                  linnet_error *error) {
    ln_memory memory;
    linnet_store *store;
    size_t total = 0;
    if (!out) return ln_null_argument(error, "linnet_store_create", "out");
    *out = NULL;
    if (!model) return ln_null_argument(error, "linnet_store_create", "model");
    ln_memory_init(&memory, allocator ? allocator : &model->memory.allocator);
    store = ln_memory_alloc(&memory, struct_bytes(model->n_variables));
    if (!store) return ln_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a store");
    memset(store, 0, struct_bytes(model->n_variables));
    store->versions = (uint64_t *)(store + 1);
    store->offsets = (size_t *)(store->versions + model->n_variables);
    for (int32_t i = 0; i < model->n_variables; i++) {
        uint64_t bytes = model->variables[i].bytes;
        store->offsets[i] = total;
        if (bytes > SIZE_MAX / 2 - total - LN_ALIGNMENT) {
            ln_memory_free(&memory, store, struct_bytes(model->n_variables));
            return ln_fail(error, LINNET_TOO_LARGE, "the variables of this model are larger than the address space");
        }
        total += ln_round_up((size_t)bytes, LN_ALIGNMENT);
    }
    store->block_bytes = total;
    store->block = total ? ln_memory_alloc_zeroed(&memory, total) : NULL;
    if (total && !store->block) {
        ln_memory_free(&memory, store, struct_bytes(model->n_variables));
        ln_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the variables of a model");
        return ln_got(error, "%zu bytes wanted", total), LINNET_OUT_OF_MEMORY;
    }
    if (!ln_lock_init(&store->lock)) {
        ln_memory_free_zeroed(&memory, store->block, total);
        ln_memory_free(&memory, store, struct_bytes(model->n_variables));
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "the system gave no lock for a store");
    }
    for (int32_t i = 0; i < model->n_variables; i++)
        if (model->variables[i].tensor.data)
            take_values(model, store->block + store->offsets[i], model->variables[i].tensor.data,
                        (size_t)model->variables[i].bytes);
    atomic_init(&store->references.count, 1);
    store->memory = memory;
    store->model = ln_model_retain(model);
    *out = store;
    return LINNET_OK;
}

void ln_store_take(linnet_store *store, int i, const linnet_model *from, const ln_variable *v) {
    take_values(from, ln_store_data(store, i), v->tensor.data, (size_t)v->bytes);
    ln_store_bump(store, i);
}

linnet_store *ln_store_retain(linnet_store *store) {
    atomic_fetch_add_explicit(&store->references.count, 1, memory_order_relaxed);
    return store;
}

void linnet_store_free(linnet_store *store) {
    ln_memory memory;
    linnet_model *model;
    if (!store || atomic_fetch_sub_explicit(&store->references.count, 1, memory_order_acq_rel) != 1) return;
    memory = store->memory;
    model = store->model;
    ln_lock_destroy(&store->lock);
    ln_memory_free_zeroed(&memory, store->block, store->block_bytes);
    ln_memory_free(&memory, store, struct_bytes(model->n_variables));
    linnet_model_free(model);
}

const linnet_model *ln_store_model(const linnet_store *store) { return store->model; }

const linnet_allocator *ln_store_allocator(const linnet_store *store) { return &store->memory.allocator; }

bool ln_store_lock_unless(linnet_store *store, bool exclusive, bool (*give_up)(void *context), void *context) {
    return ln_lock_unless(&store->lock, exclusive, give_up, context);
}

void ln_store_lock(linnet_store *store, bool exclusive) { ln_store_lock_unless(store, exclusive, NULL, NULL); }

void ln_store_unlock(linnet_store *store) { ln_unlock(&store->lock); }

void *ln_store_data(linnet_store *store, int i) { return store->block + store->offsets[i]; }

uint64_t ln_store_version(const linnet_store *store, int i) { return store->versions[i]; }

void ln_store_bump(linnet_store *store, int i) { store->versions[i]++; }

size_t linnet_store_bytes(const linnet_store *store) { return store ? ln_store_bytes_for(store->model) : 0; }

int32_t ln_store_find(const linnet_store *store, const char *function, const char *name, linnet_error *error) {
    const linnet_model *model = store->model;
    if (!name) {
        ln_null_argument(error, function, "name");
        return -1;
    }
    for (int32_t i = 0; i < model->n_variables; i++)
        if (!strcmp(model->variables[i].name, name)) return i;
    ln_fail(error, LINNET_UNKNOWN_NAME, "%s: no variable of that name", function);
    ln_at_tensor(error, name);
    if (model->n_variables)
        ln_expected(error, "one of %d variables, the first is '%.40s'", (int)model->n_variables,
                    model->variables[0].name);
    else
        ln_expected(error, "a model with variables");
    ln_hint(error, "linnet_model_variable lists them");
    return -1;
}

/* Index of a variable of exactly `bytes` bytes, or -1 with the error set. */
static int32_t find(const linnet_store *store, const char *function, const char *name, const void *data, size_t bytes,
                    linnet_error *error) {
    int32_t i;
    if (!store || (!data && bytes)) {
        ln_null_argument(error, function, !store ? "store" : "data");
        return -1;
    }
    i = ln_store_find(store, function, name, error);
    if (i < 0 || store->model->variables[i].bytes == bytes) return i;
    ln_fail(error, LINNET_WRONG_SHAPE, "%s: the buffer has another size than the variable", function);
    ln_at_tensor(error, name);
    ln_expected(error, "%llu bytes", (unsigned long long)store->model->variables[i].bytes);
    ln_got(error, "%zu bytes", bytes);
    return -1;
}

static linnet_status status_of(const linnet_error *error) { return (linnet_status)error->code; }

linnet_status linnet_store_read(linnet_store *store, const char *name, void *data, size_t bytes, linnet_error *error) {
    linnet_error own;
    int32_t i = find(store, "linnet_store_read", name, data, bytes, error ? error : &own);
    if (i < 0) return status_of(error ? error : &own);
    if (bytes == 0) return LINNET_OK;
    ln_store_lock(store, false);
    memcpy(data, ln_store_data(store, i), bytes);
    ln_store_unlock(store);
    return LINNET_OK;
}

linnet_status linnet_store_write(linnet_store *store, const char *name, const void *data, size_t bytes,
                                 linnet_error *error) {
    linnet_error own;
    int32_t i = find(store, "linnet_store_write", name, data, bytes, error ? error : &own);
    if (i < 0) return status_of(error ? error : &own);
    ln_store_lock(store, true);
    if (bytes) memcpy(ln_store_data(store, i), data, bytes);
    ln_store_bump(store, i);
    ln_store_unlock(store);
    return LINNET_OK;
}

void *linnet_store_data(linnet_store *store, const char *name, int write, linnet_error *error) {
    int32_t i;
    if (!store) return ln_null_argument(error, "linnet_store_data", "store"), NULL;
    i = ln_store_find(store, "linnet_store_data", name, error);
    if (i < 0) return NULL;
    if (write) {
        ln_store_lock(store, true);
        ln_store_bump(store, i);
        ln_store_unlock(store);
    }
    return ln_store_data(store, i);
}
