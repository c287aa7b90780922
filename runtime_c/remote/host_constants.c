/* host_constants.c - finds constants in .lnt files. The tables of a file (docs/format.md) have the size and the CRC-32C
 * of each segment, so a host needs no index, and reads only segments that are probably right. Files may be damaged or
 * change meanwhile: each number is checked, and a constant counts only if its bytes have the digest. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_constants.h"

#include "net/bytes.h"
#include "remote/host_piece.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 64, PART = 1 << 16, MODEL_SEGMENTS = 4, CRC32C = 2 };
enum { SEGMENT_OFFSET, SEGMENT_SIZE, SEGMENT_KIND, SEGMENT_DIGEST };

/* A .lnt file, in memory or on the disk. */
typedef struct source {
    const unsigned char *bytes; /* NULL: in the file */
    int file;
    uint64_t size;
} source;

/* The structure of a file: a flatbuffer. Reads outside of it give 0. */
typedef struct structure {
    const unsigned char *bytes;
    uint64_t size;
} structure;

static bool read_from(const source *s, uint64_t at, void *to, size_t size) {
    if (at > s->size || size > s->size - at) return false;
    if (s->bytes != NULL) return memcpy(to, s->bytes + at, size), true;
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(s->file, (char *)to + done, size - done, (off_t)(at + done));
        if (n > 0) done += (size_t)n;
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
    }
    return true;
}

/* ---- the tables of a file ---------------------------------------------------------------------------------------- */

static uint64_t number(const structure *s, uint64_t at, int width) {
    uint64_t value = 0;
    if (at > s->size || (uint64_t)width > s->size - at) return 0;
    for (int i = width; i-- > 0;) value = value << 8 | s->bytes[at + (uint64_t)i];
    return value;
}

/* Where a table has the field of this slot; 0: nowhere. */
static uint64_t field(const structure *s, uint64_t table, int slot) {
    const uint64_t fields = table - (uint64_t)(int64_t)(int32_t)number(s, table, 4), entry = 4 + 2 * (uint64_t)slot;
    const uint64_t offset = entry + 2 <= number(s, fields, 2) ? number(s, fields + entry, 2) : 0;
    return offset > 0 ? table + offset : 0;
}

static uint64_t field_number(const structure *s, uint64_t table, int slot, int width) {
    const uint64_t at = field(s, table, slot);
    return at > 0 ? number(s, at, width) : 0;
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

/* Copies bytes of the file into the hole, which is filled if they have its digest. */
static void copy(const source *s, uint64_t offset, host_recipe *recipe, host_hole *hole) {
    unsigned char part[PART], digest[LN_SHA256];
    ln_sha256_state state = ln_sha256_begin();
    for (uint64_t done = 0; done < hole->bytes; done += PART) {
        const size_t size = hole->bytes - done < PART ? (size_t)(hole->bytes - done) : PART;
        if (!read_from(s, offset + done, part, size)) return;
        ln_sha256_add(&state, part, size);
        if (!ln_host_recipe_write(recipe, hole->offset + done, part, size)) return;
    }
    ln_sha256_end(&state, digest);
    hole->filled = memcmp(digest, hole->digest, LN_SHA256) == 0;
    recipe->lacking -= hole->filled;
}

static void fill_from_segment(const source *s, const structure *tables, uint64_t segment, host_recipe *recipe) {
    const uint64_t offset = field_number(tables, segment, SEGMENT_OFFSET, 8),
                   size = field_number(tables, segment, SEGMENT_SIZE, 8),
                   checksum = field_number(tables, segment, SEGMENT_DIGEST, 8);
    if (size < LN_REMOTE_HOLE || field_number(tables, segment, SEGMENT_KIND, 1) != CRC32C) return;
    for (int i = 0; i < recipe->count; i++) {
        host_hole *hole = &recipe->holes[i];
        if (!hole->filled && hole->checksum == checksum && hole->bytes == size) copy(s, offset, recipe, hole);
    }
}

static void fill_from(ln_host *host, const source *s, host_recipe *recipe) {
    const linnet_allocator *a = &host->allocator;
    unsigned char header[HEADER];
    if (!read_from(s, 0, header, HEADER) || memcmp(header, "LINNET\r\n", 8) != 0) return;
    const uint64_t at = get64(header + 16), size = get64(header + 24);
    if (size < 8 || at > s->size || size > s->size - at || size > INT32_MAX) return;
    unsigned char *bytes = a->alloc(a->context, (size_t)size, 64);
    if (bytes == NULL) return;
    if (read_from(s, at, bytes, (size_t)size)) {
        const structure tables = {bytes, size};
        const uint64_t list = field(&tables, number(&tables, 0, 4), MODEL_SEGMENTS),
                       vector = list + number(&tables, list, 4), count = list > 0 ? number(&tables, vector, 4) : 0;
        for (uint64_t i = 0; i < count && i < size / 4 && recipe->lacking > 0; i++) {
            const uint64_t entry = vector + 4 + 4 * i;
            fill_from_segment(s, &tables, entry + number(&tables, entry, 4), recipe);
        }
    }
    a->free(a->context, bytes, (size_t)size);
}

static void fill_from_memory(ln_host *host, host_recipe *recipe) {
    host_model *last = NULL;
    do { /* a model that is read has a user more, and so stays in the list */
        pthread_mutex_lock(&host->lock);
        host_model *next = last != NULL ? last->next : host->models;
        while (next != NULL && (next->bytes == NULL || recipe->lacking == 0)) next = next->next;
        if (next != NULL) next->users++;
        pthread_mutex_unlock(&host->lock);
        if (last != NULL) ln_host_drop_model(host, last);
        if (next != NULL) fill_from(host, &(source){.bytes = next->bytes, .size = next->size}, recipe);
        last = next;
    } while (last != NULL);
}

static void fill_from_file(ln_host *host, const char *path, host_recipe *recipe) {
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode))
        fill_from(host, &(source){.file = file, .size = (uint64_t)about.st_size}, recipe);
    close(file);
}

void ln_host_constants_fill(ln_host *host, host_recipe *recipe) {
    char path[LN_HOST_PATH];
    fill_from_memory(host, recipe);
    DIR *files = host->config.folder != NULL && recipe->lacking > 0 ? opendir(host->config.folder) : NULL;
    if (files == NULL) return;
    for (const struct dirent *file; recipe->lacking > 0 && (file = readdir(files)) != NULL;) {
        const size_t length = strlen(file->d_name);
        if (atomic_load(&host->stopping)) break;
        if (length < 5 || strcmp(file->d_name + length - 4, ".lnt") != 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", host->config.folder, file->d_name) < (int)sizeof path)
            fill_from_file(host, path, recipe);
    }
    closedir(files);
}
