/* media_png.h - reads and writes PNG. The codec is a system library, which is optional (LINNET_WITH_PNG). */
#ifndef LN_TOOLS_MEDIA_PNG_H
#define LN_TOOLS_MEDIA_PNG_H

#include "npy.h"

/* Reads the picture. Returns false with a problem text, also if this build has no decoder. */
bool media_read_png(FILE *file, npy_array *out, int *orientation, char *problem, size_t size);
/* Writes u8 [height, width] as a grey PNG. Returns false with a problem text, or with an empty text if this build has
 * no PNG. */
bool media_write_png(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

#endif
