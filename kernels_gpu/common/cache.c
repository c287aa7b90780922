/* cache.c - compiled programs in files, one per program: a head with the size and a hash of the content, then the
 * content. A file is written under another name and then renamed, so a reader never sees an incomplete file. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/cache.h"
#include "kernels_gpu/common/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct head {
    char magic[8];
    uint64_t size, hash;
} head;
static const char MAGIC[8] = {'L', 'N', 'C', 'L', 'P', 'R', 'G', '1'};

static uint64_t hash_bytes(const unsigned char *data, size_t size) {
    uint64_t a = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; ++i) a = (a ^ data[i]) * 0x100000001b3u;
    return a;
}

bool lg_cache_folder(char *out, size_t size) {
    const char *base = lg_variable_value(LG_CACHE_HOME), *home = lg_variable_value(LG_HOME);
    int n = -1;
    if (base != NULL && base[0] == '/')
        n = snprintf(out, size, "%s/linnet/programs", base);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/linnet/programs", home);
    return n > 0 && (size_t)n < size;
}

/* Makes the folder and those above it, for the user alone. */
static void make_folders(const char *folder) {
    char path[1100];
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) return;
    for (char *at = path + 1; *at != 0; ++at)
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0700);
            *at = '/';
        }
    mkdir(path, 0700);
}

static size_t load(const char *folder, const char *key, unsigned char **data) {
    char path[1400];
    head h;
    *data = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, key);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    if (fread(&h, sizeof h, 1, file) == 1 && memcmp(h.magic, MAGIC, sizeof MAGIC) == 0 && h.size < (uint64_t)1 << 30) {
        *data = malloc((size_t)h.size + 1);
        if (*data != NULL &&
            (fread(*data, 1, (size_t)h.size + 1, file) != h.size || hash_bytes(*data, (size_t)h.size) != h.hash)) {
            free(*data);
            *data = NULL;
        }
    }
    fclose(file);
    return *data != NULL ? (size_t)h.size : 0;
}

static void store(const char *folder, const char *key, const void *data, size_t size) {
    char path[1400], written[1440];
    head h = {.size = size, .hash = hash_bytes(data, size)};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    make_folders(folder);
    snprintf(path, sizeof path, "%s/%s", folder, key);
    /* The address of h differs between threads. */
    snprintf(written, sizeof written, "%s.%ld.%p.part", path, (long)getpid(), (void *)&h);
    FILE *file = fopen(written, "wb");
    if (file == NULL) return;
    const bool whole = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(data, 1, size, file) == size;
    if (fclose(file) != 0 || !whole || rename(written, path) != 0) unlink(written);
}

size_t lg_cache_load(const linnet_program_cache *host, const char *folder, const char *key, unsigned char **data) {
    *data = NULL;
    if (host == NULL) return folder != NULL ? load(folder, key, data) : 0;
    const size_t size = host->load(host->context, key, NULL, 0);
    if (size == 0 || (*data = malloc(size)) == NULL) return 0;
    if (host->load(host->context, key, *data, size) == size) return size;
    free(*data); /* another process replaced the file while it was read */
    *data = NULL;
    return 0;
}

void lg_cache_store(const linnet_program_cache *host, const char *folder, const char *key, const void *data,
                    size_t size) {
    if (host != NULL)
        host->store(host->context, key, data, size);
    else if (folder != NULL)
        store(folder, key, data, size);
}
