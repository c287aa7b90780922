/* compress_i8.c - encoding 3: 8-bit integers, symmetric, with a scale for each block of 256 values.
 * Sources: Karimireddy, Rebjock, Stich, Jaggi 2019 for quantization with error feedback; Dettmers 2016 for blocks. */
#include "sync/codec/compress_codec.h"

enum { BLOCK = LN_SYNC_I8_BLOCK };

/* Encodes one whole block in local memory, so that every loop has a constant length. Returns the scale. */
static float encode_block(const float *restrict values, int8_t *restrict q, float *restrict rest) {
    int32_t greatest = 0;
    for (int i = 0; i < BLOCK; i++) {
        int32_t magnitude = (int32_t)(ln_sync_bits(values[i]) & 0x7fffffffu);
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    if (greatest > (int32_t)LN_SYNC_FINITE_BITS) {
        memset(q, 0, BLOCK);
        memset(rest, 0, BLOCK * sizeof *rest);
        return ln_sync_float(LN_SYNC_NAN_BITS);
    }
    float scale = ln_sync_float((uint32_t)greatest) / 127.0f;
    if (scale < 0x1p-120f) { /* the inverse of the scale would overflow f32: the values are too small to encode and stay
                              * in the residual */
        memset(q, 0, BLOCK);
        memcpy(rest, values, BLOCK * sizeof *rest);
        return 0;
    }
    if (ln_sync_bits(scale * 127.0f) > LN_SYNC_FINITE_BITS) scale = ln_sync_float(ln_sync_bits(scale) - 1);
    float inverse = 1.0f / scale;
    for (int i = 0; i < BLOCK; i++) {
        /* Adding 1.5 * 2^23 rounds to the nearest integer (ties to even), which is then in the low bits. */
        int32_t n = (int32_t)(ln_sync_bits(values[i] * inverse + 0x1.8p23f) - 0x4b400000u);
        n = n > 127 ? 127 : n;
        n = n < -127 ? -127 : n;
        q[i] = (int8_t)n;
        rest[i] = values[i] - (float)n * scale;
    }
    return scale;
}

static size_t encode(double ratio, const float *values, float *residual, uint64_t count, unsigned char *out) {
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    unsigned char *q = out + 4 * blocks;
    (void)ratio;
    for (uint64_t b = 0; b < blocks; b++) {
        size_t n = b + 1 < blocks ? BLOCK : (size_t)(count - b * BLOCK);
        float sum[BLOCK], rest[BLOCK];
        int8_t codes[BLOCK];
        const float *from = values + b * BLOCK;
        memset(sum + n, 0, (BLOCK - n) * sizeof *sum);
        memcpy(sum, from, n * sizeof *sum);
        if (residual)
            for (size_t i = 0; i < n; i++) sum[i] += residual[b * BLOCK + i];
        float scale = encode_block(sum, codes, rest);
        memcpy(out + 4 * b, &scale, 4);
        memcpy(q + b * BLOCK, codes, n);
        if (residual) memcpy(residual + b * BLOCK, rest, n * sizeof *rest);
    }
    return (size_t)(4 * blocks + count);
}

static int decode(const unsigned char *data, size_t bytes, const float *weight, float *restrict out, uint64_t count) {
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    (void)bytes;
    for (uint64_t b = 0; b < blocks; b++) {
        uint32_t bits;
        memcpy(&bits, data + 4 * b, 4);
        if (bits > LN_SYNC_FINITE_BITS && bits != LN_SYNC_NAN_BITS) return LN_SYNC_BAD_SCALE;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        size_t n = b + 1 < blocks ? BLOCK : (size_t)(count - b * BLOCK);
        const int8_t *restrict q = (const int8_t *)data + 4 * blocks + b * BLOCK;
        float *restrict to = out + b * BLOCK;
        float scale;
        memcpy(&scale, data + 4 * b, 4);
        if (weight) {
            float factor = *weight;
            for (size_t i = 0; i < n; i++) to[i] += factor * ((float)q[i] * scale);
        } else {
            for (size_t i = 0; i < n; i++) to[i] = (float)q[i] * scale;
        }
    }
    return LN_SYNC_DECODED;
}

const ln_sync_codec ln_sync_codec_i8 = {"i8", encode, decode};
