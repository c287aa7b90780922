/* worker_put.c - sets the value of a variable: sends each server its part, and waits until all have stored it. After a
 * lost connection the same number is sent again, and the server stores the value once. */
#include "sync/worker/worker_put.h"

#include "net/error.h"
#include "net/stream_send.h"
#include "sync/common/combine.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_state.h"

#include <string.h>

static bool is_finite(const void *data, uint64_t elements, int dtype) {
    const uint16_t *half = data, exponent = dtype == LINNET_F16 ? 0x7c00 : 0x7f80;
    if (dtype == LINNET_F32 || dtype == LINNET_F64) return ln_sync_size_of(data, elements, dtype) != LN_SYNC_INFINITE;
    for (uint64_t i = 0; (dtype == LINNET_F16 || dtype == LINNET_BF16) && i < elements; i++)
        if ((half[i] & exponent) == exponent) return false;
    return true;
}

/* Returns the part of the tensor that this link's server has, or NULL. */
static worker_part *part_of(const worker_link *link, const worker_tensor *tensor) {
    for (uint32_t i = 0; link->parts && i < link->manifest->count; i++)
        if (link->parts[i].tensor == tensor) return &link->parts[i];
    return NULL;
}

static linnet_status check(const ln_sync_worker *worker, const worker_tensor *tensor, const char *name,
                           const void *data, size_t bytes, linnet_error *error) {
    const worker_part *part = NULL;
    if (worker->config.read_only && !worker->config.writer) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a read-only worker may not put values");
        return ln_sync_hint(error, "create the worker with `writer` instead of `read_only`");
    }
    for (int i = 0; tensor && !part && i < worker->link_count; i++) part = part_of(&worker->links[i], tensor);
    if (!part) {
        ln_sync_fail(error, LINNET_UNKNOWN_NAME, "no server has a variable of this name whose value can be put");
        ln_sync_at(error, name);
        return ln_sync_hint(error, "workers can put the variables that they pull; the state of the optimizer stays at "
                                   "the servers");
    }
    if (part->variable->entry.kind == LN_SYNC_READ_ONLY) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "only the servers' update changes this variable");
        return ln_sync_at(error, name);
    }
    if (bytes != tensor->rows * tensor->row_bytes) {
        ln_sync_fail(error, LINNET_WRONG_SHAPE, "the value has the wrong size");
        ln_sync_at(error, name);
        ln_sync_expected(error, "%llu bytes of %s", (unsigned long long)(tensor->rows * tensor->row_bytes),
                         linnet_dtype_name(tensor->dtype));
        return ln_sync_got(error, "%zu bytes", bytes);
    }
    if (!is_finite(data, tensor->rows * tensor->row_elements, tensor->dtype)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                     "the value has NaN or infinity, and servers keep only finite values");
        return ln_sync_at(error, name);
    }
    return LINNET_OK;
}

linnet_status ln_sync_worker_begin_put(ln_sync_worker *worker, const char *name, const void *data, size_t bytes,
                                       linnet_error *error) {
    const worker_tensor *tensor = ln_worker_find(worker, name);
    const linnet_status status = check(worker, tensor, name, data, bytes, error);
    if (status) return status;
    worker->put.tensor = tensor;
    worker->put.data = data;
    worker->put.number++;
    ln_worker_begin(worker, WORKER_PUT);
    return LINNET_OK;
}

void ln_worker_put(worker_link *link) {
    const ln_sync_worker *worker = link->worker;
    const worker_part *part = part_of(link, worker->put.tensor);
    if (!part) link->done = true; /* this server has no rows of the table, or other variables */
    if (!part || link->sent) return;
    const ln_sync_tensor *e = &part->variable->entry;
    const ln_net_header header = {.type = LN_SYNC_PUT, .step = worker->put.number, .tensor = e->number};
    const unsigned char *data = worker->put.data + e->first_row * worker->put.tensor->row_bytes;
    if (!ln_net_stream_bulk(link->stream, &header, data, part->variable->bytes, 0)) return;
    link->queued++;
    link->sent = true;
}

ln_net_refusal ln_worker_take_stored(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_stored stored;
    if (!ln_sync_stored_read(&stored, payload, header->length)) return LN_NET_MALFORMED;
    if (link->worker->work != WORKER_PUT || header->step != link->worker->put.number)
        return LN_NET_FINE; /* that call was given up */
    link->outcome = stored.outcome;
    link->done = true;
    return LN_NET_FINE;
}

/* All servers have answered. The next step pulls the value. */
linnet_status ln_worker_was_put(ln_sync_worker *worker, linnet_error *error) {
    worker->fresh = false;
    for (int i = 0; i < worker->link_count; i++)
        if (part_of(&worker->links[i], worker->put.tensor) && worker->links[i].outcome != LN_SYNC_APPLIED) {
            ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a server did not store the value, which has NaN or infinity");
            return ln_sync_at(error, worker->links[i].address);
        }
    return LINNET_OK;
}
