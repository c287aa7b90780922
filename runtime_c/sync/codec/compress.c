/* compress.c - the table of encodings, and the encoding of plain values.
 * compress.h describes the bytes. Each lossy encoding has its own file compress_NAME.c. */
#include "sync/codec/compress.h"

#include "sync/codec/compress_codec.h"
#include "sync/codec/compress_size.h"

static size_t plain_encode(double ratio, const float *values, float *residual, uint64_t count, unsigned char *out) {
    (void)ratio;
    if (!residual) {
        memcpy(out, values, (size_t)count * 4);
        return (size_t)count * 4;
    }
    for (uint64_t i = 0; i < count; i++) { /* another encoding used earlier may have left a residual, which is added */
        float value = values[i] + residual[i];
        memcpy(out + 4 * i, &value, 4);
        residual[i] = 0;
    }
    return (size_t)count * 4;
}

static int plain_decode(const unsigned char *data, size_t bytes, const float *weight, float *out, uint64_t count) {
    if (!weight) {
        memcpy(out, data, bytes);
        return LN_SYNC_DECODED;
    }
    float factor = *weight;
    for (uint64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, data + 4 * i, 4);
        out[i] += factor * value;
    }
    return LN_SYNC_DECODED;
}

static const ln_sync_codec plain = {"plain", plain_encode, plain_decode};

static const ln_sync_codec *codec_of(int encoding) {
    switch (encoding) {
    case LN_SYNC_PLAIN: return &plain;
    case LN_SYNC_F16: return &ln_sync_codec_f16;
    case LN_SYNC_BF16: return &ln_sync_codec_bf16;
    case LN_SYNC_I8: return &ln_sync_codec_i8;
    case LN_SYNC_TOPK: return &ln_sync_codec_topk;
    case LN_SYNC_ONEBIT: return &ln_sync_codec_onebit;
    default: return NULL;
    }
}

const char *ln_sync_encoding_name(int encoding) {
    const ln_sync_codec *codec = codec_of(encoding);
    return codec ? codec->name : NULL;
}

const char *ln_sync_decoding_text(int decoding) {
    switch (decoding) {
    case LN_SYNC_DECODED: return "decoded";
    case LN_SYNC_BAD_LENGTH: return "the length does not match the encoded tensor";
    case LN_SYNC_BAD_INDEX: return "an index is beyond the tensor or truncated";
    case LN_SYNC_BAD_SCALE: return "a scale is infinite or has the wrong sign";
    default: return "the encoding is unknown";
    }
}

size_t ln_sync_encode(int encoding, double ratio, const float *values, float *residual, uint64_t count, void *out) {
    return codec_of(encoding)->encode(ratio, values, residual, count, out);
}

static int decode(int encoding, const void *data, size_t bytes, const float *weight, float *out, uint64_t count) {
    const ln_sync_codec *codec = codec_of(encoding);
    if (!codec) return LN_SYNC_BAD_ENCODING;
    if (!ln_sync_encoded_fits(encoding, count, bytes)) return LN_SYNC_BAD_LENGTH;
    return codec->decode(data, bytes, weight, out, count);
}

int ln_sync_decode(int encoding, const void *data, size_t bytes, float *out, uint64_t count) {
    return decode(encoding, data, bytes, NULL, out, count);
}

int ln_sync_decode_add(int encoding, const void *data, size_t bytes, float weight, float *sum, uint64_t count) {
    return decode(encoding, data, bytes, &weight, sum, count);
}
