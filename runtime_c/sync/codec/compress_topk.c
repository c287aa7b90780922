/* compress_topk.c - encoding 4: the k values of greatest magnitude, with their indices.
 * Sparse gradients with error feedback: Aji, Heafield 2017; Stich, Cordonnier, Jaggi 2018. Finds the k-th magnitude
 * digit by digit (radix select), exactly and without extra memory. */
#include "sync/codec/compress_codec.h"
#include "sync/codec/compress_size.h"

enum { FIRST = 11, SECOND = 10, THIRD = 10, BINS = 1 << FIRST }; /* digits of the 31 bits of a magnitude */

/* Returns the bin that holds the k-th greatest of the counted magnitudes. *k becomes the rank of this magnitude within
 * the bin, counted from 1. */
static uint32_t bin_of(const uint64_t *bins, int count, uint64_t *k) {
    int bin = count - 1;
    while (bin > 0 && *k > bins[bin]) *k -= bins[bin--];
    return (uint32_t)bin;
}

/* Counts the next digit of all magnitudes whose leading digits are `prefix`. */
static void count_digit(const float *values, uint64_t count, uint32_t prefix, int shift, int digits, uint64_t *bins) {
    uint32_t mask = (1u << digits) - 1;
    memset(bins, 0, sizeof *bins << digits);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t magnitude = ln_sync_bits(values[i]) & 0x7fffffffu;
        if (magnitude >> (shift + digits) == prefix) bins[magnitude >> shift & mask]++;
    }
}

static unsigned char *put_varint(unsigned char *out, uint64_t n) {
    for (; n >= 128; n >>= 7) *out++ = (unsigned char)(n | 128);
    *out++ = (unsigned char)n;
    return out;
}

static size_t encode(double ratio, const float *values, float *residual, uint64_t count, unsigned char *out) {
    uint64_t bins[BINS], kept = ln_sync_topk_kept(count, ratio), place = kept;
    unsigned char *to = put_varint(out, kept);
    if (count == 0) return (size_t)(to - out);
    memset(bins, 0, sizeof bins);
    if (residual)
        for (uint64_t i = 0; i < count; i++) residual[i] += values[i];
    const float *sums = residual ? residual : values;
    for (uint64_t i = 0; i < count; i++) bins[(ln_sync_bits(sums[i]) & 0x7fffffffu) >> (SECOND + THIRD)]++;
    bool finite = true;
    for (uint32_t bin = LN_SYNC_INF_BITS >> (SECOND + THIRD); bin < BINS; bin++) finite = finite && bins[bin] == 0;
    uint32_t least = bin_of(bins, BINS, &place);
    count_digit(sums, count, least, THIRD, SECOND, bins);
    least = least << SECOND | bin_of(bins, 1 << SECOND, &place);
    count_digit(sums, count, least, 0, THIRD, bins);
    least = least << THIRD | bin_of(bins, 1 << THIRD, &place);
    /* Keeps all magnitudes above `least`, and the first `place` magnitudes that equal `least`. Stores the kept values
     * behind the space that the gaps may need, and moves them to the end of the gaps when the size of the gaps is
     * known. */
    unsigned char *halves = out + ln_sync_encoded_bound(LN_SYNC_TOPK, count, ratio) - 2 * kept, *half = halves;
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t magnitude = ln_sync_bits(sums[i]) & 0x7fffffffu;
        if (magnitude < least) continue;
        if (magnitude == least) {
            if (place == 0) continue;
            place--;
        }
        uint16_t said = ln_sync_bf16_of(sums[i]);
        to = put_varint(to, i - next);
        next = i + 1;
        memcpy(half, &said, 2);
        half += 2;
        if (residual) residual[i] -= ln_sync_of_bf16(said);
    }
    if (residual && !finite)
        for (uint64_t i = 0; i < count; i++)
            if ((ln_sync_bits(residual[i]) & 0x7fffffffu) > LN_SYNC_FINITE_BITS) residual[i] = 0;
    memmove(to, halves, (size_t)(half - halves));
    return (size_t)(to - out) + (size_t)(half - halves);
}

/* Reads a varint that ends before `end`. Returns false if it is truncated, longer than needed, or has more than 64
 * bits. */
static inline bool get_varint(const unsigned char **data, const unsigned char *end, uint64_t *n) {
    const unsigned char *at = *data;
    uint64_t value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t byte = *at++;
        if (shift == 63 && byte > 1) return false;
        value |= (byte & 127) << shift;
        if (byte < 128) {
            *data = at;
            *n = value;
            return byte != 0 || shift == 0;
        }
    }
    return false;
}

static int decode(const unsigned char *data, size_t bytes, const float *weight, float *out, uint64_t count) {
    const unsigned char *end = data + bytes;
    uint64_t kept, gap, next = 0;
    if (!get_varint(&data, end, &kept) || kept > count) return LN_SYNC_BAD_INDEX;
    if ((uint64_t)(end - data) / 3 < kept) return LN_SYNC_BAD_LENGTH;
    const unsigned char *halves = end - 2 * kept, *at = data;
    for (uint64_t k = 0; k < kept; k++, next += gap + 1)
        if (!get_varint(&at, halves, &gap) || gap >= count - next) return LN_SYNC_BAD_INDEX;
    if (at != halves) return LN_SYNC_BAD_LENGTH;
    if (!weight) memset(out, 0, (size_t)count * sizeof *out);
    next = 0;
    for (uint64_t k = 0; k < kept; k++, next++) {
        uint16_t said;
        get_varint(&data, halves, &gap);
        memcpy(&said, halves + 2 * k, 2);
        next += gap;
        out[next] = weight ? out[next] + *weight * ln_sync_of_bf16(said) : ln_sync_of_bf16(said);
    }
    return LN_SYNC_DECODED;
}

const ln_sync_codec ln_sync_codec_topk = {"top-k", encode, decode};
