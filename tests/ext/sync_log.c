/* sync_log.c - a library to preload: SYNC_LOG is a file that gets a line for every fsync and fdatasync, with the name
 * of what is synced. So a test counts what has reached the disk, and when. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *call, int file) {
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    const char *log = getenv("SYNC_LOG");
    char link[64], path[4096], line[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    const int size = snprintf(line, sizeof line, "%s %s\n", call, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    const int to = log ? real_open(log, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (to < 0) return;
    if (write(to, line, (size_t)size) != size) abort();
    close(to);
}

int fsync(int file) {
    note("fsync", file);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    note("fdatasync", file);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}
