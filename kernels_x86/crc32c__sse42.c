/* crc32c__sse42.c - CRC-32C with SSE4.2's instruction; carry-less multiplication (PCLMULQDQ) combines several
 * registers. Called only if crc32.c has found both extensions. */
#include <nmmintrin.h>
#include <wmmintrin.h>

static inline unsigned long long product(unsigned a, unsigned b) {
    return (unsigned long long)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0));
}

#define CRC_BYTE(crc, byte) _mm_crc32_u8(crc, byte)
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define CRC_PRODUCT(a, b) product(a, b)
#include "base/crc32c_streams.inc"

uint32_t ln_crc32c_sse42(uint32_t crc, const unsigned char *data, size_t size) {
    return crc32c_streams(crc, data, size);
}
