/* test_sync_transport.c - TCP, Unix sockets and shared memory: bytes arrive once and unchanged in both directions at
 * once, whatever the sizes; addresses; who may be talked to; ends that go away; a hostile owner of shared memory. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* mkdtemp, struct ucred */
#endif

#include "sync_ends.h"

#include <stdio.h>
#include <unistd.h>

static const char *const ADDRESSES[] = {"127.0.0.1:0", "[::1]:0", "localhost:0", ":0", "unix:%s/s", "shm:%s/m"};
static char folder[64] = "/tmp/ln-sync-XXXXXX";

static const char *place(int i) {
    static char text[6][128];
    snprintf(text[i], sizeof text[i], ADDRESSES[i], folder);
    return text[i];
}

static void fill(unsigned char *data, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(check_random(&seed) >> 33);
}

/* Both ends send `count` messages of `size` bytes and control frames between them. */
static void exchange(const char *address, size_t size, int count, uint32_t chunk, size_t bound) {
    end ends[2];
    linnet_error error;
    unsigned char *data[2] = {malloc(size + 1), malloc(size + 1)};
    int queued[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        end_init(&ends[i], size, chunk);
        fill(data[i], size, (uint64_t)i + 1);
    }
    if (ends_connect(ends, address, NULL, NULL, &error)) {
        char text[512];
        linnet_error_format(&error, text, sizeof text);
        CHECK_TEXT(text, "");
    } else {
        for (int idle = 0; idle < 50;) {
            for (int i = 0; i < 2; i++) {
                ln_sync_header header = {.type = LN_SYNC_PUSH};
                ln_sync_header beat = {.type = LN_SYNC_HEARTBEAT};
                char payload[32] = {0};
                if (queued[i] < count && queued[i] - (int)ends[i].released < ENDS_PLACES &&
                    ln_sync_stream_control(ends[i].stream, &beat, payload, sizeof payload)) {
                    CHECK(ln_sync_stream_bulk(ends[i].stream, &header, data[i], size, 7));
                    queued[i]++;
                }
            }
            if (ends[0].messages == (uint64_t)count && ends[1].messages == (uint64_t)count) break;
            idle = ends_step(ends, 2, bound, 100) ? 0 : idle + 1;
        }
        for (int i = 0; i < 2; i++) {
            uint64_t received, sent, other_received, other_sent;
            ln_sync_transport_counts(ends[i].transport, &received, &sent);
            ln_sync_transport_counts(ends[1 - i].transport, &other_received, &other_sent);
            CHECK_INT(received, other_sent);
            CHECK_INT(ends[i].messages, count);
            CHECK_INT(ends[i].controls, count);
            CHECK(memcmp(ends[i].inbox, data[1 - i], size) == 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        end_free(&ends[i]);
        free(data[i]);
    }
}

static void traffic(void) {
    for (int i = 0; i < 6; i++) {
        exchange(place(i), 100, 300, LN_SYNC_CHUNK_MIN, LN_SYNC_TURN);
        exchange(place(i), 5 << 20, 4, LN_SYNC_CHUNK, LN_SYNC_TURN);
        exchange(place(i), 100003, 20, 5000, 777);
    }
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    traffic();
    rmdir(folder);
    return check_end("test_sync_transport");
}
