/* posix_journal.c - appends records to a file so that a kill at any moment leaves complete records and at most one
 * incomplete end, which the next start cuts off. Any other incomplete data is damage, which is an error. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_journal.h"

#include "net/bytes.h"
#include "net/error.h"
#include "sync/server/journal_frame.h"
#include "sync/server/posix_files.h"
#include "sync/server/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD = LN_SYNC_JOURNAL_HEAD, FRAME = LN_SYNC_JOURNAL_FRAME, SLICES = 64, VERSION = 2 };

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
    ln_sync_fail(error, LINNET_CORRUPT, "a record of the journal is damaged");
    ln_sync_at(error, j->path);
    ln_sync_got(error, "wrong bytes in the record at offset %llu of %llu", (unsigned long long)at,
                (unsigned long long)j->size);
    return ln_sync_hint(error, "restore a copy of the file, or use --repair: it keeps the damaged file and continues "
                               "from the records before the damage; later acknowledged updates are lost");
}

static bool is_older(const ln_sync_journal *j, const unsigned char *head) {
    return !memcmp(head, j->head, 4) && get32(head + 4) < VERSION && !memcmp(head + 8, j->head + 8, HEAD - 8);
}

/* The head of the file differs from ours. */
static linnet_status foreign(const ln_sync_journal *j, const unsigned char *head, linnet_error *error) {
    const bool older = is_older(j, head);
    int at = 0;
    while (head[at] == j->head[at]) at++;
    ln_sync_fail(error, LINNET_OTHER_MODEL,
                 older ? "this is the journal of an older version of linnet"
                       : "this journal belongs to a server of another model");
    ln_sync_at(error, j->path);
    ln_sync_expected(error, "a journal of model %s", j->head + 8);
    ln_sync_got(error, "a different byte at offset %d", at);
    return ln_sync_hint(
        error,
        older ? "start the server of that version once more and end it normally: its snapshot then contains everything"
              : "give every job its own folder");
}

/* Keeps the head. Writing the head again could fail on a full disk, and records appended later would then follow a
 * hole. */
linnet_status ln_sync_journal_clear(ln_sync_journal *j, linnet_error *error) {
    if (ftruncate(j->fd, HEAD)) return failed(j, "cannot truncate the journal", error);
    j->size = HEAD;
    return j->fsync && fsync(j->fd) ? failed(j, "cannot write the journal", error) : LINNET_OK;
}

static linnet_status begin(ln_sync_journal *j, linnet_error *error) {
    if (pwrite(j->fd, j->head, HEAD, 0) != HEAD) return failed(j, "cannot write the journal", error);
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
    put32(j->head + 4, VERSION);
    snprintf((char *)j->head + 8, HEAD - 8, "%s", digest);
    j->fsync = fsync;
    j->fd = ln_sync_file_open(path, O_RDWR | O_CREAT);
    if (j->fd < 0 || fstat(j->fd, &info)) {
        status = ln_sync_file_failed("cannot open the journal", path, error);
    } else if (info.st_size < HEAD) { /* a new file, or a file whose head was not completely written */
        status = begin(j, error);
    } else if (pread(j->fd, head, HEAD, 0) != HEAD) {
        status = failed(j, "cannot read the journal", error);
    } else if (info.st_size == HEAD && is_older(j, head)) { /* the file has no records */
        status = begin(j, error);
    } else if (memcmp(head, j->head, HEAD)) {
        status = foreign(j, head, error);
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

linnet_status ln_sync_journal_append(ln_sync_journal *j, const ln_net_slice *parts, int count, linnet_error *error) {
    static const unsigned char zeros[LN_SYNC_JOURNAL_ALIGN];
    unsigned char frame[FRAME];
    struct iovec vector[SLICES];
    const uint64_t bytes = ln_sync_journal_frame(parts, count, j->size, frame);
    uint64_t at = j->size, left = bytes - FRAME;
    int n = 1;
    bool ok = true;
    vector[0] = (struct iovec){frame, FRAME};
    for (int i = 0; i <= count && ok; i++) {
        const size_t size = i < count ? parts[i].size : (size_t)left; /* the zeros after the last part */
        vector[n++] = (struct iovec){i < count ? (void *)parts[i].data : (void *)zeros, size};
        left -= size;
        if (n < SLICES && i < count) continue;
        uint64_t together = 0;
        for (int k = 0; k < n; k++) together += vector[k].iov_len;
        ok = write_all(j->fd, vector, n, at);
        at += together;
        n = 0;
    }
    if (ok && (!j->fsync || fdatasync(j->fd) == 0)) {
        j->size += bytes;
        return LINNET_OK;
    }
    failed(j, "cannot write the step to the journal, so the step is not made", error);
    ln_sync_hint(error, "is the disk full? A snapshot empties the journal");
    if (ftruncate(j->fd, (off_t)j->size)) ln_sync_got(error, "%s, and the file cannot be truncated", strerror(errno));
    return LINNET_WRITE_FAILED;
}

/* Passes a record to the server. A record that does not match the server's state is damage, too. */
static linnet_status give(const ln_sync_journal *j, ln_sync_server *server, const unsigned char *record,
                          uint64_t length, uint64_t at, linnet_error *error) {
    linnet_status status = ln_sync_server_replay(server, record, (size_t)length, error);
    if (status != LINNET_CORRUPT) return status;
    ln_sync_at(error, j->path);
    return ln_sync_got(error, "the record at offset %llu of %llu", (unsigned long long)at, (unsigned long long)j->size);
}

/* *end: offset at which the valid records end. *doubt: the bytes after `end` are more than a write that was cut
 * short. */
static linnet_status replay(const ln_sync_journal *j, const unsigned char *file, ln_sync_server *server, uint64_t *end,
                            bool *doubt, linnet_error *error) {
    uint64_t at = HEAD, length, next;
    linnet_status status = LINNET_OK;
    for (;; at = next) {
        const ln_sync_journal_state state = ln_sync_journal_look(file, j->size, at, &length, &next);
        *end = at;
        *doubt = state == LN_SYNC_JOURNAL_UNWRITTEN || state == LN_SYNC_JOURNAL_DAMAGED;
        if (state == LN_SYNC_JOURNAL_DAMAGED) return damaged(j, at, error);
        if (state != LN_SYNC_JOURNAL_WHOLE) return LINNET_OK;
        *doubt = true;
        status = give(j, server, file + at + FRAME, length, at, error);
        if (status) return status;
    }
}

linnet_status ln_sync_journal_replay(ln_sync_journal *j, ln_sync_server *server, bool repair, const char *aside,
                                     uint64_t *left_out, linnet_error *error) {
    uint64_t end = j->size;
    bool doubt = false;
    unsigned char *file;
    linnet_status status;
    *left_out = 0;
    if (j->size == HEAD) return LINNET_OK;
    file = mmap(NULL, (size_t)j->size, PROT_READ, MAP_PRIVATE, j->fd, 0);
    if (file == MAP_FAILED) {
        status = failed(j, "cannot read the journal", error);
        if (error) error->code = LINNET_READ_FAILED;
        return LINNET_READ_FAILED;
    }
    status = replay(j, file, server, &end, &doubt, error);
    munmap(file, (size_t)j->size);
    if (status == LINNET_CORRUPT && repair) status = LINNET_OK;
    if (status || end == j->size) return status;
    /* Never deletes anything that may have been acknowledged. */
    if (doubt && !ln_sync_file_copy(j->fd, j->size, aside))
        return ln_sync_file_failed("cannot keep a copy of the journal", aside, error);
    if (ftruncate(j->fd, (off_t)end) || (j->fsync && fsync(j->fd)))
        return failed(j, "cannot cut off the incomplete end of the journal", error);
    *left_out = j->size - end;
    j->size = end;
    return LINNET_OK;
}
