/* train.h - the types of linnet-train: arrays in files, data sets, programs, and the training itself.
 * Data is read row by row when it is needed, so no file is loaded as a whole. */
#ifndef LINNET_TOOLS_TRAIN_H
#define LINNET_TOOLS_TRAIN_H

#include "common.h"

#include <stdint.h>

/* ---- train_array.c: an array in a .npy file, a member of an (uncompressed) .npz file, or an idx file ------------ */

typedef struct array_file {
    const char *path;
    int file;                  /* descriptor; -1: none */
    npy_array head;            /* dtype and shape; no data */
    long long rows, row_bytes; /* of the first dimension; an array of rank 0 has one row */
    long long offset;          /* of row 0 */
    bool swap;                 /* the file is big endian, as idx files are */
} array_file;

/* ---- train_data.c: the examples of one signature ---------------------------------------------------------------- */

enum { MOST_INPUTS = 32 };

typedef struct data_input {
    linnet_tensor_info info; /* as the signature declares it */
    array_file array;
    const char *given; /* --set: a number, for a scalar */
    double scale;
} data_input;

typedef struct dataset {
    const char *tool, *option; /* "--data" or "--eval", for error messages */
    data_input inputs[MOST_INPUTS];
    int n;
    long long rows; /* examples */
    void *row;      /* buffer for the longest row */
    size_t row_bytes;
} dataset;

typedef struct data_options {
    char *files[TOOL_MOST_OPTIONS]; /* NAME=FILE,... or FILE.npz */
    int n_files;
    char *const *sets, *const *scales; /* NAME=NUMBER */
    int n_sets, n_scales;
} data_options;

/* ---- train_program.c: a signature, planned and ready to run ----------------------------------------------------- */

/* Memory that the library has allocated for the tool, with an optional limit. */
typedef struct memory {
    size_t limit, live, peak; /* limit 0: none */
    bool refused;
    linnet_allocator allocator;
} memory;

enum { MOST_SCALARS = 16 };

typedef struct program {
    const char *signature;
    linnet_plan *plan;
    linnet_session *session;
    const char *names[MOST_SCALARS]; /* the scalar outputs, which are reported; "loss" is the first */
    int n_scalars;
    long long batch; /* examples of one run */
} program;

typedef struct program_options {
    const char *tool, *signature, *isa_max;
    long threads;
    const linnet_allocator *allocator;
    void *arena;
    size_t arena_size;
    uint64_t max_bytes; /* of the plan */
    bool count_special;
    const linnet_device *const *devices;
    int32_t device_count;
} program_options;

/* ---- train_loop.c ----------------------------------------------------------------------------------------------- */

typedef struct train_options {
    tool_options common;
    data_options data, eval;
    const char *eval_signature, *checkpoint;
    const char *best; /* an output of the evaluation; NULL: no best checkpoint */
    bool best_is_most;
    long batch, epochs, steps, every, log, eval_every, keep; /* 0: not given */
    bool steps_given, seed_given, in_order, fresh, json, no_checkpoint;
} train_options;

/* If there is an APPLY program, TRAIN accumulates gradients. REST evaluates the last, smaller batch. */
enum { TRAIN, APPLY, EVAL, REST, PROGRAMS, TOOL_PATH = 4096 };

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
    size_t own_bytes;     /* of model and store */
    size_t session_bytes; /* of all sessions, except their arenas */
    bool accumulates;
    long long batch, part; /* examples per step and per run; a run has fewer examples if gradients are accumulated */
    long long *rows;       /* numbers of the examples in a run */
    long long per_epoch, steps, step; /* steps per epoch, in total, and done */
    long long saved;                  /* step of the checkpoint on disk; 0: there is none, so the last good values are
                                       * those of the model file */
    uint64_t seed;
    void *room; /* buffer for the largest variable */
    size_t room_bytes, rows_bytes;
    double sums[MOST_SCALARS]; /* sums of the scalars since the last line */
    long long runs;
    bool has_best;
    double best;  /* the best value so far; of a loss, minus the value */
    double since; /* time of the steps since the last line, in seconds */
    int lock;     /* the open lock file of the checkpoint, if `locked` */
    bool locked;
} trainer;

#endif
