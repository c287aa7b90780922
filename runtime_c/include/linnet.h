/* linnet.h - the public C API of linnet, an embeddable inference-and-training runtime.
 * A program opens a model, creates a store for its variables, a plan and a session, and then runs the session.
 *
 * These conventions hold for every function below, unless its comment says otherwise:
 *  - The function returns LINNET_OK (0) or an error code. If `error` is not NULL, it receives the full record.
 *  - The caller owns objects returned through `**out` and releases each with the matching `_free`. On an error `*out`
 *    is set to NULL. Every `_free` accepts NULL. Strings and arrays that a function returns belong to the object they
 *    come from and live as long as that object.
 *  - A model and a plan are immutable: any number of threads may use them at once. A store does its own locking. Only
 *    one thread at a time may use a session; different sessions are independent.
 *  - Sizes are in bytes, times in nanoseconds, shapes in elements, unless the name says otherwise.
 *  - linnet_x_get_y(x, ..., &info) fills a struct that describes y; linnet_x_y(x, ...) returns y itself: a number, a
 *    name or a buffer.
 *  - A struct whose first field is `struct_size` may get more fields in later versions, at its end. Call its
 *    linnet_..._init before use. In C, `= {.struct_size = sizeof x}` does the same, except for linnet_server_config
 *    and linnet_worker_config, where the init function sets one field to -1. A newer library reads and writes only the
 *    fields that an older program knows. An older library sets unknown fields of an info to 0, and refuses a config in
 *    which an unknown field is set. If a struct_size is 0 or smaller than in the first version, the call fails with
 *    INVALID_ARGUMENT. Other structs never change.
 *  - The library never prints, reads the environment, exits or aborts. It has no global mutable state. The separate
 *    libraries for GPUs read five environment variables, which docs/gpu.md describes. */
#ifndef LINNET_H
#define LINNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(LINNET_STATIC)
#define LINNET_API
#elif defined(_WIN32)
#ifdef LINNET_BUILD
#define LINNET_API __declspec(dllexport)
#else
#define LINNET_API __declspec(dllimport)
#endif
#else
#define LINNET_API __attribute__((visibility("default")))
#endif

#define LINNET_VERSION_MAJOR 0
#define LINNET_VERSION_MINOR 1
#define LINNET_VERSION_PATCH 0
#define LINNET_MAX_RANK 8

/* Error codes. The hundreds digit names the cause: 1 the call, 2 the file, 3 the graph, 4 resources, 5 devices,
 * 6 training on many machines (linnet_sync.h), 7 the caller ended the run. */
typedef enum linnet_status {
    LINNET_OK = 0,
    LINNET_INVALID_ARGUMENT = 101,   /* a NULL handle, too small a struct_size, or a value out of range */
    LINNET_UNKNOWN_NAME = 102,       /* no signature, tensor, variable, ISA or device has this name */
    LINNET_WRONG_DTYPE = 103,        /* the data's element type is not the declared one */
    LINNET_WRONG_SHAPE = 104,        /* the data does not have the shape of the plan */
    LINNET_MISSING_INPUT = 105,      /* an input that the fetches need was not given */
    LINNET_NOT_FOUND = 201,          /* the file cannot be opened */
    LINNET_READ_FAILED = 202,        /* the file was opened, but cannot be read or mapped */
    LINNET_BAD_MAGIC = 203,          /* not a .lnt file */
    LINNET_NEWER_FORMAT = 204,       /* the file needs a newer reader */
    LINNET_TRUNCATED = 205,          /* the file is shorter than its header says */
    LINNET_CORRUPT = 206,            /* the file is damaged: an impossible offset, index or enum, or a wrong checksum */
    LINNET_WRITE_FAILED = 207,       /* the file cannot be written: disk full, no permission, ... */
    LINNET_OTHER_MODEL = 208,        /* a checkpoint of another model, or a file that is not a checkpoint */
    LINNET_UNSUPPORTED = 301,        /* no kernel for this op with these dtypes, shapes and attributes */
    LINNET_BAD_ATTRIBUTE = 302,      /* an op attribute is out of range */
    LINNET_SHAPE_MISMATCH = 303,     /* the operands' shapes do not fit together */
    LINNET_UNKNOWN_SHAPE = 304,      /* a shape must be given before planning */
    LINNET_INDEX_OUT_OF_RANGE = 305, /* while running: an index that depends on data is outside its tensor */
    LINNET_TOO_LARGE = 306,          /* a product of sizes overflows, or exceeds the limit that was set */
    LINNET_USER_OP_FAILED = 307,     /* a callback of a user op failed, or gave a wrong result (linnet_ext.h) */
    LINNET_OUT_OF_MEMORY = 401,      /* the allocator returned NULL, or the machine does not have enough memory */
    LINNET_ARENA_TOO_SMALL = 402,    /* the caller's arena is smaller than the plan needs; the record has both sizes */
    LINNET_THREAD_FAILED = 403,      /* a worker thread cannot be started */
    LINNET_DEVICE_FAILED = 501,      /* a device (linnet_device.h) reported a failure */
    LINNET_UNREACHABLE = 601,        /* nothing answers at the address, or this process cannot listen on it */
    LINNET_REFUSED = 602,            /* the other side ended the connection; the record has its reason */
    LINNET_TIMED_OUT = 603,          /* the time limit that the caller set has passed */
    LINNET_PROTOCOL_ERROR = 604,     /* the other side sent something that docs/protocol.md does not allow */
    LINNET_NOT_AUTHENTICATED = 605,  /* a key or certificate is wrong, or is missing where one is required */
    LINNET_SUPERSEDED = 606,         /* a later server has taken over this shard */
    LINNET_CONNECTION_LOST = 607,    /* the connection broke and cannot be restored */
    LINNET_JOB_OVER = 608,           /* the server has ended the job; workers need not connect again */
    LINNET_CANCELLED = 701,          /* the caller cancelled the run (linnet_run_config) */
    LINNET_DEADLINE_EXCEEDED = 702   /* the run took longer than linnet_run_config allows */
} linnet_status;

/* What went wrong, where, what was expected, what came instead, what to do. All strings are NUL-terminated. */
typedef struct linnet_error {
    int32_t code;     /* linnet_status */
    int32_t op_index; /* index of the node in its function, or -1 */
    char op[48];      /* name of the node or of its op, or "" */
    char tensor[80];  /* name of the tensor, input, variable or file concerned, or "" */
    char what[160];
    char expected[96];
    char got[96];
    char hint[160];
} linnet_error;

typedef enum linnet_dtype {
    LINNET_NONE = 0, /* absent: an optional operand that was not given */
    LINNET_F32 = 1,
    LINNET_F16 = 2,
    LINNET_BF16 = 3,
    LINNET_F64 = 4,
    LINNET_I8 = 5,
    LINNET_I16 = 6,
    LINNET_I32 = 7,
    LINNET_I64 = 8,
    LINNET_U8 = 9,
    LINNET_U16 = 10,
    LINNET_U32 = 11,
    LINNET_U64 = 12,
    LINNET_BOOL = 13, /* one byte, 0 or 1 */
    LINNET_I4 = 14,   /* two elements per byte; elements 0, 2, 4, ... are in the low halves. Rows follow each other
                         without gaps. If the number of elements is odd, the last 4 bits are 0 */
    LINNET_U4 = 15
} linnet_dtype;

/* The host's memory allocator. alloc returns memory aligned to `alignment` (a power of two), or NULL. */
typedef struct linnet_allocator {
    void *context;
    void *(*alloc)(void *context, size_t size, size_t alignment);
    void (*free)(void *context, void *pointer, size_t size);
} linnet_allocator;

typedef enum linnet_log_level {
    LINNET_LOG_INFO = 1,   /* a choice that the library made, for example to copy data that is not aligned */
    LINNET_LOG_WARNING = 2 /* the library could not do what the caller asked for, for example use a device */
} linnet_log_level;

/* Receives one message: a sentence of UTF-8 without a line end, valid during the call. The library calls it only in a
 * thread that has called a function on the model or on an object made from the model. The callback must not call the
 * library. */
typedef void (*linnet_log)(void *context, int32_t level, const char *text);

typedef void (*linnet_task)(void *context, int index);
/* The host's thread pool: calls task(task_context, i) once for each i in [0, count), perhaps in parallel. Returns after
 * all calls have ended. */
typedef void (*linnet_parallel_for)(void *context, linnet_task task, void *task_context, int count);

typedef struct linnet_model linnet_model;
typedef struct linnet_store linnet_store;
typedef struct linnet_plan linnet_plan;
typedef struct linnet_session linnet_session;

typedef enum linnet_quant_scheme {
    LINNET_QUANT_NONE = 0,
    LINNET_QUANT_TENSOR = 1, /* one scale */
    LINNET_QUANT_AXIS = 2,   /* one scale for each index along `quant_axis` */
    LINNET_QUANT_BLOCK = 3   /* one scale for each `quant_block` elements along `quant_axis` */
} linnet_quant_scheme;

/* A tensor in its logical shape. The caller's tensors are dense and row-major ("C order"). Quantized elements stand for
 * real = (stored - zero) * scale. */
typedef struct linnet_tensor_info {
    size_t struct_size;
    const char *name;
    int32_t dtype;                  /* linnet_dtype */
    int32_t rank;                   /* -1: unknown */
    int64_t shape[LINNET_MAX_RANK]; /* -1: unknown (dynamic) */
    size_t bytes;                   /* 0 if a dimension is unknown */
    float scale;                    /* quant_scheme TENSOR: scales[0]; otherwise 0 */
    int32_t zero;
    int32_t bits;         /* of one stored element: 32 for F32, 4 for I4 */
    int32_t quant_scheme; /* linnet_quant_scheme */
    int32_t quant_axis;   /* AXIS and BLOCK; otherwise -1 */
    int32_t quant_block;  /* BLOCK; otherwise 0 */
    int64_t quant_count;  /* number of scales and zero points */
    const float *scales;  /* NULL: not quantized */
    const int32_t *zeros; /* NULL: all 0 */
    const char *layout;   /* of the memory: "dense", "channels_last" */
} linnet_tensor_info;

/* Clears a struct of `size` bytes and sets its struct_size. 0, false or NULL in a field means its default, unless the
 * field's comment says otherwise. */
LINNET_API void linnet_struct_init(void *address, size_t size);
/* Sets all fields of a struct to their defaults, and its struct_size to the size that the caller was compiled with,
 * here and for the structs below. Bindings in other languages, which cannot call inline functions, call the symbols
 * NAME_init_sized of linnet_ext.h instead. */
static inline void linnet_tensor_info_init(linnet_tensor_info *info) { linnet_struct_init(info, sizeof *info); }

/* ---- library ------------------------------------------------------------------------------------------------ */

/* "0.1.0". */
LINNET_API const char *linnet_version(void);
/* The name of a status: "out_of_memory" for LINNET_OUT_OF_MEMORY; "unknown_status" if it is not a linnet_status. */
LINNET_API const char *linnet_status_name(int status);
/* Writes the error as one line of text: what, where, expected, got, hint. Returns the whole length, like snprintf. */
LINNET_API size_t linnet_error_format(const linnet_error *error, char *text, size_t size);
/* "f32", "i8", ...; NULL if `dtype` is not a linnet_dtype. */
LINNET_API const char *linnet_dtype_name(int dtype);
/* Bytes of one element; 0 if `dtype` is not a linnet_dtype, and for I4 and U4, whose elements share a byte. */
LINNET_API size_t linnet_dtype_size(int dtype);
/* Name of the i-th ISA level, from the most basic (i = 0) to the best; NULL past the end. Only levels that this build
 * contains and this machine can run are counted. `isa_max` takes these names. */
LINNET_API const char *linnet_isa_name(int i);
/* Number of threads that a plan uses by default. This is the number of cores in the largest cluster that this process
 * may run on, or less if the quota of its control group (a container's --cpus) is smaller. */
LINNET_API int linnet_default_threads(void);
/* Binds the calling thread to one core of the largest cluster, so that no thread runs on a small core and delays the
 * others. `i` chooses the core: the i-th (from 0) of those that the thread may run on; past the last core, counting
 * begins again at the first. -1 lets the thread run on all cores again, even on those that taskset had excluded,
 * because the library keeps no state. Threads that it creates inherit the binding, so call this function after the
 * session has been created. Errors: INVALID_ARGUMENT (i is less than -1), UNSUPPORTED (the system has no such call, or
 * refuses). */
LINNET_API linnet_status linnet_bind_thread(int i, linnet_error *error);

/* ---- model -------------------------------------------------------------------------------------------------- */

typedef struct linnet_user_op linnet_user_op; /* linnet_ext.h */

typedef enum linnet_verify {
    LINNET_VERIFY_NEVER = -1,
    LINNET_VERIFY_DEFAULT =
        0, /* when a model is opened, check the weights if they are copied, but not if they stay where they are */
    LINNET_VERIFY_STRICT = 1 /* check all weights; it is an error if some cannot be checked */
} linnet_verify;

typedef struct linnet_model_config {
    size_t struct_size;
    const linnet_allocator *allocator; /* NULL: malloc. Copied. */
    int32_t verify;                    /* linnet_verify: whether to check the weights (linnet_model_verify) */
    linnet_log log;                    /* NULL: no messages */
    void *log_context;
    const linnet_user_op *const *user_ops; /* the program's ops that the file names. Copied. */
    int32_t user_op_count;
} linnet_model_config;

static inline void linnet_model_config_init(linnet_model_config *config) { linnet_struct_init(config, sizeof *config); }
/* Maps the file at `path` and verifies its whole structure. `config` may be NULL. Errors: NOT_FOUND, READ_FAILED,
 * BAD_MAGIC, NEWER_FORMAT, TRUNCATED, CORRUPT, UNSUPPORTED (an op is not in this build or not in user_ops),
 * BAD_ATTRIBUTE, TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT; if the weights are checked, also those of
 * linnet_model_verify. */
LINNET_API linnet_status linnet_model_open(const char *path, const linnet_model_config *config, linnet_model **out,
                                           linnet_error *error);
typedef enum linnet_ownership {
    LINNET_BORROW = 0, /* the memory must outlive the model and stay as it is; it is still copied if it is not
                          16-byte aligned */
    LINNET_COPY = 1
} linnet_ownership;

/* Opens a model that is in memory. Errors: those of linnet_model_open, except NOT_FOUND. */
LINNET_API linnet_status linnet_model_open_memory(const void *data, size_t size, linnet_ownership ownership,
                                                  const linnet_model_config *config, linnet_model **out,
                                                  linnet_error *error);
/* Drops the caller's reference. This is possible at any time, because stores, plans and sessions keep their model
 * alive. */
LINNET_API void linnet_model_free(linnet_model *model);

LINNET_API int linnet_model_signature_count(const linnet_model *model);
/* NULL past the end. */
LINNET_API const char *linnet_model_signature_name(const linnet_model *model, int signature);
/* Index of the signature of that name, or -1. */
LINNET_API int linnet_model_find_signature(const linnet_model *model, const char *name);
LINNET_API int linnet_model_input_count(const linnet_model *model, int signature);
LINNET_API int linnet_model_output_count(const linnet_model *model, int signature);
/* Gives the declared shape, which may be partly unknown. Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_model_get_input(const linnet_model *model, int signature, int i,
                                                linnet_tensor_info *out);
LINNET_API linnet_status linnet_model_get_output(const linnet_model *model, int signature, int i,
                                                 linnet_tensor_info *out);
LINNET_API int linnet_model_variable_count(const linnet_model *model);
LINNET_API linnet_status linnet_model_get_variable(const linnet_model *model, int i, linnet_tensor_info *out);
/* Value of a metadata key (producer, source, license, ...), or NULL. The key "digest" gives the digest of the file: 32
 * hexadecimal digits that identify this model. This digest covers the digests of the weights, but not the weights
 * themselves; linnet_model_verify checks whether the weights match their digests. */
LINNET_API const char *linnet_model_metadata(const linnet_model *model, const char *key);
/* Bytes that the model itself holds now: its structures, and the packed weights of its sessions. Plans that
 * rearrange a constant in the same way share one copy, which linnet_plan_info.packed_weights counts in each plan. */
LINNET_API size_t linnet_model_bytes(linnet_model *model);

/* ---- store: the variables of a model -------------------------------------------------------------------------- */

/* Creates a store with the file's initial values. Sessions may share it. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_store_create(linnet_model *model, const linnet_allocator *allocator, linnet_store **out,
                                             linnet_error *error);
LINNET_API void linnet_store_free(linnet_store *store);
/* Copies a variable out of the store (read) or into it (write), under the store's lock. `bytes` must be the variable's
 * exact size. If the newest value is in a device's memory (after a training step on the device), a read gets it from
 * there. Errors: UNKNOWN_NAME, WRONG_SHAPE (wrong size), INVALID_ARGUMENT, DEVICE_FAILED (read). Thread-safe. */
LINNET_API linnet_status linnet_store_read(linnet_store *store, const char *name, void *data, size_t bytes,
                                           linnet_error *error);
LINNET_API linnet_status linnet_store_write(linnet_store *store, const char *name, const void *data, size_t bytes,
                                            linnet_error *error);
/* Bytes that the store holds: its variables, and the copies that it keeps for snapshots. */
LINNET_API size_t linnet_store_bytes(const linnet_store *store);

/* What a checkpoint contains. A checkpoint is a .lnt file with variables and their model's digest, but no graph. */
typedef struct linnet_checkpoint_config {
    size_t struct_size;
    const char *const *variables; /* names; NULL: all variables that have changed since the store was created (assigned
                                   * by a run, written or loaded). The model and these variables are the whole state */
    int32_t variable_count;
    const char *const *metadata; /* key, value, key, value, ... in UTF-8, for example the training step */
    int32_t metadata_count;      /* number of pairs */
} linnet_checkpoint_config;

static inline void linnet_checkpoint_config_init(linnet_checkpoint_config *config) {
    linnet_struct_init(config, sizeof *config);
}
/* Writes variables of the store to `path`. All values are from the same moment, between two runs. After a crash, a
 * kill or a full disk, `path` is either the old file or the whole new file: the function writes PATH.part, calls fsync,
 * renames the file, and calls fsync on the folder. `config` may be NULL. Runs that assign variables wait while the file
 * is written, but not during fsync. Calls that save to the same path wait for each other. Thread-safe.
 * linnet_model_open can open the checkpoint to read its metadata ("checkpoint_of": the model's digest) and variables.
 * Errors: WRITE_FAILED (the old file is unchanged), UNKNOWN_NAME, OUT_OF_MEMORY, INVALID_ARGUMENT, DEVICE_FAILED. */
LINNET_API linnet_status linnet_store_save(linnet_store *store, const char *path,
                                           const linnet_checkpoint_config *config, linnet_error *error);
/* Loads the checkpoint's variables. Other variables keep their values. On an error, no variable changes. Waits for
 * active runs of the store. Thread-safe. Errors: those of linnet_model_open and linnet_model_verify, and OTHER_MODEL.
 */
LINNET_API linnet_status linnet_store_load(linnet_store *store, const char *path, linnet_error *error);

/* ---- plan: fixes shapes, threads and devices, and counts every byte; allocates no memory for runs yet ----------- */

typedef struct linnet_shape {
    const char *input; /* name of an input */
    int32_t rank;
    int64_t dims[LINNET_MAX_RANK];
} linnet_shape;

typedef struct linnet_device linnet_device;               /* linnet_device.h */
typedef struct linnet_program_cache linnet_program_cache; /* linnet_device.h */

/* A hint that says on which device nodes run. */
typedef struct linnet_placement {
    const char *node;   /* name of a node; "*" stands for any characters */
    const char *device; /* name of a device of the config, with or without its options after a comma; or "cpu" */
} linnet_placement;

/* A task of a cluster: the machine of the nodes that device scopes place on it. */
typedef struct linnet_cluster_task {
    const char *task;   /* such as "/job:worker/task:0" */
    const char *device; /* name of a device of the config, which runs the task's nodes; "cpu": this machine */
} linnet_cluster_task;

/* How sums of f32, f16 and bf16 products may be computed. F16, BF16 and TF32 are permissions, not demands: a kernel or
 * a device without faster arithmetic computes in f32. On the CPU, only F16 is used, on ARM cores with arithmetic on
 * f16. DIRECT excludes kernels. The setting does not change how f64 and integers are computed (docs/numerics.md). */
typedef enum linnet_precision {
    LINNET_PRECISION_F32 = 0,   /* products and sums are f32 */
    LINNET_PRECISION_F16 = 1,   /* factors, and sums of at most 64 products, may be f16; the sums are added in f32 */
    LINNET_PRECISION_BF16 = 2,  /* factors may be rounded to bf16; their products are added up in f32 */
    LINNET_PRECISION_TF32 = 3,  /* factors may be rounded to tf32 (11 significant bits, the exponents of f32); their
                                   products are added up in f32 */
    LINNET_PRECISION_DIRECT = 4 /* as F32, and an output depends only on the elements that it is the sum of: no kernel
                                   computes with Winograd's method */
} linnet_precision;

/* Slow plans without fast kernels, for comparison. */
typedef enum linnet_reference {
    LINNET_REFERENCE_NONE = 0,    /* the fastest kernels */
    LINNET_REFERENCE_KERNELS = 1, /* only scalar reference kernels, no fusion, dense layouts */
    LINNET_REFERENCE_BOUNDED = 2  /* also places buffers at the offsets of the reference plan for `bounds`, and uses no
                                     more memory than that plan. This works for every shape within the bounds, unless a
                                     tensor shrinks when an input grows */
} linnet_reference;

typedef struct linnet_plan_config {
    size_t struct_size;
    const char *signature;      /* NULL: "infer" */
    const linnet_shape *shapes; /* shapes of the inputs whose declared shapes are not fully known */
    int32_t shape_count;
    const char *const *fetches; /* names of outputs, of any tensors, or of nodes (their first output); NULL: all
                                 * outputs. The signature's variables are assigned even if they are not fetched. */
    int32_t fetch_count;
    int32_t threads;                     /* 0: linnet_default_threads() */
    const char *isa_max;                 /* a linnet_isa_name(); NULL: the best */
    const linnet_device *const *devices; /* in order of preference (linnet_device.h). A device gets the nodes that it
                                            can run, except those that cost less on the CPU */
    int32_t device_count;
    bool strict_dims;   /* WRONG_SHAPE if open dimensions with the same name get different sizes. false: names are
                           ignored; each dimension keeps the size given for it */
    int32_t reference;  /* linnet_reference */
    uint64_t max_bytes; /* TOO_LARGE if a plan or a segment needs more; 0: no limit. If the signature assigns variables,
                           the plan recomputes values to stay within the limit; the results have the same bits. If this
                           does not save enough, `got` in the error says how much is needed. Also TOO_LARGE if planning
                           itself needs over 32 MiB more than the limit. What is left is reserved for loops whose number
                           of iterations is known only in the run (linnet_plan_info.loop_values) */
    const linnet_allocator *allocator; /* NULL: the model's */
    const linnet_shape *bounds; /* largest shapes; a larger size in `shapes` is WRONG_SHAPE. A dimension that neither
                                 * the file nor `shapes` fixes gets its largest size */
    int32_t bound_count;
    bool snapshot; /* runs read a copy of the variables, taken after the last run, write or load that changed a
                    * variable. Runs on snapshots and other runs of the store wait for each other only while changed
                    * variables are copied. INVALID_ARGUMENT if the signature assigns variables. */
    const linnet_placement *placement; /* hints, which overrule the costs. If several hints match a node, the first one
                                          applies. A node that its device cannot run stays on the CPU */
    int32_t placement_count;
    const char *tuning; /* NULL, or the text of a tuning file (docs/tuning.md). Without it, the plan chooses kernels by
                         * modelled cost. What the file says takes precedence. Float results then differ within the
                         * tolerance of their ops. Lines with kernels that this build does not have are left out, with a
                         * warning. The plan does not keep the text */
    const linnet_shape
        *feeds; /* tensors that the caller gives: any tensors of the signature's function, or its
                 * outputs, by name. Each of them is an input of the plan, and the nodes that would compute it do not
                 * run. INVALID_ARGUMENT for constants, and if no fetch needs the tensor and it is not an input of the
                 * signature. Inputs of the signature that the fetches still need are inputs of the plan too. A rank of
                 * -1 stands for the shape in the file (linnet_model_get_tensor, linnet_ext.h) */
    int32_t feed_count;
    bool separate_outputs;     /* no output shares its memory with another tensor, so that linnet_session_bind_output
                                * (linnet_ext.h) can replace it. An output that would share memory is copied */
    bool passes;               /* the plan records what each pass of planning changed, for linnet_plan_get_pass
                                * (linnet_ext.h). Planning then takes longer */
    int32_t precision;         /* linnet_precision in which kernels and devices may compute sums of floats */
    uint64_t max_device_bytes; /* TOO_LARGE if the plan needs more on one of its devices; 0: no limit. Segments that are
                                * planned in a run are not counted. max_bytes limits all memory together */
    const linnet_cluster_task *cluster; /* the tasks that the model's device scopes name (docs/machines.md). A node that
                                         * cannot run where its scope places it is UNSUPPORTED, and a scope that no task
                                         * or device fits is UNKNOWN_NAME. Without a cluster, scopes that name a job or
                                         * a task are ignored, and others are hints. `placement` overrules scopes */
    int32_t cluster_count;
    int32_t reserved;    /* 0 */
    bool whole_branches; /* an `if` whose condition a run computes becomes one step, as in the bodies of loops, if its
                          * branches give the same shapes. The plan then has the memory and the packed weights of both
                          * branches. false: a run plans the branch that it takes, unless a device of the plan runs
                          * branches whole (linnet_device.h) */
} linnet_plan_config;

/* Exact number of bytes by region. `total` counts all bytes that the model, this plan, one store and one session with
 * its own arena and threads allocate: activations + scratch + packed_weights + constants + variables + io + snapshot +
 * committed + bookkeeping + devices + loop_values. Planning frees all other memory that it uses. If shapes depend on
 * data, a run allocates more, up to max_bytes. A second plan of the same model adds less than its total, because the
 * two plans share the model, the store, some packed weights and the constants on devices. */
typedef struct linnet_plan_info {
    size_t struct_size;
    uint64_t activations;    /* the arena of intermediate tensors, as planned */
    uint64_t scratch;        /* working memory of kernels */
    uint64_t packed_weights; /* weights rearranged for the kernels. Packed constants are in memory of the model's
                                allocator. Packed variables, which the signature must not assign, are in memory of the
                                store's allocator */
    uint64_t constants;      /* values computed at plan time, except those that the first session packs and frees */
    uint64_t variables;      /* the variables of the store */
    uint64_t io;             /* input and output buffers of the session */
    uint64_t snapshot;       /* the session's copy of variables (linnet_plan_config.snapshot) */
    uint64_t committed;      /* the copy of variables that the store keeps for all sessions on snapshots */
    uint64_t bookkeeping;    /* the structs of model, plan and session */
    uint64_t total;
    uint64_t mapped;      /* pages of the file; not part of total */
    uint64_t lower_bound; /* largest number of bytes of activations that must exist during one step */
    uint64_t naive;       /* sum of all activations without reuse */
    uint64_t gradients;   /* part of activations: peak bytes of the inputs to variable updates */
    uint64_t folded;      /* `constants` plus the computed values that the first session packs and then frees */
    int32_t steps;
    int32_t segments; /* 1 unless shapes depend on data */
    int32_t threads;
    int32_t recomputed; /* steps that compute a value again instead of keeping it, because of max_bytes */
    const char *isa;
    uint64_t plan_ns;  /* how long planning took */
    uint64_t devices;  /* memory of devices; linnet_plan_get_device (linnet_device.h) gives its parts */
    int32_t fallbacks; /* steps that run on the CPU because no device of the config can run them, or because they cost
                          more there. Includes steps in the bodies of loops and branches */
    uint64_t modelled_ns; /* modelled time of a run: the sum over its steps, except steps that are planned in the run */
    int32_t precision;    /* linnet_precision that the config permits, whether or not a step uses it */
    uint64_t stored_weights; /* weights that kernels use in the file, where they are stored as the kernels need them
                              * (docs/format.md, "Packed weights"); not part of total */
    uint64_t loop_values; /* with max_bytes: memory that the plan reserves for loops whose number of iterations is known
                           * only in the run. It holds the values that such a loop keeps from each iteration */
    int64_t loop_iterations; /* the most iterations that these loops can have; 0: nothing is reserved */
} linnet_plan_info;

static inline void linnet_plan_info_init(linnet_plan_info *info) { linnet_struct_init(info, sizeof *info); }

/* One step of a plan. It includes the time of the step if the session traces, and the special values in its first
 * output if the session counts them (count_special). */
typedef struct linnet_step_info {
    size_t struct_size;
    const char *name;   /* node */
    const char *op;     /* runtime op */
    const char *kernel; /* full kernel name, e.g. "conv_f32_igemm_7x32__avx512" */
    const char *layout; /* "dense", "channels_last" */
    const char *device; /* "cpu", or the name of a device */
    const char *fused;  /* names of nodes fused into this step, separated by "+", or "" */
    uint64_t bytes;     /* read and written */
    uint64_t flops;     /* a multiplication and an addition count as two; integer operations count the same */
    uint64_t runs;      /* number of traced runs; for a transfer, number of those in which it was made */
    uint64_t total_ns;  /* sum over the traced runs; for a step on a device, only the time to submit it */
    uint64_t saturated; /* values at an integer limit after the last run */
    uint64_t infinite;
    uint64_t not_a_number;
    uint64_t device_ns; /* time on the device, if the device measures it: the sum over the traced runs. For a loop or a
                           branch, the time of its bodies */
    const char *placed; /* why the step runs where it does: "" (there is no other device), "cannot" (no device can run
                         * it), "cost" (a device can, but the CPU costs less), "hint", "scope" (the model's device
                         * scope), "chosen" (its device), "refused" (by its device) */
    uint64_t start_ns;  /* start of the step in the last traced run, by the system's monotonic clock; 0: it never ran */
    uint64_t modelled_ns; /* time on the plan's threads, as modelled to choose the kernel (docs/tuning.md). For a step
                           * on a device and for a transfer: the time that the device's own model gives */
    int fork;   /* number of the fork that the step belongs to, from 1 on: its branches run side by side, each on one
                 * thread; 0: the step runs alone */
    int branch; /* number of its branch in the fork, from 1 on; 0: none */
    const char *source; /* for a copy between devices: the device from which the value comes; otherwise "" */
} linnet_step_info;

static inline void linnet_step_info_init(linnet_step_info *info) { linnet_struct_init(info, sizeof *info); }

static inline void linnet_plan_config_init(linnet_plan_config *config) { linnet_struct_init(config, sizeof *config); }
/* Makes a plan, which keeps `model` alive. `config` may be NULL.
 * Errors: UNKNOWN_NAME (signature, input, fetch, ISA), CORRUPT and NEWER_FORMAT (the tuning file), UNKNOWN_SHAPE,
 * WRONG_SHAPE, SHAPE_MISMATCH, UNSUPPORTED, BAD_ATTRIBUTE, TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_plan_create(linnet_model *model, const linnet_plan_config *config, linnet_plan **out,
                                            linnet_error *error);
LINNET_API void linnet_plan_free(linnet_plan *plan);
LINNET_API linnet_status linnet_plan_get_info(const linnet_plan *plan, linnet_plan_info *info);
/* Gives the static facts about step i. Errors: INVALID_ARGUMENT past the end. */
LINNET_API linnet_status linnet_plan_get_step(const linnet_plan *plan, int i, linnet_step_info *info);
/* The plan's inputs are first the signature's inputs that the fetches need, then the feeds that they need. Its outputs
 * are the fetches, in the order of the config. All shapes are known. */
LINNET_API int linnet_plan_input_count(const linnet_plan *plan);
LINNET_API int linnet_plan_output_count(const linnet_plan *plan);
LINNET_API linnet_status linnet_plan_get_input(const linnet_plan *plan, int i, linnet_tensor_info *out);
LINNET_API linnet_status linnet_plan_get_output(const linnet_plan *plan, int i, linnet_tensor_info *out);

/* ---- session: allocates the arena, packs constants, resolves operands, and runs --------------------------------- */

typedef struct linnet_session_config {
    size_t struct_size;
    void *arena;       /* the caller's memory for activations and scratch, 64-byte aligned; NULL: allocated */
    size_t arena_size; /* must be at least activations + scratch of the plan */
    linnet_parallel_for parallel_for; /* NULL: the session has its own pool of plan.threads - 1 workers */
    void *parallel_context;
    bool trace;                        /* time every step */
    bool count_special;                /* count saturations, Inf and NaN per step after each run (slow) */
    const linnet_allocator *allocator; /* NULL: the plan's */
    linnet_session *share_snapshot;    /* NULL, or a session whose snapshot the new session also uses. Both need the
                                        * same store and signature (and may have plans for different shapes). They must
                                        * never run at the same time */
    uint64_t max_bytes; /* limit for the plan's total plus the segments planned in runs; 0: the plan's max_bytes */
    const linnet_program_cache *program_cache; /* NULL, or where devices keep compiled programs (linnet_device.h). Its
                                                * functions are called while the session is created, and when it plans
                                                * segments. Not copied */
    bool bind_threads; /* each worker of the session binds itself to a core of the largest cluster, from the second core
                          on, if the system allows it. The calling thread can take the first core with
                          linnet_bind_thread(0) */
    int32_t reserved;  /* 0 */
    bool binds_all;    /* the caller binds memory to all inputs and outputs (linnet_ext.h) before the first run, so the
                        * session allocates none for them (linnet_plan_info.io). UNSUPPORTED if one cannot be bound; a run
                        * with one that is not bound is MISSING_INPUT */
} linnet_session_config;

static inline void linnet_session_config_init(linnet_session_config *config) {
    linnet_struct_init(config, sizeof *config);
}
/* Creates a session, which keeps plan and store alive. If `store` is NULL and the model has variables, the session gets
 * a private store. If the session has its own snapshot, this call waits for the store's active run. If the session
 * needs more than linnet_memory_available, the call fails with OUT_OF_MEMORY, and the record has both numbers.
 * Errors: ARENA_TOO_SMALL, OUT_OF_MEMORY, THREAD_FAILED, DEVICE_FAILED, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_session_create(linnet_plan *plan, linnet_store *store,
                                               const linnet_session_config *config, linnet_session **out,
                                               linnet_error *error);
LINNET_API void linnet_session_free(linnet_session *session);
/* Bytes that the session and its plan hold now, including segments planned while running and the snapshot. Each session
 * that shares a snapshot counts the snapshot. The model (linnet_model_bytes), the store (linnet_store_bytes) and the
 * caller's arena are not included. 0 if `session` is NULL. */
LINNET_API size_t linnet_session_bytes(const linnet_session *session);
/* Buffer of input i, of linnet_plan_get_input(i).bytes bytes. Fill it in place before a run; no copy is made. */
LINNET_API void *linnet_session_input(linnet_session *session, int i);
/* Buffer of output i, valid until the next run. linnet_session_get_output gives the shape if it depends on data. After
 * a failed run, the contents are undefined. If the run has not computed the output's shape, which can happen only if
 * the shape depends on data, NULL is returned. */
LINNET_API const void *linnet_session_output(const linnet_session *session, int i);
LINNET_API linnet_status linnet_session_get_output(const linnet_session *session, int i, linnet_tensor_info *out);
/* Copies `bytes` bytes into the input of that name. Errors: UNKNOWN_NAME, WRONG_SHAPE (wrong size). */
LINNET_API linnet_status linnet_session_set(linnet_session *session, const char *input, const void *data, size_t bytes,
                                            linnet_error *error);
/* Copies the last run's output of that name into `data`, which has room for exactly `bytes` bytes
 * (linnet_session_get_output). Errors: UNKNOWN_NAME, WRONG_SHAPE (wrong size), INVALID_ARGUMENT (the output has no
 * value yet). */
LINNET_API linnet_status linnet_session_get(const linnet_session *session, const char *output, void *data, size_t bytes,
                                            linnet_error *error);
/* Runs all steps once. Allocates nothing, unless shapes depend on data (plan_info.segments > 1). A run that assigns
 * variables overwrites them in place, but only after every step that can fail. If the run fails, the variables keep
 * their old values. During such a run, other runs of the same store wait, except runs on a snapshot.
 * Errors: INDEX_OUT_OF_RANGE, DEVICE_FAILED; if shapes depend on data, also those of linnet_plan_create. */
LINNET_API linnet_status linnet_run(linnet_session *session, linnet_error *error);

/* How to end a run early. A run can end between two steps, between two iterations of a loop, and while it waits for
 * other runs of its store, but not within a step. Once a step has begun to overwrite a variable, the run continues to
 * its end, so a run changes all variables that the signature assigns, or none. The session can run again afterwards. A
 * run can also end while it waits for a device, if the device has `wait_until` (linnet_device.h). The device then goes
 * on working: it may still read inputs and write outputs until the next run has begun, or until the session is freed.
 */
typedef struct linnet_run_config {
    size_t struct_size;
    uint64_t timeout_ns; /* DEADLINE_EXCEEDED after this time, measured from the call by a monotonic clock; 0: none */
    const volatile int *cancel;  /* NULL, or a flag: CANCELLED once the flag is not 0. A signal handler, or another
                                  * thread with an atomic store, may set it at any time; the library never writes it. */
    bool (*poll)(void *context); /* NULL, or a function that the running thread calls about twenty times a second;
                                  * CANCELLED once the function returns true */
    void *poll_context;
} linnet_run_config;

static inline void linnet_run_config_init(linnet_run_config *config) { linnet_struct_init(config, sizeof *config); }
/* Runs all steps like linnet_run, but can be ended early. `config` may be NULL; the session does not keep it. Errors:
 * those of linnet_run, INVALID_ARGUMENT, CANCELLED and DEADLINE_EXCEEDED. The last two name the next step. */
LINNET_API linnet_status linnet_run_with(linnet_session *session, const linnet_run_config *config, linnet_error *error);
/* Gives the facts about step i, the times measured so far (trace = 1) and the counts of the last run (count_special).
 */
LINNET_API linnet_status linnet_session_get_step(const linnet_session *session, int i, linnet_step_info *info);

#ifdef __cplusplus
}
#endif
#endif
