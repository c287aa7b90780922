/* sync_frames.h - makes random sessions of the sync protocol and changes them: fields of headers and payloads, whole
 * frames, single bytes. Mostly updates the checksums, because otherwise nothing after the checksum test would ever be
 * reached. */
#ifndef SYNC_FRAMES_H
#define SYNC_FRAMES_H

#include "net/bytes.h"
#include "net/frame.h"
#include "sync/codec/payload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES_BYTES = 128 << 10, FRAMES_MOST = 64, FRAMES_TENSORS = 5, FRAMES_CHUNK = 4096 };

typedef struct frames {
    uint64_t state; /* state of the random numbers */
    uint64_t job, step;
    uint32_t worker;
    uint16_t shard;
    int count;
    size_t size, at[FRAMES_MOST + 1]; /* frame i: bytes[at[i] .. at[i + 1]] */
    unsigned char bytes[FRAMES_BYTES + 64];
} frames;

/* The tensors that both sides have agreed on, all f32. */
static const struct {
    ln_sync_kind kind;
    uint64_t rows, width; /* width 0: a scalar, or [rows] */
} frames_tensors[FRAMES_TENSORS] = {
    {LN_SYNC_DENSE, 1, 0},   {LN_SYNC_DENSE, 10, 0},   {LN_SYNC_SPARSE, 100, 16},
    {LN_SYNC_DENSE, 50, 60}, {LN_SYNC_AVERAGED, 8, 0},
};

static inline uint64_t frames_next(frames *f) {
    uint64_t z = (f->state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline uint64_t frames_below(frames *f, uint64_t n) { return n ? frames_next(f) % n : 0; }

static inline uint64_t frames_telling(frames *f) {
    static const uint64_t telling[] = {
        0,      1,      2,          3,          4,           7,         8,          16,         63,
        64,     65,     0x7f,       0x80,       0xff,        4095,      4096,       4097,       6400,
        0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffffu, INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 4095,
        12000,  40};
    return telling[frames_below(f, sizeof telling / sizeof *telling)];
}

static inline uint64_t frames_tensor_bytes(uint32_t tensor) {
    return 4 * frames_tensors[tensor].rows * (frames_tensors[tensor].width ? frames_tensors[tensor].width : 1);
}

/* Updates both checksums of frame `i`. */
static inline void frames_seal(frames *f, int i) {
    unsigned char *bytes = f->bytes + f->at[i];
    const size_t size = f->at[i + 1] - f->at[i];
    if (size < LN_NET_HEADER) return;
    const size_t stated = get32(bytes + 36), payload = stated < size - 64 ? stated : size - 64;
    put32(bytes + 56, ln_net_crc32c(0, bytes + 64, payload));
    put32(bytes + 60, ln_net_crc32c(0, bytes, 60));
}

/* Appends a frame. payload NULL: random bytes; total 0: the size of this frame. */
static inline void frames_add(frames *f, ln_net_header header, const void *payload, size_t size) {
    if (f->count == FRAMES_MOST || f->size + LN_NET_HEADER + size > FRAMES_BYTES) return;
    unsigned char *bytes = f->bytes + f->size;
    header.version = LN_NET_VERSION;
    header.job = f->job, header.worker = f->worker, header.shard = f->shard;
    header.length = (uint32_t)size;
    if (!header.total) header.total = size;
    if (payload && size) memcpy(bytes + LN_NET_HEADER, payload, size);
    if (!payload)
        for (size_t i = 0; i < size; i++)
            bytes[LN_NET_HEADER + i] = (unsigned char)(i % 4 == 3 ? 0x3f : f->state >> i % 7);
    ln_net_header_write(&header, bytes);
    f->at[f->count++] = f->size;
    f->size += LN_NET_HEADER + size;
    f->at[f->count] = f->size;
    frames_seal(f, f->count - 1);
}

/* Appends a whole message in chunks. */
static inline void frames_message(frames *f, ln_net_header header, const unsigned char *payload, uint64_t size) {
    header.total = size;
    for (header.offset = 0; header.offset < size || !size; header.offset += FRAMES_CHUNK) {
        const uint64_t left = size - header.offset;
        frames_add(f, header, payload ? payload + header.offset : NULL,
                   (size_t)(left < FRAMES_CHUNK ? left : FRAMES_CHUNK));
        if (!size) break;
    }
}

static inline void frames_fill(frames *f, unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)frames_next(f);
}

static inline size_t frames_rows(frames *f, unsigned char *bytes) {
    size_t n = 0;
    for (uint64_t row = frames_below(f, 8); row < 100 && n < 32; row += 1 + frames_below(f, 20))
        put64(bytes + 8 * n++, row);
    return n;
}

static inline ln_net_header frames_of(uint8_t type, uint64_t step, uint32_t tensor) {
    return (ln_net_header){.type = type, .step = step, .tensor = tensor};
}

static inline void frames_hello(frames *f, const unsigned char job[16]) {
    unsigned char payload[LN_SYNC_HELLO_BYTES];
    ln_sync_hello hello = {.lowest = 1,
                           .highest = 1,
                           .encodings = 0x3f | (uint32_t)frames_below(f, 4) << 17,
                           .incarnation = frames_next(f),
                           .last_step = LN_SYNC_NONE,
                           .worker = f->worker,
                           .chunk = FRAMES_CHUNK,
                           .name = "fuzz"};
    memcpy(hello.job, job, 16);
    frames_fill(f, hello.nonce, 16);
    ln_sync_hello_write(&hello, payload);
    frames_add(f, frames_of(LN_SYNC_HELLO, 0, 0), payload, sizeof payload);
}

/* Appends a whole step: pushes in any order, then COMMIT. */
static inline void frames_step(frames *f) {
    unsigned char payload[LN_NET_CONTROL_MAX];
    ln_sync_commit commit = {.weight = 1 + (double)frames_below(f, 3), .loss = 1};
    for (uint32_t t = 0; t < FRAMES_TENSORS; t++) {
        ln_net_header header = frames_of(LN_SYNC_PUSH, f->step, t);
        if (t == 3 && frames_below(f, 2)) continue; /* leaves out a large tensor: mostly an error, but much faster */
        if (frames_tensors[t].kind == LN_SYNC_SPARSE) {
            const size_t n = frames_rows(f, payload);
            frames_message(f, frames_of(LN_SYNC_IDS, f->step, t), payload, 8 * n);
            header.flags = LN_SYNC_FLAG_ROWS;
            frames_message(f, header, NULL, 4 * n * frames_tensors[t].width);
        } else {
            frames_message(f, header, NULL, frames_tensor_bytes(t));
        }
        commit.pushes++;
    }
    commit.flags = (uint32_t)frames_below(f, 2);
    ln_sync_commit_write(&commit, payload);
    frames_add(f, frames_of(LN_SYNC_COMMIT, f->step, 0), payload, LN_SYNC_COMMIT_BYTES);
    f->step += frames_below(f, 4) > 0;
}

/* Appends a frame or message that a worker may send when the connection is open. */
static inline void frames_from_worker(frames *f) {
    unsigned char payload[LN_NET_CONTROL_MAX];
    const uint32_t tensor = (uint32_t)frames_below(f, FRAMES_TENSORS);
    switch (frames_below(f, 9)) {
    case 0: {
        int n = 1 + (int)frames_below(f, FRAMES_TENSORS);
        for (int i = 0; i < n; i++) {
            ln_sync_pull pull = {.tensor = (uint32_t)i, .flags = frames_below(f, 2), .version = frames_below(f, 4) - 1};
            frames_fill(f, pull.digest, 16);
            ln_sync_pull_write(&pull, payload + i * LN_SYNC_PULL_BYTES);
        }
        frames_add(f, frames_of(LN_SYNC_PULL, 0, 0), payload, (size_t)n * LN_SYNC_PULL_BYTES);
        break;
    }
    case 1: frames_message(f, frames_of(LN_SYNC_ROWS, 0, 2), payload, 8 * frames_rows(f, payload)); break;
    case 2: {
        const ln_sync_heartbeat beat = {frames_next(f), frames_below(f, 3), frames_next(f)};
        ln_sync_heartbeat_write(&beat, payload);
        frames_add(f, frames_of(LN_SYNC_HEARTBEAT, 0, 0), payload, LN_SYNC_HEARTBEAT_BYTES);
        break;
    }
    case 3: frames_add(f, frames_of(frames_below(f, 2) ? LN_SYNC_SNAPSHOT : LN_SYNC_STATUS, 0, 0), "", 0); break;
    case 4: { /* part of a step, then abandoned */
        const ln_sync_commit commit = {.flags = LN_SYNC_COMMIT_ABANDON, .loss = 0};
        frames_message(f, frames_of(LN_SYNC_PUSH, f->step, tensor), NULL, frames_tensor_bytes(tensor));
        ln_sync_commit_write(&commit, payload);
        frames_add(f, frames_of(LN_SYNC_COMMIT, f->step, 0), payload, LN_SYNC_COMMIT_BYTES);
        break;
    }
    case 5:
        if (!frames_below(f, 8)) frames_add(f, frames_of(LN_SYNC_BYE, 0, 0), "", 0);
        break;
    case 6:
        frames_message(f, frames_of(LN_SYNC_PUT, 1 + frames_below(f, 3), tensor), NULL, frames_tensor_bytes(tensor));
        break;
    default: frames_step(f);
    }
}

/* Writes the manifest above as the payload of a TENSORS frame. */
static inline size_t frames_manifest(unsigned char *payload) {
    size_t size = 0;
    for (uint32_t t = 0; t < FRAMES_TENSORS; t++) {
        ln_sync_tensor entry = {
            .number = t, .dtype = 1, .kind = (uint8_t)frames_tensors[t].kind, .name_size = 1, .group = t};
        entry.name[0] = (char)('a' + t);
        if (frames_tensors[t].rows > 1) {
            entry.rank = frames_tensors[t].width ? 2 : 1;
            entry.dims[0] = entry.rows = frames_tensors[t].rows;
            entry.dims[1] = frames_tensors[t].width;
        }
        size += ln_sync_tensor_write(&entry, payload + size);
    }
    return size;
}

/* Appends a frame or message that a server may send when the connection is open. */
static inline void frames_from_server(frames *f) {
    unsigned char payload[LN_NET_CONTROL_MAX];
    const uint32_t tensor = (uint32_t)frames_below(f, FRAMES_TENSORS);
    switch (frames_below(f, 6)) {
    case 0: {
        const ln_sync_same same = {tensor, f->step};
        ln_sync_same_write(&same, payload);
        frames_add(f, frames_of(LN_SYNC_SAME, 0, 0), payload, LN_SYNC_SAME_BYTES);
        break;
    }
    case 1: {
        const ln_sync_ack ack = {
            .outcome = (uint8_t)frames_below(f, 4), .version = f->step + 1, .next = f->step + 1, .workers = 1};
        ln_sync_ack_write(&ack, payload);
        frames_add(f, frames_of(LN_SYNC_ACK, f->step++, 0), payload, LN_SYNC_ACK_BYTES);
        break;
    }
    case 2: {
        const ln_sync_saved saved = {.status = (uint32_t)frames_below(f, 2), .text = "there"};
        frames_add(f, frames_of(LN_SYNC_SAVED, 0, 0), payload, ln_sync_saved_write(&saved, payload));
        break;
    }
    case 3: frames_message(f, frames_of(LN_SYNC_REPORT, 0, 0), (const unsigned char *)"{\"a\": 1}", 8); break;
    default: frames_message(f, frames_of(LN_SYNC_DATA, f->step, tensor), NULL, frames_tensor_bytes(tensor));
    }
}

/* ---- changes to frames ------------------------------------------------------------------------------------------ */

/* Changes a field of a header. */
static inline void frames_change_header(frames *f, int i) {
    static const unsigned char fields[][2] = {{0, 4},  {4, 1},  {5, 1},  {6, 2},  {8, 8},  {16, 4}, {20, 2}, {22, 1},
                                              {23, 1}, {24, 8}, {32, 4}, {36, 4}, {40, 8}, {48, 8}, {56, 4}, {60, 4}};
    const unsigned char *field = fields[frames_below(f, 16)];
    unsigned char *at = f->bytes + f->at[i] + field[0];
    uint64_t value = frames_telling(f), old = 0;
    memcpy(&old, at, field[1]);
    if (frames_below(f, 3) == 0) value = old + 1 - 2 * frames_below(f, 2);
    memcpy(at, &value, field[1]);
}

static inline void frames_change_payload(frames *f, int i) {
    unsigned char *payload = f->bytes + f->at[i] + LN_NET_HEADER;
    const size_t size = f->at[i + 1] - f->at[i] - LN_NET_HEADER;
    for (uint64_t n = 1 + frames_below(f, 3); n > 0 && size > 0; n--) {
        const size_t at = frames_below(f, size), width = (size_t)1 << frames_below(f, 4);
        const uint64_t value = frames_telling(f);
        if (at + width <= size && frames_below(f, 2))
            memcpy(payload + at, &value, width);
        else
            payload[at] ^= (unsigned char)(1 << frames_below(f, 8));
    }
}

/* Makes a frame's payload longer or shorter, and updates its length field or not. */
static inline void frames_resize(frames *f, int i) {
    const size_t end = f->at[i + 1], size = end - f->at[i] - LN_NET_HEADER;
    size_t by = 1 + frames_below(f, 40);
    if (by > size || f->size + by > FRAMES_BYTES) return;
    if (frames_below(f, 2)) {
        memmove(f->bytes + end + by, f->bytes + end, f->size - end);
        memset(f->bytes + end, 0, by);
    } else {
        memmove(f->bytes + end - by, f->bytes + end, f->size - end);
        by = 0 - by;
    }
    f->size += by;
    for (int k = i + 1; k <= f->count; k++) f->at[k] += by;
    unsigned char *bytes = f->bytes + f->at[i];
    if (frames_below(f, 4)) {
        put32(bytes + 36, (uint32_t)(size + by));
        if (frames_below(f, 4)) put64(bytes + 40, get64(bytes + 40) + by);
    }
}

/* Repeats or removes a frame. */
static inline void frames_repeat(frames *f, int i, bool twice) {
    const size_t begin = f->at[i], end = f->at[i + 1], size = end - begin;
    if (twice && f->size + size <= FRAMES_BYTES) {
        memmove(f->bytes + end, f->bytes + begin, f->size - begin);
        f->size += size;
    } else if (!twice) {
        memmove(f->bytes + begin, f->bytes + end, f->size - end);
        f->size -= size;
    }
}

static inline void frames_change(frames *f) {
    for (uint64_t n = frames_below(f, 4); n > 0 && f->count; n--) {
        const int i = (int)frames_below(f, (uint64_t)f->count);
        if (f->at[i + 1] - f->at[i] < LN_NET_HEADER) continue;
        switch (frames_below(f, 6)) {
        case 0:
        case 1: frames_change_header(f, i); break;
        case 2:
        case 3: frames_change_payload(f, i); break;
        default: frames_resize(f, i);
        }
        if (frames_below(f, 16)) frames_seal(f, i);
    }
    if (f->count && frames_below(f, 8) == 0)
        frames_repeat(f, (int)frames_below(f, (uint64_t)f->count), frames_below(f, 2)); /* at[] is wrong from here on */
    if (f->size && frames_below(f, 8) == 0)
        f->bytes[frames_below(f, f->size)] ^= (unsigned char)(1 << frames_below(f, 8));
    if (frames_below(f, 16) == 0) f->size = frames_below(f, f->size + 1);
}

#endif
