/* worker_info.c - fills in the information about a worker and its links. */
#include "sync/worker/worker_info.h"

#include "sync/worker/worker_model.h"
#include "sync/worker/worker_state.h"

#include <string.h>

void ln_sync_worker_get_link(const ln_sync_worker *worker, int i, linnet_link_info *info) {
    const worker_link *link = &worker->links[i];
    memset(info, 0, sizeof *info);
    info->address = link->address;
    info->shard = link->shard;
    info->connected = link->state == WORKER_OPEN && !link->ending;
    info->version = link->version;
    info->epoch = link->epoch;
    info->reconnects = link->reconnects;
    info->offset_ns = link->offset;
    info->delay_ns = link->delay;
    memcpy(info->clock_ns, link->server_clock, sizeof info->clock_ns);
}

void ln_sync_worker_get_info(ln_sync_worker *worker, linnet_worker_info *info) {
    *info = worker->info;
    info->worker = worker->number == LN_NET_NO_WORKER ? -1 : (int32_t)worker->number;
    info->compression = worker->config.compression;
    info->pull_compression = worker->config.pull_compression;
    info->step = worker->step;
    info->members = worker->members;
    info->bytes = worker->bytes;
    for (int i = 0; i < worker->link_count; i++) {
        const worker_link *link = &worker->links[i];
        if (i == 0 || link->version < info->version) info->version = link->version;
        if (!(link->encodings >> info->compression & 1)) info->compression = LINNET_SYNC_PLAIN;
        if (!(link->encodings >> (LN_SYNC_PULL_AS + info->pull_compression) & 1))
            info->pull_compression = LINNET_SYNC_PLAIN;
    }
    info->link_count = worker->link_count;
}

const char *ln_sync_worker_address(const ln_sync_worker *worker, int link) { return worker->links[link].address; }

bool ln_sync_worker_table(const ln_sync_worker *worker, const char *name, uint64_t *row_bytes, uint64_t *rows) {
    const worker_tensor *tensor = ln_worker_find(worker, name);
    if (!tensor || !tensor->row_bytes || tensor->info.rank == 0) return false;
    *row_bytes = tensor->row_bytes;
    *rows = tensor->rows;
    return true;
}

const char *ln_sync_worker_remote(const ln_sync_worker *worker, int i) {
    for (int k = 0; k < worker->tensor_count; k++)
        if (worker->tensors[k].remote && i-- == 0) return worker->tensors[k].info.name;
    return NULL;
}
