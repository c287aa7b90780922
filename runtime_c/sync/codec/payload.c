/* payload.c - the fixed payloads of control frames: converts structs to bytes and back, with the checks that need no
 * state. docs/protocol.md, "Frames", describes them. */
#include "net/bytes.h"
#include "sync/codec/payload.h"

#include <math.h>

static bool zero(const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return false;
    return true;
}

/* Checks text in a field of `size` bytes that is padded with 0: only zeros may follow the first 0. */
static bool padded(const unsigned char *bytes, size_t size) {
    size_t length = 0;
    while (length < size && bytes[length]) length++;
    return zero(bytes + length, size - length);
}

void ln_sync_hello_write(const ln_sync_hello *hello, unsigned char *bytes) {
    memset(bytes, 0, LN_SYNC_HELLO_BYTES);
    bytes[0] = hello->lowest;
    bytes[1] = hello->highest;
    put16(bytes + 2, hello->role);
    put32(bytes + 4, hello->encodings);
    memcpy(bytes + 8, hello->job, 16);
    memcpy(bytes + 24, hello->nonce, 16);
    put64(bytes + 40, hello->incarnation);
    put64(bytes + 48, hello->last_step);
    put64(bytes + 56, hello->epoch);
    put32(bytes + 64, hello->worker);
    put32(bytes + 68, hello->group);
    put32(bytes + 72, hello->chunk);
    put32(bytes + 76, hello->heartbeat);
    memcpy(bytes + 80, hello->name, text_length(hello->name, 16));
}

bool ln_sync_hello_read(ln_sync_hello *hello, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_HELLO_BYTES || !padded(bytes + 80, 16)) return false;
    *hello = (ln_sync_hello){
        .lowest = bytes[0],
        .highest = bytes[1],
        .role = get16(bytes + 2),
        .encodings = get32(bytes + 4),
        .incarnation = get64(bytes + 40),
        .last_step = get64(bytes + 48),
        .epoch = get64(bytes + 56),
        .worker = get32(bytes + 64),
        .group = get32(bytes + 68),
        .chunk = get32(bytes + 72),
        .heartbeat = get32(bytes + 76),
    };
    memcpy(hello->job, bytes + 8, 16);
    memcpy(hello->nonce, bytes + 24, 16);
    memcpy(hello->name, bytes + 80, 16);
    return hello->lowest <= hello->highest && hello->role <= LN_SYNC_WRITER && hello->chunk >= LN_NET_CHUNK_MIN;
}

void ln_sync_welcome_write(const ln_sync_welcome *welcome, unsigned char *bytes) {
    bytes[0] = welcome->version;
    bytes[1] = welcome->flags;
    put16(bytes + 2, welcome->shard);
    put16(bytes + 4, welcome->shards);
    put16(bytes + 6, 0);
    put32(bytes + 8, welcome->encodings);
    put32(bytes + 12, welcome->worker);
    memcpy(bytes + 16, welcome->nonce, 16);
    memcpy(bytes + 32, welcome->server_nonce, 16);
    put64(bytes + 48, welcome->epoch);
    put64(bytes + 56, welcome->step);
    put64(bytes + 64, welcome->parameters);
    put64(bytes + 72, welcome->applied);
    put32(bytes + 80, welcome->tensors);
    put32(bytes + 84, welcome->chunk);
    put32(bytes + 88, welcome->heartbeat);
    put32(bytes + 92, welcome->lease);
}

bool ln_sync_welcome_read(ln_sync_welcome *welcome, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_WELCOME_BYTES || get16(bytes + 6)) return false;
    *welcome = (ln_sync_welcome){
        .version = bytes[0],
        .flags = bytes[1],
        .shard = get16(bytes + 2),
        .shards = get16(bytes + 4),
        .encodings = get32(bytes + 8),
        .worker = get32(bytes + 12),
        .epoch = get64(bytes + 48),
        .step = get64(bytes + 56),
        .parameters = get64(bytes + 64),
        .applied = get64(bytes + 72),
        .tensors = get32(bytes + 80),
        .chunk = get32(bytes + 84),
        .heartbeat = get32(bytes + 88),
        .lease = get32(bytes + 92),
    };
    memcpy(welcome->nonce, bytes + 16, 16);
    memcpy(welcome->server_nonce, bytes + 32, 16);
    return welcome->version == LN_NET_VERSION && welcome->flags < 4 && welcome->shard < welcome->shards &&
           welcome->tensors <= LN_SYNC_TENSORS_MAX && welcome->chunk >= LN_NET_CHUNK_MIN &&
           welcome->chunk <= LN_NET_CHUNK_MAX && welcome->heartbeat > 0 && welcome->lease > 0;
}

size_t ln_sync_tensor_write(const ln_sync_tensor *tensor, unsigned char *bytes) {
    const size_t name = 32 + 8 * (size_t)tensor->rank, end = name + ((size_t)tensor->name_size + 7) / 8 * 8;
    memset(bytes, 0, end);
    put32(bytes, tensor->number);
    bytes[4] = tensor->dtype;
    bytes[5] = tensor->kind;
    bytes[6] = tensor->rank;
    bytes[7] = tensor->name_size;
    put32(bytes + 8, tensor->group);
    put64(bytes + 16, tensor->first_row);
    put64(bytes + 24, tensor->rows);
    for (int i = 0; i < tensor->rank; i++) put64(bytes + 32 + 8 * i, tensor->dims[i]);
    memcpy(bytes + name, tensor->name, tensor->name_size);
    return end;
}

/* Checks that the number of elements does not overflow, not even multiplied by 8 bytes, and that the part is within the
 * whole tensor. */
static bool shape_is_right(const ln_sync_tensor *tensor) {
    uint64_t elements = 1;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] && elements > (UINT64_MAX >> 4) / tensor->dims[i]) return false;
        elements *= tensor->dims[i];
    }
    const uint64_t rows = tensor->rank ? tensor->dims[0] : 0;
    return rows <= tensor->rows && tensor->first_row <= tensor->rows - rows && (tensor->rank || !tensor->rows);
}

size_t ln_sync_tensor_read(ln_sync_tensor *tensor, const unsigned char *bytes, size_t length) {
    if (length < 32 || bytes[6] > 8 || get32(bytes + 12)) return 0;
    const size_t name = 32 + 8 * (size_t)bytes[6], size = bytes[7], end = name + (size + 7) / 8 * 8;
    if (end > length || memchr(bytes + name, 0, size) || !zero(bytes + name + size, end - name - size)) return 0;
    memset(tensor, 0, sizeof *tensor);
    tensor->number = get32(bytes);
    tensor->dtype = bytes[4];
    tensor->kind = bytes[5];
    tensor->rank = bytes[6];
    tensor->name_size = bytes[7];
    tensor->group = get32(bytes + 8);
    tensor->first_row = get64(bytes + 16);
    tensor->rows = get64(bytes + 24);
    for (int i = 0; i < tensor->rank; i++) tensor->dims[i] = get64(bytes + 32 + 8 * i);
    memcpy(tensor->name, bytes + name, size);
    return tensor->kind <= LN_SYNC_READ_ONLY && size > 0 && shape_is_right(tensor) ? end : 0;
}

void ln_sync_ready_write(const ln_sync_ready *ready, unsigned char *bytes) {
    memcpy(bytes, ready->server_nonce, 16);
    memcpy(bytes + 16, ready->manifest, 16);
}

bool ln_sync_ready_read(ln_sync_ready *ready, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_READY_BYTES) return false;
    memcpy(ready->server_nonce, bytes, 16);
    memcpy(ready->manifest, bytes + 16, 16);
    return true;
}

void ln_sync_pull_write(const ln_sync_pull *entry, unsigned char *bytes) {
    put32(bytes, entry->tensor);
    put32(bytes + 4, entry->flags);
    put64(bytes + 8, entry->version);
    memcpy(bytes + 16, entry->digest, 16);
}

bool ln_sync_pull_read(ln_sync_pull *entry, const unsigned char *bytes, size_t length, size_t i) {
    if (length % LN_SYNC_PULL_BYTES || i >= length / LN_SYNC_PULL_BYTES) return false;
    bytes += LN_SYNC_PULL_BYTES * i;
    *entry = (ln_sync_pull){.tensor = get32(bytes), .flags = get32(bytes + 4), .version = get64(bytes + 8)};
    memcpy(entry->digest, bytes + 16, 16);
    return entry->flags <= LN_SYNC_PULL_DIGEST;
}

void ln_sync_same_write(const ln_sync_same *entry, unsigned char *bytes) {
    put32(bytes, entry->tensor);
    put32(bytes + 4, 0);
    put64(bytes + 8, entry->version);
}

bool ln_sync_same_read(ln_sync_same *entry, const unsigned char *bytes, size_t length, size_t i) {
    if (length % LN_SYNC_SAME_BYTES || i >= length / LN_SYNC_SAME_BYTES) return false;
    bytes += LN_SYNC_SAME_BYTES * i;
    *entry = (ln_sync_same){.tensor = get32(bytes), .version = get64(bytes + 8)};
    return get32(bytes + 4) == 0;
}

void ln_sync_commit_write(const ln_sync_commit *commit, unsigned char *bytes) {
    put32(bytes, commit->pushes);
    put32(bytes + 4, commit->flags);
    put_f64(bytes + 8, commit->weight);
    put64(bytes + 16, commit->version);
    put64(bytes + 24, commit->computed);
    put64(bytes + 32, commit->began);
    put_f64(bytes + 40, commit->loss);
    memset(bytes + 48, 0, 16);
}

bool ln_sync_commit_read(ln_sync_commit *commit, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_COMMIT_BYTES || !zero(bytes + 48, 16)) return false;
    *commit = (ln_sync_commit){
        .pushes = get32(bytes),
        .flags = get32(bytes + 4),
        .weight = get_f64(bytes + 8),
        .version = get64(bytes + 16),
        .computed = get64(bytes + 24),
        .began = get64(bytes + 32),
        .loss = get_f64(bytes + 40),
    };
    if (commit->flags & ~(uint32_t)(LN_SYNC_COMMIT_PULL | LN_SYNC_COMMIT_ABANDON)) return false;
    if (commit->flags & LN_SYNC_COMMIT_ABANDON) return commit->weight == 0 && commit->pushes == 0;
    return isfinite(commit->weight) && commit->weight > 0;
}

void ln_sync_ack_write(const ln_sync_ack *ack, unsigned char *bytes) {
    memset(bytes, 0, LN_SYNC_ACK_BYTES);
    bytes[0] = ack->outcome;
    put64(bytes + 8, ack->version);
    put64(bytes + 16, ack->next);
    put64(bytes + 24, ack->first_example);
    put64(bytes + 32, ack->examples);
    put64(bytes + 40, ack->batch);
    for (int i = 0; i < 5; i++) put64(bytes + 48 + 8 * i, ack->clock[i]);
    put32(bytes + 96, ack->workers);
    put32(bytes + 100, ack->members);
    put_f64(bytes + 88, ack->loss);
    put_f64(bytes + 104, ack->loss_weight);
}

bool ln_sync_ack_read(ln_sync_ack *ack, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_ACK_BYTES || !zero(bytes + 1, 7)) return false;
    *ack = (ln_sync_ack){
        .outcome = bytes[0],
        .version = get64(bytes + 8),
        .next = get64(bytes + 16),
        .first_example = get64(bytes + 24),
        .examples = get64(bytes + 32),
        .batch = get64(bytes + 40),
        .workers = get32(bytes + 96),
        .members = get32(bytes + 100),
        .loss = get_f64(bytes + 88),
        .loss_weight = get_f64(bytes + 104),
    };
    if (!isfinite(ack->loss) || !isfinite(ack->loss_weight) || ack->loss_weight < 0) return false;
    for (int i = 0; i < 5; i++) ack->clock[i] = get64(bytes + 48 + 8 * i);
    return ack->outcome <= LN_SYNC_NO_OUTCOME && ack->examples <= ack->batch &&
           ack->first_example <= ack->batch - ack->examples;
}

void ln_sync_beat_write(const ln_sync_beat *beat, unsigned char *bytes) {
    put64(bytes, beat->clock);
    put64(bytes + 8, beat->peer_clock);
    put64(bytes + 16, beat->received);
    put64(bytes + 24, 0);
}

bool ln_sync_beat_read(ln_sync_beat *beat, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_BEAT_BYTES || !zero(bytes + 24, 8)) return false;
    *beat = (ln_sync_beat){get64(bytes), get64(bytes + 8), get64(bytes + 16)};
    return true;
}

void ln_sync_stored_write(const ln_sync_stored *stored, unsigned char *bytes) {
    memset(bytes, 0, LN_SYNC_STORED_BYTES);
    bytes[0] = stored->outcome;
    put64(bytes + 8, stored->version);
}

bool ln_sync_stored_read(ln_sync_stored *stored, const unsigned char *bytes, size_t length) {
    if (length != LN_SYNC_STORED_BYTES || !zero(bytes + 1, 7)) return false;
    *stored = (ln_sync_stored){bytes[0], get64(bytes + 8)};
    return stored->outcome == LN_SYNC_APPLIED || stored->outcome == LN_SYNC_NOT_FINITE;
}

size_t ln_sync_saved_write(const ln_sync_saved *saved, unsigned char *bytes) {
    const size_t size = text_length(saved->text, LN_SYNC_SAVED_TEXT);
    put32(bytes, saved->status);
    put32(bytes + 4, (uint32_t)size);
    memcpy(bytes + LN_SYNC_SAVED_BYTES, saved->text, size);
    return LN_SYNC_SAVED_BYTES + size;
}

bool ln_sync_saved_read(ln_sync_saved *saved, const unsigned char *bytes, size_t length) {
    if (length < LN_SYNC_SAVED_BYTES) return false;
    saved->status = get32(bytes);
    return get_text(saved->text, LN_SYNC_SAVED_TEXT, bytes, length, LN_SYNC_SAVED_BYTES, get32(bytes + 4));
}
