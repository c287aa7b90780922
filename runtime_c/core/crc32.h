/* crc32.h - the CRC-32 of zlib, PNG and Ethernet (polynomial 0xedb88320, reflected).
 * Small-table version: structures are kilobytes, segments are only checked on request. */
#ifndef LN_CRC32_H
#define LN_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* CRC of `data` appended to what gave `crc`; begin with 0. */
uint32_t ln_crc32(uint32_t crc, const void *data, size_t size);

#endif
