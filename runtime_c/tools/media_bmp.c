/* media_bmp.c - reads uncompressed Windows bitmaps of 1, 4, 8, 24 and 32 bits per pixel. Refuses every other kind by
 * name. [MS-WMF] 2.2.2 (BITMAPINFOHEADER and its successors). There is no system library for BMP alone. */
#include "media_bmp.h"

#include "media_picture.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint32_t u32(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Converts a row of the file to RGB. */
static void unpack(const unsigned char *row, unsigned bits, const unsigned char palette[256][4], size_t width,
                   unsigned char *to) {
    for (size_t i = 0; i < width; i++, to += 3) {
        size_t bit = i * bits;
        const unsigned char *bgr =
            bits >= 24 ? row + bit / 8 : palette[row[bit / 8] >> (8 - bits - bit % 8) & ((1u << bits) - 1)];
        to[0] = bgr[2], to[1] = bgr[1], to[2] = bgr[0];
    }
}

static bool read_rows(FILE *file, unsigned bits, bool upwards, const unsigned char palette[256][4], npy_array *out,
                      char *problem, size_t size) {
    size_t height = (size_t)out->shape[0], width = (size_t)out->shape[1], length = (width * bits + 31) / 32 * 4;
    unsigned char *row = malloc(length);
    bool good = row != NULL;
    if (!good) return media_problem(problem, size, "cannot allocate memory for a row of pixels");
    for (size_t y = 0; y < height && good; y++) {
        unsigned char *to = (unsigned char *)out->data + (upwards ? height - 1 - y : y) * width * 3;
        good = fread(row, 1, length, file) == length;
        if (good) unpack(row, bits, palette, width, to);
    }
    free(row);
    return good || media_problem(problem, size, "the file ends inside the pixels");
}

bool media_read_bmp(FILE *file, npy_array *out, char *problem, size_t size) {
    unsigned char head[54 + 16], palette[256][4];
    memset(palette, 0, sizeof palette);
    if (fread(head, 1, 54, file) != 54 || memcmp(head, "BM", 2) != 0 || u32(head + 14) < 40)
        return media_problem(problem, size, "the header is not that of a Windows bitmap (version 3 or later)");
    uint32_t start = u32(head + 10), header = u32(head + 14), compression = u32(head + 30), colours = u32(head + 46);
    int32_t width = (int32_t)u32(head + 18), height = (int32_t)u32(head + 22);
    unsigned bits = head[28] | (unsigned)head[29] << 8;
    bool known = bits == 1 || bits == 4 || bits == 8 || bits == 24 || bits == 32;
    if (compression == 3 && bits == 32) { /* bit masks: only those of plain BGRX are supported */
        if (fread(head + 54, 1, 12, file) != 12) return media_problem(problem, size, "the file ends inside the header");
        known = u32(head + 54) == 0xff0000 && u32(head + 58) == 0xff00 && u32(head + 62) == 0xff;
    } else {
        known &= compression == 0;
    }
    if (!known)
        return media_problem(problem, size,
                             "a BMP with %u bits per pixel and compression %u is not supported; save the image as PNG",
                             bits, (unsigned)compression);
    if (width <= 0 || height == 0 || height == INT32_MIN)
        return media_problem(problem, size, "the header gives an invalid width or height");
    if (bits <= 8) {
        if (colours == 0 || colours > 1u << bits) colours = 1u << bits;
        if (header > 1 << 16 || fseek(file, 14 + (long)header, SEEK_SET) != 0 ||
            fread(palette, 4, colours, file) != colours)
            return media_problem(problem, size, "the file ends inside the palette");
    }
    if (start < 54 || start > 1 << 24 || fseek(file, (long)start, SEEK_SET) != 0)
        return media_problem(problem, size, "the header gives an invalid position of the pixels");
    if (!media_allocate(out, (unsigned long)width, (unsigned long)(height < 0 ? -height : height), problem, size))
        return false;
    return read_rows(file, bits, height > 0, (const unsigned char (*)[4])palette, out, problem, size);
}
