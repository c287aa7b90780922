/* batch.h - the commands that a client collects for one SUBMIT, and where the bytes of its downloads go. */
#ifndef LN_REMOTE_BATCH_H
#define LN_REMOTE_BATCH_H

#include "remote/wire.h"

typedef struct ln_remote_download {
    void *to;
    uint64_t bytes;
} ln_remote_download;

typedef struct ln_remote_batch {
    unsigned char *bytes; /* of the commands so far */
    size_t size, room;
    ln_remote_download *downloads; /* in the order of their commands */
    int download_count, download_room;
    bool failed; /* out of memory; the batch is not complete */
} ln_remote_batch;

/* Appends a command with its ln_remote_words[code] numbers. Returns where `more` further bytes belong, which are zeros
 * now and are rounded up to a multiple of 8; NULL if out of memory. */
unsigned char *ln_remote_add(ln_remote_batch *batch, ln_remote_code code, const uint64_t *numbers, uint64_t more);
/* Appends DOWNLOAD, and notes where its bytes go. */
void ln_remote_add_download(ln_remote_batch *batch, uint64_t buffer, uint64_t offset, uint64_t bytes, void *to);
/* Notes where the next bytes of the answer go, which a command makes that was just added. */
void ln_remote_expect(ln_remote_batch *batch, uint64_t bytes, void *to);
/* Empties the batch, whose memory stays for the next commands. */
void ln_remote_batch_clear(ln_remote_batch *batch);
void ln_remote_batch_free(ln_remote_batch *batch);

#endif
