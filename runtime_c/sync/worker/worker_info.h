/* worker_info.h - what a worker tells its owner: addresses, counts, tables. */
#ifndef LN_SYNC_WORKER_INFO_H
#define LN_SYNC_WORKER_INFO_H

#include "sync/worker/worker.h"

/* Returns the address of the link's server. */
const char *ln_sync_worker_address(const ln_sync_worker *worker, int link);
/* Fill all fields except struct_size. The times are those of the last step. */
void ln_sync_worker_get_info(ln_sync_worker *worker, linnet_worker_info *info);
void ln_sync_worker_get_link(const ln_sync_worker *worker, int i, linnet_link_info *info);
/* Stores the bytes of a row of the table and its number of rows. Returns false if there is no table of this name. */
bool ln_sync_worker_table(const ln_sync_worker *worker, const char *name, uint64_t *row_bytes, uint64_t *rows);
/* Returns the name of the i-th table whose rows are fed to `grad`; NULL after the last one. */
const char *ln_sync_worker_remote(const ln_sync_worker *worker, int i);

#endif
