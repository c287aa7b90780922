/* media.h - pictures and sound for linnet-run. Pictures (JPEG, PNG, BMP) become u8 [height, width, 3], and sound files
 * become [samples]. The decoders of JPEG, PNG and sound are system libraries, and each is optional (LINNET_WITH_JPEG,
 * _PNG, _SNDFILE). liblinnet itself does not link them. Functions that return bool return false with a text in
 * `problem`, which has `size` bytes. The caller frees npy_array.data. */
#ifndef LINNET_TOOLS_MEDIA_H
#define LINNET_TOOLS_MEDIA_H

#include "npy.h"

/* Longer sound files are refused before their samples are allocated. */
enum { MEDIA_MOST_SAMPLES = 100000000 };

typedef enum media_kind { MEDIA_UNKNOWN, MEDIA_NPY, MEDIA_JPEG, MEDIA_PNG, MEDIA_BMP, MEDIA_SOUND } media_kind;

/* Recognizes a file by its first bytes. Returns MEDIA_UNKNOWN also if the file cannot be opened. */
media_kind media_kind_of(const char *path);
/* Returns a text such as "a JPEG image". */
const char *media_kind_text(media_kind kind);

/* Reads a picture as u8 [height, width, 3], RGB. The function applies the EXIF orientation, drops alpha, keeps the high
 * 8 bits of 16, and converts grey and palettes to RGB. */
bool media_read_image(const char *path, media_kind kind, npy_array *out, char *problem, size_t size);
/* Converts RGB pixels to the order "BGR", "RGBA" or "BGRA", with alpha 255. */
bool media_reorder(npy_array *image, const char *order, char *problem, size_t size);
/* Reads a sound file as [samples] of `dtype` (LINNET_F32 in [-1, 1], or LINNET_I16) and averages the channels. Fails if
 * the sample rate is not `rate` Hz (0: any rate). */
bool media_read_sound(const char *path, int dtype, long rate, npy_array *out, char *problem, size_t size);

#endif
