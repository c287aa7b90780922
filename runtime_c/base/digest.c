/* digest.c - multiplies and shifts over words, as in MurmurHash3 (Appleby, public domain).
 * Not cryptographic: two files with the same digest can be made on purpose. */
#include "base/digest.h"

#include <stdbool.h>
#include <string.h>

static uint64_t mixed(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * UINT64_C(0x87c37b91114253d5);
    return sum ^ sum >> 29;
}

/* Four independent chains hide the latency of the products. This matters because all data that a plan widened is hashed
 * every time it is planned. */
void ln_digest(const void *data, size_t bytes, uint64_t sum[2]) {
    const unsigned char *p = data;
    uint64_t a = 1, b = 2, c = 3, d = 4, words[4] = {0};
    for (size_t left = bytes; left > 0; p += sizeof words, left -= sizeof words) {
        const bool whole = left >= sizeof words;
        if (!whole) memset(words, 0, sizeof words);
        memcpy(words, p, whole ? sizeof words : left);
        a = mixed(a, words[0]), b = mixed(b, words[1]), c = mixed(c, words[2]), d = mixed(d, words[3]);
        if (!whole) break;
    }
    sum[0] = mixed(mixed(mixed(sum[0], a), c), bytes);
    sum[1] = mixed(mixed(mixed(sum[1], b), d), bytes);
}
