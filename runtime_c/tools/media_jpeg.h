/* media_jpeg.h - reads JPEG. The decoder is a system library, which is optional (LINNET_WITH_JPEG). */
#ifndef LN_TOOLS_MEDIA_JPEG_H
#define LN_TOOLS_MEDIA_JPEG_H

#include "npy.h"

/* Reads the picture. Returns false with a problem text, also if this build has no decoder. */
bool media_read_jpeg(FILE *file, npy_array *out, int *orientation, char *problem, size_t size);

#endif
