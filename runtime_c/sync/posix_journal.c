/* posix_journal.c - appending records to a file such that a kill at any moment leaves whole ones and at most one torn
 * end, which the next start cuts off. */
#define _DEFAULT_SOURCE
#include "sync/posix_journal.h"

#include "sync/bytes.h"
#include "sync/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD = 64, FRAME = 16, SLICES = 64 };

struct ln_sync_journal {
    char *path;
    int fd;
    bool fsync;
    uint64_t size;
    unsigned char head[HEAD];
};

static linnet_status failed(const ln_sync_journal *j, const char *what, linnet_error *error) {
    ln_sync_fail(error, LINNET_WRITE_FAILED, "%s", what);
    ln_sync_at(error, j->path);
    return ln_sync_got(error, "%s", strerror(errno)), LINNET_WRITE_FAILED;
}

static linnet_status damaged(const ln_sync_journal *j, uint64_t at, linnet_error *error) {
    ln_sync_fail(error, LINNET_CORRUPT, "a record of the journal is damaged, and others follow it");
    ln_sync_at(error, j->path);
    ln_sync_got(error, "wrong bytes at %llu of %llu", (unsigned long long)at, (unsigned long long)j->size);
    return ln_sync_hint(error, "without the file the server goes on from its snapshot; updates since then are lost"),
           LINNET_CORRUPT;
}

/* The head stays: were it written anew on a disk that is full, what is appended later would lie behind a hole. */
linnet_status ln_sync_journal_clear(ln_sync_journal *j, linnet_error *error) {
    if (ftruncate(j->fd, HEAD)) return failed(j, "the journal cannot be cut", error);
    j->size = HEAD;
    return j->fsync && fsync(j->fd) ? failed(j, "the journal cannot be written", error) : LINNET_OK;
}

static linnet_status begin(ln_sync_journal *j, linnet_error *error) {
    if (pwrite(j->fd, j->head, HEAD, 0) != HEAD) return failed(j, "the journal cannot be written", error);
    return ln_sync_journal_clear(j, error);
}

linnet_status ln_sync_journal_open(const char *path, const char *digest, bool fsync, ln_sync_journal **out,
                                   linnet_error *error) {
    ln_sync_journal *j = calloc(1, sizeof *j);
    unsigned char head[HEAD];
    struct stat info;
    linnet_status status = LINNET_OK;
    *out = NULL;
    if (!j || !(j->path = malloc(strlen(path) + 1))) {
        free(j);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a journal");
    }
    strcpy(j->path, path);
    memcpy(j->head, "LNSJ", 4);
    put32(j->head + 4, 1);
    snprintf((char *)j->head + 8, HEAD - 8, "%s", digest);
    j->fsync = fsync;
    j->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (j->fd < 0 || fstat(j->fd, &info)) {
        status = failed(j, "the journal cannot be opened", error);
    } else if (info.st_size < HEAD) { /* new, or not even its head was written */
        status = begin(j, error);
    } else if (pread(j->fd, head, HEAD, 0) != HEAD || memcmp(head, j->head, HEAD)) {
        status = ln_sync_fail(error, LINNET_OTHER_MODEL, "this is no journal of a server of this model");
        ln_sync_at(error, path);
        ln_sync_expected(error, "one of model %s", digest);
        ln_sync_hint(error, "give every job a folder of its own");
    } else {
        j->size = (uint64_t)info.st_size;
    }
    if (status) {
        ln_sync_journal_free(j);
        return status;
    }
    *out = j;
    return LINNET_OK;
}

void ln_sync_journal_free(ln_sync_journal *j) {
    if (!j) return;
    if (j->fd >= 0) close(j->fd);
    free(j->path);
    free(j);
}

uint64_t ln_sync_journal_size(const ln_sync_journal *j) { return j->size; }

static bool write_all(int fd, struct iovec *parts, int count, uint64_t at) {
    while (count) {
        ssize_t n = pwritev(fd, parts, count, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += (uint64_t)n;
        while (count && (size_t)n >= parts->iov_len) n -= (ssize_t)parts->iov_len, parts++, count--;
        if (!count) break;
        parts->iov_base = (char *)parts->iov_base + n;
        parts->iov_len -= (size_t)n;
    }
    return true;
}

linnet_status ln_sync_journal_append(ln_sync_journal *j, const ln_sync_slice *parts, int count, linnet_error *error) {
    unsigned char frame[FRAME];
    struct iovec vector[SLICES];
    uint64_t length = 0, at = j->size;
    uint32_t crc = 0;
    int n = 1;
    bool ok = true;
    for (int i = 0; i < count; i++) {
        crc = ln_sync_crc32c(crc, parts[i].data, parts[i].size);
        length += parts[i].size;
    }
    put64(frame, length);
    put32(frame + 8, crc);
    put32(frame + 12, ln_sync_crc32c(0, frame, 12));
    vector[0] = (struct iovec){frame, FRAME};
    for (int i = 0; i < count && ok; i++) {
        vector[n++] = (struct iovec){(void *)parts[i].data, parts[i].size};
        if (n < SLICES && i + 1 < count) continue;
        uint64_t bytes = 0;
        for (int k = 0; k < n; k++) bytes += vector[k].iov_len;
        ok = write_all(j->fd, vector, n, at);
        at += bytes;
        n = 0;
    }
    if (ok && (!j->fsync || fdatasync(j->fd) == 0)) {
        j->size = at;
        return LINNET_OK;
    }
    failed(j, "a step cannot be written to the journal, so it is not made", error);
    ln_sync_hint(error, "is the disk full? a snapshot makes the journal short");
    if (ftruncate(j->fd, (off_t)j->size)) ln_sync_got(error, "%s, and the file cannot be cut", strerror(errno));
    return LINNET_WRITE_FAILED;
}

/* Whether all bytes from `at` on are zero: the file grew, but its bytes did not reach the disk. */
static bool is_blank(const unsigned char *file, uint64_t at, uint64_t size) {
    while (at < size && !file[at]) at++;
    return at == size;
}

static linnet_status replay(ln_sync_journal *j, const unsigned char *file, ln_sync_server *server, uint64_t *end,
                            linnet_error *error) {
    uint64_t at = HEAD;
    while (at < j->size) {
        const uint64_t left = j->size - at;
        uint64_t length;
        linnet_status status;
        *end = at;
        if (left < FRAME || is_blank(file, at, j->size)) return LINNET_OK;
        if (get32(file + at + 12) != ln_sync_crc32c(0, file + at, 12)) return damaged(j, at, error);
        length = get64(file + at);
        if (length > left - FRAME) return LINNET_OK; /* torn */
        if (get32(file + at + 8) != ln_sync_crc32c(0, file + at + FRAME, (size_t)length))
            return length == left - FRAME ? LINNET_OK : damaged(j, at, error);
        status = ln_sync_server_replay(server, file + at + FRAME, (size_t)length, error);
        if (status) return status;
        at += FRAME + length;
    }
    *end = at;
    return LINNET_OK;
}

linnet_status ln_sync_journal_replay(ln_sync_journal *j, ln_sync_server *server, linnet_error *error) {
    uint64_t end = j->size;
    unsigned char *file;
    linnet_status status;
    if (j->size == HEAD) return LINNET_OK;
    file = mmap(NULL, (size_t)j->size, PROT_READ, MAP_PRIVATE, j->fd, 0);
    if (file == MAP_FAILED) {
        status = failed(j, "the journal cannot be read", error);
        if (error) error->code = LINNET_READ_FAILED;
        return LINNET_READ_FAILED;
    }
    status = replay(j, file, server, &end, error);
    munmap(file, (size_t)j->size);
    if (!status && end != j->size) {
        if (ftruncate(j->fd, (off_t)end)) return failed(j, "the torn end of the journal cannot be cut", error);
        j->size = end;
    }
    return status;
}
