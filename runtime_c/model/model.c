/* model.c - opens a .lnt file: header, private copy of the structure, lifetime.
 * docs/format.md specifies the container; structure*.c verify the structure, describe.c answers questions. */
#include "model/model.h"

#include "base/crc32.h"
#include "base/digest.h"
#include "base/platform_files.h"
#include "base/platform_locks.h"
#include "base/structs.h"
#include "model/structure.h"
#include "model/structure_reader.h"
#include "model/user.h"
#include "model/verify.h"

#include <stdio.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "linnet reads little-endian files in place, so it needs a little-endian machine"
#endif

enum { HEADER_SIZE = LN_HEADER_SIZE, READER_VERSION = LN_FORMAT_VERSION };
static const char magic[8] = {'L', 'I', 'N', 'N', 'E', 'T', '\r', '\n'};

typedef struct header {
    uint32_t format_version, oldest_reader, structure_crc;
    uint64_t structure_offset, structure_size, file_size;
} header;

static uint32_t u32_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64_at(const unsigned char *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

void ln_write_header(void *header, const void *structure, uint64_t structure_size, uint64_t file_size,
                     uint32_t version) {
    const uint32_t versions[2] = {version, version}, crc = ln_crc32(0, structure, (size_t)structure_size);
    const uint64_t range[2] = {HEADER_SIZE, structure_size};
    char *to = memset(header, 0, HEADER_SIZE);
    memcpy(to, magic, sizeof magic);
    memcpy(to + 8, versions, sizeof versions);
    memcpy(to + 16, range, sizeof range);
    memcpy(to + 32, &crc, sizeof crc);
    memcpy(to + 40, &file_size, sizeof file_size);
}

static linnet_status read_header(const void *file, size_t size, header *h, linnet_error *error) {
    unsigned char bytes[HEADER_SIZE];
    size_t known = size < HEADER_SIZE ? size : HEADER_SIZE;
    memset(bytes, 0, sizeof bytes);
    if (known) memcpy(bytes, file, known); /* everything is read from this copy, because a mapped file may change */
    if (known < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0) {
        bool text_mode = known >= 6 && memcmp(bytes, magic, 6) == 0;
        ln_fail(error, LINNET_BAD_MAGIC, "not a .lnt file");
        ln_expected(error, "a file that begins with LINNET");
        ln_got(error, "%zu bytes that begin differently", size);
        ln_hint(error, text_mode ? "the file was transferred in text mode; copy it again in binary mode"
                                 : "convert the model with `linnet convert`");
        return LINNET_BAD_MAGIC;
    }
    if (known < HEADER_SIZE) {
        ln_fail(error, LINNET_TRUNCATED, "the file ends within its header");
        ln_expected(error, "at least %d bytes", HEADER_SIZE);
        return ln_got(error, "%zu bytes", size), LINNET_TRUNCATED;
    }
    h->format_version = u32_at(bytes + 8);
    h->oldest_reader = u32_at(bytes + 12);
    h->structure_offset = u64_at(bytes + 16);
    h->structure_size = u64_at(bytes + 24);
    h->structure_crc = u32_at(bytes + 32);
    h->file_size = u64_at(bytes + 40);
    if (h->oldest_reader > READER_VERSION) {
        ln_fail(error, LINNET_NEWER_FORMAT, "the file needs a newer version of linnet");
        ln_expected(error, "reader version %d or older", READER_VERSION);
        ln_got(error, "%u", (unsigned)h->oldest_reader);
        return ln_hint(error, "use a newer linnet (this is version %s)", linnet_version()), LINNET_NEWER_FORMAT;
    }
    if (h->format_version == 0 || h->oldest_reader == 0 || h->oldest_reader > h->format_version) {
        ln_fail(error, LINNET_CORRUPT, "the format versions in the header are invalid");
        return ln_got(error, "format %u, oldest reader %u", (unsigned)h->format_version, (unsigned)h->oldest_reader),
               LINNET_CORRUPT;
    }
    if (h->file_size != size) {
        linnet_status code = h->file_size > size ? LINNET_TRUNCATED : LINNET_CORRUPT;
        ln_fail(error, code, "the file size differs from the size in its header");
        ln_expected(error, "%llu bytes", (unsigned long long)h->file_size);
        ln_got(error, "%zu bytes", size);
        return ln_hint(error, "copy the file again"), code;
    }
    if (h->structure_offset != HEADER_SIZE || h->structure_size > size - HEADER_SIZE || h->structure_size > INT32_MAX) {
        ln_fail(error, LINNET_CORRUPT, "the structure range in the header is outside the file");
        return ln_got(error, "offset %llu, size %llu", (unsigned long long)h->structure_offset,
                      (unsigned long long)h->structure_size),
               LINNET_CORRUPT;
    }
    return LINNET_OK;
}

static void set_digest(linnet_model *model, const void *structure, size_t size) {
    uint64_t sum[2] = {0, 0};
    ln_digest(structure, size, sum);
    for (int32_t i = 0; i < model->n_segments; i++) { /* the structure contains the digests of the other segments */
        const ln_segment *s = &model->segments[i];
        if (s->digest_kind == LN_DIGEST_NONE) ln_digest(s->data, (size_t)s->size, sum);
    }
    snprintf(model->digest, sizeof model->digest, "%016llx%016llx", (unsigned long long)sum[0],
             (unsigned long long)sum[1]);
}

static linnet_status load(linnet_model *model, linnet_error *error) {
    header h;
    const char *structure;
    uint32_t crc;
    linnet_status status = read_header(model->file, model->file_size, &h, error);
    if (status) return status;
    structure = (const char *)model->file + HEADER_SIZE;
    if (model->file_kind == LN_FILE_MAPPED) { /* another process may change the file after the structure was verified */
        char *copy = ln_pool_alloc(&model->pool, (size_t)h.structure_size);
        if (!copy)
            return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate %llu bytes for the structure of the file",
                           (unsigned long long)h.structure_size);
        structure = memcpy(copy, structure, (size_t)h.structure_size);
    }
    crc = ln_crc32(0, structure, (size_t)h.structure_size);
    if (crc != h.structure_crc) {
        ln_fail(error, LINNET_CORRUPT, "the checksum of the structure is wrong");
        ln_expected(error, "CRC-32 %08x", (unsigned)h.structure_crc);
        ln_got(error, "%08x", (unsigned)crc);
        return ln_hint(error, "the file is damaged; copy it again"), LINNET_CORRUPT;
    }
    model->format_version = h.format_version;
    model->structure_size = h.structure_size;
    status = ln_read_structure(model, structure, (size_t)h.structure_size, error);
    if (status == LINNET_OK) set_digest(model, structure, (size_t)h.structure_size);
    return status;
}

static void release(linnet_model *model) {
    ln_memory memory;
    ln_pool_free(&model->pool);
    if (model->file_kind == LN_FILE_MAPPED)
        ln_file_unmap(model->file, model->file_size);
    else if (model->file_kind == LN_FILE_COPIED)
        ln_memory_free(&model->memory, (void *)(uintptr_t)model->file, model->file_size);
    ln_lock_destroy(&model->lock);
    memory = model->memory;
    ln_memory_free(&memory, model, sizeof *model);
}

/* Copies the caller's config, which may be NULL or of another version, and checks it. */
static linnet_status take_config(const linnet_model_config *given, linnet_model_config *config, linnet_error *error) {
    linnet_model_config_init(config);
    if (given != NULL && LN_TAKE(linnet_model_config, log_context, config, given, error))
        return LINNET_INVALID_ARGUMENT;
    if (config->verify < -1 || config->verify > 1) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_model_config.verify is out of range");
        ln_expected(error, "-1, 0 or 1");
        return ln_got(error, "%d", (int)config->verify), LINNET_INVALID_ARGUMENT;
    }
    const linnet_allocator *allocator = config->allocator;
    if (allocator != NULL && (!allocator->alloc || !allocator->free))
        return ln_fail(error, LINNET_INVALID_ARGUMENT,
                       "linnet_model_config.allocator must have both `alloc` and `free`");
    return LINNET_OK;
}

linnet_status ln_model_new(const linnet_allocator *allocator, linnet_model **out, linnet_error *error) {
    ln_memory memory;
    linnet_model *model;
    ln_memory_init(&memory, allocator);
    model = ln_memory_alloc(&memory, sizeof *model);
    if (!model) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a model");
    memset(model, 0, sizeof *model);
    if (!ln_lock_init(&model->lock)) {
        ln_memory_free(&memory, model, sizeof *model);
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot create the model's mutex");
    }
    model->memory = model->packed = memory;
    model->packed.bytes = 0;
    atomic_init(&model->references.count, 1);
    ln_pool_init(&model->pool, &model->memory);
    model->file_kind = LN_FILE_BORROWED;
    *out = model;
    return LINNET_OK;
}

/* Logs facts about an opened model that may surprise its user. `found` is NULL if the weights were not checked. */
static void report(const linnet_model *model, const char *name, int verify, const linnet_verified *found) {
    if (model->format_version > LN_FORMAT_VERSION)
        ln_log(&model->log, LINNET_LOG_WARNING,
               "%s has format version %u, and this library knows versions up to %d only", name,
               (unsigned)model->format_version, LN_FORMAT_VERSION);
    if (found == NULL && verify == LINNET_VERIFY_DEFAULT)
        ln_log(&model->log, LINNET_LOG_INFO, "the weights of %s were not compared with their digests", name);
    if (found != NULL && found->without_digest > 0)
        ln_log(&model->log, LINNET_LOG_WARNING, "%d of %d segments of %s have no digest and were not checked",
               (int)found->without_digest, (int)found->segments, name);
}

static linnet_status finish(linnet_model *model, const char *path, const linnet_model_config *config,
                            linnet_model **out, linnet_error *error) {
    const int verify = config->verify;
    linnet_verified found;
    model->log = (ln_log_target){config->log, config->log_context};
    linnet_status status = ln_user_register(model, config, error);
    if (status == LINNET_OK) status = load(model, error);
    const bool checks = verify > 0 || (verify == LINNET_VERIFY_DEFAULT && model->file_kind == LN_FILE_COPIED);
    if (status == LINNET_OK && checks) status = ln_verify_bytes(model, verify > 0, &found, error);
    if (status == LINNET_OK) {
        report(model, path ? path : "the model", verify, checks ? &found : NULL);
        *out = model;
        return LINNET_OK;
    }
    if (path && error && !error->tensor[0]) ln_at_tensor(error, path);
    release(model);
    return status;
}

linnet_status linnet_model_open(const char *path, const linnet_model_config *given, linnet_model **out,
                                linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_model_config config;
    linnet_model *model;
    linnet_status status;
    if (!out) return ln_null_argument(error, "linnet_model_open", "out");
    *out = NULL;
    if (!path) return ln_null_argument(error, "linnet_model_open", "path");
    if ((status = take_config(given, &config, error)) || (status = ln_model_new(config.allocator, &model, error)))
        return status;
    status = ln_file_map(path, &model->file, &model->file_size, error);
    if (status) {
        release(model);
        return status;
    }
    model->file_kind = LN_FILE_MAPPED;
    return finish(model, path, &config, out, error);
}

linnet_status linnet_model_open_memory(const void *data, size_t size, linnet_ownership ownership,
                                       const linnet_model_config *given, linnet_model **out, linnet_error *error) {
    LN_WANT_ERROR(error);
    linnet_model_config config;
    linnet_model *model;
    linnet_status status;
    if (!out) return ln_null_argument(error, "linnet_model_open_memory", "out");
    *out = NULL;
    if (!data && size) return ln_null_argument(error, "linnet_model_open_memory", "data");
    if ((status = take_config(given, &config, error)) || (status = ln_model_new(config.allocator, &model, error)))
        return status;
    model->file = data;
    model->file_size = size;
    if (size && (ownership == LINNET_COPY || (uintptr_t)data % 16 != 0)) {
        void *own = ln_memory_alloc(&model->memory, size);
        if (!own) {
            release(model);
            return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate %zu bytes for a copy of the file", size);
        }
        if (ownership != LINNET_COPY)
            ln_log(&(ln_log_target){config.log, config.log_context}, LINNET_LOG_INFO,
                   "the model's memory is not 16-byte aligned, so its %zu bytes were copied", size);
        memcpy(own, data, size);
        model->file = own;
        model->file_kind = LN_FILE_COPIED;
    }
    return finish(model, NULL, &config, out, error);
}

linnet_model *ln_model_retain(linnet_model *model) {
    atomic_fetch_add_explicit(&model->references.count, 1, memory_order_relaxed);
    return model;
}

void linnet_model_free(linnet_model *model) {
    if (model && atomic_fetch_sub_explicit(&model->references.count, 1, memory_order_acq_rel) == 1) release(model);
}
