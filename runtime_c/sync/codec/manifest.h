/* manifest.h - the table of tensors that server and worker agree on before anything else. It is made from a model file,
 * or from the TENSORS frames of a server. All lengths in messages are checked against it. */
#ifndef LN_SYNC_MANIFEST_H
#define LN_SYNC_MANIFEST_H

#include "sync/codec/payload.h"

#include "linnet.h"

/* One tensor, and values computed from its entry. All sizes are of the part that this shard has. */
typedef struct ln_sync_variable {
    ln_sync_tensor entry;
    uint64_t elements, bytes;         /* of the value */
    uint64_t row_elements, row_bytes; /* of one row of the value */
    uint8_t gradient;      /* linnet_dtype in which the gradient is pushed and summed: F32 or F64; NONE: never pushed */
    uint8_t gradient_size; /* bytes per element of the gradient */
} ln_sync_variable;

typedef struct ln_sync_manifest {
    uint32_t count, room; /* room: planned number of entries */
    ln_sync_variable *variables;
    uint16_t shard, shards;
    unsigned char job[16]; /* metadata sync.job, or the file's digest */
    uint64_t digest[2];    /* digest over the TENSORS payloads, which READY repeats */
    uint64_t push_bytes;   /* bytes of one worker's dense gradients and averaged values */
    int32_t updates;       /* number of `update/...` signatures */
    int32_t *signatures;   /* numbers of these signatures in the model; entry.group is an index into this list */
    bool takes_not_finite; /* true if metadata sync.not_finite is "update": the update signatures handle NaN themselves
                            */
} ln_sync_manifest;
/* Creates a manifest for `count` tensors that a server announced. ln_sync_manifest_take adds the entries of a TENSORS
 * payload. */
linnet_status ln_sync_manifest_create(uint32_t count, ln_sync_manifest **out, linnet_error *error);
ln_net_refusal ln_sync_manifest_take(ln_sync_manifest *manifest, const void *payload, size_t length);
void ln_sync_manifest_free(ln_sync_manifest *manifest);

/* Writes the payload of a TENSORS frame that begins with tensor *next, at most LN_NET_CONTROL_MAX bytes, and advances
 * *next. Returns the number of bytes; 0 if *next is past the end. */
size_t ln_sync_manifest_payload(const ln_sync_manifest *manifest, uint32_t *next, unsigned char *payload);
/* Both functions return NULL if no tensor has this name or number. */
const ln_sync_variable *ln_sync_manifest_find(const ln_sync_manifest *manifest, const char *name);
const ln_sync_variable *ln_sync_manifest_get(const ln_sync_manifest *manifest, uint32_t number);
/* Returns the encoding of the variable's values in DATA (ln_sync_encoding), given the encodings that were agreed on.
 * Only f32 variables are encoded, and no averaged or read-only ones; small variables are sent plain. The choice depends
 * on the whole tensor, not on the shard's part, so that all numbers of servers give the same bits. */
int ln_sync_pulled_as(const ln_sync_variable *variable, uint32_t encodings);

#endif
