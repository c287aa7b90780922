/* common.h - code that the native tools share: messages, options, shapes, random inputs, .npy files.
 * The tools use only the public headers, as any program would. */
#ifndef LINNET_TOOLS_COMMON_H
#define LINNET_TOOLS_COMMON_H

#include "linnet.h"

#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define TOOL_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TOOL_PRINTF(a, b)
#endif

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_INTERRUPTED = 130, TOOL_MOST_OPTIONS = 256 };

/* Print one line, "linnet-run: error: ...", to standard error. The first two return TOOL_FAILED, the last
 * TOOL_USAGE. */
int tool_fail(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
int tool_fail_record(const char *tool, const linnet_error *error);
int tool_usage(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);

/* Options that several tools take. */
typedef struct tool_options {
    const char *tool;
    const char *model;
    const char *signature; /* NULL: "infer" */
    const char *isa_max;
    long threads;
    linnet_shape shapes[TOOL_MOST_OPTIONS];
    int n_shapes;
    unsigned long long seed;
    bool verify; /* check the weights when the model is opened */
    bool strict_dims;
    const char *user_ops; /* NULL: none; the path of a shared library of user ops */
    char *tuning;         /* NULL: none; the text of a tuning file. The tool frees it */
    double timeout;       /* time limit of a run in seconds; 0: none */
} tool_options;

/* If argv[*i] is a common option or the path of the model, takes it and its value. Returns -1 if it is neither, TOOL_OK
 * if it was taken, or TOOL_USAGE after printing the error. Leaves `*i` at the last argument that it took. */
int tool_option(tool_options *options, int argc, char **argv, int *i);
/* Returns the value of option argv[*i], or NULL after printing an error if it is missing. */
const char *tool_value(const char *tool, int argc, char **argv, int *i);
/* Parses a whole number from `low` to `high`. Returns false after printing an error. */
bool tool_number(const char *tool, const char *option, const char *text, long low, long high, long *value);
/* Parses a number of bytes such as 8MB, 500kB, 1GiB or 4096. */
bool tool_size(const char *tool, const char *option, const char *text, size_t *value);
bool tool_seconds(const char *tool, const char *option, const char *text, double *value);
/* Loads the user ops of a shared library into the config. `path` may be NULL. Returns false after printing an error. */
bool tool_user_ops(const char *tool, const char *path, linnet_model_config *config);
/* Opens the model, fills the plan's config, and stores the number of the signature. */
int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature);
/* Prints that the user must give the shape of this input. */
int tool_unknown_shape(const tool_options *options, const linnet_tensor_info *input);

/* From this call on, SIGINT and SIGTERM end the current run. A second signal ends the tool at once. */
void tool_catch_signals(void);
/* Runs the session within the time limit of the options. Returns TOOL_OK, TOOL_FAILED, or TOOL_INTERRUPTED after a
 * signal; prints every error. */
int tool_run(const tool_options *options, linnet_session *session);

double tool_now(void); /* seconds */
/* Writes seeded random values: floats in [-1, 1), any value for bytes and quantized types, and 0 or 1 for other
 * integers, which may be indices. */
void tool_random(void *data, const linnet_tensor_info *info, unsigned long long *state);
/* Returns a text such as "f32 [1, 3, 224, 224]". */
const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size);

/* npy.c - NumPy's format 1.0 (numpy.org, "NEP 1"), C order, little endian. bf16 is read and written as u2. */
typedef struct npy_array {
    int dtype; /* linnet_dtype */
    int rank;
    long long shape[LINNET_MAX_RANK];
    void *data; /* malloc */
    size_t bytes;
} npy_array;

/* Reads dtype and shape, and leaves the file position at the first element. */
bool npy_header(FILE *file, npy_array *out, char *problem, size_t size);
bool npy_read(const char *path, npy_array *out, char *problem, size_t size);
/* Writes atomically: creates a temporary file beside `path` and renames it. */
bool npy_write(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

#endif
