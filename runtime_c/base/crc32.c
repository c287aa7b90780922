/* crc32.c - CRC-32 by tables, and CRC-32C by the processor's instructions or the same tables.
 * Tables of 8 KB are built on the stack when the input is long enough. They need no initialization, no state, and no
 * bytes in the library. */
#include "base/crc32.h"

#include "base/platform_machine.h"
#include "linnet_ext.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__GNUC__)
#define USED __attribute__((used)) /* only the loader calls it */
#else
#define USED
#endif

#if defined(__GLIBC__) && defined(__has_attribute) && !defined(LN_NO_IFUNC)
#if __has_attribute(ifunc)
#define LN_HAS_IFUNC
#endif
#endif

/* The CRC of each four-bit value (RFC 1952, section 8, reduced to four bits at a time). */
static const uint32_t zlib[16] = {
    0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
    0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
};
static const uint32_t castagnoli[16] = {
    0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
    0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u, 0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u,
};

static uint32_t by_half_bytes(const uint32_t table[16], uint32_t crc, const unsigned char *data, size_t size) {
    while (size--) {
        crc ^= *data++;
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return crc;
}

/* Reads eight bytes at a time. ahead[n][byte] is the effect of a byte on the register n bytes later. ("Slicing by 8":
 * Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators", 2005.) */
static uint32_t by_eight_bytes(const uint32_t table[16], uint32_t crc, const unsigned char *data, size_t size) {
    uint32_t ahead[8][256];
    for (uint32_t i = 0; i < 256; i++) ahead[0][i] = by_half_bytes(table, i, (const unsigned char *)"", 1);
    for (int n = 1; n < 8; n++)
        for (int i = 0; i < 256; i++) ahead[n][i] = ahead[n - 1][i] >> 8 ^ ahead[0][ahead[n - 1][i] & 255u];
    for (; size >= 8; data += 8, size -= 8) {
        const uint32_t low =
            crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = ahead[7][low & 255u] ^ ahead[6][low >> 8 & 255u] ^ ahead[5][low >> 16 & 255u] ^ ahead[4][low >> 24] ^
              ahead[3][data[4]] ^ ahead[2][data[5]] ^ ahead[1][data[6]] ^ ahead[0][data[7]];
    }
    return by_half_bytes(table, crc, data, size);
}

static uint32_t by_table(const uint32_t table[16], uint32_t crc, const unsigned char *data, size_t size) {
    return (size < 1024 ? by_half_bytes : by_eight_bytes)(table, crc, data, size);
}

uint32_t ln_crc32(uint32_t crc, const void *data, size_t size) { return ~by_table(zlib, ~crc, data, size); }

uint32_t ln_crc32c_table(uint32_t crc, const unsigned char *data, size_t size) {
    return by_table(castagnoli, crc, data, size);
}

/* ---- CRC-32C: choice of the implementation ----------------------------------------------------------------------- */

typedef uint32_t crc32c_way(uint32_t crc, const unsigned char *data, size_t size);

/* LN_PORTABLE is a build of portable code only (an amalgamation). */
#if defined(__x86_64__) && !defined(LN_PORTABLE) && !defined(LN_WITHOUT_SSE42)
#define HARDWARE 0
USED static crc32c_way *choose(unsigned long hardware) {
    const unsigned wanted = 1u << 20 | 1u << 1; /* SSE4.2, PCLMULQDQ */
    unsigned a, b, c, d;
    (void)hardware;
    __cpuid(1, a, b, c, d);
    return (c & wanted) == wanted ? ln_crc32c_sse42 : ln_crc32c_table;
}
#elif defined(__aarch64__) && !defined(LN_PORTABLE) && !defined(LN_WITHOUT_CRC)
enum { HWCAP_CRC32 = 1 << 7 }; /* bit of the first word of capabilities on Linux */
#define HARDWARE (ln_arm_features() & LN_ARM_CRC ? HWCAP_CRC32 : 0)
USED static crc32c_way *choose(unsigned long hardware) {
    return hardware & HWCAP_CRC32 ? ln_crc32c_arm : ln_crc32c_table;
}
#endif

#if !defined(HARDWARE)
static uint32_t way(uint32_t crc, const unsigned char *data, size_t size) { return ln_crc32c_table(crc, data, size); }
#elif defined(LN_HAS_IFUNC)
/* The loader calls this once and passes the capabilities. CPUID takes microseconds in a virtual machine, which is
   longer than the checksum of a frame takes, and this library keeps no state that could cache the result. */
static crc32c_way way __attribute__((ifunc("choose")));
#else
static uint32_t way(uint32_t crc, const unsigned char *data, size_t size) {
    return (size < 4096 ? ln_crc32c_table : choose(HARDWARE))(crc, data, size);
}
#endif

uint32_t linnet_crc32c(uint32_t crc, const void *data, size_t size) { return ~way(~crc, data, size); }
