/* train.h - the types of linnet-train: arrays in files, data sets, programs, and the training itself.
 * Data is read row by row when it is needed, so no file is loaded as a whole. */
#ifndef LINNET_TOOLS_TRAIN_H
#define LINNET_TOOLS_TRAIN_H

#include "npy.h"
#include "options.h"

#include <stdint.h>

/* ---- train_array.c: an array in a .npy file, a member of an (uncompressed) .npz file, or an idx file ------------ */

/* An array in a file. */
typedef struct array_file {
    const char *path;
    int file;                  /* descriptor; -1: none */
    npy_array head;            /* dtype and shape; no data */
    long long rows, row_bytes; /* a row is one index of the first dimension; an array of rank 0 has one row */
    long long offset;          /* offset of row 0 in the file */
    bool swap;                 /* the file is big-endian, as idx files are */
} array_file;

/* ---- train_data.c: the examples of one signature ---------------------------------------------------------------- */

enum { MOST_INPUTS = 32 };

/* One input of a signature, and the array or the number that feeds it. */
typedef struct data_input {
    linnet_tensor_info info; /* as the signature declares it */
    array_file array;
    const char *given; /* the number that --set gives to a scalar; NULL: the array is used */
    double scale;
} data_input;

/* The examples of a signature. */
typedef struct dataset {
    const char *tool, *option; /* "--data" or "--eval", for error messages */
    data_input inputs[MOST_INPUTS];
    int n;
    long long rows; /* number of examples */
    void *row;      /* buffer for the longest row */
    size_t row_bytes;
} dataset;

/* The options of the command line that say where examples are. */
typedef struct data_options {
    char *files[TOOL_MOST_OPTIONS]; /* NAME=FILE,... or FILE.npz */
    int n_files;
    char *const *sets, *const *scales; /* NAME=NUMBER */
    int n_sets, n_scales;
} data_options;

/* ---- train_program.c: a signature, planned and ready to run ----------------------------------------------------- */

/* Memory that the library has allocated for the tool, with an optional limit. */
typedef struct memory {
    size_t limit, live, peak; /* in bytes: the limit (0: none), what is allocated now, and the most so far */
    bool refused;             /* an allocation has exceeded the limit */
    linnet_allocator allocator;
} memory;

enum { MOST_SCALARS = 16 };

/* A signature with its plan and session. */
typedef struct program {
    const char *signature;
    linnet_plan *plan;
    linnet_session *session;
    const char *names[MOST_SCALARS]; /* the scalar outputs, which are reported; "loss" is the first */
    int n_scalars;
    long long batch; /* number of examples in one run */
} program;

/* How programs are planned and started. */
typedef struct program_options {
    const char *tool, *signature, *isa_max;
    long threads;
    const linnet_allocator *allocator;
    void *arena;
    size_t arena_size;
    uint64_t max_bytes; /* limit of the plan; 0: none */
    bool count_special; /* count NaN and infinity in the results of steps */
    const linnet_device *const *devices;
    int32_t device_count;
    const linnet_placement *placement;
    int32_t placement_count;
    const linnet_cluster_task *cluster;
    int32_t cluster_count;
} program_options;

/* ---- train_loop.c ----------------------------------------------------------------------------------------------- */

/* The command line. */
typedef struct train_options {
    tool_options common;
    data_options data, eval;
    const char *eval_signature, *checkpoint;
    const char *best;                                        /* an output of the evaluation; NULL: no best checkpoint */
    bool best_is_most;                                       /* the largest value is the best, otherwise the smallest */
    long batch, epochs, steps, every, log, eval_every, keep; /* 0: not given */
    bool steps_given, seed_given, in_order, fresh, json, no_checkpoint;
} train_options;

/* The programs of a training. If there is an APPLY program, TRAIN only accumulates gradients, and APPLY updates the
 * variables. EVAL evaluates a batch, and REST the last, smaller batch. */
enum { TRAIN, APPLY, EVAL, REST, PROGRAMS, TOOL_PATH = 4096 };

/* The state of a training. */
typedef struct trainer {
    const train_options *o;
    const char *tool;
    memory memory;
    linnet_model *model;
    linnet_store *store;
    dataset data, eval_data;
    program programs[PROGRAMS];
    void *arena; /* shared by all programs */
    size_t arena_bytes;
    size_t own_bytes;      /* memory of model and store */
    size_t session_bytes;  /* memory of all sessions, except their arenas */
    bool accumulates;      /* a step has several runs of TRAIN, and then one of APPLY */
    long long batch, part; /* examples per step and per run; a run has fewer examples if gradients are accumulated */
    long long *rows;       /* numbers of the examples in a run */
    long long per_epoch, steps, step; /* numbers of steps: per epoch, in total, and done */
    long long saved;                  /* step of the checkpoint on disk; 0: there is none, so the last good values
                                       * are those of the model file */
    uint64_t seed;
    void *room; /* buffer for the largest variable */
    size_t room_bytes, rows_bytes;
    double sums[MOST_SCALARS]; /* sums of the scalars since the last line */
    long long runs;            /* number of runs in `sums` */
    bool has_best;             /* `best` is set */
    double best;               /* the best value so far; if the smallest value is the best, minus that value */
    double since;              /* time of the steps since the last line, in seconds */
    int lock;                  /* the open lock file of the checkpoint, if `locked` */
    bool locked;
} trainer;

#endif
