/* piece.h - writes the steps of a claim as a model (docs/format.md), which a host can verify, plan and run. */
#ifndef LN_REMOTE_PIECE_H
#define LN_REMOTE_PIECE_H

#include "remote/sha256.h"
#include "remote/wire.h"

#include "linnet_device.h"

/* A large constant of a piece, which is not copied: `data` belongs to the model. */
typedef struct ln_piece_hole {
    uint64_t offset, bytes; /* in the file */
    uint32_t checksum;      /* CRC-32C */
    const void *data;
} ln_piece_hole;

/* A piece: the bytes of its file without its holes, the holes in the order of their offsets, and where its inputs and
 * outputs are on the host, in the order of its signature. */
typedef struct ln_piece {
    unsigned char *bytes;
    size_t rest, size; /* of `bytes`, and of the whole file */
    ln_piece_hole *holes;
    int hole_count;
    linnet_span *inputs, *outputs;
    int input_count, output_count;
} ln_piece;

/* Tells whether a node of this step can be written. */
bool ln_piece_can(const linnet_host *host, const linnet_step *step);
/* Writes the steps of the work. Operands in the device's memory become inputs and outputs of the model, constants are
 * part of it, and values that only steps of the work use stay inside it. Returns false if out of memory. The caller
 * calls ln_piece_free in both cases. */
bool ln_piece_write(const linnet_host *host, const linnet_work *work, ln_piece *piece);
/* Writes a piece that computes nothing: its output is the constant tensor->data. Otherwise like ln_piece_write. */
bool ln_piece_constant(const linnet_host *host, const linnet_device_tensor *tensor, const linnet_span *to,
                       ln_piece *piece);
/* The SHA-256 of the whole file. */
void ln_piece_digest(const ln_piece *piece, unsigned char digest[LN_SHA256]);
/* Writes a sketch of the steps: the same model, but `bytes` ends after the tables, so it has no constants of more than
 * a few hundred bytes. `*size` becomes the number of bytes before that end, and piece->size stays the size of the whole
 * file. Each value that no step of the sketch reads is an output. Otherwise like ln_piece_write. */
bool ln_piece_sketch(const linnet_host *host, const linnet_step *const *steps, int count, ln_piece *piece,
                     size_t *size);
void ln_piece_free(ln_piece *piece);

#endif
