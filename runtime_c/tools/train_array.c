/* train_array.c - finds the rows of an array in a file: NumPy's .npy, .npz (APPNOTE.TXT of PKWARE: zip, stored),
 * and the idx files of MNIST (yann.lecun.com/exdb/mnist: "the IDX file format"). Rows are read one at a time. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define _FILE_OFFSET_BITS 64

#include "train_array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t little(const unsigned char *p, int width) {
    uint64_t value = 0;
    for (int i = width; i-- > 0;) value = value << 8 | p[i];
    return value;
}

static bool problem_is(char *problem, size_t size, const char *text) {
    snprintf(problem, size, "%s", text);
    return false;
}

static bool read_at(FILE *file, uint64_t at, void *to, size_t size) {
    return at <= INT64_MAX && fseeko(file, (off_t)at, SEEK_SET) == 0 && fread(to, 1, size, file) == size;
}

/* ---- zip -------------------------------------------------------------------------------------------------------- */

typedef struct zip_entry {
    uint64_t method, compressed, bytes, header;
    char name[256];
} zip_entry;

/* If a number of the central directory has all bits set, its value is in the next 8 bytes of the zip64 extra field. */
static void widen(uint64_t *value, const unsigned char **extra, const unsigned char *end) {
    if (*value != 0xffffffffu || end - *extra < 8) return;
    *value = little(*extra, 8);
    *extra += 8;
}

/* Reads the entry at *at of the central directory, and moves *at to the next one. */
static bool next_entry(FILE *file, uint64_t *at, zip_entry *e) {
    unsigned char head[46], extra[1024];
    size_t name, more, comment;
    if (!read_at(file, *at, head, sizeof head) || little(head, 4) != 0x02014b50u) return false;
    name = (size_t)little(head + 28, 2);
    more = (size_t)little(head + 30, 2);
    comment = (size_t)little(head + 32, 2);
    *e = (zip_entry){little(head + 10, 2), little(head + 20, 4), little(head + 24, 4), little(head + 42, 4), ""};
    if (name < sizeof e->name && !read_at(file, *at + sizeof head, e->name, name)) return false;
    if (more && more <= sizeof extra && read_at(file, *at + sizeof head + name, extra, more))
        for (const unsigned char *p = extra, *end = extra + more; end - p >= 4;) {
            const unsigned char *field = p + 4, *stop = field + little(p + 2, 2);
            if (stop > end) break;
            if (little(p, 2) == 1) {
                widen(&e->bytes, &field, stop);
                widen(&e->compressed, &field, stop);
                widen(&e->header, &field, stop);
            }
            p = stop;
        }
    *at += sizeof head + name + more + comment;
    return true;
}

/* Finds the central directory and its number of entries, from the record at the end of the file (a comment may follow
 * it). */
static bool find_directory(FILE *file, uint64_t *at, uint64_t *entries) {
    enum { RECORD = 22, MOST = RECORD + 65535, LOCATOR = 20 };
    unsigned char locator[LOCATOR], large[56], *tail = malloc(MOST), *record;
    const off_t end = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : -1;
    const size_t size = end < MOST ? (size_t)(end < 0 ? 0 : end) : MOST;
    bool found = tail && size >= RECORD && read_at(file, (uint64_t)end - size, tail, size);
    record = found ? tail + size - RECORD : tail;
    while (found && little(record, 4) != 0x06054b50u) {
        found = record > tail;
        record -= found;
    }
    if (found) {
        const uint64_t place = (uint64_t)end - size + (uint64_t)(record - tail);
        *entries = little(record + 10, 2);
        *at = little(record + 16, 4);
        if (place >= LOCATOR && read_at(file, place - LOCATOR, locator, sizeof locator) &&
            little(locator, 4) == 0x07064b50u && read_at(file, little(locator + 8, 8), large, sizeof large) &&
            little(large, 4) == 0x06064b50u) {
            *entries = little(large + 32, 8);
            *at = little(large + 48, 8);
        }
    }
    free(tail);
    return found;
}

/* Moves the file position to the beginning of the member NAME.npy. */
static bool seek_member(FILE *file, const char *member, uint64_t *bytes, char *problem, size_t size) {
    uint64_t at, entries;
    size_t used = 0;
    zip_entry e;
    if (!find_directory(file, &at, &entries))
        return problem_is(problem, size, "not an .npz file, or the file is truncated");
    used = (size_t)snprintf(problem, size, "the file has no array '%s'; it has:", member);
    for (uint64_t i = 0; i < entries; i++) {
        unsigned char head[30];
        size_t length;
        if (!next_entry(file, &at, &e)) return problem_is(problem, size, "the zip directory is damaged");
        length = strlen(e.name);
        if (length > 4 && !strcmp(e.name + length - 4, ".npy")) e.name[length -= 4] = 0;
        if (strcmp(e.name, member) != 0) {
            if (used < size) used += (size_t)snprintf(problem + used, size - used, " %s", e.name);
            continue;
        }
        if (e.method != 0 || e.compressed != e.bytes)
            return problem_is(problem, size,
                              "the array is compressed; save the file with numpy.savez, not savez_compressed");
        if (!read_at(file, e.header, head, sizeof head) || little(head, 4) != 0x04034b50u)
            return problem_is(problem, size, "the array is not where the zip directory says");
        *bytes = e.bytes;
        at = e.header + sizeof head + little(head + 26, 2) + little(head + 28, 2);
        return fseeko(file, (off_t)at, SEEK_SET) == 0 || problem_is(problem, size, "the file is truncated");
    }
    return false;
}

/* ---- idx -------------------------------------------------------------------------------------------------------- */

static bool read_idx(FILE *file, array_file *out, char *problem, size_t size) {
    static const struct {
        int code, dtype;
    } types[] = {{0x08, LINNET_U8},  {0x09, LINNET_I8},  {0x0b, LINNET_I16},
                 {0x0c, LINNET_I32}, {0x0d, LINNET_F32}, {0x0e, LINNET_F64}};
    unsigned char head[4], dim[4];
    uint64_t count = 1;
    out->head.dtype = LINNET_NONE;
    if (fread(head, 1, 4, file) != 4) return problem_is(problem, size, "it ends inside its header");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == head[2]) out->head.dtype = types[i].dtype;
    if (out->head.dtype == LINNET_NONE || head[3] > LINNET_MAX_RANK)
        return problem_is(problem, size, "the idx file has an unknown element type or too many dimensions");
    out->head.rank = head[3];
    for (int d = 0; d < out->head.rank; d++) {
        if (fread(dim, 1, 4, file) != 4) return problem_is(problem, size, "it ends inside its header");
        out->head.shape[d] = (long long)dim[0] << 24 | (long long)dim[1] << 16 | dim[2] << 8 | dim[3];
        if (out->head.shape[d] && count > (UINT64_MAX >> 8) / (uint64_t)out->head.shape[d])
            return problem_is(problem, size, "the shape has too many elements");
        count *= (uint64_t)out->head.shape[d];
    }
    out->head.bytes = (size_t)(count * linnet_dtype_size(out->head.dtype));
    out->swap = linnet_dtype_size(out->head.dtype) > 1;
    return true;
}

/* ---- any file type ---------------------------------------------------------------------------------------------- */

static bool read_header(FILE *file, const char *member, array_file *out, char *problem, size_t size) {
    unsigned char first[4] = {0};
    uint64_t bytes = 0;
    const size_t got = fread(first, 1, sizeof first, file);
    off_t start;
    rewind(file);
    if (got == 4 && !memcmp(first, "PK\3\4", 4)) {
        if (!member) return problem_is(problem, size, "this is an .npz file; give it without NAME=");
        if (!seek_member(file, member, &bytes, problem, size)) return false;
        start = ftello(file);
        return npy_header(file, &out->head, problem, size) &&
               ((uint64_t)(ftello(file) - start) + out->head.bytes == bytes ||
                problem_is(problem, size, "the size of the array in the zip file does not match its shape"));
    }
    if (got >= 2 && first[0] == 0x1f && first[1] == 0x8b)
        return problem_is(problem, size, "the file is compressed; unpack it with gunzip");
    if (got == 4 && !first[0] && !first[1] && first[2]) return read_idx(file, out, problem, size);
    if (got == 4 && !memcmp(first, "\x93NUM", 4)) return npy_header(file, &out->head, problem, size);
    return problem_is(problem, size, "not a .npy, .npz or idx file");
}

bool array_open(const char *path, const char *member, array_file *out, char *problem, size_t size) {
    FILE *file = fopen(path, "rb");
    struct stat about;
    bool good;
    *out = (array_file){.path = path, .file = -1};
    if (!file) {
        snprintf(problem, size, "cannot open the file: %s", strerror(errno));
        return false;
    }
    good = read_header(file, member, out, problem, size);
    if (good) {
        out->offset = (long long)ftello(file);
        out->rows = out->head.rank ? out->head.shape[0] : 1;
        out->row_bytes = out->rows ? (long long)out->head.bytes / out->rows : 0;
        out->file = open(path, O_RDONLY | O_CLOEXEC); /* a second descriptor, without the buffer of `file` */
        good = out->file >= 0 && fstat(out->file, &about) == 0;
        if (!good) snprintf(problem, size, "cannot read the file: %s", strerror(errno));
        if (good &&
            (about.st_size < out->offset || (uint64_t)(about.st_size - out->offset) < (uint64_t)out->head.bytes)) {
            snprintf(problem, size, "the file is truncated: it has %lld bytes, expected %llu", (long long)about.st_size,
                     (unsigned long long)out->offset + out->head.bytes);
            good = false;
        }
    }
    fclose(file);
    if (!good) array_close(out);
    return good;
}

void array_close(array_file *a) {
    if (a->file >= 0) close(a->file);
    a->file = -1;
}

bool array_is_npz(const char *path) {
    unsigned char first[4];
    FILE *file = fopen(path, "rb");
    const bool is = file && fread(first, 1, 4, file) == 4 && !memcmp(first, "PK\3\4", 4);
    if (file) fclose(file);
    return is;
}

bool array_read(const array_file *a, long long row, void *to, char *problem, size_t size) {
    unsigned char *bytes = to;
    long long done = 0;
    while (done < a->row_bytes) {
        const ssize_t got =
            pread(a->file, bytes + done, (size_t)(a->row_bytes - done), (off_t)(a->offset + row * a->row_bytes + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            snprintf(problem, size, "cannot read row %lld: %s", row,
                     got < 0 ? strerror(errno) : "the file was truncated after it was opened");
            return false;
        }
        done += got;
    }
    if (a->swap) {
        const size_t width = linnet_dtype_size(a->head.dtype);
        for (unsigned char *p = bytes; p < bytes + a->row_bytes; p += width)
            for (size_t i = 0; i < width / 2; i++) {
                const unsigned char keep = p[i];
                p[i] = p[width - 1 - i];
                p[width - 1 - i] = keep;
            }
    }
    return true;
}
