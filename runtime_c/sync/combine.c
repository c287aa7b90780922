/* combine.c - sums of gradients, block by block, so that what is being summed stays in the cache.
 * Blocks have one length that the compiler knows, for it to vectorise. */
#include "sync/combine.h"

#include "linnet.h"

#include <string.h>

enum { BLOCK = 512 };

/* INTEGER: of the width of TYPE; as one, a magnitude is greater exactly where the float is. */
#define DEFINE(TYPE, INTEGER, MAGNITUDE, LARGE, FINITE, NAME)                                                          \
    static ln_sync_size NAME##_size(const TYPE *values, uint64_t n) {                                                  \
        INTEGER large = 0, infinite = 0, bits[BLOCK];                                                                  \
        if (n < BLOCK) memset(bits, 0, sizeof bits);                                                                   \
        memcpy(bits, values, n * sizeof *values);                                                                      \
        for (int i = 0; i < BLOCK; i++) {                                                                              \
            large |= (bits[i] & MAGNITUDE) >= LARGE;                                                                   \
            infinite |= (bits[i] & MAGNITUDE) > FINITE;                                                                \
        }                                                                                                              \
        return infinite ? LN_SYNC_INFINITE : large ? LN_SYNC_LARGE : LN_SYNC_ORDINARY;                                 \
    }                                                                                                                  \
    static bool NAME##_finite(const TYPE *data, uint64_t elements) {                                                   \
        for (uint64_t at = 0; at < elements; at += BLOCK) {                                                            \
            const uint64_t n = elements - at < BLOCK ? elements - at : BLOCK;                                          \
            INTEGER bits[BLOCK], bad = 0;                                                                              \
            if (n < BLOCK) memset(bits, 0, sizeof bits);                                                               \
            memcpy(bits, data + at, n * sizeof *data);                                                                 \
            for (int i = 0; i < BLOCK; i++) bad |= (bits[i] & MAGNITUDE) > FINITE;                                     \
            if (bad) return false;                                                                                     \
        }                                                                                                              \
        return true;                                                                                                   \
    }                                                                                                                  \
    static ln_sync_size NAME##_size_of(const TYPE *data, uint64_t elements) {                                          \
        ln_sync_size most = LN_SYNC_ORDINARY;                                                                          \
        for (uint64_t at = 0; at < elements && most != LN_SYNC_INFINITE; at += BLOCK) {                                \
            const ln_sync_size size = NAME##_size(data + at, elements - at < BLOCK ? elements - at : BLOCK);           \
            if (size > most) most = size;                                                                              \
        }                                                                                                              \
        return most;                                                                                                   \
    }                                                                                                                  \
    static void NAME##_add(TYPE *restrict sum, const TYPE *restrict s, uint64_t n) {                                   \
        if (n == BLOCK)                                                                                                \
            for (int i = 0; i < BLOCK; i++) sum[i] += s[i];                                                            \
        else                                                                                                           \
            for (uint64_t i = 0; i < n; i++) sum[i] += s[i];                                                           \
    }                                                                                                                  \
    static void NAME##_add_weighted(TYPE *restrict sum, const TYPE *restrict s, TYPE w, uint64_t n) {                  \
        if (n == BLOCK)                                                                                                \
            for (int i = 0; i < BLOCK; i++) sum[i] += w * s[i];                                                        \
        else                                                                                                           \
            for (uint64_t i = 0; i < n; i++) sum[i] += w * s[i];                                                       \
    }                                                                                                                  \
    static void NAME##_divide(TYPE *sum, TYPE divisor, uint64_t n) {                                                   \
        if (n == BLOCK)                                                                                                \
            for (int i = 0; i < BLOCK; i++) sum[i] /= divisor;                                                         \
        else                                                                                                           \
            for (uint64_t i = 0; i < n; i++) sum[i] /= divisor;                                                        \
    }                                                                                                                  \
    static ln_sync_size NAME##_combine(const TYPE *const *sources, const double *weights, uint32_t count,              \
                                       TYPE divisor, uint64_t elements, TYPE *out) {                                   \
        TYPE sum[BLOCK];                                                                                               \
        ln_sync_size most = LN_SYNC_ORDINARY;                                                                          \
        for (uint64_t at = 0; at < elements; at += BLOCK) {                                                            \
            const uint64_t n = elements - at < BLOCK ? elements - at : BLOCK;                                          \
            memset(sum, 0, sizeof sum);                                                                                \
            for (uint32_t k = 0; k < count; k++)                                                                       \
                if (weights)                                                                                           \
                    NAME##_add_weighted(sum, sources[k] + at, (TYPE)weights[k], n);                                    \
                else                                                                                                   \
                    NAME##_add(sum, sources[k] + at, n);                                                               \
            if (divisor != 0 && divisor != 1) NAME##_divide(sum, divisor, n);                                          \
            memcpy(out + at, sum, n * sizeof *out);                                                                    \
            const ln_sync_size size = NAME##_size(sum, n);                                                             \
            if (size > most) most = size;                                                                              \
        }                                                                                                              \
        return most;                                                                                                   \
    }

DEFINE(float, int32_t, INT32_C(0x7fffffff), INT32_C(0x4f000000), INT32_C(0x7f7fffff), f32)
DEFINE(double, int64_t, INT64_C(0x7fffffffffffffff), INT64_C(0x4fe0000000000000), INT64_C(0x7fefffffffffffff), f64)

ln_sync_size ln_sync_combine(const void *const *sources, const double *weights, uint32_t count, double divisor,
                             uint64_t elements, int dtype, void *out) {
    return dtype == LINNET_F64
               ? f64_combine((const double *const *)sources, weights, count, divisor, elements, out)
               : f32_combine((const float *const *)sources, weights, count, (float)divisor, elements, out);
}

ln_sync_size ln_sync_size_of(const void *data, uint64_t elements, int dtype) {
    return dtype == LINNET_F64 ? f64_size_of(data, elements) : f32_size_of(data, elements);
}

bool ln_sync_is_finite(const void *data, uint64_t elements, int dtype) {
    return dtype == LINNET_F64 ? f64_finite(data, elements) : f32_finite(data, elements);
}
