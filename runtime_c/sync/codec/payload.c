/* payload.c - the codec of all messages: converts structs to bytes and back, with the checks that need no state.
 * docs/protocol.md, "Frames", describes the bytes. */
#include "sync/codec/payload.h"

#include "net/bytes.h"

#include <math.h>

/* A member of a struct, and where it lies in the payload. Bytes that are in no field are reserved: they are 0. */
typedef struct field {
    uint8_t at, width, count; /* `count` numbers of `width` bytes each */
    bool text;                /* a text that is padded with 0 */
    uint16_t member;          /* its offset in the struct */
} field;
typedef struct layout {
    const field *fields; /* in the order of their places */
    size_t count;
    bool (*valid)(const void *message); /* checks ranges; NULL: all values are valid */
    uint16_t text, most;                /* TEXT: offset of the text in the struct, and its longest length */
} layout;

#define MEMBER(type, name) ((type *)0)->name
#define NUMBER(at, type, name) {at, sizeof MEMBER(type, name), 1, false, offsetof(type, name)}
#define ARRAY(at, type, name)                                                                                          \
    {at, sizeof *MEMBER(type, name), sizeof MEMBER(type, name) / sizeof *MEMBER(type, name), false,                    \
     offsetof(type, name)}
#define PADDED(at, type, name) {at, 1, sizeof MEMBER(type, name) - 1, true, offsetof(type, name)}
#define FIELDS(list) list, sizeof(list) / sizeof *(list)

/* ---- the messages --------------------------------------------------------------------------------------------------
 */

static const field hello_fields[] = {
    NUMBER(0, ln_sync_hello, lowest),       NUMBER(1, ln_sync_hello, highest),    NUMBER(2, ln_sync_hello, role),
    NUMBER(4, ln_sync_hello, encodings),    ARRAY(8, ln_sync_hello, job),         ARRAY(24, ln_sync_hello, nonce),
    NUMBER(40, ln_sync_hello, incarnation), NUMBER(48, ln_sync_hello, last_step), NUMBER(56, ln_sync_hello, epoch),
    NUMBER(64, ln_sync_hello, worker),      NUMBER(68, ln_sync_hello, group),     NUMBER(72, ln_sync_hello, chunk),
    NUMBER(76, ln_sync_hello, heartbeat),   PADDED(80, ln_sync_hello, name),
};
static bool hello_is_valid(const void *message) {
    const ln_sync_hello *hello = message;
    return hello->lowest <= hello->highest && hello->role <= LN_SYNC_WRITER && hello->chunk >= LN_NET_CHUNK_MIN;
}
static const layout hello_layout = {FIELDS(hello_fields), hello_is_valid, 0, 0};

static const field welcome_fields[] = {
    NUMBER(0, ln_sync_welcome, version),     NUMBER(1, ln_sync_welcome, flags),
    NUMBER(2, ln_sync_welcome, shard),       NUMBER(4, ln_sync_welcome, shards),
    NUMBER(8, ln_sync_welcome, encodings),   NUMBER(12, ln_sync_welcome, worker),
    ARRAY(16, ln_sync_welcome, nonce),       ARRAY(32, ln_sync_welcome, server_nonce),
    NUMBER(48, ln_sync_welcome, epoch),      NUMBER(56, ln_sync_welcome, step),
    NUMBER(64, ln_sync_welcome, parameters), NUMBER(72, ln_sync_welcome, applied),
    NUMBER(80, ln_sync_welcome, tensors),    NUMBER(84, ln_sync_welcome, chunk),
    NUMBER(88, ln_sync_welcome, heartbeat),  NUMBER(92, ln_sync_welcome, lease),
};
static bool welcome_is_valid(const void *message) {
    const ln_sync_welcome *welcome = message;
    return welcome->version == LN_NET_VERSION && welcome->flags < 4 && welcome->shard < welcome->shards &&
           welcome->tensors <= LN_SYNC_TENSORS_MAX && welcome->chunk >= LN_NET_CHUNK_MIN &&
           welcome->chunk <= LN_NET_CHUNK_MAX && welcome->heartbeat > 0 && welcome->lease > 0;
}
static const layout welcome_layout = {FIELDS(welcome_fields), welcome_is_valid, 0, 0};

static const field ready_fields[] = {ARRAY(0, ln_sync_ready, server_nonce), ARRAY(16, ln_sync_ready, manifest)};
static const layout ready_layout = {FIELDS(ready_fields), NULL, 0, 0};

static const field pull_fields[] = {
    NUMBER(0, ln_sync_pull, tensor),
    NUMBER(4, ln_sync_pull, flags),
    NUMBER(8, ln_sync_pull, version),
    ARRAY(16, ln_sync_pull, digest),
};
static bool pull_is_valid(const void *message) {
    const ln_sync_pull *entry = message;
    return entry->flags <= LN_SYNC_PULL_DIGEST;
}
static const layout pull_layout = {FIELDS(pull_fields), pull_is_valid, 0, 0};

static const field same_fields[] = {NUMBER(0, ln_sync_same, tensor), NUMBER(8, ln_sync_same, version)};
static const layout same_layout = {FIELDS(same_fields), NULL, 0, 0};

static const field commit_fields[] = {
    NUMBER(0, ln_sync_commit, pushes),   NUMBER(4, ln_sync_commit, flags),     NUMBER(8, ln_sync_commit, weight),
    NUMBER(16, ln_sync_commit, version), NUMBER(24, ln_sync_commit, computed), NUMBER(32, ln_sync_commit, began),
    NUMBER(40, ln_sync_commit, loss),
};
static bool commit_is_valid(const void *message) {
    const ln_sync_commit *commit = message;
    if (commit->flags & ~(uint32_t)(LN_SYNC_COMMIT_PULL | LN_SYNC_COMMIT_ABANDON)) return false;
    if (commit->flags & LN_SYNC_COMMIT_ABANDON) return commit->weight == 0 && commit->pushes == 0;
    return isfinite(commit->weight) && commit->weight > 0;
}
static const layout commit_layout = {FIELDS(commit_fields), commit_is_valid, 0, 0};

static const field ack_fields[] = {
    NUMBER(0, ln_sync_ack, outcome),        NUMBER(8, ln_sync_ack, version),       NUMBER(16, ln_sync_ack, next),
    NUMBER(24, ln_sync_ack, first_example), NUMBER(32, ln_sync_ack, examples),     NUMBER(40, ln_sync_ack, batch),
    ARRAY(48, ln_sync_ack, clock),          NUMBER(88, ln_sync_ack, loss),         NUMBER(96, ln_sync_ack, workers),
    NUMBER(100, ln_sync_ack, members),      NUMBER(104, ln_sync_ack, loss_weight),
};
static bool ack_is_valid(const void *message) {
    const ln_sync_ack *ack = message;
    return isfinite(ack->loss) && isfinite(ack->loss_weight) && ack->loss_weight >= 0 &&
           ack->outcome <= LN_SYNC_NO_OUTCOME && ack->examples <= ack->batch &&
           ack->first_example <= ack->batch - ack->examples;
}
static const layout ack_layout = {FIELDS(ack_fields), ack_is_valid, 0, 0};

static const field heartbeat_fields[] = {
    NUMBER(0, ln_sync_heartbeat, clock),
    NUMBER(8, ln_sync_heartbeat, peer_clock),
    NUMBER(16, ln_sync_heartbeat, received),
};
static const layout heartbeat_layout = {FIELDS(heartbeat_fields), NULL, 0, 0};

static const field saved_fields[] = {NUMBER(0, ln_sync_saved, status)};
static const layout saved_layout = {FIELDS(saved_fields), NULL, offsetof(ln_sync_saved, text), LN_SYNC_SAVED_TEXT};

static const field stored_fields[] = {NUMBER(0, ln_sync_stored, outcome), NUMBER(8, ln_sync_stored, version)};
static bool stored_is_valid(const void *message) {
    const ln_sync_stored *stored = message;
    return stored->outcome == LN_SYNC_APPLIED || stored->outcome == LN_SYNC_NOT_FINITE;
}
static const layout stored_layout = {FIELDS(stored_fields), stored_is_valid, 0, 0};

/* ---- the codec -----------------------------------------------------------------------------------------------------
 */

/* By type: where the fields of its struct lie, and the bytes of the struct. */
static const struct {
    const layout *layout;
    uint16_t size;
} payloads[LN_SYNC_TYPES] = {
#define LAYOUT_STRUCT(lower) &lower##_layout
#define LAYOUT_ENTRIES(lower) &lower##_layout
#define LAYOUT_TEXT(lower) &lower##_layout
#define LAYOUT_OWN(lower) NULL
#define LAYOUT_NONE(lower) NULL
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    [number] = {LAYOUT_##form(lower), size},
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
};

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

static void write_number(const void *member, int width, unsigned char *bytes) {
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (width) {
    case 1: memcpy(bytes, member, 1); break;
    case 2: memcpy(&u16, member, sizeof u16), put16(bytes, u16); break;
    case 4: memcpy(&u32, member, sizeof u32), put32(bytes, u32); break;
    default: memcpy(&u64, member, sizeof u64), put64(bytes, u64); break;
    }
}

static void read_number(void *member, int width, const unsigned char *bytes) {
    const uint16_t u16 = width == 2 ? get16(bytes) : 0;
    const uint32_t u32 = width == 4 ? get32(bytes) : 0;
    const uint64_t u64 = width == 8 ? get64(bytes) : 0;
    switch (width) {
    case 1: memcpy(member, bytes, 1); break;
    case 2: memcpy(member, &u16, sizeof u16); break;
    case 4: memcpy(member, &u32, sizeof u32); break;
    default: memcpy(member, &u64, sizeof u64); break;
    }
}

size_t ln_sync_payload_write(ln_sync_type type, const void *message, unsigned char *bytes) {
    const layout *layout = payloads[type].layout;
    const size_t size = payloads[type].size;
    memset(bytes, 0, size);
    for (const field *f = layout->fields; f < layout->fields + layout->count; f++) {
        const char *member = (const char *)message + f->member;
        if (f->text)
            memcpy(bytes + f->at, member, text_length(member, f->count));
        else
            for (int i = 0; i < f->count; i++)
                write_number(member + i * f->width, f->width, bytes + f->at + i * f->width);
    }
    if (!layout->most) return size;
    const char *text = (const char *)message + layout->text;
    const size_t length = text_length(text, layout->most);
    put32(bytes + size - 4, (uint32_t)length);
    memcpy(bytes + size, text, length);
    return size + length;
}

/* Reads the fields, and checks that all bytes between them are 0. `size`: bytes of fields and reserved bytes. */
static bool read_fields(const layout *layout, void *message, const unsigned char *bytes, size_t size) {
    size_t end = 0;
    for (const field *f = layout->fields; f < layout->fields + layout->count; f++) {
        char *member = (char *)message + f->member;
        if (!zero(bytes + end, f->at - end) || (f->text && !padded(bytes + f->at, f->count))) return false;
        for (int i = 0; i < f->count; i++) read_number(member + i * f->width, f->width, bytes + f->at + i * f->width);
        if (f->text) member[f->count] = 0;
        end = f->at + (size_t)f->width * f->count;
    }
    return zero(bytes + end, size - end);
}

bool ln_sync_payload_read(ln_sync_type type, void *message, const unsigned char *bytes, size_t length) {
    const layout *layout = payloads[type].layout;
    const size_t size = payloads[type].size;
    if (layout->most) { /* the last 4 bytes before the text are its length */
        if (length < size || !read_fields(layout, message, bytes, size - 4)) return false;
        if (!get_text((char *)message + layout->text, layout->most, bytes, length, size, get32(bytes + size - 4)))
            return false;
    } else if (length != size || !read_fields(layout, message, bytes, size)) {
        return false;
    }
    return !layout->valid || layout->valid(message);
}

/* ---- TENSORS, whose entries have different sizes -------------------------------------------------------------------
 */

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
