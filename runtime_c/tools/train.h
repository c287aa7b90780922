/* train.h - the parts of linnet-train: arrays in files, data sets, programs, and the search for NaN.
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

/* Opens an array. `member` is its name in an .npz file, else NULL. */
bool array_open(const char *path, const char *member, array_file *out, char *problem, size_t size);
/* Reads the `row_bytes` bytes of one row and converts them to this machine's byte order. */
bool array_read(const array_file *a, long long row, void *to, char *problem, size_t size);
void array_close(array_file *a);
/* Tells whether the file begins as an .npz file does. */
bool array_is_npz(const char *path);

/* ---- train_order.c ---------------------------------------------------------------------------------------------- */

/* Returns the number of the example at position `i` of an epoch of `count` examples. The permutation is the one of
 * linnet.shuffle.permutation. */
uint64_t train_order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t i);

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

/* Finds the array of every input and checks it against the signature. Returns TOOL_OK, or prints the error. */
int data_open(dataset *d, const char *option, const data_options *options, const linnet_model *model, int signature);
void data_close(dataset *d);
/* Returns the batch size that the signature fixes, or 0. */
long long data_fixed_batch(const dataset *d);
/* Stores the shapes of a batch. Returns how many there are. */
int data_shapes(const dataset *d, long long batch, linnet_shape shapes[MOST_INPUTS]);
/* Copies example `rows[i]` into row i of the session's inputs. */
int data_fill(const dataset *d, const linnet_plan *plan, linnet_session *session, const long long *rows,
              long long count);

/* ---- train_program.c: a signature, planned and ready to run ----------------------------------------------------- */

/* Memory that the library has allocated for the tool, with an optional limit. */
typedef struct memory {
    size_t limit, live, peak; /* limit 0: none */
    bool refused;
    linnet_allocator allocator;
} memory;
void memory_init(memory *m, size_t limit);
/* Counts memory that nothing allocates, to find out whether it would fit. False: it would exceed the limit. */
bool memory_count(memory *m, size_t size);

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

/* Plans the program for a batch size. `d` may be NULL if the signature has no inputs. */
linnet_status program_plan(program *p, const program_options *o, linnet_model *model, const dataset *d, long long batch,
                           linnet_error *error);
/* Returns the arena size of the session in bytes. Programs that run in turn share one arena. */
size_t program_arena(const program *p);
/* Creates the session. */
linnet_status program_start(program *p, const program_options *o, linnet_store *store, linnet_error *error);
void program_free(program *p);
/* Returns the value of scalar `i` after a run. */
double program_value(const program *p, int i);

/* ---- train_nan.c ------------------------------------------------------------------------------------------------ */

/* Finds the first step of the last run whose result has NaN (or infinity, if `infinite` is set and there is no NaN).
 * Returns false if there is none. */
bool nan_find(const program *p, bool infinite, char *text, size_t size);
/* Finds the first example of the last run that contains NaN or infinity. `rows` has the examples' numbers in the
 * data. */
bool nan_in_inputs(const program *p, const long long *rows, char *text, size_t size);
/* Stores the name of the first variable that holds NaN or infinity. `room` is a buffer for the largest variable. */
bool nan_in_variables(const linnet_model *model, linnet_store *store, void *room, char *name, size_t size);

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

/* Runs one step. Steps count from 0, and the number decides which examples the step takes. Returns TOOL_OK, or prints
 * the error. */
int trainer_step(trainer *t, long long step);
/* Checks that the loss of the last step is finite and, if requested, that the variables are finite. Otherwise prints
 * the error and the op that caused it. */
int trainer_check(trainer *t, bool variables);
int trainer_eval(trainer *t);
/* Saves the step to --checkpoint, unless it is saved, and keeps the last --keep checkpoints. */
int trainer_save(trainer *t);
/* Saves to FILE.best if the value of --best among the means of an evaluation is the best so far. */
int trainer_keep_best(trainer *t, const double *values);
/* Fails if --checkpoint could not be written at the end. Finds the best value of an earlier part of this training. */
int trainer_check_checkpoint(trainer *t);
void trainer_report(trainer *t);

/* ---- train_lock.c ----------------------------------------------------------------------------------------------- */

/* Locks --checkpoint against other processes of linnet-train. Fails if another one has the lock, and names it. */
int trainer_lock(trainer *t);
void trainer_unlock(trainer *t);

/* ---- train_setup.c ---------------------------------------------------------------------------------------------- */

/* Opens everything within the memory limit, and continues from the checkpoint if there is one. */
int trainer_open(trainer *t, const train_options *o);
void trainer_close(trainer *t);
/* Returns the options of the programs, without the signature. */
program_options trainer_options(const trainer *t);
/* Creates the sessions of all planned programs. */
linnet_status trainer_start(trainer *t, bool count_special, linnet_error *error);

#endif
