/* feeds.c - reads the file of an input. A picture or a sound file needs metadata of the model that says how the input
 * takes it. */
#include "feeds.h"

#include "media.h"
#include "results.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

bool feed_fits(const linnet_tensor_info *input, const npy_array *array) {
    if (input->dtype != array->dtype && !(input->dtype == LINNET_BF16 && array->dtype == LINNET_U16)) return false;
    if (input->rank < 0) return true;
    if (input->rank != array->rank) return false;
    for (int i = 0; i < input->rank; i++)
        if (input->shape[i] >= 0 && input->shape[i] != array->shape[i]) return false;
    return true;
}

/* Reads a picture or a sound file for an input whose metadata says that it accepts one. */
static int read_media(const tool_options *options, const linnet_model *model, const linnet_tensor_info *input, feed *f,
                      media_kind kind) {
    const char *tool = options->tool, *signature = options->signature ? options->signature : "infer";
    const char *about = results_about(model, "io", signature, input->name), *wanted;
    char problem[512], text[128], value[32];
    bool sound = kind == MEDIA_SOUND, good;
    wanted = sound ? "audio" : "image";
    if (!results_is(about, wanted))
        return tool_fail(tool,
                         "%s is %s, but input '%s' (%s) does not accept one. Add the conversion to the model with "
                         "linnet.preprocess.%s, or give a .npy file",
                         f->path, media_kind_text(kind), input->name, tool_tensor_text(input, text, sizeof text),
                         wanted);
    if (sound)
        good = media_read_sound(f->path, input->dtype == LINNET_I16 ? LINNET_I16 : LINNET_F32,
                                results_word(about, "rate", value, sizeof value) ? atol(value) : 0, &f->array, problem,
                                sizeof problem);
    else
        good = media_read_image(f->path, kind, &f->array, problem, sizeof problem) &&
               (!results_word(about, "colour", value, sizeof value) ||
                media_reorder(&f->array, value, problem, sizeof problem));
    return good ? TOOL_OK : tool_fail(tool, "%s: %s; give another file, or a .npy file", f->path, problem);
}

int feed_read(const tool_options *options, const linnet_model *model, const linnet_tensor_info *input, feed *f) {
    char problem[256];
    media_kind kind = media_kind_of(f->path);
    if (kind != MEDIA_NPY && kind != MEDIA_UNKNOWN) return read_media(options, model, input, f, kind);
    if (npy_read(f->path, &f->array, problem, sizeof problem)) return npy_round(&f->array, input->dtype), TOOL_OK;
    return tool_fail(options->tool, "%s: %s%s; give a file that numpy.save wrote", f->path, problem,
                     strstr(problem, "not a .npy") == NULL ? "" : ", a JPEG, PNG or BMP image, or a sound file");
}
