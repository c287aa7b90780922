/* media_jpeg.c - reads JPEG with libjpeg (libjpeg-turbo). Damaged data is an error, not a picture with grey areas. CMYK
 * values are expected to be inverted, as Adobe writes them. They are converted without a colour profile, as in
 * Pillow. */
#include "media_jpeg.h"

#include "media_picture.h"

#if defined(LINNET_WITH_JPEG)
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum {
    MOST_SCANS = 500
}; /* limits the time: a progressive file may have any number of scans, and each one covers all
    * pixels */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char *problem;
    size_t size;
    unsigned char *line; /* one row of CMYK */
} jpeg_reader;

static void fail(j_common_ptr info) {
    jpeg_reader *r = info->client_data;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    media_problem(r->problem, r->size, "%s", text);
    longjmp(r->back, 1);
}

static void warn(j_common_ptr info, int level) {
    int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE || code == JWRN_BOGUS_PROGRESSION))
        fail(info);
}

static void watch(j_common_ptr info) {
    jpeg_reader *r = info->client_data;
    if (((j_decompress_ptr)info)->input_scan_number <= MOST_SCANS) return;
    media_problem(r->problem, r->size, "the file has more than %d scans; save it as a baseline JPEG", MOST_SCANS);
    longjmp(r->back, 1);
}

static int orientation_of(const struct jpeg_decompress_struct *info) {
    for (jpeg_saved_marker_ptr m = info->marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
            return media_orientation(m->data + 6, m->data_length - 6);
    return 1;
}

static unsigned char times(unsigned a, unsigned b) { /* a * b / 255, rounded */
    unsigned v = a * b + 128;
    return (unsigned char)((v + (v >> 8)) >> 8);
}

static void from_cmyk(const unsigned char *cmyk, size_t width, unsigned char *rgb) {
    for (size_t i = 0; i < width; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) { /* r = c * k / 255; the CMYK values are inverted */
            int value = cmyk[3] - times(255u - cmyk[c], cmyk[3]);
            rgb[c] = (unsigned char)(value < 0 ? 0 : value);
        }
}

static bool decode(jpeg_reader *r, FILE *file, npy_array *out, int *orientation) {
    struct jpeg_decompress_struct *info = &r->info;
    bool cmyk;
    if (setjmp(r->back)) return false;
    jpeg_create_decompress(info);
    info->progress = &r->progress;
    jpeg_stdio_src(info, file);
    jpeg_save_markers(info, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(info, TRUE);
    *orientation = orientation_of(info);
    cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    if (!media_allocate(out, info->image_width, info->image_height, r->problem, r->size)) return false;
    if (cmyk && !(r->line = malloc((size_t)info->image_width * 4)))
        return media_problem(r->problem, r->size, "cannot allocate memory for a row of pixels");
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        unsigned char *row = (unsigned char *)out->data + (size_t)info->output_scanline * info->output_width * 3;
        JSAMPROW to = cmyk ? r->line : row;
        jpeg_read_scanlines(info, &to, 1);
        if (cmyk) from_cmyk(r->line, info->output_width, row);
    }
    jpeg_finish_decompress(info);
    return true;
}

bool media_read_jpeg(FILE *file, npy_array *out, int *orientation, char *problem, size_t size) {
    jpeg_reader *r = calloc(1, sizeof *r);
    bool good;
    if (!r) return media_problem(problem, size, "cannot allocate memory to decode the image");
    r->problem = problem;
    r->size = size;
    r->info.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = fail;
    r->errors.emit_message = warn;
    r->progress.progress_monitor = watch;
    r->info.client_data = r;
    good = decode(r, file, out, orientation);
    jpeg_destroy_decompress(&r->info);
    free(r->line);
    free(r);
    return good;
}

#else

bool media_read_jpeg(FILE *file, npy_array *out, int *orientation, char *problem, size_t size) {
    (void)file, (void)out, (void)orientation;
    return media_problem(problem, size,
                         "this linnet-run was built without JPEG support; install libjpeg-dev and build again");
}

#endif
