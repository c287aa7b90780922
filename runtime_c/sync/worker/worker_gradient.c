/* worker_gradient.c - makes the messages of a push from the gradients in a session's outputs, or from the changes of
 * local steps. Rows that occur several times are summed here, so that each row is sent once. */
#include "sync/worker/worker_gradient.h"

#include "net/error.h"
#include "sync/codec/compress.h"
#include "sync/codec/compress_size.h"
#include "sync/common/rows.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPRESSED_FROM = 1024 }; /* elements; a smaller tensor is sent plain, because compression saves too little */

static size_t gradient_size(const worker_tensor *tensor) { return tensor->dtype == LINNET_F64 ? 8 : 4; }

static linnet_status no_memory(linnet_error *error) {
    return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the gradients to push");
}

/* ---- outputs ---------------------------------------------------------------------------------------------------- */

/* Finds the output of this name. *at is the number that it had the last time. */
static linnet_status output(linnet_session *session, const char *name, int *at, linnet_tensor_info *info) {
    linnet_status status = *at >= 0 ? linnet_session_get_output(session, *at, info) : LINNET_INVALID_ARGUMENT;
    if (!status && !strcmp(info->name, name)) return LINNET_OK;
    for (*at = 0; !(status = linnet_session_get_output(session, *at, info)); ++*at)
        if (!strcmp(info->name, name)) return LINNET_OK;
    *at = -1;
    return LINNET_UNKNOWN_NAME;
}

static linnet_status lacking(const char *name, linnet_error *error) {
    ln_sync_fail(error, LINNET_UNKNOWN_NAME, "the session does not have an output that must be pushed");
    ln_sync_at(error, name);
    return ln_sync_hint(error, "give a session of signature 'grad' that fetches all of its outputs");
}

static linnet_status unfit(const worker_tensor *tensor, const char *what, const linnet_tensor_info *info,
                           linnet_error *error) {
    ln_sync_fail(error, LINNET_WRONG_SHAPE, "the %s do not match the variable", what);
    ln_sync_at(error, tensor->info.name);
    ln_sync_expected(error, "%llu rows of %llu elements", (unsigned long long)tensor->rows,
                     (unsigned long long)tensor->row_elements);
    return ln_sync_got(error, "%s, %zu bytes", linnet_dtype_name(info->dtype), info->bytes);
}

/* Makes the row numbers ascending and unique. Rows with the same number are added in their order. */
static linnet_status sum_rows(ln_sync_worker *worker, worker_tensor *tensor, const void *ids, int dtype, uint64_t n,
                              const void *rows, linnet_error *error) {
    const bool wide = tensor->dtype == LINNET_F64;
    const size_t bytes = (size_t)tensor->row_elements * gradient_size(tensor);
    if (!ln_worker_room(worker, &tensor->places, &tensor->places_room, n * 2 * sizeof(ln_sync_rows_place)) ||
        !ln_worker_room(worker, (void **)&tensor->looked_up, &tensor->looked_up_room, n * sizeof(int64_t)) ||
        !ln_worker_room(worker, (void **)&tensor->ids, &tensor->ids_room, n * sizeof(int64_t)) ||
        !ln_worker_room(worker, &tensor->sums, &tensor->sums_room, n * bytes))
        return no_memory(error);
    for (uint64_t i = 0; i < n; i++) {
        const int64_t row = dtype == LINNET_I32 ? ((const int32_t *)ids)[i] : ((const int64_t *)ids)[i];
        tensor->looked_up[i] = row;
        if (row >= 0 && (uint64_t)row < tensor->rows) continue;
        ln_sync_fail(error, LINNET_INDEX_OUT_OF_RANGE, "a gradient has a row number beyond the table");
        ln_sync_at(error, tensor->info.name);
        ln_sync_expected(error, "0 to %llu", (unsigned long long)tensor->rows - 1);
        return ln_sync_got(error, "%lld", (long long)row);
    }
    const ln_sync_rows_part part = {.ids = tensor->looked_up, .rows = rows, .count = n, .weight = 1};
    tensor->count =
        ln_sync_rows_sum(&part, 1, tensor->row_elements, wide, 1, tensor->places, tensor->ids, tensor->sums);
    tensor->gradient = tensor->sums;
    return LINNET_OK;
}

static linnet_status collect_sparse(ln_sync_worker *worker, worker_tensor *tensor, linnet_session *session,
                                    linnet_error *error) {
    char name[512];
    linnet_tensor_info rows = {.struct_size = sizeof rows}, ids = rows;
    snprintf(name, sizeof name, "gradient/%s/rows", tensor->info.name);
    if (output(session, name, &tensor->output, &rows)) return lacking(name, error);
    snprintf(name, sizeof name, "gradient/%s/ids", tensor->info.name);
    if (output(session, name, &tensor->ids_output, &ids)) return lacking(name, error);
    const uint64_t n = ids.rank == 1 ? (uint64_t)ids.shape[0] : 0;
    if (ids.rank != 1 || (ids.dtype != LINNET_I32 && ids.dtype != LINNET_I64))
        return unfit(tensor, "row numbers of the gradient", &ids, error);
    if (rows.dtype != (tensor->dtype == LINNET_F64 ? LINNET_F64 : LINNET_F32) ||
        rows.bytes != n * tensor->row_elements * gradient_size(tensor))
        return unfit(tensor, "rows of the gradient", &rows, error);
    return sum_rows(worker, tensor, linnet_session_output(session, tensor->ids_output), ids.dtype, n,
                    linnet_session_output(session, tensor->output), error);
}

static linnet_status collect_dense(worker_tensor *tensor, linnet_session *session, linnet_error *error) {
    char name[512];
    linnet_tensor_info info = {.struct_size = sizeof info};
    snprintf(name, sizeof name, "gradient/%s", tensor->info.name);
    if (output(session, name, &tensor->output, &info)) return lacking(name, error);
    if (info.dtype != (tensor->dtype == LINNET_F64 ? LINNET_F64 : LINNET_F32) ||
        info.bytes != tensor->rows * tensor->row_elements * gradient_size(tensor))
        return unfit(tensor, "elements of the gradient", &info, error);
    tensor->gradient = linnet_session_output(session, tensor->output);
    return LINNET_OK;
}

/* Returns the values as f32; f16 and bf16 are converted into separate memory. */
static const void *as_f32(ln_sync_worker *worker, worker_tensor *tensor, const void *values) {
    const uint64_t n = tensor->rows * tensor->row_elements;
    if (tensor->dtype == LINNET_F32 || tensor->dtype == LINNET_F64) return values;
    if (!ln_worker_room(worker, &tensor->converted, &tensor->converted_room, n * sizeof(float))) return NULL;
    const int encoding = tensor->dtype == LINNET_F16 ? LN_SYNC_F16 : LN_SYNC_BF16;
    return ln_sync_decode(encoding, values, n * 2, tensor->converted, n) ? NULL : tensor->converted;
}

static linnet_status collect_averaged(ln_sync_worker *worker, linnet_error *error) {
    for (int i = 0; i < worker->tensor_count; i++) {
        worker_tensor *tensor = &worker->tensors[i];
        if (tensor->averaged && !(tensor->gradient = as_f32(worker, tensor, tensor->data))) return no_memory(error);
    }
    return LINNET_OK;
}

linnet_status ln_worker_collect(ln_sync_worker *worker, linnet_session *session, linnet_error *error) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    linnet_status status = LINNET_OK;
    for (int i = 0; !status && i < worker->tensor_count; i++) {
        worker_tensor *tensor = &worker->tensors[i];
        if (!tensor->pushed) continue;
        status =
            tensor->sparse ? collect_sparse(worker, tensor, session, error) : collect_dense(tensor, session, error);
    }
    worker->commit.loss = (double)NAN;
    if (!status && !output(session, "loss", &worker->loss_output, &info)) {
        const void *loss = linnet_session_output(session, worker->loss_output);
        if (info.dtype == LINNET_F32 && info.bytes == 4) worker->commit.loss = *(const float *)loss;
        if (info.dtype == LINNET_F64 && info.bytes == 8) worker->commit.loss = *(const double *)loss;
    }
    return status ? status : collect_averaged(worker, error);
}

/* ---- local steps ------------------------------------------------------------------------------------------------ */

/* Replaces `pulled` by (pulled - current). f16 and bf16 are too narrow for the differences, which are then written to
 * separate memory. */
static linnet_status subtract(ln_sync_worker *worker, worker_tensor *tensor, linnet_error *error) {
    const uint64_t n = tensor->rows * tensor->row_elements;
    if (tensor->dtype == LINNET_F32) {
        float *pulled = (float *)(void *)tensor->pulled;
        const float *now = (const float *)(const void *)tensor->data;
        for (uint64_t i = 0; i < n; i++) pulled[i] -= now[i];
        tensor->gradient = pulled;
    } else if (tensor->dtype == LINNET_F64) {
        double *pulled = (double *)(void *)tensor->pulled;
        const double *now = (const double *)(const void *)tensor->data;
        for (uint64_t i = 0; i < n; i++) pulled[i] -= now[i];
        tensor->gradient = pulled;
    } else {
        const int encoding = tensor->dtype == LINNET_F16 ? LN_SYNC_F16 : LN_SYNC_BF16;
        float *difference, block[256];
        if (!as_f32(worker, tensor, tensor->pulled)) return no_memory(error);
        difference = tensor->converted;
        for (uint64_t i = 0; i < n; i += 256) {
            const uint64_t m = n - i < 256 ? n - i : 256;
            ln_sync_decode(encoding, tensor->data + i * 2, m * 2, block, m);
            for (uint64_t k = 0; k < m; k++) difference[i + k] -= block[k];
        }
        tensor->gradient = difference;
    }
    return LINNET_OK;
}

static bool all_zero(const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return false;
    return true;
}

/* Drops rows that have not changed, so that they are not sent. Moves the other rows to the front. */
static linnet_status pick_rows(ln_sync_worker *worker, worker_tensor *tensor, linnet_error *error) {
    const size_t bytes = (size_t)tensor->row_elements * gradient_size(tensor);
    unsigned char *rows = (unsigned char *)(uintptr_t)tensor->gradient;
    if (!ln_worker_room(worker, (void **)&tensor->ids, &tensor->ids_room, tensor->rows * 8)) return no_memory(error);
    tensor->count = 0;
    for (uint64_t i = 0; i < tensor->rows; i++) {
        if (all_zero(rows + i * bytes, bytes)) continue;
        if (tensor->count != i) memcpy(rows + tensor->count * bytes, rows + i * bytes, bytes);
        tensor->ids[tensor->count++] = (int64_t)i;
    }
    return LINNET_OK;
}

linnet_status ln_worker_differ(ln_sync_worker *worker, linnet_error *error) {
    linnet_status status = LINNET_OK;
    worker->commit.loss = (double)NAN;
    if (!worker->config.keep_pulled) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                     "there is no copy of the pulled values to compute the changes from");
        return ln_sync_hint(error, "set keep_pulled (takes as many bytes as the variables), or give a session");
    }
    /* If `differs` is set, this call repeats a failed push, and the differences are already computed. */
    for (int i = 0; !status && !worker->differs && i < worker->tensor_count; i++) {
        worker_tensor *tensor = &worker->tensors[i];
        if (!tensor->pushed) continue;
        tensor->count = 0;
        if (tensor->remote) continue;
        status = subtract(worker, tensor, error);
        if (!status && tensor->sparse) status = pick_rows(worker, tensor, error);
    }
    worker->differs = !status;
    return status ? status : collect_averaged(worker, error);
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static worker_message *add_message(worker_link *link, uint8_t type, const worker_part *part, const void *data,
                                   uint64_t size) {
    worker_message *message = &link->messages[link->message_count++];
    *message = (worker_message){.tensor = part->variable->entry.number, .type = type, .data = data, .size = size};
    return message;
}

/* Chooses the encoding of a part. Rows have no residual, because it would be as large as the table. */
static int encoding_of(const worker_link *link, const worker_part *part, uint64_t elements) {
    const int wanted = link->worker->config.compression;
    const bool rows = part->tensor->sparse;
    if (part->tensor->averaged || part->tensor->dtype == LINNET_F64 || elements < COMPRESSED_FROM) return LN_SYNC_PLAIN;
    if (rows && wanted != LN_SYNC_F16 && wanted != LN_SYNC_BF16 && wanted != LN_SYNC_I8) return LN_SYNC_PLAIN;
    return link->encodings >> wanted & 1 ? wanted : LN_SYNC_PLAIN;
}

static linnet_status add_values(worker_link *link, worker_part *part, const void *values, uint64_t elements,
                                linnet_error *error) {
    ln_sync_worker *worker = link->worker;
    const int encoding = encoding_of(link, part, elements);
    worker_message *message = add_message(link, LN_SYNC_PUSH, part, values, elements * gradient_size(part->tensor));
    message->flags = part->tensor->sparse ? LN_SYNC_FLAG_ROWS : 0;
    if (encoding == LN_SYNC_PLAIN) return LINNET_OK;
    const size_t bound = ln_sync_encoded_bound(encoding, elements, worker->config.fraction);
    if (!ln_worker_room(worker, &part->encoded, &part->encoded_room, bound)) return no_memory(error);
    if (!part->residual && !part->tensor->sparse) {
        part->residual = ln_worker_memory(worker, (size_t)elements * sizeof(float));
        if (!part->residual) return no_memory(error);
    }
    message->encoding = (uint8_t)encoding;
    message->data = part->encoded;
    message->size = ln_sync_encode(encoding, worker->config.fraction, values, part->residual, elements, part->encoded);
    return LINNET_OK;
}

linnet_status ln_worker_encode(worker_link *link, linnet_error *error) {
    linnet_status status = LINNET_OK;
    size_t need = 2 * link->manifest->count * sizeof *link->messages;
    if (!ln_worker_room(link->worker, (void **)&link->messages, &link->message_room, need)) return no_memory(error);
    link->message_count = 0;
    for (uint32_t i = 0; !status && i < link->manifest->count; i++) {
        worker_part *part = &link->parts[i];
        const worker_tensor *tensor = part->tensor;
        const ln_sync_tensor *e = &part->variable->entry;
        if (!tensor->pushed && !tensor->averaged) continue;
        const size_t row = (size_t)tensor->row_elements * gradient_size(tensor);
        const unsigned char *values = tensor->gradient;
        if (!tensor->sparse) {
            status = add_values(link, part, values + e->first_row * row, part->variable->elements, error);
            continue;
        }
        uint64_t first = 0, end;
        while (first < tensor->count && (uint64_t)tensor->ids[first] < e->first_row) first++;
        for (end = first; end < tensor->count && (uint64_t)tensor->ids[end] < e->first_row + e->dims[0];) end++;
        if (first == end) continue;
        add_message(link, LN_SYNC_IDS, part, tensor->ids + first, (end - first) * sizeof(int64_t));
        status = add_values(link, part, values + first * row, (end - first) * tensor->row_elements, error);
    }
    return status;
}
