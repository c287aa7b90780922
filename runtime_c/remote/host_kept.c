/* host_kept.c - values of variables in a host's folder. Each variable of a client has a file with two slots, which take
 * turns, so that a host that dies while it writes one still has the value before. The system writes the files to the
 * disk when it likes: they survive the process, and a CRC tells what the machine has lost. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_kept.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/host_folder.h"
#include "remote/host_memory.h"

#include "linnet_ext.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, SLOT = 16 }; /* bytes before the first slot, and of what the page says about each */

static uint64_t slot_bytes(const host_kept *k) { return (k->bytes + PAGE - 1) / PAGE * PAGE; }
static uint64_t slot_at(const host_kept *k) { return PAGE + k->number % 2 * slot_bytes(k); }

static bool write_at(int file, uint64_t at, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pwrite(file, (const char *)data + done, size - done, (off_t)(at + done));
        if (n > 0) done += (size_t)n;
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
    }
    return true;
}

static bool read_at(int file, uint64_t at, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(file, (char *)data + done, size - done, (off_t)(at + done));
        if (n > 0) done += (size_t)n;
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
    }
    return true;
}

/* The file's name: nobody else knows the client's token. */
static void name_of(const host_connection *c, const host_kept *k, unsigned char digest[LN_SHA256]) {
    ln_sha256_state state = ln_sha256_begin();
    ln_sha256_add(&state, c->client->token, LN_REMOTE_TOKEN);
    ln_sha256_add(&state, k->name, 16);
    ln_sha256_end(&state, digest);
}

static unsigned char *memory_of(const host_connection *c, const host_kept *k, linnet_error *error) {
    if (c->host->config.folder == NULL) {
        ln_sync_fail(error, LINNET_UNSUPPORTED, "the host keeps nothing, because it has no folder");
        return NULL;
    }
    return ln_host_span(c->client, k->buffer, k->offset, k->bytes, error);
}

linnet_status ln_host_keep(host_connection *c, const host_kept *k, linnet_error *error) {
    unsigned char digest[LN_SHA256], about[SLOT] = {0};
    const unsigned char *from = memory_of(c, k, error);
    if (from == NULL) return (linnet_status)error->code;
    name_of(c, k, digest);
    const int file = ln_host_folder_kept(&c->host->config, digest, PAGE + 2 * slot_bytes(k));
    const uint64_t place = SLOT * (k->number % 2);
    bool written =
        file >= 0 && write_at(file, place, about, SLOT) && write_at(file, slot_at(k), from, (size_t)k->bytes);
    put64(about, k->number);
    put32(about + 8, linnet_crc32c(0, from, (size_t)k->bytes));
    put32(about + 12, 1);
    written = written && write_at(file, place, about, SLOT);
    if (file >= 0) close(file);
    if (written) return LINNET_OK;
    ln_sync_fail(error, LINNET_WRITE_FAILED, "the host cannot write the value of a variable to its folder");
    ln_sync_expected(error, "room for two values of %llu bytes", (unsigned long long)k->bytes);
    return ln_sync_hint(error, "see whether the disk of the host or its --folder-bytes is full");
}

linnet_status ln_host_recall(host_connection *c, const host_kept *k, linnet_error *error) {
    unsigned char digest[LN_SHA256], about[SLOT];
    unsigned char *to = memory_of(c, k, error);
    if (to == NULL) return (linnet_status)error->code;
    name_of(c, k, digest);
    const int file = ln_host_folder_kept(&c->host->config, digest, 0);
    const bool there = file >= 0 && read_at(file, SLOT * (k->number % 2), about, SLOT) && get64(about) == k->number &&
                       get32(about + 12) == 1;
    const bool read = there && read_at(file, slot_at(k), to, (size_t)k->bytes);
    if (file >= 0) close(file);
    if (read && linnet_crc32c(0, to, (size_t)k->bytes) == get32(about + 8)) return LINNET_OK;
    ln_sync_fail(error, there ? LINNET_CORRUPT : LINNET_NOT_FOUND,
                 there ? "what the host has kept of a variable is damaged" : "the host has not kept this value");
    return ln_sync_hint(error, "load a checkpoint");
}
