/* platform_files.c - files on POSIX systems: a whole file mapped, and a file replaced so that a crash leaves the old
 * one or the new one. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "base/platform_files.h"

#include "base/memory.h"
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static linnet_status file_failure(linnet_error *error, linnet_status code, const char *path, const char *what) {
    int number =
        errno; /* strerror has state and strerror_r has two incompatible forms, so the usual reasons are named here */
    const char *reason = number == ENOENT || number == ENOTDIR  ? "no such file"
                         : number == EACCES                     ? "permission denied"
                         : number == EMFILE || number == ENFILE ? "too many open files"
                         : number == ENOMEM                     ? "not enough address space"
                         : number == ENOSPC || number == EDQUOT ? "the disk or its quota is full"
                         : number == EFBIG                      ? "the file is larger than the system allows"
                         : number == EROFS                      ? "the file system is read-only"
                         : number == EIO                        ? "disk I/O error"
                         : number == EISDIR                     ? "not a regular file"
                                                                : "";
    ln_fail(error, code, "%s", what);
    ln_at_tensor(error, path);
    ln_got(error, "errno %d%s%s", number, reason[0] ? ": " : "", reason);
    if (number == ENOENT || number == ENOTDIR) ln_hint(error, "check the path");
    return code;
}

linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error) {
    struct stat status;
    void *mapped = NULL;
    /* O_NONBLOCK: a FIFO must not hang the open; regular files ignore it. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *data = NULL;
    *size = 0;
    if (file < 0) return file_failure(error, LINNET_NOT_FOUND, path, "cannot open the model file");
    if (fstat(file, &status) != 0) {
        file_failure(error, LINNET_READ_FAILED, path, "cannot read the size of the model file");
        close(file);
        return LINNET_READ_FAILED;
    }
    if (!S_ISREG(status.st_mode)) {
        close(file);
        ln_fail(error, LINNET_READ_FAILED, "not a regular file");
        ln_at_tensor(error, path);
        ln_hint(error, "give the path of a .lnt file");
        return LINNET_READ_FAILED;
    }
    if (status.st_size > 0 && (uint64_t)status.st_size <= SIZE_MAX) {
        mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapped == MAP_FAILED) {
            file_failure(error, LINNET_READ_FAILED, path, "cannot map the model file into memory");
            close(file);
            return LINNET_READ_FAILED;
        }
    }
    close(file);
    *data = mapped;
    *size = (size_t)status.st_size;
    return LINNET_OK;
}

void ln_file_unmap(const void *data, size_t size) {
    if (data) munmap((void *)(uintptr_t)data, size);
}

void ln_file_forget(const void *data, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page, end = ((uintptr_t)data + size) / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Opens and locks PATH.part. While this function waits for the lock, the previous holder may rename the file. In that
   case it opens PATH.part again. */
static bool open_new(ln_new_file *f) {
    for (;;) {
        struct stat mine, there;
        f->file = open(f->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (f->file < 0) return false;
        while (flock(f->file, LOCK_EX) != 0 && errno == EINTR); /* a file system without locks is used without a lock */
        if (fstat(f->file, &mine) == 0 && stat(f->temporary, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            return true;
        close(f->file);
    }
}

static bool write_all(int file, const char *data, size_t left) {
    while (left > 0) {
        const ssize_t done = write(file, data, left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        left -= (size_t)done;
    }
    return true;
}

/* Writes zeros as holes, so that a table with few used rows is as small on the disk as in memory. */
static bool write_sparse(int file, const char *data, size_t size, bool *hole) {
    enum { PIECE = 64 << 10 };
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < PIECE ? size - at : PIECE;
        *hole = part == PIECE && ln_is_zero(data + at, part) && lseek(file, PIECE, SEEK_CUR) >= 0;
        if (!*hole && !write_all(file, data + at, part)) return false;
    }
    return true;
}

void ln_file_drop(ln_new_file *f) {
    if (f->file < 0) return;
    unlink(f->temporary); /* removed before closing, because closing releases the lock */
    close(f->file);
    f->file = -1;
}

static linnet_status write_failure(ln_new_file *f, linnet_error *error) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    file_failure(error, LINNET_WRITE_FAILED, f->path, "cannot write the file; an existing file is unchanged");
    ln_file_drop(f);
    if (full) ln_expected(error, "%llu bytes free", (unsigned long long)f->bytes);
    ln_hint(error, full ? "free disk space, or use another path" : "use a path with write permission");
    return LINNET_WRITE_FAILED;
}

linnet_status ln_file_begin(ln_new_file *f, const char *path, uint64_t bytes, linnet_error *error) {
    struct stat there;
    *f = (ln_new_file){.file = -1, .bytes = bytes};
    if (realpath(path, f->path) == NULL) snprintf(f->path, sizeof f->path, "%s", path);
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof f->path) return write_failure(f, error);
    snprintf(f->temporary, sizeof f->temporary, "%s.part", f->path);
    errno = EISDIR;
    if (stat(f->path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_failure(f, error); /* the old file must stay */
    return !open_new(f) || ftruncate(f->file, 0) != 0 ? write_failure(f, error) : LINNET_OK;
}

linnet_status ln_file_append(ln_new_file *f, const void *data, size_t size, linnet_error *error) {
    return size == 0 || write_sparse(f->file, data, size, &f->hole) ? LINNET_OK : write_failure(f, error);
}

linnet_status ln_file_put(ln_new_file *f, const void *data, size_t size, linnet_error *error) {
    if (f->hole && ftruncate(f->file, (off_t)f->bytes) != 0) return write_failure(f, error);
    return lseek(f->file, 0, SEEK_SET) == 0 && write_all(f->file, data, size) ? LINNET_OK : write_failure(f, error);
}

linnet_status ln_file_commit(ln_new_file *f, linnet_error *error) {
    char *name;
    int folder;
    if (fsync(f->file) != 0 || rename(f->temporary, f->path) != 0) return write_failure(f, error);
    close(f->file);
    /* The rename is durable once the folder has been written to the disk. Not every file system can sync folders.
       Without the sync the name refers to either the old file or the new one after a crash, which is acceptable. */
    name = strrchr(f->path, '/');
    if (name != NULL) name[name == f->path] = 0;
    folder = open(name != NULL ? f->path : ".", O_RDONLY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        close(folder);
    }
    return LINNET_OK;
}
