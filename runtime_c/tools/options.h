/* options.h - the options that several native tools take, and their values. */
#ifndef LN_TOOLS_OPTIONS_H
#define LN_TOOLS_OPTIONS_H

#include "linnet_device.h"
#include "messages.h"

#include <stdbool.h>
#include <stddef.h>

enum { TOOL_MOST_OPTIONS = 256, TOOL_MOST_DEVICES = 32 };

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
    linnet_placement placement[TOOL_MOST_OPTIONS]; /* the texts are the tool's arguments */
    int n_placement;
    linnet_cluster_task cluster[TOOL_MOST_OPTIONS]; /* likewise */
    int n_tasks;
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
/* Reads a tuning file. *text, which the tool frees, replaces the text of an earlier one. Returns TOOL_OK, or
 * TOOL_FAILED after printing an error. */
int tool_take_tuning(const char *tool, const char *path, char **text);
/* Returns the value of option argv[*i], or NULL after printing an error if it is missing. */
const char *tool_value(const char *tool, int argc, char **argv, int *i);
/* Parses a whole number from `low` to `high`. Returns false after printing an error. */
bool tool_number(const char *tool, const char *option, const char *text, long low, long high, long *value);
/* Parse a number of bytes such as 8MB, 500kB, 1GiB or 4096, and a number of seconds. Return false after printing an
 * error. */
bool tool_size(const char *tool, const char *option, const char *text, size_t *value);
bool tool_seconds(const char *tool, const char *option, const char *text, double *value);

#endif
