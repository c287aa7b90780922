/* inputs.c - inputs that the user did not give: open batches, random values, and what to say about open shapes.
 * The rules for open batches are those of linnet.session.open_sizes, which `linnet bench` and `linnet run` use. */
#include "common.h"

#include <stdint.h>
#include <string.h>

enum { PHOTO_SIZE = 224, OTHER_SIZE = 16, SAMPLES = 16000 };

/* Tells whether linnet.preprocess recorded that this input takes a "picture" or "sound" as it is in a file. Such an
 * input has no batch: its first dimension is the height or the number of samples. */
static bool takes(const linnet_model *model, const tool_options *options, const char *input, const char *kind) {
    const size_t n = strlen(kind);
    char key[512];
    const char *about;
    if ((size_t)snprintf(key, sizeof key, "io:%s:%s", options->signature ? options->signature : "infer", input) >=
        sizeof key)
        return false;
    about = linnet_model_metadata(model, key);
    return about && !strncmp(about, kind, n) && (about[n] == 0 || about[n] == ' ');
}

static const linnet_shape *given(const tool_options *options, const char *input) {
    for (int i = 0; i < options->n_shapes; i++)
        if (!strcmp(options->shapes[i].input, input)) return &options->shapes[i];
    return NULL;
}

/* Returns the batch of the given inputs, or 1 if none of them has an open batch. */
static int64_t batch_of_others(const tool_options *options, const linnet_model *model, int signature) {
    for (int i = 0; i < linnet_model_input_count(model, signature); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_model_get_input(model, signature, i, &info);
        const linnet_shape *shape = given(options, info.name);
        if (shape && shape->rank > 0 && info.rank > 0 && info.shape[0] < 0) return shape->dims[0];
    }
    return 1;
}

void tool_take_batches(tool_options *options, const linnet_model *model, int signature, linnet_plan_config *config) {
    const int64_t batch = batch_of_others(options, model, signature);
    for (int i = 0; i < linnet_model_input_count(model, signature); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        bool others_known = true;
        char text[256];
        linnet_model_get_input(model, signature, i, &info);
        for (int d = 1; d < info.rank; d++) others_known &= info.shape[d] >= 0;
        if (info.rank < 1 || info.shape[0] >= 0 || !others_known || given(options, info.name) ||
            takes(model, options, info.name, "image") || takes(model, options, info.name, "audio") ||
            options->n_shapes == TOOL_MOST_OPTIONS)
            continue;
        options->assumed[options->n_shapes] = true;
        linnet_shape *shape = &options->shapes[options->n_shapes++];
        memset(shape, 0, sizeof *shape);
        info.shape[0] = batch;
        shape->input = info.name;
        shape->rank = info.rank;
        for (int d = 0; d < info.rank; d++) shape->dims[d] = info.shape[d];
        fprintf(stderr,
                "%s: note: input '%s' leaves its batch open, so it is taken as %lld: %s; --shape %s=", options->tool,
                info.name, (long long)batch, tool_tensor_text(&info, text, sizeof text), info.name);
        for (int d = 0; d < info.rank; d++) fprintf(stderr, "%s%lld", d ? "," : "", (long long)(d ? info.shape[d] : 8));
        fputs(" sets another\n", stderr);
    }
    config->shape_count = options->n_shapes;
}

/* Returns a size that is likely to work for an open dimension. */
static long long usable(const tool_options *options, const linnet_model *model, const linnet_tensor_info *info,
                        int axis) {
    const bool channels_last = info->rank == 4 && info->shape[3] > 0 && info->shape[3] <= 4;
    if (info->shape[axis] >= 0) return info->shape[axis];
    if (takes(model, options, info->name, "image")) return axis == 0 ? 480 : axis == 1 ? 640 : 3;
    if (takes(model, options, info->name, "audio")) return axis == 0 ? SAMPLES : 1;
    if (axis == 0) return 1;
    if (info->rank == 4 && axis == (channels_last ? 3 : 1)) return 3;
    return info->rank == 4 ? PHOTO_SIZE : OTHER_SIZE;
}

int tool_not_planned(const tool_options *options, const linnet_model *model, int signature, const linnet_error *error) {
    for (int i = 0; error->code == LINNET_UNKNOWN_SHAPE && i < linnet_model_input_count(model, signature); i++) {
        linnet_tensor_info input = {.struct_size = sizeof input};
        char text[128], shape[256] = "";
        size_t used = 0;
        linnet_model_get_input(model, signature, i, &input);
        if (strcmp(input.name, error->tensor)) continue;
        for (int d = 0; d < input.rank && used < sizeof shape; d++)
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? "," : "",
                                     usable(options, model, &input, d));
        return tool_fail(options->tool,
                         "the shape of input '%s' (%s) is not fully known; give all sizes, for example --shape %s=%s",
                         input.name, tool_tensor_text(&input, text, sizeof text), input.name,
                         input.rank < 0 ? "1,3,224,224" : shape);
    }
    return tool_fail_record(options->tool, error);
}

/* splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014). */
static uint64_t next_random(unsigned long long *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Writes a multiple of 2^-7 in [-1, 1). Every float type holds it exactly, and its f16 and bf16 bits are easy to
 * compute. */
static void put_small(unsigned char *to, int dtype, int steps) {
    float f = (float)steps / 128.0f;
    double d = (double)f;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case LINNET_F32: memcpy(to, &f, 4); break;
    case LINNET_F64: memcpy(to, &d, 8); break;
    case LINNET_BF16:
        half = (uint16_t)(bits >> 16);
        memcpy(to, &half, 2);
        break;
    default: /* f16, where all these values except 0 are normal numbers */
        half =
            steps ? (uint16_t)((bits >> 16 & 0x8000u) | ((bits >> 23 & 255u) - 112u) << 10 | (bits >> 13 & 1023u)) : 0;
        memcpy(to, &half, 2);
    }
}

void tool_random(void *data, const linnet_tensor_info *info, unsigned long long *state) {
    int dtype = info->dtype;
    size_t size = linnet_dtype_size(dtype), count = size ? info->bytes / size : 0;
    unsigned char *to = data;
    for (size_t i = 0; i < count; i++, to += size) {
        uint64_t r = next_random(state) >> 40;
        if (dtype <= LINNET_F64) {
            put_small(to, dtype, (int)(r & 255) - 128);
        } else {
            /* Integers may be indices, so they are 0 or 1. Only bytes and quantized values take all values. */
            uint64_t value = dtype == LINNET_BOOL ? r & 1 : size == 1 || (size == 2 && info->scale > 0) ? r : r & 1;
            memcpy(to, &value, size); /* little endian */
        }
    }
}
