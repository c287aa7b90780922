/* media_png.c - reads PNG with libpng: converts every bit depth and colour type to 8-bit RGB. Drops alpha, applies no
 * gamma. Keeps the high byte of 16-bit samples. */
#include "media_png.h"

#include "media_picture.h"

#if defined(LINNET_WITH_PNG)
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

typedef struct png_reader {
    png_structp png;
    png_infop info;
    png_bytep *rows;
    char *problem;
    size_t size;
} png_reader;

static void fail(png_structp png, png_const_charp text) {
    png_reader *r = png_get_error_ptr(png);
    media_problem(r->problem, r->size, "%s", text);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text) { (void)png, (void)text; }

static bool decode(png_reader *r, FILE *file, npy_array *out, int *orientation) {
    png_structp png = r->png;
    if (setjmp(png_jmpbuf(png))) return false;
    png_init_io(png, file);
    png_set_user_limits(png, MEDIA_MOST_PIXELS, MEDIA_MOST_PIXELS); /* the product is checked below */
    png_read_info(png, r->info);
    if (!media_allocate(out, png_get_image_width(png, r->info), png_get_image_height(png, r->info), r->problem,
                        r->size))
        return false;
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    size_t height = (size_t)out->shape[0], length = (size_t)out->shape[1] * 3;
    if (png_get_rowbytes(png, r->info) != length) png_error(png, "unknown colour type");
    if (!(r->rows = malloc(height * sizeof *r->rows))) png_error(png, "cannot allocate memory for the rows");
    for (size_t y = 0; y < height; y++) r->rows[y] = (unsigned char *)out->data + y * length;
    png_read_image(png, r->rows);
    png_read_end(png, r->info);
#if defined(PNG_eXIf_SUPPORTED)
    png_uint_32 bytes = 0;
    png_bytep exif = NULL;
    if (png_get_eXIf_1(png, r->info, &bytes, &exif) && exif) *orientation = media_orientation(exif, bytes);
#else
    (void)orientation;
#endif
    return true;
}

bool media_read_png(FILE *file, npy_array *out, int *orientation, char *problem, size_t size) {
    png_reader r = {.problem = problem, .size = size};
    bool good = false;
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, ignore);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    if (r.info)
        good = decode(&r, file, out, orientation);
    else
        media_problem(problem, size, "cannot allocate memory to decode the image");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    free(r.rows);
    return good;
}

bool media_write_png(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size) {
    png_image image = {.version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_GRAY};
    if (info->dtype != LINNET_U8 || info->rank != 2 || info->shape[0] < 1 || info->shape[1] < 1)
        return media_problem(problem, size, "%s", ""); /* not a grey u8 picture: nothing is written */
    image.height = (png_uint_32)info->shape[0];
    image.width = (png_uint_32)info->shape[1];
    if (png_image_write_to_file(&image, path, 0, data, 0, NULL)) return true;
    remove(path);
    return media_problem(problem, size, "%s", image.message);
}

#else

bool media_read_png(FILE *file, npy_array *out, int *orientation, char *problem, size_t size) {
    (void)file, (void)out, (void)orientation;
    return media_problem(problem, size,
                         "this linnet-run was built without PNG support; install libpng-dev and build again");
}

bool media_write_png(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size) {
    (void)path, (void)info, (void)data;
    return media_problem(problem, size, "%s", "");
}

#endif
