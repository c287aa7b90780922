/* worker_model.c - finds which variables of its model a worker shares, and checks them against the tensors that servers
 * announce. The outputs of `grad` and the metadata name the shared variables (linnet.sync.signatures writes both). */
#include "sync/worker/worker_model.h"

#include "net/error.h"
#include "sync/codec/manifest_model.h"
#include "sync/worker/worker_state.h"

#include "linnet_ext.h"

#include <stdlib.h>
#include <string.h>

#define GRADIENT "gradient/"

void *ln_worker_memory(ln_sync_worker *worker, size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (memory) worker->bytes += size;
    return memory;
}

bool ln_worker_room(ln_sync_worker *worker, void **memory, size_t *room, size_t need) {
    if (need <= *room && *memory) return true;
    const size_t more = need + need / 4 + 64;
    free(*memory);
    worker->bytes -= *memory ? *room : 0;
    *memory = ln_worker_memory(worker, more);
    *room = *memory ? more : 0;
    return *memory != NULL;
}

static bool ends(const char *text, size_t length, const char *with) {
    const size_t n = strlen(with);
    return length > n && !memcmp(text + length - n, with, n);
}

/* Tells whether metadata `key`, a list of names with one per line, contains this name. */
static bool listed(const linnet_model *model, const char *key, const char *name, size_t length) {
    const char *at = linnet_model_metadata(model, key);
    while (at && *at) {
        const size_t n = strcspn(at, "\n");
        if (n == length && !memcmp(at, name, n)) return true;
        at += n + (at[n] != 0);
    }
    return false;
}

static bool variable_of(const linnet_model *model, const char *name, size_t length, linnet_tensor_info *info) {
    for (int i = 0; i < linnet_model_variable_count(model); i++)
        if (!linnet_model_get_variable(model, i, info) && strlen(info->name) == length &&
            !memcmp(info->name, name, length))
            return true;
    return false;
}

worker_tensor *ln_worker_find(const ln_sync_worker *worker, const char *name) {
    int low = 0, high = worker->tensor_count;
    while (low < high) {
        const int middle = (low + high) / 2, order = strcmp(worker->by_name[middle]->info.name, name);
        if (order == 0) return worker->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(worker_tensor *const *)a)->info.name, (*(worker_tensor *const *)b)->info.name);
}

/* Returns the tensor of that name, creating it if necessary; NULL with `error` set. */
static worker_tensor *tensor_of(ln_sync_worker *worker, const char *name, size_t length, linnet_error *error) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    const bool known = variable_of(worker->model, name, length, &info);
    const bool remote = listed(worker->model, "sync.remote", name, length);
    for (int i = 0; i < worker->tensor_count; i++) {
        const char *other = worker->tensors[i].info.name;
        if (strlen(other) == length && !memcmp(other, name, length)) return &worker->tensors[i];
    }
    if (!known && !remote) {
        char text[80];
        const size_t n = length < sizeof text - 1 ? length : sizeof text - 1;
        memcpy(text, name, n);
        text[n] = 0;
        ln_sync_fail(error, LINNET_UNKNOWN_NAME,
                     "the model has no variable of this name, but a signature or metadata shares it");
        ln_sync_at(error, text);
        ln_sync_hint(error, "write the file with linnet.sync.signatures and linnet.sync.shard");
        return NULL;
    }
    worker_tensor *tensor = &worker->tensors[worker->tensor_count];
    char *copy = ln_worker_memory(worker, length + 1);
    if (!copy) {
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the table of tensors");
        return NULL;
    }
    memcpy(copy, name, length);
    tensor->info = info;
    tensor->info.name = copy;
    tensor->dtype = info.dtype;
    tensor->remote = remote;
    tensor->output = tensor->ids_output = -1;
    worker->tensor_count++;
    return tensor;
}

/* Takes the tensor that an input of an update signature, or an output of `grad`, names. */
static linnet_status take_gradient(ln_sync_worker *worker, const char *name, linnet_error *error) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    const size_t prefix = strlen(GRADIENT);
    if (strncmp(name, GRADIENT, prefix)) return LINNET_OK;
    name += prefix;
    size_t length = strlen(name);
    bool sparse = false;
    if (!variable_of(worker->model, name, length, &info)) {
        const size_t tail = ends(name, length, "/ids") ? 4 : ends(name, length, "/rows") ? 5 : 0;
        length -= tail;
        sparse = tail != 0;
    }
    worker_tensor *tensor = tensor_of(worker, name, length, error);
    if (!tensor) return LINNET_UNKNOWN_NAME;
    tensor->pushed = true;
    tensor->sparse = tensor->sparse || sparse;
    return LINNET_OK;
}

static linnet_status take_list(ln_sync_worker *worker, const char *key, bool averaged, linnet_error *error) {
    const char *at = linnet_model_metadata(worker->model, key);
    while (at && *at) {
        const size_t n = strcspn(at, "\n");
        worker_tensor *tensor = tensor_of(worker, at, n, error);
        if (!tensor) return LINNET_UNKNOWN_NAME;
        tensor->averaged = averaged;
        at += n + (at[n] != 0);
    }
    return LINNET_OK;
}

/* Takes the names in signatures and metadata. */
static linnet_status take_names(ln_sync_worker *worker, linnet_error *error) {
    const linnet_model *model = worker->model;
    const int grad = linnet_model_find_signature(model, "grad");
    linnet_status status = LINNET_OK;
    linnet_tensor_info info = {.struct_size = sizeof info};
    for (int i = 0; !status && grad >= 0 && i < linnet_model_output_count(model, grad); i++)
        if (!(status = linnet_model_get_output(model, grad, i, &info)))
            status = take_gradient(worker, info.name, error);
    for (int s = 0; !status && grad < 0 && s < linnet_model_signature_count(model); s++) {
        if (strncmp(linnet_model_signature_name(model, s), "update/", 7)) continue;
        for (int i = 0; !status && i < linnet_model_input_count(model, s); i++)
            if (!(status = linnet_model_get_input(model, s, i, &info)))
                status = take_gradient(worker, info.name, error);
    }
    const bool any = worker->tensor_count > 0;
    if (!status) status = take_list(worker, "sync.average", true, error);
    if (!status) status = take_list(worker, "sync.read", false, error);
    if (status || any) return status;
    /* A read-only worker may have a file that is only for inference. */
    for (int i = 0; worker->config.read_only && i < linnet_model_variable_count(model); i++)
        if (!linnet_model_get_variable(model, i, &info) && !tensor_of(worker, info.name, strlen(info.name), error))
            return LINNET_OUT_OF_MEMORY;
    if (worker->tensor_count) return LINNET_OK;
    ln_sync_fail(error, LINNET_UNKNOWN_NAME, "the model has no signature 'grad' with outputs gradient/<variable>");
    return ln_sync_hint(error, "linnet.sync.signatures(graph, loss, optimizer, ...) writes it");
}

static void measure(worker_tensor *tensor) {
    tensor->rows = tensor->info.rank > 0 ? (uint64_t)tensor->info.shape[0] : 1;
    tensor->row_elements = 1;
    for (int i = 1; i < tensor->info.rank; i++) tensor->row_elements *= (uint64_t)tensor->info.shape[i];
    tensor->row_bytes = tensor->row_elements * linnet_dtype_size(tensor->dtype);
}

static linnet_status bind(ln_sync_worker *worker, worker_tensor *tensor, linnet_error *error) {
    if (tensor->remote) return LINNET_OK; /* a server's manifest gives its shape later */
    measure(tensor);
    tensor->data = linnet_store_data(worker->store, tensor->info.name, LINNET_READ, error);
    if (!tensor->data) return error ? (linnet_status)error->code : LINNET_UNKNOWN_NAME;
    const size_t bytes = (size_t)(tensor->rows * tensor->row_bytes);
    if (!worker->config.keep_pulled) return LINNET_OK;
    tensor->pulled = ln_worker_memory(worker, bytes);
    if (!tensor->pulled) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a copy of the pulled values");
    memcpy(tensor->pulled, tensor->data, bytes);
    return LINNET_OK;
}

linnet_status ln_worker_read_model(ln_sync_worker *worker, linnet_error *error) {
    const linnet_model *model = worker->model;
    const char *remote = linnet_model_metadata(model, "sync.remote");
    size_t most = (size_t)linnet_model_variable_count(model) + 1;
    for (; remote && *remote; remote++) most += *remote == '\n' || !remote[1];
    worker->tensors = ln_worker_memory(worker, most * sizeof *worker->tensors);
    worker->by_name = ln_worker_memory(worker, most * sizeof *worker->by_name);
    if (!worker->tensors || !worker->by_name)
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the table of tensors");
    linnet_status status = ln_sync_job_of(model, worker->job, error);
    if (!status) status = take_names(worker, error);
    for (int i = 0; !status && i < worker->tensor_count; i++) {
        status = bind(worker, &worker->tensors[i], error);
        worker->by_name[i] = &worker->tensors[i];
    }
    if (!status) qsort(worker->by_name, (size_t)worker->tensor_count, sizeof *worker->by_name, by_name);
    return status;
}

/* ---- manifests of the servers --------------------------------------------------------------------------------- */

static linnet_status differs(const char *name, const char *what, const worker_link *link, linnet_error *error) {
    ln_sync_fail(error, LINNET_OTHER_MODEL, "the server at %.60s has a different model: %s", link->address, what);
    ln_sync_at(error, name);
    return ln_sync_hint(
        error,
        "start servers and workers with files that one call of linnet.sync.signatures or linnet.sync.shard wrote");
}

static const char *kind_of(const worker_tensor *tensor) {
    return tensor->averaged ? "averaged" : !tensor->pushed ? "only read" : tensor->sparse ? "sparse" : "dense";
}

static linnet_status match(worker_link *link, const ln_sync_variable *v, worker_tensor *tensor, linnet_error *error) {
    static const char *const KINDS[] = {"dense", "sparse", "averaged", "only read"};
    const ln_sync_tensor *e = &v->entry;
    const bool reader = link->worker->config.read_only != 0;
    if (tensor->remote && !tensor->row_bytes) {
        tensor->dtype = tensor->info.dtype = e->dtype;
        tensor->info.rank = e->rank;
        for (int i = 0; i < e->rank; i++) tensor->info.shape[i] = (int64_t)e->dims[i];
        if (e->rank) tensor->info.shape[0] = (int64_t)e->rows;
        measure(tensor);
    }
    if (e->dtype != tensor->dtype) {
        differs(e->name, "the dtype of a variable differs", link, error);
        ln_sync_expected(error, "%s", linnet_dtype_name(tensor->dtype));
        return ln_sync_got(error, "%s", linnet_dtype_name(e->dtype));
    }
    bool same = e->rank == tensor->info.rank && (e->rank == 0 || e->rows == tensor->rows);
    for (int i = 1; same && i < e->rank; i++) same = (int64_t)e->dims[i] == tensor->info.shape[i];
    if (!same) {
        differs(e->name, "the shape of a variable differs", link, error);
        ln_sync_expected(error, "rank %d, %llu rows of %llu elements", tensor->info.rank,
                         (unsigned long long)tensor->rows, (unsigned long long)tensor->row_elements);
        return ln_sync_got(error, "rank %d, %llu rows of %llu elements", (int)e->rank, (unsigned long long)e->rows,
                           (unsigned long long)v->row_elements);
    }
    if (!reader && strcmp(kind_of(tensor), KINDS[e->kind & 3])) {
        differs(e->name, "the kind of a variable differs", link, error);
        ln_sync_expected(error, "%s", kind_of(tensor));
        return ln_sync_got(error, "%s", KINDS[e->kind & 3]);
    }
    return LINNET_OK;
}

linnet_status ln_worker_match(worker_link *link, linnet_error *error) {
    ln_sync_worker *worker = link->worker;
    link->parts = ln_worker_memory(worker, (link->manifest->count + 1) * sizeof *link->parts);
    if (!link->parts) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the parts of a server");
    for (uint32_t i = 0; i < link->manifest->count; i++) {
        const ln_sync_variable *v = &link->manifest->variables[i];
        worker_tensor *tensor = ln_worker_find(worker, v->entry.name);
        worker_part *part = &link->parts[i];
        part->variable = v;
        part->version = LN_SYNC_NONE;
        if (!tensor && worker->config.read_only) continue;
        if (!tensor) return differs(v->entry.name, "this model does not train that variable", link, error);
        const linnet_status status = match(link, v, tensor, error);
        if (status) return status;
        part->tensor = tensor;
        part->data = tensor->data ? tensor->data + v->entry.first_row * tensor->row_bytes : NULL;
    }
    return LINNET_OK;
}

/* Finds another server that also has rows of this part. */
static const worker_link *also_at(const ln_sync_worker *worker, int before, const worker_part *part) {
    const ln_sync_tensor *mine = &part->variable->entry;
    const uint64_t end = mine->first_row + (mine->rank ? mine->dims[0] : 1);
    for (int l = 0; l < before; l++) {
        const worker_link *link = &worker->links[l];
        for (uint32_t i = 0; i < link->manifest->count; i++) {
            const ln_sync_tensor *e = &link->manifest->variables[i].entry;
            if (link->parts[i].tensor == part->tensor && e->first_row < end &&
                mine->first_row < e->first_row + (e->rank ? e->dims[0] : 1))
                return link;
        }
    }
    return NULL;
}

linnet_status ln_worker_cover(ln_sync_worker *worker, linnet_error *error) {
    for (int i = 0; i < worker->tensor_count; i++) worker->tensors[i].covered = 0;
    for (int l = 0; l < worker->link_count; l++) {
        const worker_link *link = &worker->links[l];
        for (uint32_t i = 0; i < link->manifest->count; i++) {
            const worker_part *part = &link->parts[i];
            if (!part->tensor) continue;
            const ln_sync_tensor *e = &part->variable->entry;
            const worker_link *other = also_at(worker, l, part);
            part->tensor->covered += e->rank ? e->dims[0] : 1;
            if (!other) continue;
            ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                         other->shard == link->shard ? "%.50s and %.50s are servers of the same shard"
                                                     : "the servers at %.50s and %.50s both have this variable",
                         other->address, link->address);
            ln_sync_at(error, e->name);
            return ln_sync_hint(error, "give each shard of linnet.sync.shard exactly one server");
        }
    }
    for (int i = 0; i < worker->tensor_count && !worker->config.read_only; i++) {
        const worker_tensor *tensor = &worker->tensors[i];
        if (tensor->covered == (tensor->row_bytes ? tensor->rows : 1)) continue;
        ln_sync_fail(error, LINNET_UNKNOWN_NAME, "no server has %s of this variable",
                     tensor->covered ? "some rows" : "a value");
        ln_sync_at(error, tensor->info.name);
        ln_sync_expected(error, "%llu rows", (unsigned long long)tensor->rows);
        ln_sync_got(error, "%llu, from %d servers", (unsigned long long)tensor->covered, worker->link_count);
        return ln_sync_hint(error, "name the servers of all shards");
    }
    return LINNET_OK;
}
