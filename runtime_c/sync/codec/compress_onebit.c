/* compress_onebit.c - encoding 5: the sign of each value, and for each block of 1024 values the two numbers that
 * replace them. 1-bit SGD: Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent", Interspeech 2014. */
#include "sync/codec/compress_codec.h"

enum { BLOCK = LN_SYNC_ONEBIT_BLOCK, WORDS = BLOCK / 32 };

/* `values` holds 32 * words values. The first n belong to the block, and the rest are zeros. Sums are kept in `words`
 * lanes and added in order, so that the bits do not depend on the vector length that the compiler chooses. */
static inline void encode_block(const float *restrict values, int n, int words, uint32_t *restrict signs,
                                float pair[2]) {
    float low[WORDS] = {0}, high[WORDS] = {0}, negative = 0, positive = 0;
    int negatives = 0;
    memset(signs, 0, (size_t)words * 4);
    for (int j = 0; j < 32; j++)
        for (int i = 0; i < words; i++) {
            uint32_t bits = ln_sync_bits(values[j * words + i]), mask = 0u - (bits >> 31);
            signs[i] |= (bits >> 31) << j;
            low[i] += ln_sync_float(bits & mask);
            high[i] += ln_sync_float(bits & ~mask);
        }
    for (int i = 0; i < words; i++) {
        negative += low[i];
        positive += high[i];
        uint32_t x = signs[i]; /* counts the ones in a word: Hacker's Delight, 5-1 */
        x -= x >> 1 & 0x55555555u;
        x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
        negatives += (int)((((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24);
    }
    pair[0] = negatives > 0 ? negative / (float)negatives : 0;
    pair[1] = n > negatives ? positive / (float)(n - negatives) : 0;
    if ((ln_sync_bits(pair[0]) & 0x7fffffffu) > LN_SYNC_FINITE_BITS || ln_sync_bits(pair[1]) > LN_SYNC_FINITE_BITS)
        pair[0] = pair[1] = ln_sync_float(LN_SYNC_NAN_BITS);
}

/* Writes the decoded 32 * words values. */
static inline void decode_block(const uint32_t *restrict signs, int words, const float pair[2],
                                float *restrict values) {
    uint32_t base = ln_sync_bits(pair[1]), change = base ^ ln_sync_bits(pair[0]);
    for (int j = 0; j < 32; j++)
        for (int i = 0; i < words; i++)
            values[j * words + i] = ln_sync_float(base ^ (change & (0u - (signs[i] >> j & 1u))));
}

static size_t encode(double ratio, const float *values, float *residual, uint64_t count, unsigned char *out) {
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    unsigned char *bits = out + 8 * blocks;
    (void)ratio;
    for (uint64_t b = 0; b < blocks; b++) {
        int n = b + 1 < blocks ? BLOCK : (int)(count - b * BLOCK), words = (n + 31) / 32;
        float sum[BLOCK], rest[BLOCK], said[BLOCK], pair[2];
        uint32_t signs[WORDS];
        memset(sum + n, 0, (size_t)(BLOCK - n) * sizeof *sum);
        memcpy(sum, values + b * BLOCK, (size_t)n * sizeof *sum);
        if (residual) {
            memset(rest + n, 0, (size_t)(BLOCK - n) * sizeof *rest);
            memcpy(rest, residual + b * BLOCK, (size_t)n * sizeof *rest);
            for (int i = 0; i < BLOCK; i++) sum[i] += rest[i];
        }
        if (words == WORDS)
            encode_block(sum, n, WORDS, signs, pair);
        else
            encode_block(sum, n, words, signs, pair);
        memcpy(out + 8 * b, pair, 8);
        memcpy(bits + 4 * WORDS * b, signs, (size_t)words * 4);
        if (!residual) continue;
        if (ln_sync_bits(pair[0]) == LN_SYNC_NAN_BITS) {
            memset(residual + b * BLOCK, 0, (size_t)n * sizeof *residual);
            continue;
        }
        if (words == WORDS)
            decode_block(signs, WORDS, pair, said);
        else
            decode_block(signs, words, pair, said);
        for (int i = 0; i < BLOCK; i++) rest[i] = sum[i] - said[i];
        memcpy(residual + b * BLOCK, rest, (size_t)n * sizeof *rest);
    }
    return (size_t)(8 * blocks + (count + 31) / 32 * 4);
}

static int decode(const unsigned char *data, size_t bytes, const float *weight, float *restrict out, uint64_t count) {
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    (void)bytes;
    for (uint64_t b = 0; b < blocks; b++) {
        uint32_t pair[2];
        memcpy(pair, data + 8 * b, 8);
        bool nan = pair[0] == LN_SYNC_NAN_BITS && pair[1] == LN_SYNC_NAN_BITS;
        bool low = pair[0] == 0 || (pair[0] >= 0x80000000u && pair[0] <= (0x80000000u | LN_SYNC_FINITE_BITS));
        if (!nan && !(low && pair[1] <= LN_SYNC_FINITE_BITS)) return LN_SYNC_BAD_SCALE;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        int n = b + 1 < blocks ? BLOCK : (int)(count - b * BLOCK), words = (n + 31) / 32;
        float pair[2], said[BLOCK], *to = out + b * BLOCK;
        uint32_t signs[WORDS];
        memcpy(pair, data + 8 * b, 8);
        memcpy(signs, data + 8 * blocks + 4 * WORDS * b, (size_t)words * 4);
        if (words == WORDS)
            decode_block(signs, WORDS, pair, said);
        else
            decode_block(signs, words, pair, said);
        if (weight) {
            float factor = *weight;
            for (int i = 0; i < n; i++) to[i] += factor * said[i];
        } else {
            memcpy(to, said, (size_t)n * sizeof *to);
        }
    }
    return LN_SYNC_DECODED;
}

const ln_sync_codec ln_sync_codec_onebit = {"1-bit", encode, decode};
