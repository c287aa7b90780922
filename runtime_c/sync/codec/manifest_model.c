/* manifest_model.c - makes the table of tensors from a model's signatures and metadata.
 * It writes entries and reads them back in TENSORS form, so that both sides hold exactly the same table. */
#include "sync/codec/manifest_model.h"

#include "net/error.h"
#include "sync/codec/digest.h"
#include "sync/codec/manifest.h"
#include "sync/codec/payload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENT "gradient/"

static bool starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* If `text` ends in `with`, returns the length of `text` without this ending; otherwise returns 0. */
static size_t before(const char *text, const char *with) {
    const size_t n = strlen(text), k = strlen(with);
    return n > k && !strcmp(text + n - k, with) ? n - k : 0;
}

static int32_t find_variable(const linnet_model *model, const char *name, size_t length, linnet_tensor_info *info) {
    for (int32_t i = 0; i < linnet_model_variable_count(model); i++)
        if (!linnet_model_get_variable(model, i, info) && strlen(info->name) == length &&
            !strncmp(info->name, name, length))
            return i;
    return -1;
}

/* Reads the number in metadata `<key>/<name>`, or returns `otherwise` if there is no such entry. */
static linnet_status number_of(const linnet_model *model, const char *key, const char *name, uint64_t otherwise,
                               uint64_t *out, linnet_error *error) {
    char full[320], *end;
    const char *text;
    snprintf(full, sizeof full, "%s/%s", key, name);
    text = linnet_model_metadata(model, full);
    *out = otherwise;
    if (!text) return LINNET_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (!errno && end != text && !*end && *text != '-' && *out < (uint64_t)INT64_MAX) return LINNET_OK;
    ln_sync_fail(error, LINNET_CORRUPT, "metadata '%.100s' is not a number", full);
    ln_sync_at(error, name);
    return ln_sync_got(error, "'%.40s'", text), LINNET_CORRUPT;
}

/* Appends the entry of a variable to the manifest. */
static linnet_status add(ln_sync_manifest *m, const linnet_model *model, const char *name, size_t length,
                         ln_sync_kind kind, uint32_t group, linnet_error *error) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    ln_sync_tensor entry;
    unsigned char bytes[LN_SYNC_TENSOR_BYTES];
    linnet_status status;
    memset(&entry, 0, sizeof entry);
    if (find_variable(model, name, length, &info) < 0) {
        ln_sync_fail(error, LINNET_UNKNOWN_NAME,
                     "the model has no variable '%.*s', but a signature or metadata names it",
                     (int)(length < 80 ? length : 80), name);
        return ln_sync_hint(error, "linnet.sync.signatures and linnet.sync.shard write consistent files"),
               LINNET_UNKNOWN_NAME;
    }
    if (ln_sync_manifest_find(m, info.name)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a variable is shared in two ways");
        ln_sync_at(error, info.name);
        return ln_sync_expected(error, "one input of one update signature, or one place in sync.average or sync.read"),
               LINNET_INVALID_ARGUMENT;
    }
    if (length >= sizeof entry.name || info.rank > 8 || info.rank < 0) {
        ln_sync_fail(error, LINNET_TOO_LARGE, "the name or rank of a variable is too large to be sent");
        ln_sync_at(error, info.name);
        return ln_sync_expected(error, "a name of at most 255 bytes, a rank of at most 8"), LINNET_TOO_LARGE;
    }
    if (kind != LN_SYNC_READ_ONLY && info.dtype != LINNET_F32 && info.dtype != LINNET_F64 && info.dtype != LINNET_F16 &&
        info.dtype != LINNET_BF16) {
        ln_sync_fail(error, LINNET_WRONG_DTYPE, "only float variables can have gradients or averages");
        ln_sync_at(error, info.name);
        return ln_sync_got(error, "%s", linnet_dtype_name(info.dtype)), LINNET_WRONG_DTYPE;
    }
    entry.number = m->count;
    entry.group = group;
    entry.dtype = (uint8_t)info.dtype;
    entry.kind = (uint8_t)kind;
    entry.rank = (uint8_t)info.rank;
    entry.name_size = (uint8_t)length;
    for (int i = 0; i < info.rank; i++) entry.dims[i] = (uint64_t)info.shape[i];
    memcpy(entry.name, info.name, length);
    status = number_of(model, "sync.first_row", info.name, 0, &entry.first_row, error);
    if (!status) status = number_of(model, "sync.rows", info.name, entry.rank ? entry.dims[0] : 0, &entry.rows, error);
    if (status) return status;
    if (ln_sync_manifest_take(m, bytes, ln_sync_tensor_write(&entry, bytes)) == LN_NET_FINE) return LINNET_OK;
    ln_sync_fail(error, LINNET_CORRUPT, "metadata sync.first_row and sync.rows do not fit the variable");
    ln_sync_at(error, info.name);
    return ln_sync_got(error, "rows from %llu of %llu", (unsigned long long)entry.first_row,
                       (unsigned long long)entry.rows),
           LINNET_CORRUPT;
}

/* Adds the gradient that belongs to an input of an update signature. */
static linnet_status add_input(ln_sync_manifest *m, const linnet_model *model, int signature, int i, uint32_t group,
                               linnet_error *error) {
    linnet_tensor_info input = {.struct_size = sizeof input}, variable = input;
    const char *name;
    size_t length, ids;
    int32_t wanted;
    linnet_status status = linnet_model_get_input(model, signature, i, &input);
    if (status) return ln_sync_fail(error, status, "cannot read an input of an update signature");
    if (!starts(input.name, GRADIENT)) {
        ln_sync_fail(error, LINNET_UNKNOWN_NAME, "a server cannot feed this input of '%.80s'",
                     linnet_model_signature_name(model, signature));
        ln_sync_at(error, input.name);
        return ln_sync_expected(error, "gradient/<variable>, or gradient/<variable>/ids and .../rows"),
               LINNET_UNKNOWN_NAME;
    }
    name = input.name + strlen(GRADIENT);
    if (find_variable(model, name, strlen(name), &variable) >= 0) {
        status = add(m, model, name, strlen(name), LN_SYNC_DENSE, group, error);
    } else if (before(name, "/rows")) { /* the input .../ids adds the entry */
        length = before(name, "/rows");
    } else {
        ids = before(name, "/ids");
        length = ids ? ids : strlen(name);
        status = add(m, model, name, length, ids ? LN_SYNC_SPARSE : LN_SYNC_DENSE, group, error);
        if (!status && ids) {
            if (input.dtype == LINNET_I64 && input.rank == 1) return LINNET_OK;
            ln_sync_fail(error, LINNET_WRONG_DTYPE,
                         "the row numbers of a sparse gradient have the wrong dtype or shape");
            ln_sync_at(error, input.name);
            return ln_sync_expected(error, "i64 [n]"), LINNET_WRONG_DTYPE;
        }
    }
    if (status) return status;
    if (find_variable(model, name, strlen(name), &variable) < 0)
        find_variable(model, name, before(name, "/rows"), &variable);
    wanted = variable.dtype == LINNET_F64 ? LINNET_F64 : LINNET_F32;
    if (input.dtype == wanted) return LINNET_OK;
    ln_sync_fail(error, LINNET_WRONG_DTYPE, "a gradient has the wrong dtype");
    ln_sync_at(error, input.name);
    ln_sync_expected(error, "%s", linnet_dtype_name(wanted));
    return ln_sync_got(error, "%s", linnet_dtype_name(input.dtype)), LINNET_WRONG_DTYPE;
}

/* Adds the variables that metadata `key` names, one per line. */
static linnet_status add_list(ln_sync_manifest *m, const linnet_model *model, const char *key, ln_sync_kind kind,
                              linnet_error *error) {
    const char *at = linnet_model_metadata(model, key);
    while (at && *at) {
        const size_t length = strcspn(at, "\n");
        const linnet_status status = length ? add(m, model, at, length, kind, 0, error) : LINNET_OK;
        if (status) return status;
        at += length + (at[length] != 0);
    }
    return LINNET_OK;
}

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

linnet_status ln_sync_job_of(const linnet_model *model, unsigned char job[16], linnet_error *error) {
    const char *text = linnet_model_metadata(model, "sync.job");
    if (!text) text = linnet_model_metadata(model, "digest");
    for (int i = 0; text && i < 16; i++) {
        const int high = hex(text[2 * i]), low = high < 0 ? -1 : hex(text[2 * i + 1]);
        if (low < 0) {
            text = NULL;
            break;
        }
        job[i] = (unsigned char)(high << 4 | low);
    }
    if (text && !text[32]) return LINNET_OK;
    return ln_sync_fail(error, LINNET_CORRUPT, "metadata sync.job is not a digest of 32 hexadecimal digits");
}

static linnet_status shard_of(ln_sync_manifest *m, const linnet_model *model, linnet_error *error) {
    const char *text = linnet_model_metadata(model, "sync.shard");
    unsigned shard = 0, shards = 1;
    char rest;
    if (text && (sscanf(text, "%u/%u%c", &shard, &shards, &rest) != 2 || shard >= shards || shards >= 65535)) {
        ln_sync_fail(error, LINNET_CORRUPT, "metadata sync.shard is invalid");
        ln_sync_expected(error, "k/K with k < K, such as 0/2");
        return ln_sync_got(error, "'%.40s'", text), LINNET_CORRUPT;
    }
    m->shard = (uint16_t)shard;
    m->shards = (uint16_t)shards;
    return LINNET_OK;
}

/* Computes the digest for READY, which covers whole payloads as they are sent, not single entries. */
static void digest(ln_sync_manifest *m) {
    unsigned char payload[LN_NET_CONTROL_MAX];
    uint32_t next = 0;
    size_t bytes;
    m->digest[0] = m->digest[1] = 0;
    while ((bytes = ln_sync_manifest_payload(m, &next, payload)) > 0) ln_sync_digest(payload, bytes, m->digest);
}

static linnet_status fill(ln_sync_manifest *m, const linnet_model *model, linnet_error *error) {
    linnet_status status = ln_sync_job_of(model, m->job, error);
    const char *not_finite = linnet_model_metadata(model, "sync.not_finite");
    if (!status) status = shard_of(m, model, error);
    for (int s = 0; !status && s < linnet_model_signature_count(model); s++) {
        if (!starts(linnet_model_signature_name(model, s), "update/")) continue;
        for (int i = 0; !status && i < linnet_model_input_count(model, s); i++)
            status = add_input(m, model, s, i, (uint32_t)m->updates, error);
        m->signatures[m->updates++] = s;
    }
    if (!status) status = add_list(m, model, "sync.average", LN_SYNC_AVERAGED, error);
    if (!status) status = add_list(m, model, "sync.read", LN_SYNC_READ_ONLY, error);
    m->takes_not_finite = not_finite && !strcmp(not_finite, "update");
    if (status || m->updates) return status;
    ln_sync_fail(error, LINNET_UNKNOWN_NAME, "the model has no update/... signature, so a server cannot run it");
    return ln_sync_hint(error, "linnet.sync.signatures(graph, loss, optimizer, ...) writes it"), LINNET_UNKNOWN_NAME;
}

linnet_status ln_sync_manifest_from_model(const linnet_model *model, ln_sync_manifest **out, linnet_error *error) {
    ln_sync_manifest *m;
    int32_t count = linnet_model_variable_count(model);
    linnet_status status =
        ln_sync_manifest_create(count > LN_SYNC_TENSORS_MAX ? LN_SYNC_TENSORS_MAX : (uint32_t)count, &m, error);
    *out = NULL;
    if (status) return status;
    m->signatures = calloc((size_t)linnet_model_signature_count(model) + 1, sizeof *m->signatures);
    status = m->signatures ? fill(m, model, error)
                           : ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a table of tensors");
    if (status) {
        ln_sync_manifest_free(m);
        return status;
    }
    digest(m);
    *out = m;
    return LINNET_OK;
}
