/* inputs.c - inputs that the user did not give: open batches, random values, and what to say about open shapes.
 * The rules for open batches are those of linnet.session.open_sizes, which `linnet bench` and `linnet run` use. */
#include "inputs.h"

#include "clock.h"
#include "words.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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
        fprintf(stderr, "%s: note: the batch size of input '%s' is open, so it is taken as %lld: %s; --shape %s=",
                options->tool, info.name, (long long)batch, tool_tensor_text(&info, text, sizeof text), info.name);
        for (int d = 0; d < info.rank; d++) fprintf(stderr, "%s%lld", d ? "," : "", (long long)(d ? info.shape[d] : 8));
        fputs(" sets another\n", stderr);
    }
    config->shape_count = options->n_shapes;
}

/* The sizes to try for an open dimension, the most usual one first. linnet.session.open_sizes has the same lists. */
static int usual_sizes(const tool_options *options, const linnet_model *model, const linnet_tensor_info *info, int axis,
                       const int64_t **sizes) {
    static const int64_t batches[] = {1, 16, 128}, channels[] = {3, 1, 4};
    static const int64_t sides[] = {224, 256, 320, 48, 32, 640, 512};
    static const int64_t others[] = {16, 1, 512, 256, 128, 80, 3, 4000, 16000, 160000};
    static const int64_t photo[] = {480, 640, 3}, sound[] = {16000, 1};
    const bool channels_last = info->rank == 4 && info->shape[3] > 0 && info->shape[3] <= 4;
    if (takes(model, options, info->name, "image")) return *sizes = &photo[axis < 2 ? axis : 2], 1;
    if (takes(model, options, info->name, "audio")) return *sizes = &sound[axis > 0], 1;
    if (axis == 0) return *sizes = batches, 3;
    if (info->rank == 4 && axis == (channels_last ? 3 : 1)) return *sizes = channels, 3;
    return info->rank == 4 ? (*sizes = sides, 7) : (*sizes = others, 10);
}

enum { MOST_OPEN = 64 };

/* The open dimensions of the inputs that are not given. */
typedef struct open_sizes {
    linnet_shape *shapes; /* given ones, then open ones */
    int n_given, n_shapes, n_open;
    int64_t *dim[MOST_OPEN]; /* in `shapes` */
    const int64_t *sizes[MOST_OPEN];
    int count[MOST_OPEN];
} open_sizes;

/* Whether a plan runs on random input. A plan whose shapes do not depend on data is not tried. */
static bool runs(linnet_plan *plan, double end) {
    linnet_plan_info about;
    linnet_session *session = NULL;
    linnet_run_config config;
    unsigned long long state = 0;
    linnet_error error;
    linnet_plan_info_init(&about);
    if (linnet_plan_get_info(plan, &about) || about.segments < 2) return true;
    if (linnet_session_create(plan, NULL, NULL, &session, &error)) return false;
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_plan_get_input(plan, i, &info);
        if (linnet_session_input(session, i)) tool_random(linnet_session_input(session, i), &info, &state);
    }
    linnet_run_config_init(&config);
    config.timeout_ns = (uint64_t)(1e9 * fmax(end - tool_now(), 0.001));
    const bool done = linnet_run_with(session, &config, &error) == LINNET_OK;
    linnet_session_free(session);
    return done;
}

/* Tries all combinations of sizes from the k-th open dimension on whose indices have this sum, until a plan can be made
 * or the time is over. */
static bool try_sizes(open_sizes *o, const linnet_model *model, const linnet_plan_config *config, int k, int sum,
                      double end) {
    if (k < o->n_open) {
        for (int i = 0; i < o->count[k] && i <= sum; i++) {
            *o->dim[k] = o->sizes[k][i];
            if (try_sizes(o, model, config, k + 1, sum - i, end)) return true;
        }
        return false;
    }
    linnet_plan *plan = NULL;
    linnet_error error;
    if (sum > 0 || tool_now() > end || linnet_plan_create((linnet_model *)(uintptr_t)model, config, &plan, &error))
        return false;
    const bool works = runs(plan, end);
    linnet_plan_free(plan);
    return works;
}

/* Prints the options --shape of all open inputs: the first combination of usual sizes for which a plan can be made. If
 * none can be made in a few seconds, the most usual sizes. */
static void put_usable(const tool_options *options, const linnet_model *model, int signature) {
    static const int64_t unknown[] = {1, 3, 224, 224};
    linnet_shape shapes[2 * TOOL_MOST_OPTIONS];
    open_sizes o = {.shapes = shapes, .n_given = options->n_shapes, .n_shapes = options->n_shapes};
    linnet_plan_config config;
    int most = 0;
    memcpy(shapes, options->shapes, (size_t)options->n_shapes * sizeof *shapes);
    for (int i = 0; i < linnet_model_input_count(model, signature) && o.n_shapes < 2 * TOOL_MOST_OPTIONS; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        linnet_model_get_input(model, signature, i, &info);
        bool open = info.rank < 0;
        for (int d = 0; d < info.rank; d++) open |= info.shape[d] < 0;
        if (!open || given(options, info.name)) continue;
        linnet_shape *shape = &shapes[o.n_shapes++];
        memset(shape, 0, sizeof *shape);
        shape->input = info.name;
        shape->rank = info.rank < 0 ? 4 : info.rank;
        for (int d = 0; d < shape->rank; d++) {
            shape->dims[d] = info.rank < 0 ? unknown[d] : info.shape[d];
            if (shape->dims[d] >= 0) continue;
            const int64_t *sizes;
            const int count = usual_sizes(options, model, &info, d, &sizes);
            shape->dims[d] = sizes[0];
            if (count == 1 || o.n_open == MOST_OPEN) continue;
            o.dim[o.n_open] = &shape->dims[d], o.sizes[o.n_open] = sizes, o.count[o.n_open] = count;
            most += count - 1, o.n_open++;
        }
    }
    linnet_plan_config_init(&config);
    config.signature = options->signature;
    config.strict_dims = 1;
    config.shapes = shapes;
    config.shape_count = o.n_shapes;
    config.fetches = options->n_fetches ? options->fetches : NULL;
    config.fetch_count = options->n_fetches;
    const double end = tool_now() + 5;
    bool found = false;
    for (int sum = 0; sum <= most && !found && tool_now() < end; sum++)
        found = try_sizes(&o, model, &config, 0, sum, end);
    for (int k = 0; k < o.n_open && !found; k++) *o.dim[k] = o.sizes[k][0];
    for (int i = o.n_given; i < o.n_shapes; i++) {
        fprintf(stderr, " --shape %s=", shapes[i].input);
        for (int d = 0; d < shapes[i].rank; d++) fprintf(stderr, "%s%lld", d ? "," : "", (long long)shapes[i].dims[d]);
    }
    fputc('\n', stderr);
}

int tool_not_planned(const tool_options *options, const linnet_model *model, int signature, const linnet_error *error) {
    for (int i = 0; error->code == LINNET_UNKNOWN_SHAPE && i < linnet_model_input_count(model, signature); i++) {
        linnet_tensor_info input = {.struct_size = sizeof input};
        char text[128];
        linnet_model_get_input(model, signature, i, &input);
        if (strcmp(input.name, error->tensor)) continue;
        fprintf(stderr, "%s: error: the shape of input '%s' (%s) is not fully known; give all sizes, for example",
                options->tool, input.name, tool_tensor_text(&input, text, sizeof text));
        put_usable(options, model, signature);
        return TOOL_FAILED;
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
