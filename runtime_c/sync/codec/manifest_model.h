/* manifest_model.h - makes the manifest of a model's variables. */
#ifndef LN_SYNC_MANIFEST_MODEL_H
#define LN_SYNC_MANIFEST_MODEL_H

#include "sync/codec/manifest.h"

/* Makes the manifest of a model from its `update/...` signatures and its metadata. The inputs of these signatures are
 * gradient/<v> for a dense variable v, or gradient/<v>/ids and gradient/<v>/rows for a sparse one. The metadata
 * sync.average and sync.read name further variables, one per line. sync.first_row/<v> and sync.rows/<v> say which rows
 * of a table the model has. sync.job is the job, and sync.shard ("0/2") is the shard. The caller frees *out. Errors:
 * UNKNOWN_NAME (no update signature, no such variable), WRONG_DTYPE, WRONG_SHAPE, TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_sync_manifest_from_model(const linnet_model *model, ln_sync_manifest **out, linnet_error *error);
/* Stores the 16-byte identifier of the job to which a model belongs: its metadata sync.job, or its digest. */
linnet_status ln_sync_job_of(const linnet_model *model, unsigned char job[16], linnet_error *error);

#endif
