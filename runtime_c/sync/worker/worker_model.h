/* worker_model.h - the tensors of a worker's model, and the memory of a worker. */
#ifndef LN_SYNC_WORKER_MODEL_H
#define LN_SYNC_WORKER_MODEL_H

#include "sync/worker/worker.h"

/* Allocates memory and counts it. Returns NULL if out of memory. */
void *ln_worker_memory(ln_sync_worker *worker, size_t size);
/* Makes *memory at least `need` bytes long; *room is its length. The old contents may be lost. Returns false if out of
 * memory. */
bool ln_worker_room(ln_sync_worker *worker, void **memory, size_t *room, size_t need);

/* Finds the variables of the model that the worker shares. Errors: UNKNOWN_NAME (the model is not made for sync). */
linnet_status ln_worker_read_model(ln_sync_worker *worker, linnet_error *error);
/* Returns the tensor of this name; NULL if there is none. */
worker_tensor *ln_worker_find(const ln_sync_worker *worker, const char *name);
/* Checks that the tensors in the manifest of a link are tensors of the model. The error says which tensor differs. */
linnet_status ln_worker_match(worker_link *link, linnet_error *error);
/* Checks that the manifests of all links together contain every tensor, or every row of it, exactly once. */
linnet_status ln_worker_cover(ln_sync_worker *worker, linnet_error *error);

#endif
