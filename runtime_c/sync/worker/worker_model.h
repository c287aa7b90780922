/* worker_model.h - the tensors of a worker's model, and the memory of a worker. */
#ifndef LN_SYNC_WORKER_MODEL_H
#define LN_SYNC_WORKER_MODEL_H

#include "sync/worker/worker.h"

/* Allocates memory and counts it. Returns NULL if out of memory. */
void *ln_worker_memory(ln_sync_worker *worker, size_t size);
/* Makes *memory at least `need` bytes long. The old contents may be lost. */
bool ln_worker_room(ln_sync_worker *worker, void **memory, size_t *room, size_t need);

linnet_status ln_worker_read_model(ln_sync_worker *worker, linnet_error *error);
worker_tensor *ln_worker_find(const ln_sync_worker *worker, const char *name);
/* Checks the manifest of a link: its tensors must be those of the model. Not OK: says which tensor differs. */
linnet_status ln_worker_match(worker_link *link, linnet_error *error);
/* Checks all manifests: together they must contain every tensor exactly once. */
linnet_status ln_worker_cover(ln_sync_worker *worker, linnet_error *error);

#endif
