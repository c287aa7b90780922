/* common.c - options, messages and the clock of the native tools.
 * A tool exits with status 2 after wrong usage and with status 1 after any other failure. In both cases it first prints
 * one line to standard error. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "common.h"
#include "linnet_ext.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void say(const char *tool, const char *format, va_list arguments) {
    fprintf(stderr, "%s: error: ", tool);
    vfprintf(stderr, format, arguments);
}

int tool_fail(const char *tool, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

int tool_fail_record(const char *tool, const linnet_error *error) {
    char text[1024];
    tool_message(error, text, sizeof text);
    return tool_fail(tool, "%s", text);
}

int tool_usage(const char *tool, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(tool, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see %s --help\n", tool);
    return TOOL_USAGE;
}

int tool_no_memory(const char *tool) {
    return tool_fail(tool, "out of memory; end other programs, or give a smaller model or smaller shapes");
}

int tool_flush(const char *tool) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return TOOL_OK;
    return tool_fail(tool,
                     "cannot write to standard output: %s; check the disk, or the program that reads the "
                     "output",
                     strerror(errno));
}

bool tool_answers(const char *tool, const char *help, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), true;
        if (!strcmp(argv[i], "--version")) return printf("%s %s\n", tool, linnet_version()), true;
    }
    return false;
}

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
static int take_tuning(tool_options *options, const char *path) {
    FILE *file = fopen(path, "rb");
    size_t size = 0, room = 1 << 16;
    free(options->tuning);
    options->tuning = malloc(room);
    while (file && options->tuning) {
        size += fread(options->tuning + size, 1, room - size, file);
        if (size < room) break;
        char *larger = realloc(options->tuning, room *= 2);
        if (!larger) free(options->tuning);
        options->tuning = larger;
    }
    const bool whole = file && !ferror(file);
    if (file) fclose(file);
    if (!options->tuning) return tool_no_memory(options->tool);
    options->tuning[size] = 0;
    if (!whole)
        return tool_fail(options->tool, "--tuning %s: cannot be read: %s; give a file that `linnet tune` wrote", path,
                         strerror(errno));
    if (strlen(options->tuning) == size) return TOOL_OK;
    return tool_fail(options->tool,
                     "--tuning %s: is not a tuning file, because it is not text; give a file that `linnet tune` wrote",
                     path);
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

/* Prints what the plan does not take from the tuning file. */
static void warn(void *context, int32_t level, const char *text) {
    const tool_options *options = context;
    char words[1024];
    if (level != LINNET_LOG_WARNING) return;
    tool_words(text, words, sizeof words);
    fprintf(stderr, "%s: warning: %s\n", options->tool, words);
}

int tool_bind(const tool_options *options, bool bound) {
    linnet_error error;
    return options->bind && linnet_bind_thread(bound ? 0 : -1, &error) ? tool_fail_record(options->tool, &error)
                                                                       : TOOL_OK;
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
        strcmp(option, "--device") && strcmp(option, "--memory"))
        return -1;
    if (!(value = tool_value(options->tool, argc, argv, i))) return TOOL_USAGE;
    if (!strcmp(option, "--shape")) return take_shape(options, argv[*i]);
    if (!strcmp(option, "--device")) return take_device(options, value);
    if (!strcmp(option, "--fetch")) {
        if (options->n_fetches == TOOL_MOST_OPTIONS)
            return tool_usage(options->tool, "--fetch may be given at most %d times", TOOL_MOST_OPTIONS);
        options->fetches[options->n_fetches++] = value;
    } else if (!strcmp(option, "--user-ops"))
        options->user_ops = value;
    else if (!strcmp(option, "--tuning"))
        return take_tuning(options, value);
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

bool tool_user_ops(const char *tool, const char *path, linnet_model_config *config) {
    const linnet_user_op *const *(*list)(int *);
    void *library, *symbol;
    int count;
    if (!path) return true;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: the model calls it */
    symbol = library ? dlsym(library, "linnet_extension_user_ops") : NULL;
    if (!symbol) {
        tool_fail(tool,
                  "--user-ops %s: cannot be loaded: %s; give the path of a library that exports "
                  "linnet_extension_user_ops (linnet_ext.h)",
                  path, dlerror());
        return false;
    }
    memcpy(&list, &symbol, sizeof list);
    config->user_ops = list(&count);
    config->user_op_count = count;
    return true;
}

bool tool_is_checkpoint(const char *tool, const char *path, const linnet_model *model) {
    const char *digest = linnet_model_metadata(model, "checkpoint_of");
    if (digest)
        tool_fail(tool,
                  "%s is a checkpoint, not a model: it has the values of variables, but no graph; give the model with "
                  "digest %s, which it was saved from; linnet-run and linnet-train load this file with --checkpoint",
                  path, digest);
    return digest != NULL;
}

int tool_no_signature(const tool_options *options, const linnet_model *model, const char *name, const char *option) {
    char list[256] = "";
    if (tool_is_checkpoint(options->tool, options->model, model)) return TOOL_FAILED;
    for (int i = 0; i < linnet_model_signature_count(model); i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, " %s", linnet_model_signature_name(model, i));
    }
    return tool_fail(
        options->tool,
        "%s has no signature '%s'; it has:%s; choose one with %s NAME, or add one in Python with graph.signature",
        options->model, name, list[0] ? list : " none", option);
}

int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature) {
    linnet_error error;
    linnet_model_config how;
    const char *name = options->signature ? options->signature : "infer";
    linnet_model_config_init(&how);
    how.verify = options->verify;
    if (options->tuning) {
        how.log = warn;
        how.log_context = (void *)(uintptr_t)options;
    }
    if (!tool_user_ops(options->tool, options->user_ops, &how)) return TOOL_FAILED;
    if (linnet_model_open(options->model, &how, model, &error)) return tool_fail_record(options->tool, &error);
    *signature = linnet_model_find_signature(*model, name);
    if (*signature < 0) {
        tool_no_signature(options, *model, name, "--signature");
        linnet_model_free(*model);
        *model = NULL;
        return TOOL_FAILED;
    }
    linnet_plan_config_init(config);
    config->signature = name;
    config->threads = (int32_t)options->threads;
    config->isa_max = options->isa_max;
    config->precision = options->precision;
    config->max_bytes = options->memory;
    config->shapes = options->shapes;
    config->shape_count = options->n_shapes;
    config->tuning = options->tuning;
    config->fetches = options->n_fetches ? options->fetches : NULL;
    config->fetch_count = options->n_fetches;
    config->strict_dims = options->strict_dims;
    config->devices = options->n_devices ? options->devices : NULL;
    config->device_count = options->n_devices;
    return TOOL_OK;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void tool_catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* a second signal gets the system's default action */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int tool_run(const tool_options *options, linnet_session *session) {
    linnet_error error;
    linnet_run_config config;
    linnet_status status;
    linnet_run_config_init(&config);
    config.cancel = &interrupted;
    config.timeout_ns = (uint64_t)(1e9 * options->timeout);
    status = linnet_run_with(session, &config, &error);
    if (status == LINNET_OK) return TOOL_OK;
    if (status != LINNET_CANCELLED) return tool_fail_record(options->tool, &error);
    tool_fail(options->tool, "interrupted");
    return TOOL_INTERRUPTED;
}

double tool_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size) {
    const char *dtype = linnet_dtype_name(info->dtype);
    size_t used = (size_t)snprintf(text, size, "%s [", dtype ? dtype : "?");
    if (info->rank < 0) snprintf(text + used, size - used, "...]");
    for (int i = 0; i < info->rank && used < size; i++)
        used += (size_t)(info->shape[i] < 0
                             ? snprintf(text + used, size - used, "%s?", i ? ", " : "")
                             : snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)info->shape[i]));
    if (info->rank >= 0 && used < size) snprintf(text + used, size - used, "]");
    return text;
}
