/* combine.c - sums gradients block by block, so that the block being summed stays in the cache.
 * Blocks have a constant length so that the compiler can vectorize the loops. */
#include "sync/common/combine.h"

#include "linnet.h"

#include <string.h>

enum { BLOCK = 512 };

/* Tells whether the magnitude of any element is LIMIT or more. Non-negative floats have the same order as their bits
 * read as integers. Adding SIGN - LIMIT carries into the sign bit exactly if the bits are at least
 * LIMIT. */
#define ANY(BITS, SIGN, LIMIT, found)                                                                                  \
    do {                                                                                                               \
        BITS high = 0;                                                                                                 \
        for (int i = 0; i < BLOCK; i++) high |= (bits[i] & (SIGN - 1)) + (SIGN - LIMIT);                               \
        found = (high & SIGN) != 0;                                                                                    \
    } while (0)

#define DEFINE(TYPE, BITS, SIGN, LARGE, INFINITE, NAME)                                                                \
    static ln_sync_size NAME##_size_of(const TYPE *data, uint64_t elements) {                                          \
        ln_sync_size most = LN_SYNC_ORDINARY;                                                                          \
        for (uint64_t at = 0; at < elements; at += BLOCK) {                                                            \
            const uint64_t n = elements - at < BLOCK ? elements - at : BLOCK;                                          \
            BITS bits[BLOCK];                                                                                          \
            bool found;                                                                                                \
            if (n < BLOCK) memset(bits, 0, sizeof bits);                                                               \
            memcpy(bits, data + at, n * sizeof *data);                                                                 \
            ANY(BITS, SIGN, LARGE, found);                                                                             \
            if (!found) continue;                                                                                      \
            most = LN_SYNC_LARGE;                                                                                      \
            ANY(BITS, SIGN, INFINITE, found);                                                                          \
            if (found) return LN_SYNC_INFINITE;                                                                        \
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
    static void NAME##_combine(const TYPE *const *sources, const double *weights, uint32_t count, TYPE divisor,        \
                               uint64_t elements, TYPE *out) {                                                         \
        TYPE sum[BLOCK];                                                                                               \
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
        }                                                                                                              \
    }

DEFINE(float, uint32_t, UINT32_C(0x80000000), UINT32_C(0x4f000000), UINT32_C(0x7f800000), f32)
DEFINE(double, uint64_t, UINT64_C(0x8000000000000000), UINT64_C(0x4fe0000000000000), UINT64_C(0x7ff0000000000000), f64)

void ln_sync_combine(const void *const *sources, const double *weights, uint32_t count, double divisor,
                     uint64_t elements, int dtype, void *out) {
    if (dtype == LINNET_F64)
        f64_combine((const double *const *)sources, weights, count, divisor, elements, out);
    else
        f32_combine((const float *const *)sources, weights, count, (float)divisor, elements, out);
}

ln_sync_size ln_sync_size_of(const void *data, uint64_t elements, int dtype) {
    return dtype == LINNET_F64 ? f64_size_of(data, elements) : f32_size_of(data, elements);
}
