/* train.h - the parts of linnet-train: arrays in files, the data set made of them, what runs, and the search for NaN.
 * Data is read row by row as it is needed: no file is ever in memory as a whole. */
#ifndef LINNET_TOOLS_TRAIN_H
#define LINNET_TOOLS_TRAIN_H

#include "common.h"

#include <stdint.h>

/* ---- train_array.c: an array in a .npy file, a member of an (uncompressed) .npz file, or an idx file --------------
 */

typedef struct array_file {
    const char *path;
    int file;                  /* descriptor; -1: none */
    npy_array head;            /* dtype and shape; no data */
    long long rows, row_bytes; /* along the first dimension; rank 0: one row */
    long long offset;          /* of row 0 */
    bool swap;                 /* big endian, as idx files are */
} array_file;

/* member: of an .npz file, else NULL. */
bool array_open(const char *path, const char *member, array_file *out, char *problem, size_t size);
/* `row_bytes` of one row, in this machine's byte order. */
bool array_read(const array_file *a, long long row, void *to, char *problem, size_t size);
void array_close(array_file *a);
/* Whether it begins as an .npz file does. */
bool array_is_npz(const char *path);

/* ---- train_order.c -------------------------------------------------------------------------------------------------
 */

/* Which example is number `i` of an epoch of `count`: a permutation, the one of linnet.shuffle.permutation. */
uint64_t train_order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t i);

/* ---- train_data.c: the examples of one signature -------------------------------------------------------------------
 */

enum { MOST_INPUTS = 32 };

typedef struct data_input {
    linnet_tensor_info info; /* as the signature declares it */
    array_file array;
    const char *given; /* --set: a number, for a scalar */
    double scale;
} data_input;

typedef struct dataset {
    const char *tool, *option; /* "--data" or "--eval", for messages */
    data_input inputs[MOST_INPUTS];
    int n;
    long long rows; /* examples */
    void *row;      /* room for the longest */
    size_t row_bytes;
} dataset;

typedef struct data_options {
    char *files[TOOL_MOST_OPTIONS]; /* NAME=FILE,... or FILE.npz */
    int n_files;
    char *const *sets, *const *scales; /* NAME=NUMBER */
    int n_sets, n_scales;
} data_options;

/* Finds the array of every input and checks it against the signature. TOOL_OK, or said already. */
int data_open(dataset *d, const char *option, const data_options *options, const linnet_model *model, int signature);
void data_close(dataset *d);
/* The batch size that the signature fixes; 0: none. */
long long data_fixed_batch(const dataset *d);
/* Shapes of a batch. Gives their number. */
int data_shapes(const dataset *d, long long batch, linnet_shape shapes[MOST_INPUTS]);
/* Puts example `rows[i]` into row i of the session's inputs. */
int data_fill(const dataset *d, const linnet_plan *plan, linnet_session *session, const long long *rows,
              long long count);

/* ---- train_program.c: a signature, planned and ready to run
 * ---------------------------------------------------------- */

/* What the library holds for the tool, which a budget may bound. */
typedef struct memory {
    size_t limit, live, peak; /* limit 0: none */
    bool refused;
    linnet_allocator allocator;
} memory;
void memory_init(memory *m, size_t limit);

enum { MOST_SCALARS = 16 };

typedef struct program {
    const char *signature;
    linnet_plan *plan;
    linnet_session *session;
    const char *names[MOST_SCALARS]; /* outputs of one element, which are reported; "loss" is the first */
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
} program_options;

/* Plans it for a batch (d may be NULL: no inputs). */
linnet_status program_plan(program *p, const program_options *o, linnet_model *model, const dataset *d, long long batch,
                           linnet_error *error);
/* Bytes of the arena that its session needs. Programs that take turns share one. */
size_t program_arena(const program *p);
/* Makes the session. */
linnet_status program_start(program *p, const program_options *o, linnet_store *store, linnet_error *error);
void program_free(program *p);
/* The value of scalar i after a run. */
double program_value(const program *p, int i);

/* ---- train_nan.c
 * ------------------------------------------------------------------------------------------------------ */

/* The first step of the last run with NaN (else with infinity, if `infinite`) in its result; false: none. */
bool nan_find(const program *p, bool infinite, char *text, size_t size);
/* The first example of the last run with NaN or infinity in it; rows: their numbers in the data. */
bool nan_in_inputs(const program *p, const long long *rows, char *text, size_t size);
/* The first variable that holds NaN or infinity, in `name`. `room`: of the largest. */
bool nan_in_variables(const linnet_model *model, linnet_store *store, void *room, char *name, size_t size);

/* ---- train_loop.c
 * ----------------------------------------------------------------------------------------------------- */

typedef struct train_options {
    tool_options common;
    data_options data, eval;
    const char *eval_signature, *checkpoint;
    long batch, epochs, steps, every, log, eval_every; /* 0: not given */
    bool steps_given, seed_given, in_order, fresh, json;
    size_t memory; /* 0: no bound */
} train_options;

/* With APPLY, TRAIN is the signature that accumulates. REST evaluates the last, smaller batch. */
enum { TRAIN, APPLY, EVAL, REST, PROGRAMS };

typedef struct trainer {
    const train_options *o;
    const char *tool;
    memory memory;
    linnet_model *model;
    linnet_store *store;
    dataset data, eval_data;
    program programs[PROGRAMS];
    void *arena; /* of them all */
    size_t arena_bytes;
    size_t own_bytes;     /* of model and store */
    size_t session_bytes; /* of all sessions, less their arenas */
    bool accumulates;
    long long batch, part;            /* examples of a step, and of a run: less when gradients are accumulated */
    long long *rows;                  /* numbers of the examples of a run */
    long long per_epoch, steps, step; /* steps of an epoch, of all, done */
    long long saved;                  /* the step of the checkpoint that is on the disk; 0: none, the file's values */
    uint64_t seed;
    void *room; /* for the largest variable */
    size_t room_bytes, rows_bytes;
    double sums[MOST_SCALARS]; /* of what was reported, since the last line */
    long long runs;
    double since; /* when those began, seconds */
} trainer;

/* One step (from 0), whose number decides which examples it takes. TOOL_OK, or said already. */
int trainer_step(trainer *t, long long step);
/* The loss of the last step, or what NaN it left in a variable, said with the op that made it. */
int trainer_check(trainer *t, bool variables);
int trainer_eval(trainer *t);
int trainer_save(trainer *t);
void trainer_report(trainer *t);

/* ---- train_setup.c
 * ---------------------------------------------------------------------------------------------------- */

/* Opens all of it within the budget, and goes to where the checkpoint left. */
int trainer_open(trainer *t, const train_options *o);
void trainer_close(trainer *t);
/* Options of its programs, less the signature. */
program_options trainer_options(const trainer *t);
/* Sessions of all programs that are planned. */
linnet_status trainer_start(trainer *t, bool count_special, linnet_error *error);

#endif
