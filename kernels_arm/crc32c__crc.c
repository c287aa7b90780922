/* crc32c__crc.c - CRC-32C with the instructions of ARMv8's CRC extension.
 * Called only if crc32.c has found the extension. The carry-less product is a loop, because the PMULL instruction needs
 * a further extension. */
#include <arm_acle.h>
#include <stdint.h>

static inline uint64_t product(uint32_t a, uint32_t b) {
    uint64_t sum = 0;
    for (int bit = 0; bit < 32; bit++) sum ^= (0 - (uint64_t)(a >> bit & 1)) & (uint64_t)b << bit;
    return sum;
}

#define CRC_BYTE(crc, byte) __crc32cb(crc, byte)
#define CRC_WORD(crc, word) __crc32cd(crc, word)
#define CRC_PRODUCT(a, b) product(a, b)
#include "base/crc32c_streams.inc"

uint32_t ln_crc32c_arm(uint32_t crc, const unsigned char *data, size_t size) { return crc32c_streams(crc, data, size); }
