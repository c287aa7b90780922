/* crc32.c - CRC-32 by half bytes: sixteen table entries, no initialisation, no state.
 * The table holds the CRC of each four-bit value (RFC 1952, section 8, cut to four bits at a time). */
#include "core/crc32.h"

uint32_t ln_crc32(uint32_t crc, const void *data, size_t size) {
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    const unsigned char *bytes = data;
    crc = ~crc;
    while (size--) {
        crc ^= *bytes++;
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}
