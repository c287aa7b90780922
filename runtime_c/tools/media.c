/* media.c - recognizes file types, calls the decoder, rotates pictures upright, and reads sound files. */
#include "media.h"

#include "media_bmp.h"
#include "media_jpeg.h"
#include "media_picture.h"
#include "media_png.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(LINNET_WITH_SNDFILE)
#include <math.h>
#include <sndfile.h>
#endif

media_kind media_kind_of(const char *path) {
    unsigned char start[16] = {0};
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(start, 1, sizeof start, file) : 0;
    if (file) fclose(file);
    if (n >= 6 && !memcmp(start, "\x93NUMPY", 6)) return MEDIA_NPY;
    if (n >= 3 && !memcmp(start, "\xff\xd8\xff", 3)) return MEDIA_JPEG;
    if (n >= 8 && !memcmp(start, "\x89PNG\r\n\x1a\n", 8)) return MEDIA_PNG;
    if (n >= 12 && ((!memcmp(start, "RIFF", 4) && !memcmp(start + 8, "WAVE", 4)) || !memcmp(start, "fLaC", 4) ||
                    !memcmp(start, "OggS", 4)))
        return MEDIA_SOUND;
    if (n >= 16 && !memcmp(start, "BM", 2)) return MEDIA_BMP;
    return MEDIA_UNKNOWN;
}

const char *media_kind_text(media_kind kind) {
    static const char *const texts[] = {
        "a file of unknown type", "a .npy file", "a JPEG image", "a PNG image", "a BMP image", "a sound file"};
    return texts[kind];
}

/* For orientations 1 to 8: bit 0 of the table mirrors left and right, bit 1 mirrors up and down, bit 2 swaps the axes
 * first. */
static bool turn_upright(npy_array *image, int orientation, char *problem, size_t size) {
    static const int changes[9] = {0, 0, 1, 3, 2, 4, 4 | 1, 4 | 3, 4 | 2};
    int change = changes[orientation];
    size_t height = (size_t)image->shape[0], width = (size_t)image->shape[1];
    size_t rows = change & 4 ? width : height, columns = change & 4 ? height : width;
    const unsigned char *from = image->data;
    unsigned char *to;
    if (change == 0) return true;
    if (!(to = malloc(image->bytes))) return media_problem(problem, size, "cannot allocate memory to rotate the image");
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            size_t y = change & 2 ? rows - 1 - r : r, x = change & 1 ? columns - 1 - c : c;
            memcpy(to + (r * columns + c) * 3, from + (change & 4 ? x * width + y : y * width + x) * 3, 3);
        }
    free(image->data);
    image->data = to;
    image->shape[0] = (long long)rows;
    image->shape[1] = (long long)columns;
    return true;
}

bool media_read_image(const char *path, media_kind kind, npy_array *out, char *problem, size_t size) {
    int orientation = 1;
    bool good;
    FILE *file = fopen(path, "rb");
    memset(out, 0, sizeof *out);
    if (!file) return media_problem(problem, size, "cannot open the file: %s", strerror(errno));
    if (kind == MEDIA_JPEG)
        good = media_read_jpeg(file, out, &orientation, problem, size);
    else if (kind == MEDIA_PNG)
        good = media_read_png(file, out, &orientation, problem, size);
    else if (kind == MEDIA_BMP)
        good = media_read_bmp(file, out, problem, size);
    else
        good = media_problem(problem, size, "not a readable image; expected JPEG, PNG or BMP");
    fclose(file);
    good = good && turn_upright(out, orientation, problem, size);
    if (!good) {
        free(out->data);
        memset(out, 0, sizeof *out);
    }
    return good;
}

bool media_reorder(npy_array *image, const char *order, char *problem, size_t size) {
    size_t channels = strlen(order), pixels = (size_t)image->shape[0] * (size_t)image->shape[1];
    if (strcmp(order, "RGB") == 0) return true;
    if (channels < 3 || channels > 4 || strspn(order, "RGBA") != channels)
        return media_problem(problem, size,
                             "the model expects pixels in the channel order '%s', which linnet-run does not support",
                             order);
    unsigned char *to = malloc(pixels * channels);
    if (!to) return media_problem(problem, size, "cannot allocate memory for the pixels in the order %s", order);
    for (size_t c = 0; c < channels; c++) {
        const unsigned char *from = (const unsigned char *)image->data + (order[c] == 'G'   ? 1
                                                                          : order[c] == 'B' ? 2
                                                                                            : 0);
        for (size_t i = 0; i < pixels; i++) to[i * channels + c] = order[c] == 'A' ? 255 : from[3 * i];
    }
    free(image->data);
    image->data = to;
    image->shape[2] = (long long)channels;
    image->bytes = pixels * channels;
    return true;
}

#if defined(LINNET_WITH_SNDFILE)
static bool read_samples(SNDFILE *sound, const SF_INFO *info, int dtype, npy_array *out, char *problem, size_t size) {
    size_t n = (size_t)info->frames, channels = (size_t)info->channels, done = 0;
    enum { BLOCK = 4096 };
    float *block = malloc(BLOCK * channels * sizeof *block);
    out->dtype = dtype;
    out->rank = 1;
    out->shape[0] = (long long)n;
    out->bytes = n * linnet_dtype_size(dtype);
    out->data = malloc(out->bytes ? out->bytes : 1);
    if (!block || !out->data) {
        free(block);
        return media_problem(problem, size, "cannot allocate memory for the samples");
    }
    while (done < n) {
        sf_count_t got = sf_readf_float(sound, block, BLOCK);
        if (got <= 0 || (size_t)got > n - done) break;
        for (size_t i = 0; i < (size_t)got; i++) {
            double sum = 0;
            for (size_t c = 0; c < channels; c++) sum += (double)block[i * channels + c];
            sum /= (double)channels;
            if (dtype == LINNET_F32)
                ((float *)out->data)[done + i] = (float)sum;
            else
                ((int16_t *)out->data)[done + i] = (int16_t)fmax(-32768, fmin(32767, nearbyint(sum * 32768)));
        }
        done += (size_t)got;
    }
    free(block);
    return done == n || media_problem(problem, size, "the file ends after %zu of %zu samples", done, n);
}

bool media_read_sound(const char *path, int dtype, long rate, npy_array *out, char *problem, size_t size) {
    SF_INFO info = {0};
    SNDFILE *sound = sf_open(path, SFM_READ, &info);
    bool good;
    memset(out, 0, sizeof *out);
    if (!sound) return media_problem(problem, size, "%s", sf_strerror(NULL));
    if (rate && info.samplerate != rate)
        good = media_problem(problem, size,
                             "the file has %d samples per second, but the model expects %ld; resample it (sox in.wav "
                             "-r %ld out.wav), or convert the model with source_rate=%d in linnet.preprocess.audio",
                             info.samplerate, rate, rate, info.samplerate);
    else if (info.frames < 0 || info.channels < 1 || info.frames > MEDIA_MOST_SAMPLES / info.channels)
        good = media_problem(problem, size, "the file has %lld samples of %d channels; expected 1 to %d million values",
                             (long long)info.frames, info.channels, MEDIA_MOST_SAMPLES / 1000000);
    else
        good = read_samples(sound, &info, dtype, out, problem, size);
    sf_close(sound);
    if (!good) {
        free(out->data);
        memset(out, 0, sizeof *out);
    }
    return good;
}
#else
bool media_read_sound(const char *path, int dtype, long rate, npy_array *out, char *problem, size_t size) {
    (void)path, (void)dtype, (void)rate;
    memset(out, 0, sizeof *out);
    return media_problem(
        problem, size,
        "this linnet-run was built without support for sound files; install libsndfile1-dev and build again");
}
#endif
