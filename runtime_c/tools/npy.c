/* npy.c - reads and writes NumPy's .npy files, format 1.0 (and reads 2.0, which differs in the length field).
 * Supports only what a tensor needs: C order, little endian, and linnet's element types. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "npy.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct npy_type {
    const char *text;
    int dtype;
} npy_type;

static const npy_type types[] = {
    {"<f4", LINNET_F32}, {"<f2", LINNET_F16}, {"<f8", LINNET_F64}, {"|i1", LINNET_I8},
    {"<i2", LINNET_I16}, {"<i4", LINNET_I32}, {"<i8", LINNET_I64}, {"|u1", LINNET_U8},
    {"<u2", LINNET_U16}, {"<u4", LINNET_U32}, {"<u8", LINNET_U64}, {"|b1", LINNET_BOOL},
};

static bool problem_is(char *problem, size_t size, const char *text, const char *detail) {
    snprintf(problem, size, "%s%s", text, detail ? detail : "");
    return false;
}

/* Returns the text after 'key': in the header's dictionary, or NULL if the key is absent. */
static const char *entry(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static bool parse_header(const char *header, npy_array *out, char *problem, size_t size) {
    const char *descr = entry(header, "'descr'"), *order = entry(header, "'fortran_order'"),
               *at = entry(header, "'shape'");
    uint64_t count = 1;
    if (!descr || !order || !at || *at != '(')
        return problem_is(problem, size, "the header is not a valid .npy header", NULL);
    out->dtype = LINNET_NONE;
    for (size_t i = 0; i < sizeof types / sizeof *types && *descr == '\''; i++)
        if (!strncmp(descr + 1, types[i].text, 3) && descr[4] == '\'') out->dtype = types[i].dtype;
    if (out->dtype == LINNET_NONE) {
        const int length = *descr == '\'' ? (int)strcspn(descr + 1, "'") + 2 : 12;
        snprintf(problem, size,
                 "element type %.*s is not supported; expected little-endian numbers or bool, no objects",
                 length > 40 ? 40 : length, descr);
        return false;
    }
    if (strncmp(order, "False", 5) != 0)
        return problem_is(problem, size, "the array is in Fortran order; save numpy.ascontiguousarray(array)", NULL);
    out->rank = 0;
    for (at++; *at != ')';) {
        char *end;
        long long dim;
        errno = 0;
        dim = strtoll(at, &end, 10);
        if (end == at || errno || dim < 0 || out->rank == LINNET_MAX_RANK)
            return problem_is(problem, size, "the shape is invalid or has too many dimensions: ", at);
        if (dim && count > (UINT64_MAX >> 8) / (uint64_t)dim)
            return problem_is(problem, size, "the shape has too many elements", NULL);
        count *= (uint64_t)dim;
        out->shape[out->rank++] = dim;
        for (at = end; *at == ' ' || *at == ',';) at++;
    }
    out->bytes = (size_t)(count * linnet_dtype_size(out->dtype));
    return true;
}

bool npy_header(FILE *file, npy_array *out, char *problem, size_t size) {
    unsigned char start[12];
    size_t length;
    char *header;
    bool good;
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
        return problem_is(problem, size, "it is not a .npy file", NULL);
    length = start[8] | (size_t)start[9] << 8;
    if (start[6] >= 2) {
        if (start[6] > 3 || fread(start + 10, 1, 2, file) != 2)
            return problem_is(problem, size, "unknown version of the .npy format; expected 1 to 3", NULL);
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length > 1 << 20 || !(header = malloc(length + 1)))
        return problem_is(problem, size, "the header is too long", NULL);
    good = fread(header, 1, length, file) == length;
    header[good ? length : 0] = 0;
    good = good ? parse_header(header, out, problem, size)
                : problem_is(problem, size, "the file ends inside the header", NULL);
    free(header);
    return good;
}

static bool read_all(FILE *file, npy_array *out, char *problem, size_t size) {
    if (!npy_header(file, out, problem, size)) return false;
    out->data = malloc(out->bytes ? out->bytes : 1);
    if (!out->data) return problem_is(problem, size, "cannot allocate memory for the elements", NULL);
    if (fread(out->data, 1, out->bytes, file) != out->bytes || fgetc(file) != EOF) {
        free(out->data);
        out->data = NULL;
        return problem_is(problem, size, "the file size does not match the shape in the header", NULL);
    }
    return true;
}

void npy_round(npy_array *array, int wanted) {
    const double *from = array->data;
    const size_t count = array->bytes / sizeof *from;
    float *to = array->data;
    if (array->dtype != LINNET_F64 || wanted != LINNET_F32) return;
    for (size_t i = 0; i < count; i++)
        if (isfinite(from[i]) && !isfinite((float)from[i])) return;
    for (size_t i = 0; i < count; i++) { /* in place: each result lies before the next value */
        const float value = (float)from[i];
        memcpy((char *)to + i * sizeof value, &value, sizeof value);
    }
    array->dtype = LINNET_F32;
    array->bytes = count * sizeof *to;
}

bool npy_read(const char *path, npy_array *out, char *problem, size_t size) {
    FILE *file = fopen(path, "rb");
    bool good;
    memset(out, 0, sizeof *out);
    if (!file) return problem_is(problem, size, "cannot open the file: ", strerror(errno));
    good = read_all(file, out, problem, size);
    fclose(file);
    return good;
}

/* Builds the header: magic, version, length, dictionary, spaces up to a multiple of 64, newline. */
static size_t make_header(const linnet_tensor_info *info, char header[512]) {
    const char *text = info->dtype == LINNET_BF16 ? "<u2" : "";
    size_t used, total;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == info->dtype) text = types[i].text;
    used = 10 + (size_t)snprintf(header + 10, 400, "{'descr': '%s', 'fortran_order': False, 'shape': (", text);
    for (int i = 0; i < info->rank; i++)
        used += (size_t)snprintf(header + used, 400 - used, "%lld%s", (long long)info->shape[i],
                                 info->rank == 1      ? ","
                                 : i + 1 < info->rank ? ", "
                                                      : "");
    used += (size_t)snprintf(header + used, 440 - used, "), }");
    total = (used + 1 + 63) / 64 * 64;
    memset(header + used, ' ', total - used);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - 10) & 255);
    header[9] = (char)((total - 10) >> 8);
    return total;
}

bool npy_write(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size) {
    char header[512], temporary[4096];
    size_t length = make_header(info, header);
    FILE *file;
    bool good;
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.%ld.part", path, (long)getpid()) >= sizeof temporary)
        return problem_is(problem, size, "the path is too long", NULL);
    file = fopen(temporary, "wb");
    if (!file) return problem_is(problem, size, "cannot create the file: ", strerror(errno));
    good = fwrite(header, 1, length, file) == length && fwrite(data, 1, info->bytes, file) == info->bytes &&
           fflush(file) == 0 && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good && rename(temporary, path) == 0;
    if (!good) {
        problem_is(problem, size, "cannot write the file: ", strerror(errno));
        remove(temporary);
    }
    return good;
}
