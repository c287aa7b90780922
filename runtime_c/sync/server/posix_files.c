/* posix_files.c - files of a server's folder. Links in the folder are never followed. Otherwise another user with write
 * access to the folder could make the server write elsewhere. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_files.h"

#include "net/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };

linnet_status ln_sync_file_failed(const char *what, const char *path, linnet_error *error) {
    const int code = errno;
    ln_sync_fail(error, LINNET_WRITE_FAILED, "%s", what);
    ln_sync_at(error, path);
    ln_sync_got(error, "%s",
                code == ELOOP    ? "a symbolic link"
                : code == EINVAL ? "not a regular file"
                                 : strerror(code));
    return ln_sync_hint(error, code == ELOOP || code == EINVAL
                                   ? "the server does not follow links here; remove the file"
                                   : "give a folder that you can write to");
}

int ln_sync_file_open(const char *path, int flags) {
    struct stat info;
    const int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644); /* opening a pipe must not block */
    if (fd < 0 || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

bool ln_sync_file_is_strange(const char *path) {
    struct stat info;
    if (lstat(path, &info)) return false;
    errno = S_ISLNK(info.st_mode) ? ELOOP : EINVAL;
    return !S_ISREG(info.st_mode);
}

void ln_sync_folder_sync(const char *folder) {
    const int directory = open(folder, O_RDONLY | O_CLOEXEC);
    if (directory < 0) return;
    (void)fsync(directory);
    close(directory);
}

static bool put(int fd, const char *bytes, size_t size) {
    while (size) {
        const ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* Closes a new file after writing it to the disk. */
static bool close_synced(int fd, bool ok) {
    ok = ok && fsync(fd) == 0;
    return close(fd) == 0 && ok;
}

linnet_status ln_sync_file_replace(const char *folder, const char *path, const char *text, linnet_error *error) {
    const size_t size = strlen(path) + 6;
    char *part = malloc(size);
    bool ok = false;
    int fd;
    if (!part) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to use the server's folder");
    snprintf(part, size, "%s.part", path);
    unlink(part); /* removes a file that a killed server left or that somebody else put there */
    fd = ln_sync_file_open(part, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0) ok = close_synced(fd, put(fd, text, strlen(text))) && rename(part, path) == 0;
    if (!ok) ln_sync_file_failed("cannot write a file of the server's folder", path, error);
    if (!ok && fd >= 0) unlink(part);
    free(part);
    if (!ok) return LINNET_WRITE_FAILED;
    ln_sync_folder_sync(folder);
    return LINNET_OK;
}

bool ln_sync_file_copy(int fd, uint64_t size, const char *path) {
    char *block = malloc(BLOCK);
    const int to = block ? ln_sync_file_open(path, O_WRONLY | O_CREAT | O_EXCL) : -1;
    bool ok = to >= 0;
    for (uint64_t at = 0; ok && at < size;) {
        const ssize_t n = pread(fd, block, size - at < BLOCK ? (size_t)(size - at) : BLOCK, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        ok = n > 0 && put(to, block, (size_t)n);
        at += n > 0 ? (uint64_t)n : 0;
    }
    if (to >= 0 && !close_synced(to, ok)) {
        const int code = errno;
        unlink(path);
        errno = code;
        ok = false;
    }
    free(block);
    return ok;
}
