/* batch.c - the commands that a client collects for one SUBMIT. */
#include "remote/batch.h"

#include "net/bytes.h"

#include <stdlib.h>
#include <string.h>

unsigned char *ln_remote_add(ln_remote_batch *batch, ln_remote_code code, const uint64_t *numbers, uint64_t more) {
    const size_t words = ln_remote_words[code], fixed = 8 + 8 * words, size = fixed + (size_t)((more + 7) / 8 * 8);
    if (size > batch->room - batch->size && !batch->failed) {
        const size_t room = 2 * batch->room + size + 4096;
        unsigned char *grown = realloc(batch->bytes, room);
        batch->failed = grown == NULL;
        if (grown != NULL) batch->bytes = grown, batch->room = room;
    }
    if (batch->failed) return NULL;
    unsigned char *at = batch->bytes + batch->size;
    batch->size += size;
    put32(at, (uint32_t)code);
    put32(at + 4, 0);
    for (size_t i = 0; i < words; i++) put64(at + 8 + 8 * i, numbers[i]);
    if (more % 8 != 0) memset(at + size - 8, 0, 8);
    return at + fixed;
}

void ln_remote_expect(ln_remote_batch *batch, uint64_t bytes, void *to) {
    if (batch->download_count == batch->download_room) {
        const int room = 2 * batch->download_room + 8;
        ln_remote_download *grown = realloc(batch->downloads, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            batch->failed = true;
            return;
        }
        batch->downloads = grown, batch->download_room = room;
    }
    batch->downloads[batch->download_count++] = (ln_remote_download){to, bytes};
}

void ln_remote_add_download(ln_remote_batch *batch, uint64_t buffer, uint64_t offset, uint64_t bytes, void *to) {
    const uint64_t numbers[] = {buffer, offset, bytes};
    if (ln_remote_add(batch, LN_REMOTE_DOWNLOAD, numbers, 0) != NULL) ln_remote_expect(batch, bytes, to);
}

void ln_remote_batch_clear(ln_remote_batch *batch) {
    batch->size = 0, batch->download_count = 0;
    batch->failed = false;
}

void ln_remote_batch_free(ln_remote_batch *batch) {
    free(batch->bytes);
    free(batch->downloads);
    *batch = (ln_remote_batch){0};
}
