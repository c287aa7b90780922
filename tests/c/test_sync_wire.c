/* test_sync_wire.c - the frames of docs/protocol.md ("Test vectors") written from structs and read back, and every byte
 * of a payload that must be refused. */
#include "net/frame.h"
#include "net/refusal.h"
#include "sync/codec/digest.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 512 };

/* Reads the document's vector of this name. Returns its number of bytes. */
static size_t vector(const char *name, unsigned char *bytes) {
    char path[1024] = __FILE__, line[4096];
    char *end = strstr(path, "tests/c/test_sync_wire.c");
    size_t size = 0, length = strlen(name);
    bool in_block = false, mine = false;
    if (end) strcpy(end, "docs/protocol.md");
    FILE *file = fopen(path, "rb");
    if (!file) file = fopen("docs/protocol.md", "rb"); /* a path relative to the build folder */
    CHECK(file != NULL);
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "```", 3) == 0) {
            in_block = strncmp(line, "```text", 7) == 0;
            mine = false;
        } else if (in_block && line[0] >= 'A' && line[0] <= 'Z') {
            mine = strncmp(line, name, length) == 0 && line[length] == ' ';
        } else if (mine && line[0] != ' ') {
            unsigned byte;
            for (const char *at = line; sscanf(at, "%2x", &byte) == 1 && size < MOST; at += 2)
                bytes[size++] = (unsigned char)byte;
        }
    }
    fclose(file);
    return size;
}

static const uint64_t job = 0x0706050403020100u;

/* Checks that the frame of this header and payload is the document's, and that reading it gives the same header. */
static void check_frame(ln_net_header header, const unsigned char *payload, size_t size) {
    unsigned char expected[MOST], bytes[MOST];
    const size_t whole = vector(ln_sync_type_name(header.type), expected);
    ln_net_header back;
    header.version = 1;
    header.length = (uint32_t)size;
    if (!header.total) header.total = size;
    header.payload_crc = ln_net_crc32c(0, payload, size);
    ln_net_header_write(&header, bytes);
    if (size) memcpy(bytes + LN_NET_HEADER, payload, size);
    CHECK_INT(whole, LN_NET_HEADER + size);
    for (size_t i = 0; i < whole; i++)
        if (bytes[i] != expected[i]) {
            printf("%s, byte %zu: %02x, the document says %02x\n", ln_sync_type_name(header.type), i, bytes[i],
                   expected[i]);
            CHECK(false);
            break;
        }
    CHECK_INT(ln_net_header_read(&back, expected, &ln_sync_protocol), LN_NET_FINE);
    ln_net_header_write(&back, bytes);
    CHECK(memcmp(bytes, expected, LN_NET_HEADER) == 0);
    for (size_t bit = 0; bit < 8 * LN_NET_HEADER; bit++) {
        expected[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK(ln_net_header_read(&back, expected, &ln_sync_protocol) != LN_NET_FINE);
        expected[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static ln_net_header of(uint8_t type) { return (ln_net_header){.type = type, .job = job, .worker = 7, .shard = 1}; }

static void count_up(unsigned char *bytes, int size, int first) {
    for (int i = 0; i < size; i++) bytes[i] = (unsigned char)(first + i);
}

/* Checks that `read` accepts the `size` bytes and that `write` turns the value into the same bytes. Other lengths must
 * be refused, and so must a change of the bytes named in `reserved` (pairs of offset and count, terminated by -1). */
#define CHECK_PAYLOAD(name, bytes, size, ...)                                                                          \
    do {                                                                                                               \
        name back;                                                                                                     \
        unsigned char again[MOST], changed[MOST];                                                                      \
        static const int reserved[] = {__VA_ARGS__ - 1};                                                               \
        memset(again, 0xa5, sizeof again);                                                                             \
        memcpy(changed, bytes, size);                                                                                  \
        CHECK(name##_read(&back, bytes, size));                                                                        \
        name##_write(&back, again);                                                                                    \
        CHECK(memcmp(again, bytes, size) == 0 && again[size] == 0xa5);                                                 \
        CHECK(!name##_read(&back, bytes, (size) - 1));                                                                 \
        CHECK(!name##_read(&back, bytes, (size) + 1));                                                                 \
        CHECK(!name##_read(&back, bytes, 0));                                                                          \
        for (int at = 0; reserved[at] >= 0; at += 2)                                                                   \
            for (int i = 0; i < reserved[at + 1]; i++) {                                                               \
                changed[reserved[at] + i] ^= 0x10;                                                                     \
                CHECK(!name##_read(&back, changed, size));                                                             \
                changed[reserved[at] + i] ^= 0x10;                                                                     \
            }                                                                                                          \
    } while (0)
#define NONE

static void test_handshake(void) {
    unsigned char bytes[MOST];
    ln_sync_hello hello = {
        .lowest = 1,
        .highest = 1,
        .encodings = 0x3f,
        .incarnation = 0x2827262524232221u,
        .last_step = LN_SYNC_NONE,
        .epoch = 3,
        .worker = LN_NET_NO_WORKER,
        .group = 2,
        .chunk = 262144,
        .heartbeat = 5000,
        .name = "grüße-7",
    };
    count_up(hello.job, 16, 0), count_up(hello.nonce, 16, 16);
    ln_sync_hello_write(&hello, bytes);
    ln_net_header header = of(LN_SYNC_HELLO);
    header.worker = LN_NET_NO_WORKER, header.shard = 0xffff;
    check_frame(header, bytes, LN_SYNC_HELLO_BYTES);
    CHECK_PAYLOAD(ln_sync_hello, bytes, LN_SYNC_HELLO_BYTES, 90, 0, );
    ln_sync_hello back;
    bytes[0] = 2;
    CHECK(!ln_sync_hello_read(&back, bytes, LN_SYNC_HELLO_BYTES)); /* lowest above highest */
    bytes[0] = 1, bytes[2] = 5;
    CHECK(!ln_sync_hello_read(&back, bytes, LN_SYNC_HELLO_BYTES)); /* role */
    bytes[2] = 0, bytes[74] = 0;
    CHECK(!ln_sync_hello_read(&back, bytes, LN_SYNC_HELLO_BYTES)); /* chunk of 0 */
    bytes[74] = 4, bytes[95] = 'x';
    CHECK(!ln_sync_hello_read(&back, bytes, LN_SYNC_HELLO_BYTES)); /* a byte after the end of the name */
    memset(bytes + 80, 'n', 16);
    CHECK(ln_sync_hello_read(&back, bytes, LN_SYNC_HELLO_BYTES) && strlen(back.name) == 16);

    ln_sync_welcome welcome = {
        .version = 1,
        .flags = LN_SYNC_WELCOME_SYNCHRONOUS,
        .shard = 1,
        .shards = 4,
        .encodings = 0x0b,
        .worker = 7,
        .epoch = 3,
        .step = 42,
        .parameters = 40,
        .applied = 41,
        .tensors = 2,
        .chunk = 65536,
        .heartbeat = 2000,
        .lease = 6000,
    };
    count_up(welcome.nonce, 16, 16), count_up(welcome.server_nonce, 16, 48);
    ln_sync_welcome_write(&welcome, bytes);
    check_frame(of(LN_SYNC_WELCOME), bytes, LN_SYNC_WELCOME_BYTES);
    CHECK_PAYLOAD(ln_sync_welcome, bytes, LN_SYNC_WELCOME_BYTES, 6, 2, 1, 1, );

    ln_sync_ready ready;
    uint64_t sum[2] = {0, 0};
    unsigned char tensors[MOST];
    ln_sync_digest(tensors, 0, sum);
    const size_t size = vector("TENSORS", tensors);
    sum[0] = sum[1] = 0;
    ln_sync_digest(tensors + LN_NET_HEADER, size - LN_NET_HEADER, sum);
    count_up(ready.server_nonce, 16, 48);
    for (int i = 0; i < 16; i++) ready.manifest[i] = (unsigned char)(sum[i / 8] >> 8 * (i % 8));
    ln_sync_ready_write(&ready, bytes);
    check_frame(of(LN_SYNC_READY), bytes, LN_SYNC_READY_BYTES);
    CHECK_PAYLOAD(ln_sync_ready, bytes, LN_SYNC_READY_BYTES, );

    const ln_net_refuse refuse = {.why = LN_NET_MODEL_DIFFERS, .detail = 1, .text = "embedding: other shape"};
    const size_t length = ln_net_refuse_write(&refuse, bytes);
    check_frame((ln_net_header){.type = LN_SYNC_REFUSE, .worker = LN_NET_NO_WORKER}, bytes, length);
    CHECK_PAYLOAD(ln_net_refuse, bytes, length, 3, 1, );
}

static void test_manifest(void) {
    const ln_sync_tensor bias = {.number = 0, .dtype = 1, .name_size = 4, .group = 1, .name = "bias"};
    const ln_sync_tensor table = {
        .number = 1,
        .dtype = 1,
        .kind = LN_SYNC_SPARSE,
        .rank = 2,
        .name_size = 9,
        .group = 2,
        .first_row = 1000,
        .rows = 4000,
        .dims = {500, 16},
        .name = "embedding",
    };
    unsigned char bytes[MOST], again[MOST];
    ln_sync_tensor back;
    const size_t first = ln_sync_tensor_write(&bias, bytes), second = ln_sync_tensor_write(&table, bytes + first);
    check_frame(of(LN_SYNC_TENSORS), bytes, first + second);
    CHECK_INT(ln_sync_tensor_read(&back, bytes, first + second), first);
    CHECK_TEXT(back.name, "bias");
    CHECK_INT(ln_sync_tensor_read(&back, bytes + first, second), second);
    CHECK_INT(ln_sync_tensor_write(&back, again), second);
    CHECK(memcmp(again, bytes + first, second) == 0);
    for (size_t size = 0; size < second; size++) CHECK_INT(ln_sync_tensor_read(&back, bytes + first, size), 0);
    static const struct {
        int at, value;
    } wrong[] = {{5, 4},  {6, 9},  {6, 3},     {7, 0},  {7, 17}, {12, 1},
                 {17, 9}, {25, 0}, {39, 0x10}, {48, 0}, {60, 1}, {63, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(again, bytes + first, second);
        again[wrong[i].at] = (unsigned char)wrong[i].value;
        if (wrong[i].at == 17) again[18] = 1;
        if (ln_sync_tensor_read(&back, again, second)) CHECK_INT(wrong[i].at, -1);
    }
}

static void test_entries(void) {
    unsigned char bytes[MOST];
    ln_sync_pull pull = {.tensor = 0, .flags = LN_SYNC_PULL_DIGEST, .version = 39};
    count_up(pull.digest, 16, 0x40);
    ln_sync_pull_write(&pull, bytes);
    pull = (ln_sync_pull){.tensor = 1, .version = LN_SYNC_NONE};
    ln_sync_pull_write(&pull, bytes + LN_SYNC_PULL_BYTES);
    check_frame(of(LN_SYNC_PULL), bytes, 2 * LN_SYNC_PULL_BYTES);
    CHECK(ln_sync_pull_read(&pull, bytes, 64, 0) && pull.version == 39 && pull.digest[15] == 0x4f);
    CHECK(ln_sync_pull_read(&pull, bytes, 64, 1) && pull.version == LN_SYNC_NONE && pull.tensor == 1);
    CHECK(!ln_sync_pull_read(&pull, bytes, 64, 2) && !ln_sync_pull_read(&pull, bytes, 63, 0));
    bytes[4] = 2;
    CHECK(!ln_sync_pull_read(&pull, bytes, 64, 0));

    ln_sync_same same = {.tensor = 0, .version = 40};
    ln_sync_same_write(&same, bytes);
    check_frame(of(LN_SYNC_SAME), bytes, LN_SYNC_SAME_BYTES);
    CHECK(ln_sync_same_read(&same, bytes, 16, 0) && same.version == 40);
    CHECK(!ln_sync_same_read(&same, bytes, 16, 1) && !ln_sync_same_read(&same, bytes, 17, 0));
    bytes[4] = 1;
    CHECK(!ln_sync_same_read(&same, bytes, 16, 0));
}

static void test_steps(void) {
    unsigned char bytes[MOST];
    ln_sync_commit commit = {.pushes = 2,
                             .flags = LN_SYNC_COMMIT_PULL,
                             .weight = 32.5,
                             .version = 40,
                             .computed = 1000000,
                             .began = 5000000000,
                             .loss = 0.25};
    ln_net_header header = of(LN_SYNC_COMMIT);
    header.step = 42;
    ln_sync_commit_write(&commit, bytes);
    check_frame(header, bytes, LN_SYNC_COMMIT_BYTES);
    CHECK_PAYLOAD(ln_sync_commit, bytes, LN_SYNC_COMMIT_BYTES, 48, 16, 5, 3, );
    static const double weights[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        commit.weight = weights[i];
        ln_sync_commit_write(&commit, bytes);
        CHECK(!ln_sync_commit_read(&commit, bytes, LN_SYNC_COMMIT_BYTES));
    }
    commit = (ln_sync_commit){.flags = LN_SYNC_COMMIT_ABANDON, .loss = NAN};
    ln_sync_commit_write(&commit, bytes);
    CHECK(ln_sync_commit_read(&commit, bytes, LN_SYNC_COMMIT_BYTES) && isnan(commit.loss));
    bytes[0] = 1;
    CHECK(!ln_sync_commit_read(&commit, bytes, LN_SYNC_COMMIT_BYTES));

    const ln_sync_ack ack = {.outcome = LN_SYNC_APPLIED,
                             .version = 41,
                             .next = 43,
                             .first_example = 128,
                             .examples = 32,
                             .batch = 256,
                             .clock = {11, 12, 13, 14, 15},
                             .workers = 8,
                             .members = 9,
                             .loss = 0.25,
                             .loss_weight = 260};
    header.type = LN_SYNC_ACK;
    ln_sync_ack_write(&ack, bytes);
    check_frame(header, bytes, LN_SYNC_ACK_BYTES);
    CHECK_PAYLOAD(ln_sync_ack, bytes, LN_SYNC_ACK_BYTES, 1, 7, 0, 1, 38, 1, 30, 1, );
    for (int at = 88; at <= 104; at += 16) { /* a loss that is infinite, then a weight */
        ln_sync_ack changed;
        unsigned char before[8];
        memcpy(before, bytes + at, 8);
        memcpy(bytes + at, "\0\0\0\0\0\0\xf0\x7f", 8);
        CHECK(!ln_sync_ack_read(&changed, bytes, LN_SYNC_ACK_BYTES));
        memcpy(bytes + at, before, 8);
    }

    const ln_sync_heartbeat beat = {5000000001, 4000000002, 4999999003};
    ln_sync_heartbeat_write(&beat, bytes);
    check_frame(of(LN_SYNC_HEARTBEAT), bytes, LN_SYNC_HEARTBEAT_BYTES);
    CHECK_PAYLOAD(ln_sync_heartbeat, bytes, LN_SYNC_HEARTBEAT_BYTES, 24, 8, );

    const ln_sync_saved saved = {.status = 0, .text = "run/snapshot-41.ln"};
    const size_t size = ln_sync_saved_write(&saved, bytes);
    check_frame(of(LN_SYNC_SAVED), bytes, size);
    CHECK_PAYLOAD(ln_sync_saved, bytes, size, 5, 3, );
}

static void test_bulk(void) {
    static const unsigned char rows[] = {0xe9, 3, 0, 0, 0, 0, 0, 0, 0xdb, 5, 0, 0, 0, 0, 0, 0};
    ln_net_header header = of(LN_SYNC_ROWS);
    header.tensor = 1;
    check_frame(header, rows, 16);
    header.type = LN_SYNC_IDS, header.step = 42;
    check_frame(header, rows, 16);
    header = of(LN_SYNC_PUSH), header.step = 42;
    check_frame(header, (const unsigned char *)"\0\0\xc0\x3f", 4);
    header = of(LN_SYNC_DATA), header.flags = LN_SYNC_FLAG_ROWS, header.encoding = 1, header.step = 40,
    header.tensor = 1;
    header.total = 64, header.offset = 60;
    check_frame(header, (const unsigned char *)"\x00\x3c\x00\xc0", 4);
    check_frame(of(LN_SYNC_REPORT), (const unsigned char *)"{}", 2);
    header = of(LN_SYNC_SEGMENT), header.shard = 0, header.step = 5, header.tensor = 3;
    check_frame(header, (const unsigned char *)"\0\0\x80\x3f\0\0\0\x40", 8);
    check_frame(of(LN_SYNC_SNAPSHOT), NULL, 0);
    check_frame(of(LN_SYNC_STATUS), NULL, 0);
    check_frame(of(LN_SYNC_BYE), NULL, 0);
    for (int type = 0; type < 256; type++) {
        CHECK(ln_sync_type_name((uint8_t)type) != NULL);
        CHECK(ln_net_refusal_name((ln_net_refusal)type) != NULL);
        CHECK(!ln_sync_is_bulk((uint8_t)type) || type < LN_SYNC_TYPES);
    }
}

int main(void) {
    CHECK_INT(ln_net_crc32c(0, "123456789", 9), 0xe3069283); /* tests/c/test_crc32.c has more */
    test_handshake();
    test_manifest();
    test_entries();
    test_steps();
    test_bulk();
    return check_end("test_sync_wire");
}
