/* bytes.h - reads and writes numbers in the protocol's byte order, which is little-endian. The functions work at any
 * alignment and on every machine. Compilers turn each function into one load or store. */
#ifndef LN_NET_BYTES_H
#define LN_NET_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* put16, put32, put64 and put_f64 write 2, 4, 8 and 8 bytes. The caller makes sure that there is room. */
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

/* get16, get32, get64 and get_f64 read 2, 4, 8 and 8 bytes. The caller makes sure that so many bytes exist. */
static inline uint16_t get16(const unsigned char *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

static inline uint32_t get32(const unsigned char *bytes) { return get16(bytes) | (uint32_t)get16(bytes + 2) << 16; }

static inline uint64_t get64(const unsigned char *bytes) { return get32(bytes) | (uint64_t)get32(bytes + 4) << 32; }

static inline double get_f64(const unsigned char *bytes) {
    const uint64_t bits = get64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the length of the text in a field of `most` bytes. A 0 ends the text if it is shorter than the field. */
static inline size_t text_length(const char *text, size_t most) {
    const char *end = memchr(text, 0, most);
    return end ? (size_t)(end - text) : most;
}

/* Copies a text of `size` bytes out of a payload of `length` bytes, in which the text follows `at` bytes of fixed size.
 * `text` needs room for `most` + 1 bytes; a 0 is added at its end. Returns false if the text is longer than `most`, if
 * it does not end where the payload ends, or if it contains a 0. `text` is then unchanged. */
static inline bool get_text(char *text, size_t most, const unsigned char *bytes, size_t length, size_t at,
                            size_t size) {
    if (size > most || length != at + size || memchr(bytes + at, 0, size)) return false;
    memcpy(text, bytes + at, size);
    text[size] = 0;
    return true;
}

#endif
