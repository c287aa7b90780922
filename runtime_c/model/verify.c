/* verify.c - checks that the bytes of an open file are the bytes that were written. Every segment must match its
   digest, and the header's reserved bytes and the bytes between segments must be zero. Opening the file has already
   checked the magic, the sizes and the structure. */
#include "model/verify.h"

#include "base/crc32.h"
#include "base/platform_files.h"
#include "base/structs.h"
#include "model/structure_reader.h"
#include "linnet_ext.h"

#include <string.h>

typedef struct verifier {
    const linnet_model *model;
    linnet_verified found;
    linnet_status status;
    linnet_error *error;
} verifier;

/* Returns the name of the tensor or variable whose value is in the segment; "" if there is none. */
static const char *name_of(const linnet_model *model, const ln_segment *segment) {
    for (int32_t f = 0; f < model->n_functions; f++)
        for (int32_t i = 0; i < model->functions[f].n_values; i++) {
            const ln_value *value = &model->functions[f].values[i];
            if (value->data == segment->data && value->variable < 0) return value->name;
        }
    for (int32_t i = 0; i < model->n_variables; i++)
        if (model->variables[i].tensor.data == segment->data) return model->variables[i].name;
    return "";
}

/* Counts a problem. For the first problem, begins the error record and returns it; for the others, returns NULL.
 * `segment` says where the problem is; NULL: not in a segment. */
static linnet_error *corrupt(verifier *v, const char *what, const ln_segment *segment) {
    linnet_error *error = v->status ? NULL : v->error;
    v->found.problems++;
    v->status = LINNET_CORRUPT;
    if (!error) return NULL;
    ln_fail(error, LINNET_CORRUPT, "%s", what);
    ln_at_tensor(error, segment ? name_of(v->model, segment) : "");
    ln_hint(error, linnet_model_metadata(v->model, "checkpoint_of")
                       ? "use an earlier checkpoint"
                       : "copy the file again, or convert the model again");
    return error;
}

static void check_zeros(verifier *v, uint64_t from, uint64_t to) {
    const unsigned char *file = v->model->file;
    uint64_t at = from;
    while (at < to && !file[at]) at++;
    if (at >= to) return;
    linnet_error *error = corrupt(v, "a reserved or padding byte is not 0", NULL);
    ln_expected(error, "zeros from byte %llu to byte %llu of the file", (unsigned long long)from,
                (unsigned long long)to - 1);
    ln_got(error, "%u at byte %llu", file[at], (unsigned long long)at);
}

/* Reads in pieces, so that a file as large as the machine's memory does not evict everything else. */
static uint32_t digest_of(const verifier *v, const ln_segment *s, bool old) {
    enum { PIECE = 4 << 20 };
    const char *data = s->data;
    uint32_t digest = 0;
    for (uint64_t at = 0; at < s->size; at += PIECE) {
        const size_t size = (size_t)(s->size - at < PIECE ? s->size - at : PIECE);
        digest = (old ? ln_crc32 : linnet_crc32c)(digest, data + at, size);
        /* Drops the previous piece, too: its end may have been loaded again (store.c, take_values). */
        const size_t since = (size_t)(at < PIECE ? 0 : at - PIECE);
        if (v->model->file_kind == LN_FILE_MAPPED) ln_file_forget(data + since, (size_t)at + size - since);
    }
    return digest;
}

static void check_segment(verifier *v, int32_t index) {
    const ln_segment *s = &v->model->segments[index];
    const bool known = s->digest_kind > LN_DIGEST_NONE && s->digest_kind < LN_DIGEST_KINDS;
    const bool old = s->digest_kind == LN_DIGEST_CRC32;
    const uint64_t first = (uint64_t)((const char *)s->data - (const char *)v->model->file);
    uint32_t got;
    if (!known) {
        v->found.without_digest++;
        return;
    }
    got = digest_of(v, s, old);
    if (got == s->digest) {
        v->found.bytes += s->size;
        return;
    }
    linnet_error *error = corrupt(v, "the stored data of this tensor does not match its checksum", s);
    ln_expected(error, "%s %08llx for segment %d (%llu bytes at offset %llu)", old ? "CRC-32" : "CRC-32C",
                (unsigned long long)s->digest, (int)index, (unsigned long long)s->size, (unsigned long long)first);
    ln_got(error, "%08x", (unsigned)got);
}

/* linnet writes segments in order. If the segments are in another order, the gaps between them are not checked. */
static void check_gaps(verifier *v, uint64_t end) {
    const linnet_model *model = v->model;
    const uint64_t structure = end;
    for (int pass = 0; pass < 2; pass++, end = structure) {
        for (int32_t i = 0; i < model->n_segments; i++) {
            const ln_segment *s = &model->segments[i];
            const uint64_t first = (uint64_t)((const char *)s->data - (const char *)model->file);
            if (first < end) return;
            if (pass) check_zeros(v, end, first);
            end = first + s->size;
        }
        if (pass) check_zeros(v, end, model->file_size);
    }
}

linnet_status ln_verify_bytes(const linnet_model *model, bool strict, linnet_verified *out, linnet_error *error) {
    verifier v = {.model = model, .error = error};
    const bool newer = model->format_version > LN_FORMAT_VERSION;
    v.found.segments = model->n_segments;
    for (int32_t i = 0; i < model->n_segments; i++) check_segment(&v, i);
    if (!newer) { /* a later version may use these bytes */
        check_zeros(&v, 36, 40);
        check_zeros(&v, 48, LN_HEADER_SIZE);
        check_gaps(&v, LN_HEADER_SIZE + model->structure_size);
    }
    if (out) *out = v.found;
    if (v.status || !strict) return v.status;
    if (newer) {
        ln_fail(error, LINNET_NEWER_FORMAT, "the file has a newer format, which this version cannot check completely");
        ln_expected(error, "format version %d or older", LN_FORMAT_VERSION);
        ln_got(error, "version %u", (unsigned)model->format_version);
        return ln_hint(error, "use a newer linnet (this is version %s)", linnet_version()), LINNET_NEWER_FORMAT;
    }
    if (v.found.without_digest) {
        ln_fail(error, LINNET_CORRUPT, "the file has segments without a digest, so their data cannot be checked");
        ln_expected(error, "a CRC-32C for every segment");
        ln_got(error, "%d of %d segments without a digest", (int)v.found.without_digest, (int)model->n_segments);
        return ln_hint(error, "linnet.Graph.load(path).save(path) adds the digests"), LINNET_CORRUPT;
    }
    return LINNET_OK;
}

linnet_status linnet_model_verify(const linnet_model *model, linnet_verify how, linnet_verified *out,
                                  linnet_error *error) {
    linnet_verified found = {0};
    const size_t first = LN_UP_TO(linnet_verified, bytes);
    linnet_status status = LINNET_OK;
    if (out) status = linnet_struct_give(&found, sizeof found, out, first, "linnet_verified", error);
    if (status) return status;
    if (!model) return ln_null_argument(error, "linnet_model_verify", "model");
    status = ln_verify_bytes(model, how == LINNET_VERIFY_STRICT, &found, error);
    if (out) linnet_struct_give(&found, sizeof found, out, first, "linnet_verified", NULL);
    return status;
}
