/* media.h - pictures and sound for linnet-run: JPEG, PNG, BMP to u8 [height, width, 3], sound files to [samples].
 * Decoders are system libraries, each optional (LINNET_WITH_JPEG, _PNG, _SNDFILE); the library itself links none of
 * them. */
#ifndef LINNET_TOOLS_MEDIA_H
#define LINNET_TOOLS_MEDIA_H

#include "common.h"

/* Larger files are refused before their pixels or samples are allocated. */
enum { MEDIA_MOST_PIXELS = 100000000, MEDIA_MOST_SAMPLES = 100000000 };

typedef enum media_kind { MEDIA_UNKNOWN, MEDIA_NPY, MEDIA_JPEG, MEDIA_PNG, MEDIA_BMP, MEDIA_SOUND } media_kind;

/* What a file is, by its first bytes; MEDIA_UNKNOWN also when it cannot be opened. */
media_kind media_kind_of(const char *path);
/* "a JPEG picture" */
const char *media_kind_text(media_kind kind);

/* u8 [height, width, 3], RGB, upright: the EXIF orientation is applied; alpha is dropped, 16 bits become the high 8,
 * grey and palettes become colours. */
bool media_read_image(const char *path, media_kind kind, npy_array *out, char *problem, size_t size);
/* RGB pixels in another order of channels, "BGR", "RGBA" or "BGRA"; alpha is 255. */
bool media_reorder(npy_array *image, const char *order, char *problem, size_t size);
/* [samples] of `dtype` (LINNET_F32 in [-1, 1], or LINNET_I16), channels averaged. A rate other than `rate` Hz is an
 * error (0: any). */
bool media_read_sound(const char *path, int dtype, long rate, npy_array *out, char *problem, size_t size);
/* Writes u8 [height, width] as a grey PNG. false: with a problem, or with none ("") where there is no PNG in this
 * build. */
bool media_write_png(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

/* ---- between the decoders ------------------------------------------------------------------------------------ */

/* Writes the text (printf) and returns false. */
bool media_problem(char *problem, size_t size, const char *format, ...) TOOL_PRINTF(3, 4);
/* Room for [height, width, 3]; false (said) when a side is 0 or the picture is too large. */
bool media_allocate(npy_array *out, unsigned long width, unsigned long height, char *problem, size_t size);
/* The orientation in an EXIF block (TIFF header on): 1 to 8; 1 when it has none. */
int media_orientation(const unsigned char *exif, size_t size);

bool media_read_jpeg(FILE *file, npy_array *out, int *orientation, char *problem, size_t size);
bool media_read_png(FILE *file, npy_array *out, int *orientation, char *problem, size_t size);
bool media_read_bmp(FILE *file, npy_array *out, char *problem, size_t size);

#endif
