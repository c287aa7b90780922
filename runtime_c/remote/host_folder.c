/* host_folder.c - the folder in which a host keeps pieces: a file of the name DIGEST.lnt for each. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 2 * LN_SHA256 + 4 }; /* letters of a piece's name */

static bool path_of(const ln_host_config *config, const unsigned char *digest, const char *ending,
                    char path[LN_HOST_PATH]) {
    char hex[2 * LN_SHA256 + 1];
    if (config->folder == NULL) return false;
    for (int i = 0; i < LN_SHA256; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return snprintf(path, LN_HOST_PATH, "%s/%s%s", config->folder, hex, ending) < LN_HOST_PATH;
}

bool ln_host_folder_find(const ln_host_config *config, const unsigned char digest[LN_SHA256], char path[LN_HOST_PATH]) {
    if (!path_of(config, digest, ".lnt", path)) return false;
    return utimensat(AT_FDCWD, path, NULL, 0) == 0; /* used now */
}

void ln_host_folder_remove(const char *path) { unlink(path); }

/* Removes the piece that was used longest ago. Returns the bytes that are left, or 0 if nothing can be removed. */
static uint64_t remove_oldest(const char *folder, uint64_t most) {
    char path[LN_HOST_PATH], oldest[LN_HOST_PATH] = "";
    struct timespec first = {0};
    uint64_t total = 0, size = 0;
    DIR *files = opendir(folder);
    if (files == NULL) return 0;
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        struct stat about;
        if (strlen(file->d_name) != NAME || strcmp(file->d_name + NAME - 4, ".lnt") != 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, file->d_name) >= (int)sizeof path) continue;
        if (stat(path, &about) != 0) continue;
        total += (uint64_t)about.st_size;
        const struct timespec at = about.st_mtim;
        if (oldest[0] != 0 && (at.tv_sec > first.tv_sec || (at.tv_sec == first.tv_sec && at.tv_nsec >= first.tv_nsec)))
            continue;
        memcpy(oldest, path, sizeof oldest);
        first = at, size = (uint64_t)about.st_size;
    }
    closedir(files);
    if (total <= most || oldest[0] == 0 || unlink(oldest) != 0) return 0;
    return total - size;
}

void ln_host_folder_store(const ln_host_config *config, const unsigned char digest[LN_SHA256], const void *bytes,
                          size_t size) {
    char path[LN_HOST_PATH], made[LN_HOST_PATH];
    if (!path_of(config, digest, ".lnt", path) || !path_of(config, digest, ".part", made)) return;
    if (config->folder_bytes != 0 && size > config->folder_bytes) return;
    FILE *file = fopen(made, "wb");
    if (file == NULL) return;
    const bool written = fwrite(bytes, 1, size, file) == size;
    if (fclose(file) != 0 || !written || rename(made, path) != 0) {
        unlink(made);
        return;
    }
    while (config->folder_bytes != 0 && remove_oldest(config->folder, config->folder_bytes) > config->folder_bytes)
        continue;
}
