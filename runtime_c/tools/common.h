/* common.h - what linnet-run and linnet-bench share: messages, options, shapes, random feeds, .npy files.
 * The tools use only the public header, as any program would. */
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

/* "linnet-run: error: ..." on standard error, one line. Return TOOL_FAILED, TOOL_FAILED and TOOL_USAGE. */
int tool_fail(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);
int tool_fail_record(const char *tool, const linnet_error *error);
int tool_usage(const char *tool, const char *format, ...) TOOL_PRINTF(2, 3);

/* Options that both tools take. */
typedef struct tool_options {
    const char *tool;
    const char *model;
    const char *signature; /* NULL: "infer" */
    const char *isa_max;
    long threads;
    linnet_shape shapes[TOOL_MOST_OPTIONS];
    int n_shapes;
    unsigned long long seed;
    bool verify; /* the weights, when the model is opened */
    bool strict_dims;
    double timeout; /* seconds that a run may take; 0: any */
} tool_options;

/* Takes argv[*i] (and its value) when it is one of the common options, or the path of the model. Returns -1 when it is
 * not, else TOOL_OK or TOOL_USAGE (said already). `*i` is left on the last argument taken. */
int tool_option(tool_options *options, int argc, char **argv, int *i);
/* The value of option argv[*i], NULL (said already) when it is missing. */
const char *tool_value(const char *tool, int argc, char **argv, int *i);
/* A whole number, or a positive decimal. false: said already. */
bool tool_number(const char *tool, const char *option, const char *text, long low, long high, long *value);
/* Bytes: 8MB, 500kB, 1GiB, or a number of them. */
bool tool_size(const char *tool, const char *option, const char *text, size_t *value);
bool tool_seconds(const char *tool, const char *option, const char *text, double *value);
/* Opens the model and fills the plan's config. Gives the number of the signature. */
int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature);
/* What is asked of the user when a dimension is unknown. */
int tool_unknown_shape(const tool_options *options, const linnet_tensor_info *input);

/* From here on SIGINT and SIGTERM end the run that is on; a second one ends the tool at once. */
void tool_catch_signals(void);
/* A run within the options' time. What ends it is said already: TOOL_FAILED, or TOOL_INTERRUPTED for a signal. */
int tool_run(const tool_options *options, linnet_session *session);

double tool_now(void); /* seconds */
/* Seeded values: floats in [-1, 1); bytes and quantized values of any size; other integers, which may be indices, 0
 * or 1. */
void tool_random(void *data, const linnet_tensor_info *info, unsigned long long *state);
/* "f32 [1, 3, 224, 224]" */
const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size);

/* npy.c - NumPy's format 1.0 (numpy.org, "NEP 1"), C order, little endian. bf16 is read from and written as u2. */
typedef struct npy_array {
    int dtype; /* linnet_dtype */
    int rank;
    long long shape[LINNET_MAX_RANK];
    void *data; /* malloc */
    size_t bytes;
} npy_array;

/* Dtype and shape; the file is left where its elements begin. */
bool npy_header(FILE *file, npy_array *out, char *problem, size_t size);
bool npy_read(const char *path, npy_array *out, char *problem, size_t size);
/* Atomically: a temporary file beside it, then a rename. */
bool npy_write(const char *path, const linnet_tensor_info *info, const void *data, char *problem, size_t size);

#endif
