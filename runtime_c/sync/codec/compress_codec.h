/* compress_codec.h - shared by the files compress_*.c: the functions of an encoding, and access to the bits of floats.
 */
#ifndef LN_SYNC_COMPRESS_CODEC_H
#define LN_SYNC_COMPRESS_CODEC_H

#include "sync/codec/encoding.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "linnet needs a little-endian machine"
#endif

#define LN_SYNC_FINITE_BITS 0x7f7fffffu /* the largest finite f32; magnitudes compare as integers */
#define LN_SYNC_INF_BITS 0x7f800000u
#define LN_SYNC_NAN_BITS 0x7fc00000u

/* An encoding. compress.c has the table of encodings. */
typedef struct ln_sync_codec {
    const char *name; /* such as "top-k" */
    /* Does what ln_sync_encode (compress.h) says. */
    size_t (*encode)(double ratio, const float *values, float *residual, uint64_t count, unsigned char *out);
    /* Computes out[i] = decoded[i], or, if `weight` is not NULL, out[i] += *weight * decoded[i]. The caller has checked
     * with ln_sync_encoded_fits that the length can be valid. The function checks everything else before it writes. */
    int (*decode)(const unsigned char *data, size_t bytes, const float *weight, float *out, uint64_t count);
} ln_sync_codec;

extern const ln_sync_codec ln_sync_codec_f16, ln_sync_codec_bf16, ln_sync_codec_i8, ln_sync_codec_topk,
    ln_sync_codec_onebit;

/* Returns how many of `count` values top-k sends: the fraction `ratio`, but at least one value. */
uint64_t ln_sync_topk_kept(uint64_t count, double ratio);

enum { LN_SYNC_I8_BLOCK = 256, LN_SYNC_ONEBIT_BLOCK = 1024 };

/* Return the bits of a float, and the float that has these bits. */
static inline uint32_t ln_sync_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ln_sync_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to bf16, to nearest even. Finite values stay finite, and NaN becomes 0x7fc0 with its sign. The function has no
 * branches, so that the compiler can vectorize loops that call it. */
static inline uint16_t ln_sync_bf16_of(float value) {
    uint32_t x = ln_sync_bits(value), sign = x >> 16 & 0x8000u;
    x &= 0x7fffffffu;
    uint32_t y = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
    y = (int32_t)y > 0x7f7f ? 0x7f7fu : y;
    y = (int32_t)x > (int32_t)LN_SYNC_FINITE_BITS ? 0x7f80u : y;
    y = (int32_t)x > (int32_t)LN_SYNC_INF_BITS ? 0x7fc0u : y;
    return (uint16_t)(y | sign);
}

static inline float ln_sync_of_bf16(uint16_t half) { return ln_sync_float((uint32_t)half << 16); }

#endif
