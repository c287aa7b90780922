/* train_lock.c - the lock of a checkpoint: while linnet-train runs, CHECKPOINT.lock is locked and names the process.
   The system releases the lock of a process that is killed; its file is then used again. */
#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif

#include "train_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tells whether `file` is still the file at `path`, which the previous holder of the lock may have removed. */
static bool is_at(int file, const char *path) {
    struct stat mine, there;
    return fstat(file, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

static int refuse(const trainer *t, int file) {
    char holder[24] = "";
    const ssize_t n = pread(file, holder, sizeof holder - 1, 0);
    holder[n > 0 ? strspn(holder, "0123456789") : 0] = 0;
    close(file);
    return tool_fail(t->tool,
                     "%s is the checkpoint of another linnet-train that runs, process %s; end that process first, or "
                     "give another --checkpoint",
                     t->o->checkpoint, holder[0] ? holder : "with an unknown number");
}

int trainer_lock(trainer *t) {
    char path[TOOL_PATH], number[24];
    if (!t->o->checkpoint) return TOOL_OK;
    snprintf(path, sizeof path, "%s.lock", t->o->checkpoint);
    for (;;) {
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file < 0) return tool_fail(t->tool, "cannot write %s: %s; remove it", path, strerror(errno));
        if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return refuse(t, file);
        if (is_at(file, path)) { /* also on a file system without locks, which gives no protection */
            /* If the disk is full, the lock names no process. */
            const int size = snprintf(number, sizeof number, "%ld\n", (long)getpid());
            if (ftruncate(file, 0) != 0 || pwrite(file, number, (size_t)size, 0) != size) number[0] = 0;
            t->lock = file;
            t->locked = true;
            return TOOL_OK;
        }
        close(file);
    }
}

void trainer_unlock(trainer *t) {
    char path[TOOL_PATH];
    if (!t->locked) return;
    snprintf(path, sizeof path, "%s.lock", t->o->checkpoint);
    if (is_at(t->lock, path)) unlink(path);
    close(t->lock);
    t->locked = false;
}
