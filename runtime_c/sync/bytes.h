/* bytes.h - reads and writes numbers in the protocol's byte order, which is little-endian. Works at any alignment and
 * on every machine. Compilers turn each function into one load or store. */
#ifndef LN_SYNC_BYTES_H
#define LN_SYNC_BYTES_H

#include <stdint.h>
#include <string.h>

static inline void put16(unsigned char *bytes, uint16_t value) {
    bytes[0] = (unsigned char)value;
    bytes[1] = (unsigned char)(value >> 8);
}

static inline void put32(unsigned char *bytes, uint32_t value) {
    put16(bytes, (uint16_t)value);
    put16(bytes + 2, (uint16_t)(value >> 16));
}

static inline void put64(unsigned char *bytes, uint64_t value) {
    put32(bytes, (uint32_t)value);
    put32(bytes + 4, (uint32_t)(value >> 32));
}

static inline void put_f64(unsigned char *bytes, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put64(bytes, bits);
}

static inline uint16_t get16(const unsigned char *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

static inline uint32_t get32(const unsigned char *bytes) { return get16(bytes) | (uint32_t)get16(bytes + 2) << 16; }

static inline uint64_t get64(const unsigned char *bytes) { return get32(bytes) | (uint64_t)get32(bytes + 4) << 32; }

static inline double get_f64(const unsigned char *bytes) {
    const uint64_t bits = get64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
