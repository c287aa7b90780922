/* media_bmp.h - reads Windows bitmaps. */
#ifndef LN_TOOLS_MEDIA_BMP_H
#define LN_TOOLS_MEDIA_BMP_H

#include "npy.h"

/* Reads the picture. Returns false with a problem text. */
bool media_read_bmp(FILE *file, npy_array *out, char *problem, size_t size);

#endif
