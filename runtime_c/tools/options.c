/* options.c - reads the command line of a tool: numbers, sizes, shapes, names of devices, and the text of a tuning
 * file. */
#include "options.h"

#include "linnet_ext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tool_value(const char *tool, int argc, char **argv, int *i) {
    if (*i + 1 < argc) return argv[++*i];
    tool_usage(tool, "%s needs a value", argv[*i]);
    return NULL;
}

bool tool_number(const char *tool, const char *option, const char *text, long low, long high, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    if (*text && !*end && !errno && *value >= low && *value <= high) return true;
    tool_usage(tool, "%s: expected a whole number from %ld to %ld, got '%s'", option, low, high, text);
    return false;
}

bool tool_size(const char *tool, const char *option, const char *text, size_t *value) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},     {"B", 1},      {"kB", 1e3},      {"KB", 1e3},          {"MB", 1e6},
                 {"GB", 1e9}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.0}};
    char *end;
    const double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].unit) && number * units[i].bytes >= 1 && number * units[i].bytes <= 1e18) {
            *value = (size_t)(number * units[i].bytes);
            return true;
        }
    tool_usage(tool, "%s: expected a size such as 8MB, 500kB or 1GiB, got '%s'", option, text);
    return false;
}

bool tool_seconds(const char *tool, const char *option, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (*text && !*end && *value > 0 && *value <= 86400) return true;
    tool_usage(tool, "%s: expected a number of seconds above 0 and at most 86400, got '%s'", option, text);
    return false;
}

/* Parses name=1,3,224,224 and splits it in place. A range 1..8 counts as its upper end. */
static int take_shape(tool_options *options, char *text) {
    linnet_shape *shape = &options->shapes[options->n_shapes];
    char *number = strrchr(text, '=');
    if (!number || number == text)
        return tool_usage(options->tool, "--shape: expected name=1,3,224,224, got '%s'", text);
    if (options->n_shapes == TOOL_MOST_OPTIONS)
        return tool_usage(options->tool, "--shape may be given at most %d times", TOOL_MOST_OPTIONS);
    *number++ = 0;
    for (int i = 0; i < options->n_shapes; i++)
        if (!strcmp(options->shapes[i].input, text))
            return tool_usage(options->tool, "--shape: the shape of '%s' is given twice", text);
    memset(shape, 0, sizeof *shape);
    shape->input = text;
    while (*number) {
        char *end;
        long long dim;
        errno = 0;
        dim = strtoll(number, &end, 10);
        if (end != number && dim >= 0 && !strncmp(end, "..", 2)) {
            const long long least = dim;
            number = end + 2;
            dim = strtoll(number, &end, 10);
            if (dim < least) end = number;
        }
        if (end == number || errno || dim < 0 || (*end && *end != ',') || shape->rank == LINNET_MAX_RANK)
            return tool_usage(options->tool,
                              "--shape %s: expected at most %d sizes or ranges such as 1..8, separated by commas", text,
                              LINNET_MAX_RANK);
        shape->dims[shape->rank++] = dim;
        number = *end ? end + 1 : end;
    }
    options->n_shapes++;
    return TOOL_OK;
}

/* Reads the whole tuning file. */
int tool_take_tuning(const char *tool, const char *path, char **text) {
    FILE *file = fopen(path, "rb");
    size_t size = 0, room = 1 << 16;
    free(*text);
    *text = malloc(room);
    while (file && *text) {
        size += fread(*text + size, 1, room - size, file);
        if (size < room) break;
        char *larger = realloc(*text, room *= 2);
        if (!larger) free(*text);
        *text = larger;
    }
    const bool whole = file && !ferror(file);
    if (file) fclose(file);
    if (!*text) return tool_no_memory(tool);
    (*text)[size] = 0;
    if (!whole)
        return tool_fail(tool, "--tuning %s: cannot be read: %s; give a file that `linnet tune` wrote", path,
                         strerror(errno));
    if (strlen(*text) == size) return TOOL_OK;
    return tool_fail(
        tool, "--tuning %s: is not a tuning file, because it is not text; give a file that `linnet tune` wrote", path);
}

static int take_precision(tool_options *options, const char *name) {
    static const char *const names[] = {"f32", "f16", "bf16", "tf32", "direct"}; /* in the order of linnet_precision */
    for (int i = 0; i <= LINNET_PRECISION_DIRECT; i++)
        if (!strcmp(name, names[i])) return options->precision = i, TOOL_OK;
    return tool_usage(options->tool, "--precision: expected f32, f16, bf16, tf32 or direct, got '%s'", name);
}

/* Opens a device by its name or the path of its library. */
static int take_device(tool_options *options, const char *name) {
    linnet_error error;
    if (options->n_devices == TOOL_MOST_DEVICES)
        return tool_usage(options->tool, "--device may be given at most %d times", TOOL_MOST_DEVICES);
    if (linnet_device_open(name, &options->devices[options->n_devices], &error))
        return tool_fail_record(options->tool, &error);
    options->n_devices++;
    return TOOL_OK;
}

/* Takes NODE=DEVICE, and ends the node's name in the argument itself. */
static int take_placement(tool_options *options, char *text) {
    char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == 0)
        return tool_usage(options->tool, "--placement: expected NODE=DEVICE, got '%s'", text);
    if (options->n_placement == TOOL_MOST_OPTIONS)
        return tool_usage(options->tool, "--placement may be given at most %d times", TOOL_MOST_OPTIONS);
    *equals = 0;
    options->placement[options->n_placement++] = (linnet_placement){text, equals + 1};
    return TOOL_OK;
}

/* Takes TASK=DEVICE in the same way. */
static int take_task(tool_options *options, char *text) {
    char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == 0)
        return tool_usage(options->tool, "--task: expected TASK=DEVICE, got '%s'", text);
    if (options->n_tasks == TOOL_MOST_OPTIONS)
        return tool_usage(options->tool, "--task may be given at most %d times", TOOL_MOST_OPTIONS);
    *equals = 0;
    options->cluster[options->n_tasks++] = (linnet_cluster_task){text, equals + 1};
    return TOOL_OK;
}

int tool_option(tool_options *options, int argc, char **argv, int *i) {
    const char *option = argv[*i], *value;
    long number;
    if (option[0] != '-' || !option[1]) {
        if (options->model)
            return tool_usage(options->tool, "expected one model file, got '%s' and '%s'", options->model, option);
        options->model = option;
        return TOOL_OK;
    }
    if (!strcmp(option, "--strict-dims")) {
        options->strict_dims = true;
        return TOOL_OK;
    }
    if (!strcmp(option, "--bind")) {
        options->bind = true;
        return TOOL_OK;
    }
    if (strcmp(option, "--user-ops") && strcmp(option, "--signature") && strcmp(option, "--isa-max") &&
        strcmp(option, "--threads") && strcmp(option, "--shape") && strcmp(option, "--seed") &&
        strcmp(option, "--tuning") && strcmp(option, "--fetch") && strcmp(option, "--precision") &&
        strcmp(option, "--device") && strcmp(option, "--placement") && strcmp(option, "--task") &&
        strcmp(option, "--memory"))
        return -1;
    if (!(value = tool_value(options->tool, argc, argv, i))) return TOOL_USAGE;
    if (!strcmp(option, "--shape")) return take_shape(options, argv[*i]);
    if (!strcmp(option, "--device")) return take_device(options, value);
    if (!strcmp(option, "--placement")) return take_placement(options, argv[*i]);
    if (!strcmp(option, "--task")) return take_task(options, argv[*i]);
    if (!strcmp(option, "--fetch")) {
        if (options->n_fetches == TOOL_MOST_OPTIONS)
            return tool_usage(options->tool, "--fetch may be given at most %d times", TOOL_MOST_OPTIONS);
        options->fetches[options->n_fetches++] = value;
    } else if (!strcmp(option, "--user-ops"))
        options->user_ops = value;
    else if (!strcmp(option, "--tuning"))
        return tool_take_tuning(options->tool, value, &options->tuning);
    else if (!strcmp(option, "--signature"))
        options->signature = value;
    else if (!strcmp(option, "--isa-max"))
        options->isa_max = value;
    else if (!strcmp(option, "--precision"))
        return take_precision(options, value);
    else if (!strcmp(option, "--memory")) {
        if (!tool_size(options->tool, option, value, &options->memory)) return TOOL_USAGE;
    } else if (!strcmp(option, "--threads")) {
        if (!tool_number(options->tool, option, value, 1, 1024, &options->threads)) return TOOL_USAGE;
    } else {
        if (!tool_number(options->tool, option, value, 0, 2147483647, &number)) return TOOL_USAGE;
        options->seed = (unsigned long long)number;
    }
    return TOOL_OK;
}
