/* worker_pull.c - receives values: whole tensors, directly into the store, and rows of tables.
 * A link asks for everything that may have changed, and counts the answers that are missing. */
#include "sync/worker/worker_pull.h"

#include "net/error.h"
#include "net/stream_send.h"
#include "sync/codec/compress.h"
#include "sync/codec/digest.h"
#include "sync/codec/manifest.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_state.h"

#include "linnet_ext.h"

#include <string.h>

static uint64_t part_rows(const worker_part *part) {
    const ln_sync_tensor *e = &part->variable->entry;
    return e->rank ? e->dims[0] : 1;
}

static void write_word(unsigned char *bytes, uint64_t word) {
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(word >> 8 * i);
}

static void write_entry(const worker_link *link, const worker_part *part, unsigned char *bytes) {
    ln_sync_pull entry = {.tensor = part->variable->entry.number, .version = part->version};
    /* Values that local steps have changed do not equal any version of the server. */
    if (link->worker->config.keep_pulled) entry.version = LN_SYNC_NONE;
    if (entry.version == LN_SYNC_NONE && !ln_sync_pulled_as(part->variable, link->encodings)) {
        uint64_t digest[2] = {0, 0};
        ln_sync_digest(part->data, (size_t)part->variable->bytes, digest);
        entry.flags = LN_SYNC_PULL_DIGEST;
        write_word(entry.digest, digest[0]);
        write_word(entry.digest + 8, digest[1]);
    }
    ln_sync_pull_write(&entry, bytes);
}

static void await(worker_link *link, worker_part *part) {
    part->awaited = true;
    part->taken = 0;
    link->missing++;
}

void ln_worker_await(worker_link *link) {
    for (uint32_t i = 0; i < link->manifest->count; i++)
        if (link->parts[i].data) await(link, &link->parts[i]);
    link->asked = link->manifest->count;
}

void ln_worker_ask(worker_link *link) {
    enum { ENTRIES = LN_NET_CONTROL_MAX / LN_SYNC_PULL_BYTES };
    unsigned char payload[LN_NET_CONTROL_MAX];
    while (link->asked < link->manifest->count) {
        uint32_t next = link->asked, count = 0;
        for (; next < link->manifest->count && count < ENTRIES; next++)
            if (link->parts[next].data) write_entry(link, &link->parts[next], payload + count++ * LN_SYNC_PULL_BYTES);
        if (count && !ln_worker_send(link, LN_SYNC_PULL, 0, payload, (size_t)count * LN_SYNC_PULL_BYTES)) return;
        for (; link->asked < next; link->asked++)
            if (link->parts[link->asked].data) await(link, &link->parts[link->asked]);
    }
    link->held = true;
    link->done = link->missing == 0;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* Returns which requested rows this part has: [*first, *first + count) of the list. */
static uint64_t range(const worker_part *part, const ln_sync_request *list, uint64_t *first) {
    const int64_t begin = (int64_t)part->variable->entry.first_row, end = begin + (int64_t)part_rows(part);
    uint64_t low = 0, high = list->count;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (list->rows[middle] < begin)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (low < list->count && list->rows[low] < end) low++;
    return low - *first;
}

static worker_part *part_of(const worker_link *link, const char *table) {
    for (uint32_t i = 0; i < link->manifest->count; i++)
        if (link->parts[i].tensor && !strcmp(link->parts[i].tensor->info.name, table)) return &link->parts[i];
    return NULL;
}

void ln_worker_ask_rows(worker_link *link) {
    const ln_sync_worker *worker = link->worker;
    for (; link->asked < (uint32_t)worker->request_count; link->asked++) {
        const ln_sync_request *list = &worker->requests[link->asked];
        worker_part *part = part_of(link, list->table);
        uint64_t first, count;
        if (!part || (count = range(part, list, &first)) == 0) continue;
        const uint32_t number = part->variable->entry.number;
        const ln_net_header header = {.type = LN_SYNC_ROWS, .tensor = number};
        if (!ln_net_stream_bulk(link->stream, &header, list->rows + first, count * sizeof(int64_t), link->asked))
            return;
        link->queued++;
        link->missing++;
        part->rows_awaited = true;
        part->rows_at = (unsigned char *)list->data + first * part->variable->row_bytes;
        part->rows_bytes = count * part->variable->row_bytes;
        part->rows_taken = 0;
    }
    link->done = link->missing == 0;
}

linnet_status ln_sync_worker_begin_rows(ln_sync_worker *worker, const ln_sync_request *tables, int count,
                                        linnet_error *error) {
    for (int i = 0; i < count; i++) {
        const worker_tensor *tensor = ln_worker_find(worker, tables[i].table);
        const size_t n = tables[i].count;
        if (!tensor || !tensor->row_bytes || tensor->info.rank == 0) {
            ln_sync_fail(error, LINNET_UNKNOWN_NAME, "no server has a table of this name");
            return ln_sync_at(error, tables[i].table);
        }
        if (n && (tables[i].rows[0] < 0 || (uint64_t)tables[i].rows[n - 1] >= tensor->rows)) {
            ln_sync_fail(error, LINNET_INDEX_OUT_OF_RANGE, "a row number is beyond the table");
            ln_sync_at(error, tables[i].table);
            ln_sync_expected(error, "0 to %llu", (unsigned long long)tensor->rows - 1);
            return ln_sync_got(error, "%lld",
                               (long long)(tables[i].rows[0] < 0 ? tables[i].rows[0] : tables[i].rows[n - 1]));
        }
    }
    worker->requests = tables;
    worker->request_count = count;
    ln_worker_begin(worker, WORKER_ROWS);
    return LINNET_OK;
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

/* Returns the size of a message of values that take `bytes` as f32. */
static uint64_t message_bytes(uint64_t bytes, int encoding) { return encoding ? bytes / 2 : bytes; }

/* Turns f16 or bf16 values into f32 in place. They arrive in the upper half of the memory at `data`, and each value is
 * decoded when both of its bytes are there: those from `from` to `to` of the message. The f32 values never reach the
 * bytes that are still encoded. */
static void widen(unsigned char *data, uint64_t bytes, int encoding, uint64_t from, uint64_t to) {
    enum { BLOCK = 2048 };
    unsigned char block[2 * BLOCK];
    for (uint64_t i = from / 2, n; encoding && i < to / 2; i += n) {
        n = to / 2 - i < BLOCK ? to / 2 - i : BLOCK;
        memcpy(block, data + bytes / 2 + 2 * i, (size_t)n * 2);
        ln_sync_decode(encoding, block, (size_t)n * 2, (float *)(void *)(data + 4 * i), n);
    }
}

ln_net_refusal ln_worker_place_data(worker_link *link, const ln_net_header *header, void **destination) {
    if (header->tensor >= link->manifest->count) return LN_NET_UNKNOWN_TENSOR;
    worker_part *part = &link->parts[header->tensor];
    const ln_sync_variable *v = part->variable;
    const int agreed = ln_sync_pulled_as(v, link->encodings);
    if (header->encoding != LN_SYNC_PLAIN && header->encoding != agreed) return LN_NET_WRONG_ENCODING;
    if (header->flags & LN_SYNC_FLAG_ROWS) {
        if (!part->rows_awaited || header->offset != part->rows_taken) return LN_NET_UNEXPECTED;
        if (header->total != message_bytes(part->rows_bytes, header->encoding)) return LN_NET_WRONG_LENGTH;
        if (header->offset && header->encoding != part->rows_encoding) return LN_NET_MALFORMED;
        part->rows_encoding = header->encoding;
        *destination = part->rows_at + (part->rows_bytes - header->total) + header->offset;
        return LN_NET_FINE;
    }
    if (!part->awaited || header->offset != part->taken) return LN_NET_UNEXPECTED;
    if (header->total != message_bytes(v->bytes, header->encoding)) return LN_NET_WRONG_LENGTH;
    if (header->offset && (header->step != part->arriving || header->encoding != part->encoding))
        return LN_NET_MALFORMED;
    part->arriving = header->step;
    part->encoding = header->encoding;
    part->version = LN_SYNC_NONE; /* the version is unknown until the value is complete */
    *destination = part->data + (v->bytes - header->total) + header->offset;
    return LN_NET_FINE;
}

static void came(worker_link *link) {
    if (--link->missing) return;
    const bool all = link->worker->work == WORKER_ROWS ? link->asked == (uint32_t)link->worker->request_count
                                                       : link->asked == link->manifest->count;
    link->done = link->done || all;
}

ln_net_refusal ln_worker_take_data(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_worker *worker = link->worker;
    worker_part *part = &link->parts[header->tensor];
    (void)payload;
    if (header->flags & LN_SYNC_FLAG_ROWS) {
        part->rows_taken += header->length;
        widen(part->rows_at, part->rows_bytes, header->encoding, header->offset, part->rows_taken);
        if (part->rows_taken < header->total) return LN_NET_FINE;
        part->rows_awaited = false;
        came(link);
        return LN_NET_FINE;
    }
    part->taken += header->length;
    widen(part->data, part->variable->bytes, header->encoding, header->offset, part->taken);
    if (part->taken < header->total) return LN_NET_FINE;
    part->awaited = false;
    part->version = part->arriving;
    if (part->version > link->version) link->version = part->version;
    if (part->tensor->pulled)
        memcpy(part->tensor->pulled + (part->data - part->tensor->data), part->data, (size_t)part->variable->bytes);
    /* Announces the write to the store, because the store may keep packed copies. No run is in progress. */
    linnet_store_data(worker->store, part->tensor->info.name, LINNET_WRITE, NULL);
    worker->info.tensors_pulled++;
    came(link);
    return LN_NET_FINE;
}

ln_net_refusal ln_worker_take_same(worker_link *link, const ln_net_header *header, const void *payload) {
    const size_t length = header->length;
    ln_sync_same entry;
    if (length % LN_SYNC_SAME_BYTES) return LN_NET_MALFORMED;
    for (size_t i = 0; ln_sync_same_read(&entry, payload, length, i); i++) {
        if (entry.tensor >= link->manifest->count) return LN_NET_UNKNOWN_TENSOR;
        worker_part *part = &link->parts[entry.tensor];
        if (!part->awaited || part->taken) return LN_NET_UNEXPECTED;
        part->awaited = false;
        part->version = entry.version;
        if (part->version > link->version) link->version = part->version;
        if (part->tensor->pulled)
            memcpy(part->tensor->pulled + (part->data - part->tensor->data), part->data, (size_t)part->variable->bytes);
        link->worker->info.tensors_same++;
        came(link);
    }
    return LN_NET_FINE;
}

void ln_sync_worker_begin_pull(ln_sync_worker *worker) { ln_worker_begin(worker, WORKER_PULL); }

void ln_worker_pulled(ln_sync_worker *worker) {
    const uint64_t now = worker->host.clock(worker->host.context);
    linnet_store_publish(worker->store, NULL); /* a snapshot sees all values of a pull or none of them */
    worker->info.pull_ns = now - worker->begun_at;
    worker->values_at = now;
    worker->fresh = true;
    worker->differs = false;
    for (int i = 0; i < worker->link_count; i++) worker->links[i].base = worker->links[i].version;
}

bool ln_sync_worker_fresh(const ln_sync_worker *worker) { return worker->fresh; }
