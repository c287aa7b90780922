/* media_picture.c - memory for the pixels of a picture, and its orientation (EXIF 2.32, section 4.6.4, tag 0x0112). Of
 * the EXIF data it reads only a TIFF 6.0 header with one directory. */
#include "media_picture.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool media_problem(char *problem, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, size, format, arguments);
    va_end(arguments);
    return false;
}

bool media_allocate(npy_array *out, unsigned long width, unsigned long height, char *problem, size_t size) {
    if (width == 0 || height == 0) return media_problem(problem, size, "the image has no pixels");
    if (height > MEDIA_MOST_PIXELS / width)
        return media_problem(problem, size,
                             "the image has %lu x %lu pixels, more than the limit of %d million; scale it down", width,
                             height, MEDIA_MOST_PIXELS / 1000000);
    out->dtype = LINNET_U8;
    out->rank = 3;
    out->shape[0] = (long long)height;
    out->shape[1] = (long long)width;
    out->shape[2] = 3;
    out->bytes = (size_t)width * height * 3;
    out->data = malloc(out->bytes);
    return out->data != NULL ||
           media_problem(problem, size, "cannot allocate memory for %lu x %lu pixels", width, height);
}

static unsigned number(const unsigned char *at, int bytes, bool big) {
    unsigned value = 0;
    for (int i = 0; i < bytes; i++) value |= (unsigned)at[big ? bytes - 1 - i : i] << 8 * i;
    return value;
}

int media_orientation(const unsigned char *exif, size_t size) {
    if (size < 14 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0)) return 1;
    bool big = exif[0] == 'M';
    size_t at = number(exif + 4, 4, big);
    if (at > size - 2) return 1;
    for (unsigned left = number(exif + at, 2, big); left > 0; left--) {
        if (size - at < 2 + 12) return 1;
        const unsigned char *entry = exif + at + 2;
        if (number(entry, 2, big) == 0x0112 && number(entry + 2, 2, big) == 3) {
            unsigned value = number(entry + 8, 2, big);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
        at += 12;
    }
    return 1;
}
