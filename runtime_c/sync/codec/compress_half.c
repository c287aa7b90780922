/* compress_half.c - encodings 1 and 2: f16 and bf16.
 * Conversions are integer arithmetic without branches. The bits are the same everywhere, and every compiler vectorizes
 * the loops. */
#include "sync/codec/compress_codec.h"

/* *`said` is the value that the encoded bits represent, if it is finite. */
static inline uint16_t f16_of(float value, float *said) {
    uint32_t x = ln_sync_bits(value), sign = x & 0x80000000u;
    x &= 0x7fffffffu;
    uint32_t normal = (x + 0xfffu + (x >> 13 & 1u)) & ~0x1fffu;
    normal = (int32_t)normal > 0x477fe000 ? 0x477fe000u : normal;
    /* Below 2^-14, f16 values are multiples of 2^-24. The f32 values from 0.5 to 1 are multiples of 2^-24, too, so
     * adding 0.5 rounds to a multiple of 2^-24. */
    float small = ln_sync_float(x) + 0.5f;
    uint32_t is_small = (int32_t)x < 0x38800000 ? ~0u : 0u;
    *said = ln_sync_float((((ln_sync_bits(small - 0.5f) ^ normal) & is_small) ^ normal) | sign);
    uint32_t y = (normal - 0x38000000u) >> 13;
    y ^= ((ln_sync_bits(small) - 0x3f000000u) ^ y) & is_small;
    y = (int32_t)x > (int32_t)LN_SYNC_FINITE_BITS ? 0x7c00u : y;
    y = (int32_t)x > (int32_t)LN_SYNC_INF_BITS ? 0x7e00u : y;
    return (uint16_t)(y | sign >> 16);
}

static inline float of_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, x = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t small = ln_sync_bits(ln_sync_float(x + 0x38800000u) - 0x1p-14f);
    uint32_t y = (int32_t)x < 0x00800000 ? small : x + 0x38000000u;
    y = (int32_t)x >= 0x0f800000 ? x + 0x70000000u : y;
    return ln_sync_float(y | sign);
}

static inline uint16_t bf16_of(float value, float *said) {
    uint16_t half = ln_sync_bf16_of(value);
    *said = ln_sync_of_bf16(half);
    return half;
}

/* Defines the loops of an encoding; `to` and `from` are the conversions. */
#define HALF_CODEC(name, to, from)                                                                                     \
    static size_t name##_encode(double ratio, const float *restrict values, float *restrict residual, uint64_t count,  \
                                unsigned char *restrict out) {                                                         \
        (void)ratio;                                                                                                   \
        if (!residual) {                                                                                               \
            for (uint64_t i = 0; i < count; i++) {                                                                     \
                float said;                                                                                            \
                uint16_t half = to(values[i], &said);                                                                  \
                memcpy(out + 2 * i, &half, 2);                                                                         \
            }                                                                                                          \
            return (size_t)count * 2;                                                                                  \
        }                                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            float value = values[i] + residual[i];                                                                     \
            float said;                                                                                                \
            uint16_t half = to(value, &said);                                                                          \
            float rest = value - said;                                                                                 \
            memcpy(out + 2 * i, &half, 2);                                                                             \
            uint32_t finite = (int32_t)(ln_sync_bits(value) & 0x7fffffffu) > (int32_t)LN_SYNC_FINITE_BITS ? 0u : ~0u;  \
            residual[i] = ln_sync_float(ln_sync_bits(rest) & finite);                                                  \
        }                                                                                                              \
        return (size_t)count * 2;                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static int name##_decode(const unsigned char *restrict data, size_t bytes, const float *weight,                    \
                             float *restrict out, uint64_t count) {                                                    \
        (void)bytes;                                                                                                   \
        if (!weight) {                                                                                                 \
            for (uint64_t i = 0; i < count; i++) {                                                                     \
                uint16_t half;                                                                                         \
                memcpy(&half, data + 2 * i, 2);                                                                        \
                out[i] = from(half);                                                                                   \
            }                                                                                                          \
            return LN_SYNC_DECODED;                                                                                    \
        }                                                                                                              \
        float factor = *weight;                                                                                        \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            uint16_t half;                                                                                             \
            memcpy(&half, data + 2 * i, 2);                                                                            \
            out[i] += factor * from(half);                                                                             \
        }                                                                                                              \
        return LN_SYNC_DECODED;                                                                                        \
    }                                                                                                                  \
    const ln_sync_codec ln_sync_codec_##name = {#name, name##_encode, name##_decode};

HALF_CODEC(f16, f16_of, of_f16)
HALF_CODEC(bf16, bf16_of, ln_sync_of_bf16)
