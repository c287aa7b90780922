/* faulty_files.c - a library to preload: the FAULT_AT-th call (from 0) that changes files fails with errno FAULT_ERRNO.
 * FAULT_SHORT=1: every write takes 7 bytes at most, and every second one is interrupted. FAULT_LOG: a file that gets a
 * letter per call: o open to write, t truncate, w write, s sync of a file, r rename, d sync of a folder, u unlink. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether this call has to fail. */
static int faulty(char letter) {
    const char *at = getenv("FAULT_AT"), *number = getenv("FAULT_ERRNO"), *log = getenv("FAULT_LOG");
    const int call = calls++;
    if (log) {
        const int file = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (REAL(write)(file, &letter, 1) != 1) abort();
        close(file);
    }
    if (!at || atoi(at) != call) return 0;
    errno = number ? atoi(number) : ENOSPC;
    return 1;
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    mode_t mode = 0;
    va_start(arguments, flags);
    if (flags & O_CREAT) mode = (mode_t)va_arg(arguments, int);
    va_end(arguments);
    if ((flags & O_CREAT) && faulty('o')) return -1;
    return REAL(open)(path, flags, mode);
}

int ftruncate(int file, off_t length) { return faulty('t') ? -1 : REAL(ftruncate)(file, length); }

ssize_t write(int file, const void *data, size_t size) {
    static int turn;
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || file < 3) return REAL(write)(file, data, size);
    if (getenv("FAULT_SHORT")) {
        if (turn++ % 2) {
            errno = EINTR;
            return -1;
        }
        return REAL(write)(file, data, size < 7 ? size : 7);
    }
    return faulty('w') ? -1 : REAL(write)(file, data, size);
}

int fsync(int file) {
    struct stat about;
    const int folder = fstat(file, &about) == 0 && S_ISDIR(about.st_mode);
    return faulty(folder ? 'd' : 's') ? -1 : REAL(fsync)(file);
}

int rename(const char *from, const char *to) { return faulty('r') ? -1 : REAL(rename)(from, to); }

int unlink(const char *path) {
    faulty('u'); /* seen, never refused: it is the way out */
    return REAL(unlink)(path);
}
