/* posix_rows.c - rows of tables that a worker does not hold. Each row that a batch looks up is pulled once and copied
 * to every place where the batch needs it. */
#define _POSIX_C_SOURCE 200809L
#include "sync/worker/posix_rows.h"

#include "net/error.h"
#include "sync/worker/posix_drive.h"
#include "sync/worker/posix_worker_state.h"
#include "sync/worker/worker_info.h"
#include "sync/worker/worker_pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lookups in one table. */
typedef struct posix_lookup {
    int64_t *places; /* pairs of row number and position, sorted */
    int64_t *rows;   /* ascending, without repeats */
    unsigned char *came;
    size_t places_room, rows_room, came_room; /* bytes */
    size_t count;
} posix_lookup;

static linnet_status no_memory(linnet_error *error) {
    return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the rows that are pulled");
}

static bool room(void *memory, size_t *have, size_t need) {
    void **at = memory;
    if (need <= *have) return true;
    free(*at);
    *have = 0;
    *at = malloc(need + need / 4);
    if (*at) *have = need + need / 4;
    return *at != NULL;
}

static int by_row(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* Fills `lookup` for these row numbers (i32 or i64), and makes room for the rows. */
static bool prepare(posix_lookup *lookup, const void *numbers, bool narrow, size_t n, size_t row_bytes) {
    if (n > SIZE_MAX / 16 || (row_bytes && n > SIZE_MAX / 2 / row_bytes)) return false;
    if (!room(&lookup->places, &lookup->places_room, n * 16 + 16) ||
        !room(&lookup->rows, &lookup->rows_room, n * 8 + 8) ||
        !room(&lookup->came, &lookup->came_room, n * row_bytes + 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        lookup->places[2 * i] = narrow ? ((const int32_t *)numbers)[i] : ((const int64_t *)numbers)[i];
        lookup->places[2 * i + 1] = (int64_t)i;
    }
    qsort(lookup->places, n, 16, by_row);
    lookup->count = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || lookup->places[2 * i] != lookup->places[2 * i - 2])
            lookup->rows[lookup->count++] = lookup->places[2 * i];
    return true;
}

/* Copies the received rows to all their places. */
static void spread(const posix_lookup *lookup, size_t n, size_t row_bytes, unsigned char *data) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && lookup->places[2 * i] != lookup->places[2 * i - 2]) k++;
        memcpy(data + (size_t)lookup->places[2 * i + 1] * row_bytes, lookup->came + k * row_bytes, row_bytes);
    }
}

static linnet_status need_lookups(linnet_worker *worker, int count, linnet_error *error) {
    if (count <= worker->lookup_count) return LINNET_OK;
    posix_lookup *more = realloc(worker->lookups, (size_t)count * sizeof *more);
    if (!more) return no_memory(error);
    memset(more + worker->lookup_count, 0, (size_t)(count - worker->lookup_count) * sizeof *more);
    worker->lookups = more;
    worker->lookup_count = count;
    return LINNET_OK;
}

void ln_worker_free_lookups(linnet_worker *worker) {
    for (int i = 0; i < worker->lookup_count; i++) {
        free(worker->lookups[i].places);
        free(worker->lookups[i].rows);
        free(worker->lookups[i].came);
    }
    free(worker->lookups);
}

static linnet_status unknown_table(const char *table, linnet_error *error) {
    ln_sync_fail(error, LINNET_UNKNOWN_NAME, "no server has a table of this name");
    return ln_sync_at(error, table);
}

static linnet_status pull_rows(linnet_worker *worker, const char *table, const int64_t *rows, size_t count, void *data,
                               size_t bytes, linnet_error *error) {
    uint64_t row_bytes, most;
    linnet_status status = need_lookups(worker, 1, error);
    if (status) return status;
    if (!ln_sync_worker_table(worker->core, table, &row_bytes, &most)) return unknown_table(table, error);
    if (bytes / row_bytes != count || bytes % row_bytes) {
        ln_sync_fail(error, LINNET_WRONG_SHAPE, "the buffer for the rows has the wrong size");
        ln_sync_at(error, table);
        ln_sync_expected(error, "%zu rows of %llu bytes", count, (unsigned long long)row_bytes);
        return ln_sync_got(error, "%zu bytes", bytes);
    }
    posix_lookup *lookup = &worker->lookups[0];
    if (!prepare(lookup, rows, false, count, row_bytes)) return no_memory(error);
    const ln_sync_request request = {table, lookup->rows, lookup->count, lookup->came};
    status = ln_sync_worker_begin_rows(worker->core, &request, 1, error);
    if (!status) status = ln_worker_drive(worker, error);
    if (!status) spread(lookup, count, row_bytes, data);
    return status;
}

linnet_status linnet_worker_pull_rows(linnet_worker *worker, const char *table, const int64_t *rows, size_t count,
                                      void *data, size_t bytes, linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    if (!worker || !table || (count && (!rows || !data))) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "an argument is NULL");
        return ln_sync_at(error, !worker ? "worker" : !table ? "table" : !rows ? "rows" : "data");
    }
    pthread_mutex_lock(&worker->moving);
    const linnet_status status = pull_rows(worker, table, rows, count, data, bytes, error);
    pthread_mutex_unlock(&worker->moving);
    return status;
}

/* Finds the output rows/<table>/ids of a session. */
static linnet_status looked_up(linnet_session *ids, const char *table, int *at, linnet_tensor_info *info,
                               linnet_error *error) {
    char name[512];
    snprintf(name, sizeof name, "rows/%s/ids", table);
    for (*at = 0; ids && !linnet_session_get_output(ids, *at, info); ++*at)
        if (!strcmp(info->name, name)) return LINNET_OK;
    ln_sync_fail(error, LINNET_UNKNOWN_NAME, "the worker does not know which rows of a remote table the batch needs");
    ln_sync_at(error, name);
    return ln_sync_hint(error,
                        "also give linnet_worker_step a session of signature 'ids' with the batch in its inputs");
}

linnet_status ln_worker_feed_rows(linnet_worker *worker, linnet_session *ids, linnet_session *session,
                                  linnet_error *error) {
    enum { TABLES = 64 };
    ln_sync_request requests[TABLES];
    uint64_t counts[TABLES], row_bytes[TABLES], rows;
    linnet_status status = LINNET_OK;
    const char *table;
    int count = 0, at;
    if (!ln_sync_worker_remote(worker->core, 0)) return LINNET_OK;
    if (ids) status = linnet_run(ids, error);
    for (; !status && (table = ln_sync_worker_remote(worker->core, count)); count++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (count == TABLES)
            return ln_sync_fail(error, LINNET_TOO_LARGE, "the model has more than %d remote tables", TABLES);
        status = need_lookups(worker, count + 1, error);
        if (!status) status = looked_up(ids, table, &at, &info, error);
        if (status) return status;
        if (!ln_sync_worker_table(worker->core, table, &row_bytes[count], &rows)) return unknown_table(table, error);
        posix_lookup *lookup = &worker->lookups[count];
        counts[count] = info.bytes / linnet_dtype_size(info.dtype);
        if (!prepare(lookup, linnet_session_output(ids, at), info.dtype == LINNET_I32, counts[count], row_bytes[count]))
            return no_memory(error);
        requests[count] = (ln_sync_request){table, lookup->rows, lookup->count, lookup->came};
    }
    if (!status) status = ln_sync_worker_begin_rows(worker->core, requests, count, error);
    if (!status) status = ln_worker_drive(worker, error);
    for (int i = 0; !status && i < count; i++) {
        char name[512];
        const size_t bytes = (size_t)(counts[i] * row_bytes[i]);
        unsigned char *data = malloc(bytes ? bytes : 1);
        if (!data) return no_memory(error);
        spread(&worker->lookups[i], counts[i], row_bytes[i], data);
        snprintf(name, sizeof name, "rows/%s", requests[i].table);
        status = linnet_session_set(session, name, data, bytes, error);
        free(data);
    }
    return status;
}
