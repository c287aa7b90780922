/* linnet_run.c - runs a model once on .npy files, pictures or sound, and prints results as text or JSON.
 * Dimensions that the model leaves open are taken from the files. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "feeds.h"
#include "help.h"
#include "inputs.h"
#include "media_png.h"
#include "messages.h"
#include "npy.h"
#include "open.h"
#include "options.h"
#include "results.h"
#include "run.h"
#include "trace.h"
#include "values.h"
#include "words.h"
#include "linnet_ext.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] = "usage: linnet-run MODEL.lnt [[NAME=]FILE]... [options]\n"
                           "Runs the model once and prints every output, with labels, boxes and text if the\n"
                           "model says how to read its outputs. Writes files only if told to.\n"
                           "\n"
                           "  --input NAME=FILE     value of one input, as a .npy file. If the model has\n"
                           "                        preprocessing inside (linnet.preprocess), FILE may also\n"
                           "                        be a JPEG, PNG or BMP image or a sound file. Repeat\n"
                           "                        the option for every input; NAME= is optional if the\n"
                           "                        model has one input. NAME may also be an inner tensor,\n"
                           "                        and the run then starts there\n"
                           "  --random              use seeded random values for inputs that are not given\n"
                           "  --seed N              seed of --random; default 0\n"
                           "  --shape NAME=1,3,...  full shape of an input that has no file and whose\n"
                           "                        dimensions the model leaves open. With --random, an\n"
                           "                        open batch is 1 by default\n"
                           "  --fetch NAME          compute this output, tensor or step, not all outputs;\n"
                           "                        may be repeated\n"
                           "  -o, --output-dir DIR  write each output to NAME.npy in this folder, which is\n"
                           "                        created if it is absent\n"
                           "  --trace FILE          write a trace of the run for ui.perfetto.dev\n"
                           "  --json                print one JSON object. It has the values of outputs with\n"
                           "                        at most 1000 elements\n"
                           "  --checkpoint FILE     trained variables, as saved by linnet-train\n"
                           "  --verify              check every weight against its digest before the run\n"
                           "  --signature NAME      signature to run; default infer\n"
                           "  --strict-dims         refuse shapes that give different sizes to open\n"
                           "                        dimensions of the same name\n"
                           "  --threads N           number of threads; default: the cores of the largest\n"
                           "                        cluster\n"
                           "  --bind                bind each thread to a core of the largest cluster\n"
                           "  --isa-max NAME        newest instruction set that kernels may use: scalar,\n"
                           "                        sse2, avx2, ... or neon, dotprod, ...; default: the\n"
                           "                        best of this machine\n"
                           "  --memory SIZE         fail if the model needs more memory than this, for\n"
                           "                        example 8MB or 1GiB\n"
                           "  --precision NAME      precision in which kernels may sum floats: f32, f16,\n"
                           "                        bf16, tf32 or direct; default f32\n"
                           "  --device NAME         device that runs the steps it can: a name such as\n"
                           "                        opencl or opencl:1,f16=on, or the path of a library;\n"
                           "                        may be repeated, in order of preference\n"
                           "  --placement NODE=DEVICE\n"
                           "                        place nodes by name, whatever they cost there;\n"
                           "                        * stands for any characters; may be repeated:\n"
                           "                        the first name that fits a node counts\n"
                           "  --task TASK=DEVICE    device of a task that the model's device scopes name:\n"
                           "                        /job:worker/task:0=remote:pi1:7700; cpu is this\n"
                           "                        machine; may be repeated\n"
                           "  --user-ops FILE       shared library of the user ops that the model names\n"
                           "  --tuning FILE         file that `linnet tune` wrote: the kernels to use\n"
                           "  --timeout SECONDS     time limit for the run; default: none\n"
                           "  --version             print the version\n"
                           "  --help                print this text\n"
                           "\n"
                           "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n";

typedef struct run_options {
    tool_options common;
    feed feeds[TOOL_MOST_OPTIONS];
    linnet_shape inner[TOOL_MOST_OPTIONS]; /* the feeds that are no inputs: the run starts there */
    int n_feeds, n_inner;
    bool random, json;
    const char *folder, *checkpoint, *trace;
    trace spans;
} run_options;

enum { ALL_VALUES = 16, SHOWN_VALUES = 8, JSON_VALUES = 1000 }; /* up to 16 are all shown, of more the first 8 */

/* Takes [NAME=]FILE, and splits it in place. */
static int take_input(run_options *o, char *text) {
    char *path = strchr(text, '=');
    if (!text[0] || path == text || (path && !path[1]) || o->n_feeds == TOOL_MOST_OPTIONS)
        return tool_usage(o->common.tool, "--input: expected NAME=FILE, got '%s'", text);
    if (path) *path = 0;
    o->feeds[o->n_feeds].name = path ? text : NULL;
    o->feeds[o->n_feeds++].path = path ? path + 1 : text;
    return TOOL_OK;
}

static int parse(run_options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const size_t length = strlen(argv[i]);
        const bool model = length > 4 && !strcmp(argv[i] + length - 4, ".lnt");
        if (argv[i][0] != '-' && o->common.model && !model) {
            if (take_input(o, argv[i])) return TOOL_USAGE;
            continue;
        }
        int taken = tool_option(&o->common, argc, argv, &i);
        if (taken > 0) return taken;
        if (taken == 0) continue;
        if (!strcmp(argv[i], "--random")) {
            o->random = true;
        } else if (!strcmp(argv[i], "--verify")) {
            o->common.verify = true;
        } else if (!strcmp(argv[i], "--json")) {
            o->json = true;
        } else if (!strcmp(argv[i], "--trace")) {
            if (!(o->trace = tool_value(o->common.tool, argc, argv, &i))) return TOOL_USAGE;
        } else if (!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output-dir")) {
            if (!(o->folder = tool_value(o->common.tool, argc, argv, &i))) return TOOL_USAGE;
        } else if (!strcmp(argv[i], "--checkpoint")) {
            if (!(o->checkpoint = tool_value(o->common.tool, argc, argv, &i))) return TOOL_USAGE;
        } else if (!strcmp(argv[i], "--timeout")) {
            const char *value = tool_value(o->common.tool, argc, argv, &i);
            if (!value || !tool_seconds(o->common.tool, "--timeout", value, &o->common.timeout)) return TOOL_USAGE;
        } else if (!strcmp(argv[i], "--input")) {
            if (!tool_value(o->common.tool, argc, argv, &i)) return TOOL_USAGE;
            if (take_input(o, argv[i])) return TOOL_USAGE;
        } else {
            return tool_unknown(o->common.tool, help, argv[i]);
        }
    }
    return o->common.model ? TOOL_OK : tool_usage(o->common.tool, "no model given; give a .lnt file");
}

static feed *find_feed(run_options *o, const char *name) {
    for (int i = 0; i < o->n_feeds; i++)
        if (!strcmp(o->feeds[i].name, name)) return &o->feeds[i];
    return NULL;
}

/* Reads the input files and passes their shapes to the plan. */
static int load_feeds(run_options *o, const linnet_model *model, int signature, linnet_plan_config *config) {
    const char *tool = o->common.tool;
    int n = linnet_model_input_count(model, signature);
    for (int i = 0; i < o->n_feeds; i++) {
        feed *f = &o->feeds[i];
        linnet_tensor_info input = {.struct_size = sizeof input};
        char text[128];
        int at = 0, status;
        if (!f->name && n != 1)
            return tool_usage(tool, "--input %s: the model has %d inputs; name one of them, as in --input NAME=%s",
                              f->path, n, f->path);
        while (at < n &&
               (linnet_model_get_input(model, signature, at, &input) || (f->name && strcmp(input.name, f->name))))
            at++;
        const bool inner = at == n;
        if (inner && linnet_model_get_tensor(model, signature, f->name, &input)) {
            linnet_model_get_input(model, signature, 0, &input);
            return tool_fail(tool,
                             "the model has no input or tensor '%s'; it has %d inputs, the first is '%s'; `linnet "
                             "inspect` lists them",
                             f->name, n, n ? input.name : "");
        }
        f->name = input.name;
        for (int j = 0; j < i; j++)
            if (!strcmp(o->feeds[j].name, f->name)) return tool_usage(tool, "--input %s is given twice", f->name);
        if ((status = feed_read(&o->common, model, &input, f)) != TOOL_OK) return status;
        if (!feed_fits(&input, &f->array)) {
            linnet_tensor_info given = {.dtype = f->array.dtype, .rank = f->array.rank};
            char other[128];
            for (int d = 0; d < f->array.rank; d++) given.shape[d] = f->array.shape[d];
            return tool_fail(tool,
                             "input '%s': expected %s, got %s in %s; save the array with the expected dtype and shape, "
                             "or convert the model again",
                             f->name, tool_tensor_text(&input, text, sizeof text),
                             tool_tensor_text(&given, other, sizeof other), f->path);
        }
        if (inner || (input.bytes == 0 && o->common.n_shapes < TOOL_MOST_OPTIONS)) {
            linnet_shape *shape = inner ? &o->inner[o->n_inner++] : &o->common.shapes[o->common.n_shapes++];
            shape->input = f->name;
            shape->rank = f->array.rank;
            for (int d = 0; d < f->array.rank; d++) shape->dims[d] = f->array.shape[d];
        }
    }
    config->shape_count = o->common.n_shapes;
    config->feeds = o->inner;
    config->feed_count = o->n_inner;
    return TOOL_OK;
}

static int fill_inputs(run_options *o, const linnet_plan *plan, linnet_session *session) {
    unsigned long long state = o->common.seed;
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        feed *f;
        linnet_plan_get_input(plan, i, &info);
        f = find_feed(o, info.name);
        if (f) {
            if (f->array.bytes != info.bytes)
                return tool_fail(
                    o->common.tool,
                    "input '%s': the plan expects %zu bytes, but the file has %zu; check the array's shape", info.name,
                    info.bytes, f->array.bytes);
            if (info.bytes) memcpy(linnet_session_input(session, i), f->array.data, info.bytes);
        } else if (o->random) {
            tool_random(linnet_session_input(session, i), &info, &state);
        } else {
            char text[128];
            return tool_fail(o->common.tool, "input '%s' (%s) was not given; give --input %s=FILE.npy, or --random",
                             info.name, tool_tensor_text(&info, text, sizeof text), info.name);
        }
    }
    return TOOL_OK;
}

/* Makes a file name from the output's name: keeps letters, digits and ._-, and adds a number if two names become
 * equal. */
static void file_name(const linnet_plan *plan, int i, char *name, size_t size) {
    linnet_tensor_info info = {.struct_size = sizeof info};
    bool changed = false;
    linnet_plan_get_output(plan, i, &info);
    snprintf(name, size, "%.200s", info.name);
    for (char *c = name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
                     *c == '-' || (*c == '.' && c != name);
        changed |= !plain;
        *c = plain ? *c : '_';
    }
    if (changed || strlen(info.name) > 200) snprintf(name + strlen(name), size - strlen(name), ".%d", i);
}

/* Writes one output to the folder, and a mask also as a picture, whose path ends in .png. Stores the path of the array,
 * and sets `pictured` if there is a picture. */
static int write_output(const run_options *o, const results *words, int i, const linnet_tensor_info *info, char *path,
                        size_t size, bool *pictured) {
    char name[256], picture[4096], problem[256];
    file_name(words->plan, i, name, sizeof name);
    if ((size_t)snprintf(path, size, "%s/%s.npy", o->folder, name) >= size)
        return tool_fail(o->common.tool, "the path of output '%s' is too long; choose a shorter --output-dir",
                         info->name);
    if (!npy_write(path, info, linnet_session_output(words->session, i), problem, sizeof problem))
        return tool_fail(o->common.tool, "%s: %s; give another --output-dir", path, problem);
    if (!results_is(results_about(words->model, "io", words->signature, info->name), "mask")) return TOOL_OK;
    memcpy(picture, path, strlen(path) + 1);
    memcpy(picture + strlen(picture) - 3, "png", 3);
    *pictured = media_write_png(picture, info, linnet_session_output(words->session, i), problem, sizeof problem);
    if (*pictured || !problem[0]) return TOOL_OK;
    return tool_fail(o->common.tool, "%s: %s; give another --output-dir", picture, problem);
}

static void print_output(const results *words, const linnet_tensor_info *info, const void *data, const char *path) {
    double least, mean, most;
    char text[128];
    printf("%s: %s", info->name, tool_tensor_text(info, text, sizeof text));
    const bool any = tool_range(info, data, &least, &mean, &most);
    if (any) printf(", min %.6g, mean %.6g, max %.6g", least, mean, most);
    if (path[0]) printf(" -> %s", path);
    putchar('\n');
    if (results_print(words, info, data) || !any) return;
    fputs("  ", stdout);
    tool_print_values(info, data, tool_count(info) <= ALL_VALUES ? ALL_VALUES : SHOWN_VALUES, false);
    putchar('\n');
}

static void print_json_output(const linnet_tensor_info *info, const void *data, const char *path) {
    double figures[3];
    static const char *const names[] = {"min", "mean", "max"};
    const bool any = tool_range(info, data, &figures[0], &figures[1], &figures[2]);
    putchar('{');
    tool_json_entry("name", info->name);
    printf(", ");
    tool_json_entry("dtype", linnet_dtype_name(info->dtype));
    printf(", \"shape\": [");
    for (int d = 0; d < info->rank; d++) printf("%s%lld", d ? ", " : "", (long long)info->shape[d]);
    putchar(']');
    for (int k = 0; k < 3; k++) {
        printf(", \"%s\": ", names[k]);
        if (any)
            tool_json_number(figures[k], 9);
        else
            printf("null");
    }
    printf(", \"values\": ");
    if (tool_count(info) <= JSON_VALUES) {
        putchar('[');
        tool_print_values(info, data, JSON_VALUES, true);
        putchar(']');
    } else {
        printf("null");
    }
    if (path[0]) {
        printf(", ");
        tool_json_entry("file", path);
        putchar('}');
    } else {
        printf(", \"file\": null}");
    }
}

/* Prints all outputs, and writes them to --output-dir if it is given. */
static int give_outputs(const run_options *o, const linnet_model *model, const linnet_plan *plan,
                        const linnet_session *session) {
    const results words = {model, plan, session, o->common.signature ? o->common.signature : "infer"};
    const int n = linnet_plan_output_count(plan);
    int status = TOOL_OK;
    if (o->folder && mkdir(o->folder, 0777) != 0 && errno != EEXIST)
        return tool_fail(o->common.tool, "cannot create the folder %s: %s; give another --output-dir", o->folder,
                         strerror(errno));
    if (o->json) {
        putchar('{');
        tool_json_entry("model", o->common.model);
        printf(", ");
        tool_json_entry("signature", words.signature);
        printf(", \"outputs\": [");
    }
    for (int i = 0; i < n && status == TOOL_OK; i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        char path[4096] = "";
        bool pictured = false;
        if (linnet_session_get_output(session, i, &info))
            return tool_fail(o->common.tool, "cannot read the dtype and shape of output %d; please report this", i);
        if (o->folder) status = write_output(o, &words, i, &info, path, sizeof path, &pictured);
        if (status != TOOL_OK) return status;
        if (i && o->json) printf(", ");
        if (o->json)
            print_json_output(&info, linnet_session_output(session, i), path);
        else
            print_output(&words, &info, linnet_session_output(session, i), path);
        if (pictured && !o->json) printf("%s: picture -> %.*spng\n", info.name, (int)strlen(path) - 3, path);
    }
    if (o->json) {
        printf("], \"found\": {");
        results_json(&words);
        printf("}}\n");
    }
    return tool_flush(o->common.tool);
}

/* Reports why planning failed. If an input of open size was not given, prints this; otherwise prints the error
 * record. */
static int not_planned(run_options *o, const linnet_model *model, int signature, const linnet_error *error) {
    linnet_tensor_info input = {.struct_size = sizeof input};
    char text[128];
    for (int i = 0; !o->random && error->code == LINNET_UNKNOWN_SHAPE && i < linnet_model_input_count(model, signature);
         i++) {
        linnet_model_get_input(model, signature, i, &input);
        if (strcmp(input.name, error->tensor) || find_feed(o, input.name)) continue;
        return tool_fail(o->common.tool, "input '%s' (%s) was not given; give --input %s=FILE, or --random and --shape",
                         input.name, tool_tensor_text(&input, text, sizeof text), input.name);
    }
    return tool_not_planned(&o->common, model, signature, error);
}

static int run(run_options *o) {
    linnet_error error;
    linnet_model *model = NULL;
    linnet_plan *plan = NULL;
    linnet_store *store = NULL;
    linnet_session *session = NULL;
    linnet_plan_config config;
    linnet_session_config how;
    int signature, status;
    linnet_session_config_init(&how);
    how.trace = o->trace != NULL;
    how.bind_threads = o->common.bind;
    trace_phase(&o->spans, "start");
    status = tool_open(&o->common, &model, &config, &signature);
    trace_phase(&o->spans, "load");
    if (status == TOOL_OK) status = load_feeds(o, model, signature, &config);
    if (status == TOOL_OK && o->random) tool_take_batches(&o->common, model, signature, &config);
    trace_phase(&o->spans, "read inputs");
    if (status == TOOL_OK && linnet_plan_create(model, &config, &plan, &error))
        status = not_planned(o, model, signature, &error);
    trace_phase(&o->spans, "plan");
    if (status == TOOL_OK && o->checkpoint && /* after the plan, which compares the variables with --max-bytes */
        (linnet_store_create(model, NULL, &store, &error) || linnet_store_load(store, o->checkpoint, &error)))
        status = tool_fail_record(o->common.tool, &error);
    if (status == TOOL_OK && linnet_session_create(plan, store, &how, &session, &error))
        status = tool_fail_record(o->common.tool, &error);
    if (status == TOOL_OK) status = tool_bind(&o->common, true);
    trace_phase(&o->spans, "create the session");
    if (status == TOOL_OK) status = fill_inputs(o, plan, session);
    trace_phase(&o->spans, "fill inputs");
    if (status == TOOL_OK) status = tool_run(&o->common, session);
    trace_phase(&o->spans, "run");
    if (status == TOOL_OK && o->trace)
        status = trace_write(&o->spans, o->common.tool, o->trace, o->common.model, session);
    if (status == TOOL_OK) status = give_outputs(o, model, plan, session);
    linnet_session_free(session);
    linnet_store_free(store);
    linnet_plan_free(plan);
    linnet_model_free(model);
    return status;
}

int main(int argc, char **argv) {
    run_options *o = calloc(1, sizeof *o);
    int status;
    if (!o) return tool_no_memory("linnet-run");
    o->common.tool = "linnet-run";
    if (tool_answers(o->common.tool, help, argc, argv)) {
        free(o);
        return TOOL_OK;
    }
    tool_catch_signals();
    status = parse(o, argc, argv);
    if (status == TOOL_OK) status = run(o);
    for (int i = 0; i < o->n_feeds; i++) free(o->feeds[i].array.data);
    free(o->common.tuning);
    free(o);
    return status;
}
