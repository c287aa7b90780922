/* manifest.h - the table of tensors that server and worker agree on before anything else: from a model file, or from
 * the TENSORS frames of a server. All lengths on the wire are checked against it. */
#ifndef LN_SYNC_MANIFEST_H
#define LN_SYNC_MANIFEST_H

#include "sync/wire.h"

#include "linnet.h"

/* One tensor, with what follows from its entry. Sizes are of the shard's part. */
typedef struct ln_sync_variable {
    ln_sync_tensor entry;
    uint64_t elements, bytes;         /* of the value */
    uint64_t row_elements, row_bytes; /* of one row of it */
    uint8_t gradient;      /* linnet_dtype in which it is pushed and summed: F32 or F64; NONE: never pushed */
    uint8_t gradient_size; /* bytes of an element of that */
} ln_sync_variable;

typedef struct ln_sync_manifest {
    uint32_t count, room; /* room: how many it is to have */
    ln_sync_variable *variables;
    uint16_t shard, shards;
    unsigned char job[16]; /* metadata sync.job, or the file's digest */
    uint64_t digest[2];    /* over the TENSORS payloads, as READY proves it */
    uint64_t push_bytes;   /* of one worker's dense gradients, and of averaged values */
    int32_t updates;       /* signatures `update/...`, */
    int32_t *signatures;   /* their numbers in the model, in its order: entry.group counts these */
    bool takes_not_finite; /* metadata sync.not_finite is "update": those signatures look for NaN themselves */
} ln_sync_manifest;

/* What a model's `update/...` signatures say: inputs gradient/<v> (dense) or gradient/<v>/ids and gradient/<v>/rows
 * (sparse), and the variables that metadata sync.average and sync.read name, one per line; for parts of a table
 * sync.first_row/<v> and sync.rows/<v>; sync.job, sync.shard ("0/2").
 * Errors: UNKNOWN_NAME (no update signature, no such variable), WRONG_DTYPE, WRONG_SHAPE, TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_sync_manifest_from_model(const linnet_model *model, ln_sync_manifest **out, linnet_error *error);
/* One for `count` tensors that a server announced; _take adds those of a TENSORS payload. */
linnet_status ln_sync_manifest_create(uint32_t count, ln_sync_manifest **out, linnet_error *error);
ln_sync_refusal ln_sync_manifest_take(ln_sync_manifest *manifest, const void *payload, size_t length);
void ln_sync_manifest_free(ln_sync_manifest *manifest);

/* Writes the payload of a TENSORS frame that begins with tensor *next, at most LN_SYNC_CONTROL_MAX bytes; moves *next
 * on. Returns the bytes; 0: *next is past the end. */
size_t ln_sync_manifest_payload(const ln_sync_manifest *manifest, uint32_t *next, unsigned char *payload);
/* NULL: there is none of that name (or number). */
const ln_sync_variable *ln_sync_manifest_find(const ln_sync_manifest *manifest, const char *name);
const ln_sync_variable *ln_sync_manifest_get(const ln_sync_manifest *manifest, uint32_t number);
/* The job of a model: 16 bytes. */
linnet_status ln_sync_job_of(const linnet_model *model, unsigned char job[16], linnet_error *error);

#endif
