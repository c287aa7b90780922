/* manifest.h - the table of tensors that a server and its workers share. A server makes the manifest from a model file,
 * and a worker from the server's TENSORS frames during the handshake. The lengths in all later messages are checked
 * against the manifest. */
#ifndef LN_SYNC_MANIFEST_H
#define LN_SYNC_MANIFEST_H

#include "sync/codec/payload.h"

#include "linnet.h"

/* One tensor: its entry, and values that are computed from the entry. All sizes are those of the part that this shard
 * has.
 */
typedef struct ln_sync_variable {
    ln_sync_tensor entry;
    uint64_t elements, bytes;         /* sizes of the value */
    uint64_t row_elements, row_bytes; /* sizes of one row of the value */
    uint8_t gradient;      /* linnet_dtype in which the gradient is pushed and summed: F32 or F64; NONE: never pushed */
    uint8_t gradient_size; /* bytes per element of the gradient */
} ln_sync_variable;

typedef struct ln_sync_manifest {
    uint32_t count, room; /* number of entries that were taken; number of entries that the server announced */
    ln_sync_variable *variables;
    uint16_t shard, shards; /* number of this shard, from 0; number of all shards */
    unsigned char job[16];  /* metadata sync.job, or the file's digest */
    uint64_t digest[2];     /* digest of the TENSORS payloads; a worker repeats it in READY */
    uint64_t push_bytes;    /* bytes of one worker's dense gradients and averaged values */
    int32_t updates;        /* number of `update/...` signatures; 0 if the manifest was not made from a model */
    int32_t *signatures;    /* numbers of these signatures in the model; entry.group is an index into this list */
    bool takes_not_finite;  /* true if metadata sync.not_finite is "update": the update signatures handle NaN themselves
                             */
} ln_sync_manifest;
/* Creates an empty manifest for `count` tensors that a server has announced. Errors: OUT_OF_MEMORY. */
linnet_status ln_sync_manifest_create(uint32_t count, ln_sync_manifest **out, linnet_error *error);
/* Adds the entries of a TENSORS payload. Returns LN_NET_FINE, or why the payload is invalid. */
ln_net_refusal ln_sync_manifest_take(ln_sync_manifest *manifest, const void *payload, size_t length);
void ln_sync_manifest_free(ln_sync_manifest *manifest);

/* Writes the payload of a TENSORS frame: as many entries as fit into LN_NET_CONTROL_MAX bytes, beginning with entry
 * *next. Advances *next behind the last written entry. Returns the number of bytes; 0 if there are no more entries. */
size_t ln_sync_manifest_payload(const ln_sync_manifest *manifest, uint32_t *next, unsigned char *payload);
/* Return the tensor of this name, or of this number (entry.number). Return NULL if there is none. */
const ln_sync_variable *ln_sync_manifest_find(const ln_sync_manifest *manifest, const char *name);
const ln_sync_variable *ln_sync_manifest_get(const ln_sync_manifest *manifest, uint32_t number);
/* Returns the encoding (ln_sync_encoding) in which a server sends the variable's values in DATA. `encodings` is the set
 * that the handshake agreed on. Only f32 variables with gradients are encoded. Small variables are sent plain. The
 * choice depends on the whole tensor and not on the shard's part, so that results have the same bits for any number of
 * servers.
 */
int ln_sync_pulled_as(const ln_sync_variable *variable, uint32_t encodings);

#endif
