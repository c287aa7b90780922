/* manifest_model.h - makes the manifest of a model's variables. */
#ifndef LN_SYNC_MANIFEST_MODEL_H
#define LN_SYNC_MANIFEST_MODEL_H

#include "sync/codec/manifest.h"

/* Makes the manifest of a model from its `update/...` signatures and its metadata. Inputs of these signatures are
 * gradient/<v> (dense), or gradient/<v>/ids and gradient/<v>/rows (sparse). Metadata sync.average and sync.read name
 * further variables, one per line. sync.first_row/<v> and sync.rows/<v> describe a part of a table; sync.job and
 * sync.shard ("0/2") describe the job.
 * Errors: UNKNOWN_NAME (no update signature, no such variable), WRONG_DTYPE, WRONG_SHAPE, TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_sync_manifest_from_model(const linnet_model *model, ln_sync_manifest **out, linnet_error *error);
/* Stores the 16-byte job identifier of a model. */
linnet_status ln_sync_job_of(const linnet_model *model, unsigned char job[16], linnet_error *error);

#endif
