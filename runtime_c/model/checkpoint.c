/* checkpoint.c - saves the variables of a store to a file and loads them again.
 * The container is the same as for models (docs/format.md, "Checkpoints"), so model.c opens and verifies checkpoints
 * too.
 */
#include "base/platform_files.h"
#include "base/structs.h"
#include "model/model.h"
#include "model/store.h"
#include "model/store_holders.h"
#include "model/structure_reader.h"
#include "linnet_ext.h"

#include <string.h>

#ifdef LN_WITHOUT_CHECKPOINTS

linnet_status linnet_store_save(linnet_store *store, const char *path, const linnet_checkpoint_config *config,
                                linnet_error *error) {
    (void)store, (void)path, (void)config;
    return ln_left_out("linnet_store_save", "LINNET_CHECKPOINTS", error);
}

linnet_status linnet_store_load(linnet_store *store, const char *path, linnet_error *error) {
    (void)store, (void)path;
    return ln_left_out("linnet_store_load", "LINNET_CHECKPOINTS", error);
}

#else

static const char model_key[] = "checkpoint_of";

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Writes a flatbuffer from front to back. Offsets point forward, so each offset is reserved first and filled in when
   its target is written. */
typedef struct writer {
    unsigned char *data; /* zeroed */
    size_t used;
} writer;

static size_t put(writer *w, uint64_t value, size_t width) {
    const size_t at = w->used;
    memcpy(w->data + at, &value, width);
    w->used += width;
    return at;
}

static void point(writer *w, size_t at) {
    const uint32_t offset = (uint32_t)(w->used - at);
    memcpy(w->data + at, &offset, sizeof offset);
}

/* Advances so that the byte that follows `before` bytes later has an offset that is a multiple of 8. */
static void align(writer *w, size_t before) { w->used = ln_round_up(w->used + before, 8) - before; }

static void text(writer *w, size_t at, const char *s) {
    const size_t length = strlen(s);
    point(w, at);
    put(w, length, 4);
    memcpy(w->data + w->used, s, length);
    w->used = ln_round_up(w->used + length + 1, 4);
}

/* Writes a vector of `count` offsets, and lets the offset at `at` point to it. Returns the position of its first
 * element. */
static size_t offsets(writer *w, size_t at, size_t count) {
    point(w, at);
    put(w, count, 4);
    w->used += 4 * count;
    return w->used - 4 * count;
}

/* The vtables of schema/linnet.fbs that a checkpoint needs. Each vtable contains its own size, the size of the table,
   and the position of each field in the table (0: absent). It is padded to a multiple of 4. */
/* The positions of these vtables, and of the first table (ROOT). */
enum { MODEL = 8, VARIABLE = 24, SEGMENT = 40, PAIR = 52, ROOT = 60 };
static const uint16_t fields[] = {
    16, 16, 0, 0,  0,  4,  8,  12, /* Model: variables, segments, metadata */
    14, 20, 4, 16, 8,  0,  12, 0,  /* Variable: name, dtype, shape, segment */
    12, 32, 4, 12, 28, 20,         /* Segment: offset, size, digest_kind, digest */
    8,  12, 4, 8,                  /* KeyValue */
};

static size_t table(writer *w, size_t description) { return put(w, w->used - LN_HEADER_SIZE - description, 4); }

typedef struct saver {
    linnet_store *store;
    ln_pool pool;
    const char **pairs; /* sorted by key */
    int32_t n_pairs, n_chosen;
    bool *chosen;    /* [variable]: it is saved */
    size_t *digests; /* per chosen variable: the position of its CRC in the structure */
    ln_new_file *file;
    void *buffer; /* for parts of a value that the store does not have; NULL: none was needed yet */
    linnet_error *error;
} saver;

static linnet_status no_memory(linnet_error *error) {
    return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to write the checkpoint");
}

static linnet_status bad_pair(saver *s, const char *key, const char *what) {
    ln_fail(s->error, LINNET_INVALID_ARGUMENT, "%s", what);
    ln_at_tensor(s->error, key);
    return ln_expected(s->error, "unique keys, each with a value, all as UTF-8"), LINNET_INVALID_ARGUMENT;
}

static linnet_status take_pairs(saver *s, const linnet_checkpoint_config *config) {
    const int32_t given = config ? config->metadata_count : 0;
    s->pairs = ln_pool_array(&s->pool, given < 0 ? -1 : 2 * ((int64_t)given + 1), sizeof *s->pairs);
    if (!s->pairs)
        return given < 0 ? bad_pair(s, "", "linnet_checkpoint_config.metadata_count is negative") : no_memory(s->error);
    s->pairs[0] = model_key;
    s->pairs[1] = ln_store_model(s->store)->digest;
    for (s->n_pairs = 1; s->n_pairs <= given; s->n_pairs++) {
        const char *key = config->metadata ? config->metadata[2 * (s->n_pairs - 1)] : NULL;
        const char *value = key ? config->metadata[2 * (s->n_pairs - 1) + 1] : NULL;
        int32_t at = s->n_pairs;
        if (!value || !ln_is_text(key, strlen(key)) || !ln_is_text(value, strlen(value)))
            return bad_pair(s, key, "a metadata key or value is NULL or is not UTF-8");
        for (; at > 0 && strcmp(s->pairs[2 * (at - 1)], key) >= 0; at--) {
            if (!strcmp(s->pairs[2 * (at - 1)], key))
                return bad_pair(s, key, "this metadata key is given twice, or is reserved");
            memcpy(&s->pairs[2 * at], &s->pairs[2 * (at - 1)], 2 * sizeof *s->pairs);
        }
        s->pairs[2 * at] = key;
        s->pairs[2 * at + 1] = value;
    }
    return LINNET_OK;
}

static linnet_status choose(saver *s, const linnet_checkpoint_config *config) {
    const linnet_model *model = ln_store_model(s->store);
    s->chosen = ln_pool_array(&s->pool, model->n_variables, sizeof *s->chosen);
    if (!s->chosen) return no_memory(s->error);
    for (int32_t i = 0; config && config->variables && i < config->variable_count; i++) {
        const int32_t v = ln_store_find(s->store, "linnet_store_save", config->variables[i], s->error);
        if (v < 0) return config->variables[i] ? LINNET_UNKNOWN_NAME : LINNET_INVALID_ARGUMENT;
        s->chosen[v] = true;
    }
    for (int32_t i = 0; i < model->n_variables; i++) {
        if (!config || !config->variables) s->chosen[i] = ln_store_version(s->store, i) > 0;
        s->n_chosen += s->chosen[i];
    }
    return LINNET_OK;
}

static void write_variables(saver *s, writer *w, size_t at) {
    const linnet_model *model = ln_store_model(s->store);
    size_t each = offsets(w, at, (size_t)s->n_chosen);
    uint64_t segment = 0;
    for (int32_t i = 0; i < model->n_variables; i++) {
        const ln_variable *v = &model->variables[i];
        size_t name, shape;
        if (!s->chosen[i]) continue;
        point(w, each);
        each += 4;
        table(w, VARIABLE);
        name = put(w, 0, 4);
        shape = put(w, 0, 4);
        put(w, segment++, 4);
        put(w, v->tensor.dtype, 4);
        text(w, name, v->name);
        align(w, 4);
        point(w, shape);
        put(w, (uint64_t)v->tensor.rank, 4);
        for (int d = 0; d < v->tensor.rank; d++) put(w, (uint64_t)v->tensor.dims[d], 8);
    }
}

/* The vector of segments is last in the structure and has a known size, so the positions of the segments' data are
   known. *data becomes the first of them. Returns the size of the file. */
static uint64_t write_segments(saver *s, writer *w, size_t at, size_t *data) {
    const linnet_model *model = ln_store_model(s->store);
    const size_t n = (size_t)s->n_chosen;
    size_t each = offsets(w, at, n), *digest = s->digests;
    uint64_t place;
    align(w, 4);
    place = ln_round_up(w->used + 32 * n, LN_ALIGNMENT);
    *data = (size_t)place;
    for (int32_t i = 0; i < model->n_variables; i++) {
        const ln_variable *v = &model->variables[i];
        if (!s->chosen[i]) continue;
        point(w, each);
        each += 4;
        table(w, SEGMENT);
        put(w, place, 8);
        put(w, v->bytes, 8);
        *digest++ = put(w, 0, 8);
        put(w, LN_DIGEST_CRC32C, 4);
        place += ln_round_up(v->bytes, LN_ALIGNMENT);
    }
    return place;
}

/* Writes the value, and zeros up to the next one. A value that another machine has comes in parts, so that it is never
 * here as a whole. */
static linnet_status write_value(saver *s, int32_t i, uint32_t *crc) {
    enum { PART = 1 << 20 };
    static const char zeros[LN_ALIGNMENT];
    const size_t bytes = (size_t)ln_store_model(s->store)->variables[i].bytes;
    linnet_status status = LINNET_OK;
    if (s->buffer == NULL && ln_store_holder(s->store, i) != NULL && ln_store_unread(s->store, i) == NULL)
        s->buffer = ln_pool_alloc(&s->pool, PART);
    for (size_t at = 0; at < bytes && status == LINNET_OK; at += PART) {
        const size_t size = bytes - at < PART ? bytes - at : PART;
        const void *part = ln_store_part(s->store, i, at, size, s->buffer, s->error);
        if (part == NULL) return (linnet_status)s->error->code;
        *crc = linnet_crc32c(*crc, part, size);
        status = ln_file_append(s->file, part, size, s->error);
    }
    if (status != LINNET_OK) return status;
    return ln_file_append(s->file, zeros, (size_t)ln_round_up(bytes, LN_ALIGNMENT) - bytes, s->error);
}

static linnet_status write_file(saver *s, const char *path) {
    const linnet_model *model = ln_store_model(s->store);
    size_t most = 512, root[4], each, data;
    linnet_status status;
    uint64_t size;
    uint32_t version = 1;
    writer w = {NULL, 0};
    for (int32_t i = 0; i < model->n_variables; i++)
        if (s->chosen[i]) {
            most += 128 + strlen(model->variables[i].name) + 8 * LN_MAX_RANK;
            if (ln_dtype_bits(model->variables[i].tensor.dtype) < 8) version = 2;
        }
    for (int32_t i = 0; i < s->n_pairs; i++) most += 48 + strlen(s->pairs[2 * i]) + strlen(s->pairs[2 * i + 1]);
    w.data = ln_pool_alloc(&s->pool, most);
    s->digests = ln_pool_array(&s->pool, (int64_t)s->n_chosen + 1, sizeof *s->digests);
    if (!w.data || !s->digests) return no_memory(s->error);
    w.used = LN_HEADER_SIZE;
    put(&w, ROOT, 4);
    memcpy(w.data + w.used, "LNT1", 4);
    w.used += 4;
    memcpy(w.data + w.used, fields, sizeof fields);
    w.used += sizeof fields;
    root[0] = table(&w, MODEL);
    for (int i = 1; i < 4; i++) root[i] = put(&w, 0, 4);
    write_variables(s, &w, root[1]);
    each = offsets(&w, root[3], (size_t)s->n_pairs);
    for (int32_t i = 0; i < s->n_pairs; i++, each += 4) {
        size_t key, value;
        point(&w, each);
        table(&w, PAIR);
        key = put(&w, 0, 4);
        value = put(&w, 0, 4);
        text(&w, key, s->pairs[2 * i]);
        text(&w, value, s->pairs[2 * i + 1]);
    }
    size = write_segments(s, &w, root[2], &data);
    status = ln_file_begin(s->file, path, size, s->error);
    if (status == LINNET_OK) status = ln_file_append(s->file, w.data, data, s->error);
    for (int32_t i = 0, n = 0; i < model->n_variables && status == LINNET_OK; i++) {
        uint32_t crc = 0;
        if (!s->chosen[i]) continue;
        status = write_value(s, i, &crc);
        memcpy(w.data + s->digests[n++], &crc, sizeof crc);
    }
    if (status != LINNET_OK) return ln_file_drop(s->file), status;
    /* The header is written last, because it has the digests of the values. */
    ln_write_header(w.data, w.data + LN_HEADER_SIZE, w.used - LN_HEADER_SIZE, size, version);
    return ln_file_put(s->file, w.data, data, s->error);
}

linnet_status linnet_store_save(linnet_store *store, const char *path, const linnet_checkpoint_config *given,
                                linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_checkpoint_config taken;
    const linnet_checkpoint_config *config = given ? &taken : NULL;
    saver s = {.store = store, .error = error};
    ln_memory memory;
    linnet_status status;
    if (!store || !path) return ln_null_argument(error, "linnet_store_save", !store ? "store" : "path");
    if (given && LN_TAKE(linnet_checkpoint_config, metadata_count, &taken, given, error))
        return LINNET_INVALID_ARGUMENT;
    ln_memory_init(&memory, ln_store_allocator(store));
    ln_pool_init(&s.pool, &memory);
    s.file = ln_pool_alloc(&s.pool, sizeof *s.file);
    status = s.file ? take_pairs(&s, config) : no_memory(error);
    if (status == LINNET_OK) {
        ln_store_lock(store, false);
        status = choose(&s, config);
        if (status == LINNET_OK) status = write_file(&s, path);
        ln_store_unlock(store);
    }
    if (status == LINNET_OK) status = ln_file_commit(s.file, error);
    ln_pool_free(&s.pool);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static linnet_status damaged(const ln_variable *v, const char *what, linnet_error *error) {
    ln_fail(error, LINNET_CORRUPT, "%s", what);
    ln_at_tensor(error, v->name);
    return ln_hint(error, "use an earlier checkpoint"), LINNET_CORRUPT;
}

/* Checks that every variable of the checkpoint can be loaded. */
static linnet_status check(linnet_store *store, const linnet_model *checkpoint, const char *path, linnet_error *error) {
    const linnet_model *model = ln_store_model(store);
    const char *of = linnet_model_metadata(checkpoint, model_key);
    if (!of || strcmp(of, model->digest) != 0) {
        ln_fail(error, LINNET_OTHER_MODEL,
                of ? "the checkpoint belongs to another model" : "the file is a model, not a checkpoint");
        ln_at_tensor(error, path);
        ln_expected(error, "a checkpoint of the model with digest %s", model->digest);
        if (of) ln_got(error, "a checkpoint of the model with digest %s", of);
        return ln_hint(error, "load a checkpoint of this model, or open the model that the checkpoint was saved from"),
               LINNET_OTHER_MODEL;
    }
    for (int32_t i = 0; i < checkpoint->n_variables; i++) {
        const ln_variable *v = &checkpoint->variables[i];
        const int32_t own = ln_store_find(store, "linnet_store_load", v->name, error);
        const ln_tensor *t = own < 0 ? NULL : &model->variables[own].tensor;
        if (!t || t->dtype != v->tensor.dtype || t->rank != v->tensor.rank ||
            memcmp(t->dims, v->tensor.dims, (size_t)t->rank * sizeof *t->dims) != 0)
            return damaged(v, "the model does not have this variable of the checkpoint, or its dtype or shape differs",
                           error);
        if (v->bytes && !v->tensor.data)
            return damaged(v, "the checkpoint lists this variable but has no value for it", error);
    }
    return LINNET_OK;
}

linnet_status linnet_store_load(linnet_store *store, const char *path, linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_model_config config;
    linnet_model *checkpoint;
    linnet_status status;
    if (!store || !path) return ln_null_argument(error, "linnet_store_load", !store ? "store" : "path");
    linnet_model_config_init(&config);
    config.allocator = ln_store_allocator(store);
    config.verify = 1;
    if ((status = linnet_model_open(path, &config, &checkpoint, error))) return status;
    status = check(store, checkpoint, path, error);
    if (status == LINNET_OK) {
        ln_store_lock(store, true);
        for (int32_t i = 0; i < checkpoint->n_variables; i++) {
            const ln_variable *v = &checkpoint->variables[i];
            const int32_t own = ln_store_find(store, "", v->name, NULL);
            ln_store_take(store, own, checkpoint, v);
        }
        ln_store_unlock(store);
    }
    linnet_model_free(checkpoint);
    return status;
}

#endif
