/* host_folder.c - the folder in which a host keeps pieces: a file of the name DIGEST.lnt for each, and files whose
 * names begin with part- for those that are arriving. Variables that are kept are in files of the name DIGEST.kept. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DIGITS = 2 * LN_SHA256, DAY = 86400 };

static const char part[] = "part-", kept[] = ".kept";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* while room for a file is made */

static bool path_to(const ln_host_config *config, const unsigned char *digest, const char *ending,
                    char path[LN_HOST_PATH]) {
    char hex[DIGITS + 1];
    if (config->folder == NULL) return false;
    for (int i = 0; i < LN_SHA256; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return snprintf(path, LN_HOST_PATH, "%s/%s%s", config->folder, hex, ending) < LN_HOST_PATH;
}

static bool path_of(const ln_host_config *config, const unsigned char *digest, char path[LN_HOST_PATH]) {
    return path_to(config, digest, ".lnt", path);
}

bool ln_host_folder_find(const ln_host_config *config, const unsigned char digest[LN_SHA256], char path[LN_HOST_PATH]) {
    if (!path_of(config, digest, path)) return false;
    return utimensat(AT_FDCWD, path, NULL, 0) == 0; /* used now */
}

void ln_host_folder_remove(const char *path) { unlink(path); }

static bool is_kept(const char *name) {
    return strspn(name, "0123456789abcdef") == DIGITS && strcmp(name + DIGITS, kept) == 0;
}

/* Tells whether a host has made the file. */
static bool is_ours(const char *name) {
    if (strncmp(name, part, sizeof part - 1) == 0 || is_kept(name)) return true;
    return strspn(name, "0123456789abcdef") == DIGITS && strcmp(name + DIGITS, ".lnt") == 0;
}

/* Removes the file that was used longest ago, but not `except`. Returns the bytes that are left, or 0 if nothing can be
 * removed. */
static uint64_t remove_oldest(const char *folder, uint64_t most, const char *except) {
    char path[LN_HOST_PATH], oldest[LN_HOST_PATH] = "";
    struct timespec first = {0};
    uint64_t total = 0, size = 0;
    DIR *files = opendir(folder);
    if (files == NULL) return 0;
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        struct stat about;
        if (!is_ours(file->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, file->d_name) >= (int)sizeof path) continue;
        if (stat(path, &about) != 0) continue;
        total += (uint64_t)about.st_size;
        const struct timespec at = about.st_mtim;
        if (strcmp(path, except) == 0) continue;
        if (oldest[0] != 0 && (at.tv_sec > first.tv_sec || (at.tv_sec == first.tv_sec && at.tv_nsec >= first.tv_nsec)))
            continue;
        memcpy(oldest, path, sizeof oldest);
        first = at, size = (uint64_t)about.st_size;
    }
    closedir(files);
    if (total <= most || oldest[0] == 0 || unlink(oldest) != 0) return 0;
    return total - size;
}

/* Creates a file that no other host has. This host uses each name once. */
static int create(const char *folder, char path[LN_HOST_PATH]) {
    static unsigned last;
    for (int i = 0; i < 1000; i++) {
        const long process = (long)getpid();
        if (snprintf(path, LN_HOST_PATH, "%s/%s%ld-%u", folder, part, process, ++last) >= LN_HOST_PATH) return -1;
        const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST) return file;
    }
    return -1;
}

int ln_host_folder_make(const ln_host_config *config, uint64_t bytes, char path[LN_HOST_PATH]) {
    const uint64_t most = config->folder_bytes;
    if (config->folder == NULL || (most != 0 && bytes > most)) return -1;
    pthread_mutex_lock(&lock);
    int file = create(config->folder, path);
    if (file >= 0 && (bytes > INT64_MAX || ftruncate(file, (off_t)bytes) != 0)) { /* counted from the beginning */
        close(file);
        unlink(path);
        file = -1;
    }
    while (file >= 0 && most != 0 && remove_oldest(config->folder, most, path) > most) continue;
    pthread_mutex_unlock(&lock);
    return file;
}

bool ln_host_folder_keep(const ln_host_config *config, const unsigned char digest[LN_SHA256], const char *made) {
    char path[LN_HOST_PATH];
    return path_of(config, digest, path) && rename(made, path) == 0;
}

void ln_host_folder_store(const ln_host_config *config, const unsigned char digest[LN_SHA256], const void *bytes,
                          size_t size) {
    char made[LN_HOST_PATH];
    const int file = ln_host_folder_make(config, size, made);
    if (file < 0) return;
    bool written = true;
    for (size_t done = 0; done < size && written;) {
        const ssize_t n = write(file, (const char *)bytes + done, size - done);
        if (n > 0) done += (size_t)n;
        written = n > 0 || (n < 0 && errno == EINTR);
    }
    if (close(file) != 0 || !written || !ln_host_folder_keep(config, digest, made)) unlink(made);
}

int ln_host_folder_kept(const ln_host_config *config, const unsigned char digest[LN_SHA256], uint64_t bytes) {
    char path[LN_HOST_PATH], made[LN_HOST_PATH];
    if (!path_to(config, digest, kept, path)) return -1;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 || bytes == 0) return file;
    file = ln_host_folder_make(config, bytes, made);
    if (file < 0 || rename(made, path) == 0) return file;
    close(file);
    unlink(made);
    return -1;
}

void ln_host_folder_clean(const ln_host_config *config) {
    char path[LN_HOST_PATH];
    DIR *files = config->folder != NULL ? opendir(config->folder) : NULL;
    if (files == NULL) return;
    const time_t before = time(NULL) - DAY;
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        struct stat about;
        if (!is_kept(file->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", config->folder, file->d_name) >= (int)sizeof path) continue;
        if (stat(path, &about) == 0 && about.st_mtim.tv_sec < before) unlink(path);
    }
    closedir(files);
}
