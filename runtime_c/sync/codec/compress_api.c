/* compress_api.c - the public functions of linnet_sync_ext.h: they check arguments and report errors in words.
 * Workers and servers call compress.h directly. */
#include "linnet_sync_ext.h"
#include "net/error.h"
#include "sync/codec/compress.h"
#include "sync/codec/compress_size.h"

size_t linnet_sync_encoded_bound(int encoding, double fraction, uint64_t count) {
    size_t bound = ln_sync_encoded_bound(encoding, count, fraction);
    return bound == SIZE_MAX ? 0 : bound;
}

static linnet_status check_encoding(int encoding, linnet_error *error) {
    if (ln_sync_encoding_name(encoding)) return LINNET_OK;
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "encoding %d is unknown", encoding);
    ln_sync_expected(error, "0 to %d (linnet_sync_compression)", LN_SYNC_ENCODINGS - 1);
    return LINNET_INVALID_ARGUMENT;
}

linnet_status linnet_sync_encode(int encoding, double fraction, const float *values, float *residual, uint64_t count,
                                 void *out, size_t capacity, size_t *bytes, linnet_error *error) {
    linnet_status status = check_encoding(encoding, error);
    if (status != LINNET_OK) return status;
    if (!bytes || (count > 0 && (!values || !out)))
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_sync_encode: `values`, `out` or `bytes` is NULL");
    size_t bound = ln_sync_encoded_bound(encoding, count, fraction);
    if (bound == SIZE_MAX) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "%s of %llu values with the fraction %g cannot be encoded",
                     ln_sync_encoding_name(encoding), (unsigned long long)count, fraction);
        ln_sync_expected(error, "a fraction in (0, 1]");
        return LINNET_INVALID_ARGUMENT;
    }
    if (capacity < bound) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the buffer for the encoded values is too small");
        ln_sync_expected(error, "%zu bytes", bound);
        ln_sync_got(error, "%zu", capacity);
        ln_sync_hint(error, "linnet_sync_encoded_bound returns the size that is needed");
        return LINNET_INVALID_ARGUMENT;
    }
    *bytes = ln_sync_encode(encoding, fraction, values, residual, count, out);
    return LINNET_OK;
}

linnet_status linnet_sync_decode(int encoding, const void *data, size_t bytes, const float *weight, float *out,
                                 uint64_t count, linnet_error *error) {
    linnet_status status = check_encoding(encoding, error);
    if (status != LINNET_OK) return status;
    if ((!data && bytes > 0) || (!out && count > 0))
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_sync_decode: `data` or `out` is NULL");
    int problem = weight ? ln_sync_decode_add(encoding, data, bytes, *weight, out, count)
                         : ln_sync_decode(encoding, data, bytes, out, count);
    if (problem == LN_SYNC_DECODED) return LINNET_OK;
    ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "an encoded tensor is malformed: %s", ln_sync_decoding_text(problem));
    size_t bound = ln_sync_encoded_bound(encoding, count, 1.0);
    ln_sync_expected(error, "%s%zu bytes of %s for %llu values", encoding == LN_SYNC_TOPK ? "at most " : "", bound,
                     ln_sync_encoding_name(encoding), (unsigned long long)count);
    ln_sync_got(error, "%zu bytes", bytes);
    return LINNET_PROTOCOL_ERROR;
}
