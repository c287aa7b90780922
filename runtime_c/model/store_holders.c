/* store_holders.c - values of variables that the store does not have: a session's device has computed them, or they are
 * still only in a file. A file's value is read when somebody needs it here, so the value of a variable that only
 * another machine reads takes no memory. */
#include "base/platform_files.h"
#include "kernel/parts.h"
#include "model/model.h"
#include "model/store_holders.h"
#include "model/store_state.h"

#include <stddef.h>
#include <string.h>

void ln_store_take_values(const linnet_model *file, char *to, const char *from, size_t bytes) {
    /* Linux caches files in groups of pages (folios), so reading a piece may load the end of the previous one again. */
    enum { PIECE = 4 << 20 };
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t size = bytes - at < PIECE ? bytes - at : PIECE;
        ln_copy_sparse(to + at, from + at, size); /* pages of zeros are not written, so they take no memory */
        const size_t since = at < PIECE ? 0 : at - PIECE;
        if (file->file_kind == LN_FILE_MAPPED) ln_file_forget(from + since, at + size - since);
    }
}

/* ---- values in files --------------------------------------------------------------------------------------------- */

/* Returns the file that has the value of variable i; *data becomes its address. */
static const linnet_model *file_of(const linnet_store *store, int32_t i, const void **data) {
    const ln_store_source *source = store->sources != NULL ? &store->sources[i] : NULL;
    const bool own = source == NULL || source->data == NULL;
    *data = own ? store->model->variables[i].tensor.data : source->data;
    return own ? store->model : source->file;
}

size_t ln_store_source_bytes(const linnet_store *store) {
    return store->sources != NULL ? (size_t)store->model->n_variables * sizeof *store->sources : 0;
}

/* Makes room for sources, unless there is. */
static bool make_sources(linnet_store *store) {
    const size_t size = (size_t)store->model->n_variables * sizeof *store->sources;
    if (store->sources != NULL) return true;
    store->sources = ln_memory_alloc(&store->memory, size);
    if (store->sources != NULL) memset(store->sources, 0, size);
    return store->sources != NULL;
}

static void set_source(linnet_store *store, int32_t i, const ln_store_source *source) {
    linnet_model *before = store->sources[i].file;
    if (source->file != NULL) ln_model_retain(source->file);
    store->sources[i] = *source;
    linnet_model_free(before);
}

/* Copies the value of variable i from its file. */
static linnet_status read_file(ln_holder *unread, int32_t i, linnet_error *error) {
    linnet_store *store = (linnet_store *)(void *)((char *)unread - offsetof(linnet_store, unread));
    const void *data;
    const linnet_model *file = file_of(store, i, &data);
    (void)error;
    ln_store_take_values(file, ln_store_value(store, i), data, (size_t)store->model->variables[i].bytes);
    ln_store_release(store, i);
    return LINNET_OK;
}

bool ln_store_leave(linnet_store *store, int32_t i, linnet_model *file, const void *data) {
    ln_lock_exclusive(&store->fetch_lock);
    const bool left = file == NULL || make_sources(store);
    if (left) ln_store_hold(store, i, &store->unread);
    if (left && store->sources != NULL)
        set_source(store, i, &(ln_store_source){.data = file != NULL ? data : NULL, .file = file});
    ln_unlock(&store->fetch_lock);
    if (left) atomic_fetch_add(&store->left, 1);
    return left;
}

const void *ln_store_unread(linnet_store *store, int32_t i) {
    const void *data = NULL;
    if (!LN_HAS_DEVICES || atomic_load(&store->unread.count) == 0) return NULL;
    ln_lock_exclusive(&store->fetch_lock);
    if (store->holders[i] == &store->unread) (void)file_of(store, i, &data);
    ln_unlock(&store->fetch_lock);
    return data;
}

void ln_store_forget(const linnet_store *store, int32_t i, const void *data) {
    const void *all;
    if (file_of(store, i, &all)->file_kind == LN_FILE_MAPPED)
        ln_file_forget(data, (size_t)store->model->variables[i].bytes);
}

uint64_t ln_store_left(const linnet_store *store) { return atomic_load(&store->left); }

/* ---- holders ----------------------------------------------------------------------------------------------------- */

static linnet_status fetch_lost(ln_holder *lost, int32_t i, linnet_error *error) {
    (void)lost, (void)i;
    ln_fail(error, LINNET_DEVICE_FAILED, "a device failed before the variable's new value reached the host");
    return ln_hint(error, "load a checkpoint, or write the variable");
}

/* The value stays with its device until it has come. */
static linnet_status fetch_kept(ln_holder *kept, int32_t i, linnet_error *error) {
    linnet_store *store = (linnet_store *)(void *)((char *)kept - offsetof(linnet_store, kept));
    linnet_status status = LINNET_OK;
    const int32_t end = i < 0 ? store->model->n_variables : i + 1;
    for (int32_t v = i < 0 ? 0 : i; v < end && status == LINNET_OK; v++) {
        if (store->holders[v] != kept) continue;
        status = store->recall(store, v, store->sources[v].device, error);
        if (status == LINNET_OK) ln_store_release(store, v);
    }
    return status;
}

bool ln_store_hold_kept(linnet_store *store, int32_t i, const struct linnet_device *device, ln_store_recall *recall) {
    if (!make_sources(store)) return false;
    ln_store_hold(store, i, &store->kept);
    store->sources[i].device = device;
    store->recall = recall;
    return true;
}

void ln_store_holders_init(linnet_store *store) {
    const linnet_model *model = store->model;
    store->lost.fetch = fetch_lost;
    store->unread.fetch = read_file;
    store->kept.fetch = fetch_kept;
    for (int32_t i = 0; i < model->n_variables; i++) {
        const ln_variable *v = &model->variables[i];
        if (v->tensor.data == NULL || v->bytes == 0) continue;
        if (LN_HAS_DEVICES)
            ln_store_leave(store, i, NULL, v->tensor.data);
        else
            ln_store_take_values(model, ln_store_value(store, i), v->tensor.data, (size_t)v->bytes);
    }
}

void ln_store_holders_free(linnet_store *store) {
    for (int32_t i = 0; store->sources != NULL && i < store->model->n_variables; i++)
        set_source(store, i, &(ln_store_source){0});
    ln_memory_free(&store->memory, store->sources, ln_store_source_bytes(store));
}

bool ln_store_may_hold(const linnet_store *store, int32_t i) {
    return LN_HAS_DEVICES && !atomic_load(&store->exposed[i]) && !store->committed[i];
}

void ln_store_hold(linnet_store *store, int32_t i, ln_holder *holder) {
    ln_store_release(store, i);
    store->holders[i] = holder;
    atomic_fetch_add(&holder->count, 1);
    atomic_fetch_add(&store->away, 1);
}

void ln_store_lose(linnet_store *store, int32_t i) { ln_store_hold(store, i, &store->lost); }

const ln_holder *ln_store_holder(const linnet_store *store, int32_t i) { return store->holders[i]; }

bool ln_store_may_be_held(linnet_store *store) {
    ln_lock_exclusive(&store->fetch_lock);
    const bool may = store->possible_holders > 0;
    ln_unlock(&store->fetch_lock);
    return may;
}

void ln_store_add_possible_holders(linnet_store *store, int change) {
    ln_lock_exclusive(&store->fetch_lock);
    store->possible_holders += change;
    ln_unlock(&store->fetch_lock);
}

void ln_store_release(linnet_store *store, int32_t i) {
    ln_holder *holder = LN_HAS_DEVICES ? store->holders[i] : NULL;
    if (!holder) return;
    store->holders[i] = NULL;
    atomic_fetch_sub(&store->away, 1); /* readers without fetch_lock see the value from now on */
    atomic_fetch_sub(&holder->count, 1);
}

void ln_store_overwrite(linnet_store *store, int32_t i) {
    if (!LN_HAS_DEVICES || atomic_load(&store->away) == 0) return;
    ln_lock_exclusive(&store->fetch_lock); /* linnet_store_data may be reading the file */
    ln_store_release(store, i);
    ln_unlock(&store->fetch_lock);
}

linnet_status ln_store_fetch(linnet_store *store, int32_t i, const ln_holder *own, linnet_error *error) {
    linnet_status status = LINNET_OK;
    const int32_t end = i < 0 ? store->model->n_variables : i + 1;
    if (!LN_HAS_DEVICES || atomic_load(&store->away) == (i < 0 ? atomic_load(&store->unread.count) : 0))
        return LINNET_OK;
    ln_lock_exclusive(&store->fetch_lock);
    for (int32_t v = i < 0 ? 0 : i; v < end && status == LINNET_OK; v++) {
        ln_holder *holder = store->holders[v];
        if (!holder || holder == own || (holder == &store->unread && i < 0)) continue;
        atomic_fetch_add(&holder->count, 1);
        status = holder->fetch(holder, i, error);
        atomic_fetch_sub(&holder->count, 1);
        if (status != LINNET_OK) ln_at_tensor(error, store->model->variables[v].name);
    }
    ln_unlock(&store->fetch_lock);
    return status;
}

bool ln_store_expose(linnet_store *store, int32_t i) {
    if (!LN_HAS_DEVICES || atomic_load(&store->exposed[i])) return true;
    ln_lock_exclusive(&store->fetch_lock);
    const bool nobody = store->possible_holders == 0 && atomic_load(&store->away) == atomic_load(&store->unread.count);
    if (nobody && store->holders[i] != NULL) (void)read_file(&store->unread, i, NULL);
    if (nobody) atomic_store(&store->exposed[i], true);
    ln_unlock(&store->fetch_lock);
    return nobody;
}

const void *ln_store_part(linnet_store *store, int32_t i, uint64_t offset, size_t bytes, void *buffer,
                          linnet_error *error) {
    linnet_status status = LINNET_OK;
    const void *part = NULL;
    ln_lock_exclusive(&store->fetch_lock);
    ln_holder *holder = store->holders[i];
    if (holder == &store->unread) {
        const void *data;
        (void)file_of(store, i, &data);
        part = (const char *)data + offset;
    } else if (holder != NULL) {
        atomic_fetch_add(&holder->count, 1);
        if (holder->read == NULL)
            status = holder->fetch(holder, i, error);
        else if (buffer == NULL)
            status = ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a part of a variable");
        else
            status = holder->read(holder, i, offset, bytes, buffer, error);
        atomic_fetch_sub(&holder->count, 1);
        if (status != LINNET_OK) ln_at_tensor(error, store->model->variables[i].name);
        if (status == LINNET_OK && store->holders[i] != NULL) part = buffer;
    }
    if (part == NULL && status == LINNET_OK) part = (const char *)ln_store_value(store, i) + offset;
    ln_unlock(&store->fetch_lock);
    return part;
}
