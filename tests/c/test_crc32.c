/* test_crc32.c - compares both checksums with their published values, and every implementation with the bit-by-bit
 * definition at every length and alignment. */
#include "base/crc32.h"
#include "linnet_ext.h"
#include "check.h"

#include <stdlib.h>

enum { SIZE = 60000 };

static void published_values(void) {
    static const unsigned char read_pdu[48] = {
        [0] = 1,     [1] = 0xc0,  [16] = 0x14, [22] = 4,
        [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 2}; /* RFC 3720, B.4: an iSCSI SCSI Read (10) PDU */
    unsigned char bytes[32];
    memset(bytes, 0, 32);
    CHECK_INT(linnet_crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    CHECK_INT(linnet_crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    CHECK_INT(linnet_crc32c(0, bytes, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    CHECK_INT(linnet_crc32c(0, bytes, 32), 0x113fdb5c);
    CHECK_INT(linnet_crc32c(0, read_pdu, 48), 0xd9963a56);
    CHECK_INT(linnet_crc32c(0, "123456789", 9), 0xe3069283);
    CHECK_INT(linnet_crc32c(0, NULL, 0), 0);
    CHECK_INT(ln_crc32(0, "123456789", 9), 0xcbf43926u); /* the check value of CRC-32/ISO-HDLC */
    CHECK_INT(ln_crc32(ln_crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
    CHECK_INT(ln_crc32(0, NULL, 0), 0);
}

static uint32_t by_definition(uint32_t polynomial, uint32_t crc, const unsigned char *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return ~crc;
}

/* Tests lengths around those where the tables and the three streams begin and end. */
static void every_way(const unsigned char *data) {
    for (size_t at = 0; at < 16; at++)
        for (size_t size = 0; size < SIZE; size += size < 1700 ? 1 + at : 997) {
            const uint32_t before = (uint32_t)(size * 2654435761u);
            const uint32_t expected = by_definition(0x82f63b78u, before, data + at, size),
                           got = linnet_crc32c(before, data + at, size);
            const size_t cut = size / 3;
            if (got != expected) CHECK_INT(size, -1);
            if (~ln_crc32c_table(~before, data + at, size) != expected) CHECK_INT(size, -2);
            if (linnet_crc32c(linnet_crc32c(before, data + at, cut), data + at + cut, size - cut) != expected)
                CHECK_INT(size, -3);
            if (ln_crc32(before, data + at, size) != by_definition(0xedb88320u, before, data + at, size))
                CHECK_INT(size, -4);
        }
    CHECK(linnet_crc32c(1, data, SIZE) != linnet_crc32c(0, data, SIZE));
}

int main(void) {
    unsigned char *data = malloc(SIZE + 16);
    uint64_t seed = 42;
    if (!data) return 1;
    for (int i = 0; i < SIZE + 16; i++) data[i] = (unsigned char)check_random(&seed);
    published_values();
    every_way(data);
    free(data);
    return check_end("test_crc32");
}
