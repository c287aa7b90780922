/* common.h - code that the native tools share: messages, options, shapes, random inputs, .npy files.
 * The tools use only the public headers, as any program would. */
#ifndef LINNET_TOOLS_COMMON_H
#define LINNET_TOOLS_COMMON_H

#include "linnet_device.h"

#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define TOOL_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TOOL_PRINTF(a, b)
#endif

enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2,
    TOOL_INTERRUPTED = 130,
    TOOL_MOST_OPTIONS = 256,
    TOOL_MOST_DEVICES = 32
};

/* tool_fail, tool_fail_record, tool_usage and tool_no_memory print one line, "linnet-run: error: ...", to standard
 * error. tool_usage returns TOOL_USAGE, and the others return TOOL_FAILED. */
int tool_fail(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
/* Copies a message of the library to `text`. Where the message names a field of a config, the copy names the option
 * that sets this field. */
void tool_words(const char *from, char *text, size_t size);
/* Formats the error as linnet_error_format does, with the changes of tool_words. */
void tool_message(const linnet_error *error, char *text, size_t size);
int tool_fail_record(const char *tool, const linnet_error *error);
int tool_usage(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
int tool_no_memory(const char *tool);
/* Writes the buffered output; call this last. If a part of the output could not be written, prints an error and returns
 * TOOL_FAILED. */
int tool_flush(const char *tool);
/* If --help, -h or --version was given, prints the answer and returns true. The tool then ends. */
bool tool_answers(const char *tool, const char *help, int argc, char **argv);

/* Options that several tools take. */
typedef struct tool_options {
    const char *tool;
    const char *model;
    const char *signature; /* NULL: "infer" */
    const char *isa_max;
    int precision; /* linnet_precision */
    long threads;
    linnet_shape shapes[TOOL_MOST_OPTIONS];
    bool assumed[TOOL_MOST_OPTIONS]; /* for each of the shapes: tool_take_batches has added it */
    int n_shapes;
    const char *fetches[TOOL_MOST_OPTIONS]; /* outputs or tensors; none: all outputs */
    int n_fetches;
    const linnet_device *devices[TOOL_MOST_DEVICES]; /* in order of preference; none: the CPU alone */
    int n_devices;
    unsigned long long seed;
    size_t memory; /* limit of everything that the library allocates, in bytes; 0: no limit */
    bool verify;   /* check the weights when the model is opened */
    bool strict_dims, bind;
    const char *user_ops; /* the path of a shared library of user ops; NULL: none */
    char *tuning;         /* the text of a tuning file, which the tool frees; NULL: none */
    double timeout;       /* time limit of a run in seconds; 0: none */
} tool_options;

/* If argv[*i] is a common option or the path of the model, takes it and its value. Returns -1 if it is neither, TOOL_OK
 * if it was taken, or TOOL_USAGE or TOOL_FAILED after printing the error. Leaves `*i` at the last argument that it
 * took. */
int tool_option(tool_options *options, int argc, char **argv, int *i);
/* Returns the value of option argv[*i], or NULL after printing an error if it is missing. */
const char *tool_value(const char *tool, int argc, char **argv, int *i);
/* Parses a whole number from `low` to `high`. Returns false after printing an error. */
bool tool_number(const char *tool, const char *option, const char *text, long low, long high, long *value);
/* Parse a number of bytes such as 8MB, 500kB, 1GiB or 4096, and a number of seconds. Return false after printing an
 * error. */
bool tool_size(const char *tool, const char *option, const char *text, size_t *value);
bool tool_seconds(const char *tool, const char *option, const char *text, double *value);
/* Loads the user ops of a shared library into the config. `path` may be NULL. Returns false after printing an error. */
bool tool_user_ops(const char *tool, const char *path, linnet_model_config *config);
/* With --bind, binds the calling thread to a core (`bound`), or ends the binding. New threads inherit the binding, so
 * end it before a session is created. */
int tool_bind(const tool_options *options, bool bound);
/* Tells whether the file is a checkpoint, which cannot be run, and prints an error if so. */
bool tool_is_checkpoint(const char *tool, const char *path, const linnet_model *model);
/* Prints that the model has no signature of this name, and which signatures it has. Returns TOOL_FAILED. */
int tool_no_signature(const tool_options *options, const linnet_model *model, const char *name, const char *option);
/* Opens the model, fills the plan's config from the options, and stores the number of the signature. Returns TOOL_OK,
 * or another exit status after printing the error. */
int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature);

/* inputs.c. For each input whose only open dimension is the batch, tool_take_batches adds a shape and prints it; its
 * batch is that of the given inputs, or otherwise 1. tool_not_planned prints why planning failed and, for an input of
 * open shape, a shape that is likely to work; it returns TOOL_FAILED. */
void tool_take_batches(tool_options *options, const linnet_model *model, int signature, linnet_plan_config *config);
int tool_not_planned(const tool_options *options, const linnet_model *model, int signature, const linnet_error *error);
/* Writes seeded random values: floats in [-1, 1), any value for bytes and quantized types, and 0 or 1 for other
 * integers, which may be indices. */
void tool_random(void *data, const linnet_tensor_info *info, unsigned long long *state);

/* From this call on, SIGINT and SIGTERM end the current run. A second signal ends the tool at once. */
void tool_catch_signals(void);
/* Runs the session within the time limit of the options. Returns TOOL_OK, TOOL_FAILED, or TOOL_INTERRUPTED after a
 * signal; prints every error. */
int tool_run(const tool_options *options, linnet_session *session);

/* Returns a monotonic time in seconds. */
double tool_now(void);
/* words.c. Returns the name of a step and of the steps fused into it. If the name has more than `width` characters,
 * "..." replaces its middle. */
const char *tool_step_name(const linnet_step_info *step, size_t width, char *text, size_t size);
/* Tells whether the help text names the option. */
bool tool_knows(const char *help, const char *option);
/* Prints that the tool does not have this option, and the most similar option of its help text. Returns TOOL_USAGE. */
int tool_unknown(const char *tool, const char *help, const char *option);
/* Returns a text such as "f32 [1, 3, 224, 224]". */
const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size);

/* values.c. tool_json_text prints a text in quotes, tool_json_characters without them, tool_json_entry a key and a
 * text, and tool_json_number a number with so many digits. */
void tool_json_characters(const char *text, size_t length);
void tool_json_text(const char *text, size_t length);
void tool_json_entry(const char *key, const char *text);
void tool_json_number(double value, int digits);
/* Returns the number of elements. */
long long tool_count(const linnet_tensor_info *info);
/* Computes the least, the mean and the largest value; all are NaN if an element is NaN. Returns false for a tensor
 * without elements. */
bool tool_range(const linnet_tensor_info *info, const void *data, double *least, double *mean, double *most);
/* Prints the first `most` elements, separated by spaces, or by commas as JSON needs them. */
void tool_print_values(const linnet_tensor_info *info, const void *data, long long most, bool json);

/* npy.c. An array of NumPy's format 1.0 (numpy.org, "NEP 1"), in C order and little-endian. bf16 is read and written as
 * u2. */
typedef struct npy_array {
    int dtype; /* linnet_dtype */
    int rank;
    long long shape[LINNET_MAX_RANK];
    void *data; /* from malloc; the caller frees it */
    size_t bytes;
} npy_array;

/* Reads dtype and shape, but not the data, and leaves the file position at the first element. On an error, this
 * function and the next ones return false and write a text to `problem`, which has `size` bytes. */
bool npy_header(FILE *file, npy_array *out, char *problem, size_t size);
/* Reads a whole file. */
bool npy_read(const char *path, npy_array *out, char *problem, size_t size);
/* Converts an array of f64, NumPy's usual float, to f32, if `wanted` is LINNET_F32 and f32 can represent every value.
 */
void npy_round(npy_array *array, int wanted);
/* Writes a file atomically: creates a temporary file beside `path` and renames it. */
bool npy_write(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

#endif
