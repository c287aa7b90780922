/* worker_info.h - what a worker tells its owner: addresses, counts, tables. */
#ifndef LN_SYNC_WORKER_INFO_H
#define LN_SYNC_WORKER_INFO_H

#include "sync/worker/worker.h"

const char *ln_sync_worker_address(const ln_sync_worker *worker, int link);
/* Fill everything except struct_size. The core measures the times of the last step. */
void ln_sync_worker_get_info(ln_sync_worker *worker, linnet_worker_info *info);
void ln_sync_worker_get_link(const ln_sync_worker *worker, int i, linnet_link_info *info);
/* Returns the bytes of a row of the table and its number of rows, or false if there is no such table. */
bool ln_sync_worker_table(const ln_sync_worker *worker, const char *name, uint64_t *row_bytes, uint64_t *rows);
/* Returns the name of the i-th table whose rows are fed to `grad`; NULL after the last one. */
const char *ln_sync_worker_remote(const ln_sync_worker *worker, int i);

#endif
