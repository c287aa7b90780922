/* sha256.c - SHA-256 (FIPS 180-4). */
#include "remote/sha256.h"

#include <string.h>

static const uint32_t rounds[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t word(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* One round. Instead of moving all eight numbers by one place, the caller turns their order. */
static inline void round_of(const uint32_t w[16], int i, uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e,
                            uint32_t f, uint32_t g, uint32_t *h) {
    const uint32_t one =
        *h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + (g ^ (e & (f ^ g))) + rounds[i] + w[i % 16];
    *d += one;
    *h = one + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) | (c & (a | b)));
}

static void block(uint32_t sum[8], const unsigned char *data) {
    uint32_t w[16], a = sum[0], b = sum[1], c = sum[2], d = sum[3], e = sum[4], f = sum[5], g = sum[6], h = sum[7];
    for (int i = 0; i < 16; i++) w[i] = word(data + 4 * i);
    for (int i = 0; i < 64; i += 8) {
        round_of(w, i, a, b, c, &d, e, f, g, &h);
        round_of(w, i + 1, h, a, b, &c, d, e, f, &g);
        round_of(w, i + 2, g, h, a, &b, c, d, e, &f);
        round_of(w, i + 3, f, g, h, &a, b, c, d, &e);
        round_of(w, i + 4, e, f, g, &h, a, b, c, &d);
        round_of(w, i + 5, d, e, f, &g, h, a, b, &c);
        round_of(w, i + 6, c, d, e, &f, g, h, a, &b);
        round_of(w, i + 7, b, c, d, &e, f, g, h, &a);
        for (int k = i; k < i + 8 && i < 48; k++) { /* the words of the rounds i + 16 to i + 23 */
            const uint32_t x = w[(k + 1) % 16], y = w[(k + 14) % 16];
            w[k % 16] +=
                (turned(x, 7) ^ turned(x, 18) ^ x >> 3) + w[(k + 9) % 16] + (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
        }
    }
    sum[0] += a, sum[1] += b, sum[2] += c, sum[3] += d, sum[4] += e, sum[5] += f, sum[6] += g, sum[7] += h;
}

ln_sha256_state ln_sha256_begin(void) {
    return (ln_sha256_state){.sum = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu,
                                     0x1f83d9abu, 0x5be0cd19u}};
}

void ln_sha256_add(ln_sha256_state *state, const void *data, size_t size) {
    const unsigned char *at = data;
    size_t held = (size_t)(state->size % 64);
    state->size += size;
    if (held > 0) {
        const size_t part = size < 64 - held ? size : 64 - held;
        if (part > 0) memcpy(state->held + held, at, part);
        at += part, size -= part, held += part;
        if (held < 64) return;
        block(state->sum, state->held);
    }
    for (; size >= 64; at += 64, size -= 64) block(state->sum, at);
    if (size > 0) memcpy(state->held, at, size);
}

void ln_sha256_end(ln_sha256_state *state, unsigned char digest[LN_SHA256]) {
    static const unsigned char padding[64] = {0x80};
    const uint64_t bits = state->size << 3;
    const size_t held = (size_t)(state->size % 64);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ln_sha256_add(state, padding, held < 56 ? 56 - held : 120 - held);
    ln_sha256_add(state, length, sizeof length);
    for (int i = 0; i < LN_SHA256; i++) digest[i] = (unsigned char)(state->sum[i / 4] >> (24 - 8 * (i % 4)));
}

void ln_sha256(const void *data, size_t size, unsigned char digest[LN_SHA256]) {
    ln_sha256_state state = ln_sha256_begin();
    ln_sha256_add(&state, data, size);
    ln_sha256_end(&state, digest);
}
