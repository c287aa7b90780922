/* crc32.h - two checksums: the CRC-32 of zlib, PNG and Ethernet (polynomial 0xedb88320, reflected), and CRC-32C (RFC
 * 3720, B.4; Castagnoli; 0x82f63b78), for which processors have instructions. linnet_ext.h exports the second as
 * linnet_crc32c. */
#ifndef LN_CRC32_H
#define LN_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC-32 of some earlier bytes, whose CRC is `crc`, followed by the data. The CRC of no bytes is 0. */
uint32_t ln_crc32(uint32_t crc, const void *data, size_t size);

/* The implementations of CRC-32C. Each takes and returns the register, which is the complement of the CRC. The second
 * needs SSE4.2 and PCLMULQDQ, the third the CRC instructions of ARM; each exists only in builds for its processor.
 * linnet_crc32c chooses one of them when the library is loaded. */
uint32_t ln_crc32c_table(uint32_t crc, const unsigned char *data, size_t size);
uint32_t ln_crc32c_sse42(uint32_t crc, const unsigned char *data, size_t size);
uint32_t ln_crc32c_arm(uint32_t crc, const unsigned char *data, size_t size);

#endif
