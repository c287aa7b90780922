/* train_order.c - the order of examples in an epoch. The position of each example is computed on its own, so nothing is
 * stored and training can resume anywhere. The order is the same as in pyruntime/linnet/shuffle.py, which names the
 * source of the method. */
#include "train_order.h"

static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t train_order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t i) {
    enum { ROUNDS = 8 };
    const uint64_t key = mix(mix(seed) ^ epoch);
    int bits = 0, half;
    while (bits < 62 && (count - 1) >> bits) bits++;
    half = bits < 2 ? 1 : (bits + 1) / 2;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t turn = 0; turn < ROUNDS; turn++) {
            const uint64_t next = left ^ (mix(key ^ turn << 56 ^ right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= count);
    return i;
}
