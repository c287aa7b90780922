/* media_picture.h - what the decoders of pictures share: the text of a problem, memory for the pixels, and the
 * orientation. */
#ifndef LN_TOOLS_MEDIA_PICTURE_H
#define LN_TOOLS_MEDIA_PICTURE_H

#include "messages.h"
#include "npy.h"

/* Larger pictures are refused before their pixels are allocated. */
enum { MEDIA_MOST_PIXELS = 100000000 };

/* Formats the problem text and returns false. */
bool media_problem(char *problem, size_t size, const char *format, ...) TOOL_PRINTF(3, 4);
/* Allocates [height, width, 3]. Returns false with a problem text if a side is 0 or the picture is too large. */
bool media_allocate(npy_array *out, unsigned long width, unsigned long height, char *problem, size_t size);
/* Returns the orientation in an EXIF block that begins with the TIFF header: 1 to 8; 1 if the block has none. */
int media_orientation(const unsigned char *exif, size_t size);

#endif
