/* linnet.h - the public C API of linnet, an embeddable inference-and-training runtime.
 * Five nouns, always in this order: model -> store -> plan -> session -> run.
 *
 * Conventions of every function below, unless its comment says otherwise:
 *  - It returns LINNET_OK (0) or an error code; `error` may be NULL, else it receives the full record.
 *  - Objects returned through `**out` belong to the caller, who releases them with the matching `_free`; on an
 *    error `*out` is set to NULL. Every `_free` accepts NULL. Strings and arrays that are returned stay owned by
 *    the object they came from and live as long as it does.
 *  - A model and a plan are immutable: any number of threads may read them at once. A store locks itself. A
 *    session must be used by one thread at a time; different sessions are independent.
 *  - Sizes are in bytes, times in nanoseconds, shapes in elements, unless the name says otherwise.
 *  - The library never prints, reads the environment, exits or aborts. It has no global mutable state. */
#ifndef LINNET_H
#define LINNET_H

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

/* Error codes, in groups of one hundred: 1 the call, 2 the file, 3 the graph, 4 resources, 5 devices,
 * 6 training on many machines (linnet_sync.h), 7 runs that the caller ended. */
typedef enum linnet_status {
    LINNET_OK = 0,
    LINNET_INVALID_ARGUMENT = 101,   /* NULL handle, struct_size unknown, value out of its range */
    LINNET_UNKNOWN_NAME = 102,       /* no signature, tensor, variable, ISA or device of that name */
    LINNET_WRONG_DTYPE = 103,        /* data given with another element type than declared */
    LINNET_WRONG_SHAPE = 104,        /* data given with a shape that the plan was not made for */
    LINNET_MISSING_INPUT = 105,      /* an input that the fetches need was not given */
    LINNET_NOT_FOUND = 201,          /* the file cannot be opened */
    LINNET_READ_FAILED = 202,        /* opened, but reading or mapping it failed */
    LINNET_BAD_MAGIC = 203,          /* not a .lnt file */
    LINNET_NEWER_FORMAT = 204,       /* the file needs a newer reader */
    LINNET_TRUNCATED = 205,          /* the file ends before what its header promises */
    LINNET_CORRUPT = 206,            /* structure that cannot be right: offset, index, enum, checksum */
    LINNET_WRITE_FAILED = 207,       /* the file cannot be written: disk full, no permission, ... */
    LINNET_OTHER_MODEL = 208,        /* a checkpoint of another model, or no checkpoint */
    LINNET_UNSUPPORTED = 301,        /* no kernel for this op with these dtypes, shapes and attributes */
    LINNET_BAD_ATTRIBUTE = 302,      /* an op attribute outside its range */
    LINNET_SHAPE_MISMATCH = 303,     /* operand shapes that do not fit together */
    LINNET_UNKNOWN_SHAPE = 304,      /* a shape must be given before planning */
    LINNET_INDEX_OUT_OF_RANGE = 305, /* data-dependent index outside its tensor, found while running */
    LINNET_TOO_LARGE = 306,          /* a size product overflows, or exceeds the bound that was set */
    LINNET_OUT_OF_MEMORY = 401,      /* the allocator returned NULL, or would give what the machine does not have */
    LINNET_ARENA_TOO_SMALL = 402,    /* the caller's arena is smaller than the plan needs; both numbers are given */
    LINNET_THREAD_FAILED = 403,      /* a worker thread could not be started */
    LINNET_DEVICE_FAILED = 501,      /* a device of an extension reported a failure */
    LINNET_UNREACHABLE = 601,        /* nobody answers at that address, or it cannot be listened on */
    LINNET_REFUSED = 602,            /* the other side ended the connection, and says why */
    LINNET_TIMED_OUT = 603,          /* the time that the caller gave is over */
    LINNET_PROTOCOL_ERROR = 604,     /* the other side said what docs/protocol.md does not allow */
    LINNET_NOT_AUTHENTICATED = 605,  /* keys or certificates do not fit, or are lacking where they are needed */
    LINNET_SUPERSEDED = 606,         /* another, later server has this shard */
    LINNET_CONNECTION_LOST = 607,    /* ended in the middle, and could not be made again */
    LINNET_JOB_OVER = 608,           /* the server has ended the job: nobody needs to come again */
    LINNET_CANCELLED = 701,          /* the caller cancelled the run (linnet_run_config) */
    LINNET_DEADLINE_EXCEEDED = 702   /* the time that linnet_run_config gave the run is over */
} linnet_status;

/* What went wrong, where, what was expected, what came, what to do. Fixed size; all strings are NUL-terminated. */
typedef struct linnet_error {
    int32_t code;     /* linnet_status */
    int32_t op_index; /* index of the node in its function, or -1 */
    char op[48];      /* name of the node, or of its op, or "" */
    char tensor[80];  /* name of the tensor, input, variable or file concerned, or "" */
    char what[160];
    char expected[96];
    char got[96];
    char hint[160];
} linnet_error;

typedef enum linnet_dtype {
    LINNET_NONE = 0, /* absent (an optional operand that was not given) */
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
    LINNET_BOOL = 13 /* one byte, 0 or 1 */
} linnet_dtype;

/* Memory and threads of the host. alloc returns memory aligned to `alignment` (a power of two) or NULL. */
typedef struct linnet_allocator {
    void *context;
    void *(*alloc)(void *context, size_t size, size_t alignment);
    void (*free)(void *context, void *pointer, size_t size);
} linnet_allocator;

typedef void (*linnet_task)(void *argument, int index);
/* Calls task(argument, i) once for each i in [0, count), perhaps at the same time, and returns when all have ended. */
typedef void (*linnet_parallel_for)(void *context, linnet_task task, void *argument, int count);

typedef struct linnet_model linnet_model;
typedef struct linnet_store linnet_store;
typedef struct linnet_plan linnet_plan;
typedef struct linnet_session linnet_session;

/* A tensor as the caller sees it: dense, row-major ("C order"), in the logical shape. */
typedef struct linnet_tensor_info {
    const char *name;
    int32_t dtype;                  /* linnet_dtype */
    int32_t rank;                   /* -1: unknown */
    int64_t shape[LINNET_MAX_RANK]; /* -1: unknown (dynamic) */
    size_t bytes;                   /* 0 when a dimension is unknown */
    float scale;                    /* per-tensor quantization: real = (stored - zero) * scale; scale 0: none */
    int32_t zero;
} linnet_tensor_info;

/* ---- library ------------------------------------------------------------------------------------------------ */

/* "0.1.0". */
LINNET_API const char *linnet_version(void);
/* "out_of_memory" for LINNET_OUT_OF_MEMORY; "unknown_status" for a number that is none. */
LINNET_API const char *linnet_status_name(int status);
/* One line for a person: what, where, expected, got, hint. Returns the length it needed (like snprintf). */
LINNET_API size_t linnet_error_format(const linnet_error *error, char *text, size_t size);
/* "f32", "i8", ...; NULL for a number that is none. */
LINNET_API const char *linnet_dtype_name(int dtype);
/* Bytes of one element; 0 for a number that is no dtype. */
LINNET_API size_t linnet_dtype_size(int dtype);
/* Name of the i-th ISA level this build has and this machine can run, from the plainest (i = 0) to the best; NULL past
 * the end. These are the values of `isa_max`. */
LINNET_API const char *linnet_isa_name(int i);
/* Threads that a plan uses by default: the cores of the largest cluster this process may run on, or as many as the
 * quota of its control group (a container's --cpus) grants. */
LINNET_API int linnet_default_threads(void);
/* Bytes that this process can still take before its machine, or a control group around it, has none left, free swap
 * included; UINT64_MAX where the system does not tell. What sessions need is checked against it before it is taken,
 * unless the host gives an allocator of its own. */
LINNET_API uint64_t linnet_memory_available(void);

/* ---- model -------------------------------------------------------------------------------------------------- */

typedef struct linnet_model_config {
    size_t struct_size;
    const linnet_allocator *allocator; /* NULL: malloc. Copied. */
    int32_t verify; /* whether the weights are read and checked as linnet_model_verify does. 1: yes, and strictly. -1:
                     * no. 0: what has a digest is checked when the file is copied, not when it is mapped or borrowed */
} linnet_model_config;

LINNET_API void linnet_model_config_init(linnet_model_config *config);
/* Maps the file at `path` and verifies all of its structure. `config` may be NULL.
 * Errors: NOT_FOUND, READ_FAILED, BAD_MAGIC, NEWER_FORMAT, TRUNCATED, CORRUPT, UNSUPPORTED (an op this build does not
 * know), BAD_ATTRIBUTE, TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT; with config.verify those of linnet_model_verify. */
LINNET_API linnet_status linnet_model_open(const char *path, const linnet_model_config *config, linnet_model **out,
                                           linnet_error *error);
/* The same from memory, which must be 16-byte aligned or is copied, and must outlive the model unless copied.
 * `copy` != 0 takes a copy, whose weights are checked unless config.verify is -1. Errors as linnet_model_open, less
 * NOT_FOUND. */
LINNET_API linnet_status linnet_model_open_memory(const void *data, size_t size, int copy,
                                                  const linnet_model_config *config, linnet_model **out,
                                                  linnet_error *error);
/* Models are reference-counted: stores, plans and sessions keep theirs alive, so this may be called at any time. */
LINNET_API void linnet_model_free(linnet_model *model);

typedef struct linnet_verified {
    int32_t segments;       /* parts of the file outside its structure: weights, initial values, ... */
    int32_t without_digest; /* those of which nothing can be said */
    int32_t problems;       /* segments, and gaps between them, that are not as they were written */
    uint64_t bytes;         /* of the segments that match their digests */
} linnet_verified;

/* Reads all of the file and checks each segment against its digest, and that what lies around them is 0 (opening has
 * checked the structure). `strict` != 0: a segment without digest is CORRUPT, and a format newer than this library,
 * which cannot check all of it, NEWER_FORMAT. `out` may be NULL; it is filled on errors, too. Errors: CORRUPT (names
 * the first damaged tensor), NEWER_FORMAT, INVALID_ARGUMENT. Thread safe. */
LINNET_API linnet_status linnet_model_verify(const linnet_model *model, int strict, linnet_verified *out,
                                             linnet_error *error);

LINNET_API int linnet_model_signature_count(const linnet_model *model);
/* NULL past the end. */
LINNET_API const char *linnet_model_signature_name(const linnet_model *model, int signature);
/* Index of the signature of that name, or -1. */
LINNET_API int linnet_model_find_signature(const linnet_model *model, const char *name);
LINNET_API int linnet_model_input_count(const linnet_model *model, int signature);
LINNET_API int linnet_model_output_count(const linnet_model *model, int signature);
/* Declared (perhaps partly unknown) shapes. Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_model_input(const linnet_model *model, int signature, int i, linnet_tensor_info *out);
LINNET_API linnet_status linnet_model_output(const linnet_model *model, int signature, int i, linnet_tensor_info *out);
LINNET_API int linnet_model_variable_count(const linnet_model *model);
LINNET_API linnet_status linnet_model_variable(const linnet_model *model, int i, linnet_tensor_info *out);
/* Value of a metadata key (producer, source, license, ...), or NULL. "digest" is that of the file: 32 hexadecimal
 * digits that tell this model from any other. It stands for the weights by their digests; linnet_model_verify says
 * whether they still are those. */
LINNET_API const char *linnet_model_metadata(const linnet_model *model, const char *key);
/* Bytes that the model itself holds now: its structures, and the packed weights of its sessions, which all plans share
 * that rearrange the same constants in the same way (linnet_plan_info.packed_weights says what one plan uses). */
LINNET_API size_t linnet_model_bytes(linnet_model *model);
/* Bytes of the file that are mapped, not allocated; 0 for a copied model. */
LINNET_API size_t linnet_model_mapped_bytes(const linnet_model *model);

/* ---- store: the variables of a model -------------------------------------------------------------------------- */

/* A store with the file's initial values; several sessions may share it. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_store_create(linnet_model *model, const linnet_allocator *allocator, linnet_store **out,
                                             linnet_error *error);
LINNET_API void linnet_store_free(linnet_store *store);
/* Copies a variable out of (read) or into (write) the store under its lock; `bytes` must be its exact size.
 * Errors: UNKNOWN_NAME, WRONG_SHAPE (another size), INVALID_ARGUMENT. Thread safe. */
LINNET_API linnet_status linnet_store_read(linnet_store *store, const char *name, void *data, size_t bytes,
                                           linnet_error *error);
LINNET_API linnet_status linnet_store_write(linnet_store *store, const char *name, const void *data, size_t bytes,
                                            linnet_error *error);
/* The variable's memory itself: 64-byte aligned, dense; it never moves while the store lives. `write` != 0 counts as a
 * write: checkpoints hold it. The caller sees to it that no run, read or save is on meanwhile, but for runs of
 * snapshots (linnet_plan_config), which see what was written once linnet_store_publish is called, or the next run, read
 * or save of the store begins. NULL with `error` set: UNKNOWN_NAME, INVALID_ARGUMENT. */
LINNET_API void *linnet_store_data(linnet_store *store, const char *name, int write, linnet_error *error);
/* What was written through linnet_store_data is whole: snapshots take all of it at once. Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_store_publish(linnet_store *store, linnet_error *error);
/* Bytes that the store holds: its variables, and what it keeps of them for snapshots. */
LINNET_API size_t linnet_store_bytes(const linnet_store *store);

/* What a checkpoint holds: a .lnt file of variables alone, that names the digest of its model. */
typedef struct linnet_checkpoint_config {
    size_t struct_size;
    const char *const *variables; /* names; NULL: those changed since the store was created (assigned by a run, written
                                   * or loaded), which with the model is all there is to keep */
    int32_t variable_count;
    const char *const *metadata; /* key, value, key, value, ...: the step, a position in the data; UTF-8 */
    int32_t metadata_count;      /* of pairs */
} linnet_checkpoint_config;

LINNET_API void linnet_checkpoint_config_init(linnet_checkpoint_config *config);
/* Writes variables of the store to `path`, all from between two runs, such that a crash, a kill or a full disk at any
 * moment leaves the old file or the new one, whole: to PATH.part, fsync, rename, fsync of the folder. `config` may be
 * NULL. Runs that assign wait while it writes (not while it syncs). Savers to one path take turns. Thread safe.
 * linnet_model_open reads it back: metadata ("checkpoint_of" is the model's digest) and variables.
 * Errors: WRITE_FAILED (the old file is as it was), UNKNOWN_NAME, OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_store_save(linnet_store *store, const char *path,
                                           const linnet_checkpoint_config *config, linnet_error *error);
/* Takes the variables that the checkpoint holds; others keep their values. On an error no variable has changed. Waits
 * for runs of the store to end. Thread safe. Errors: those of linnet_model_open and linnet_model_verify, OTHER_MODEL.
 */
LINNET_API linnet_status linnet_store_load(linnet_store *store, const char *path, linnet_error *error);

/* ---- plan: shapes, threads and devices fixed; every byte known; nothing allocated for the run yet -------------- */

typedef struct linnet_shape {
    const char *input; /* name of an input */
    int32_t rank;
    int64_t dims[LINNET_MAX_RANK];
} linnet_shape;

typedef struct linnet_device linnet_device; /* linnet_ext.h */

typedef struct linnet_plan_config {
    size_t struct_size;
    const char *signature;      /* NULL: "infer" */
    const linnet_shape *shapes; /* of the inputs whose declared shape is not fully known */
    int32_t shape_count;
    const char *const *fetches; /* names of outputs, or of any tensor; NULL: all outputs of the signature.
                                 * Variables that the signature assigns are assigned whatever is fetched. */
    int32_t fetch_count;
    int32_t threads;                     /* 0: linnet_default_threads() */
    const char *isa_max;                 /* NULL: the best; else a linnet_isa_name() */
    const linnet_device *const *devices; /* extension devices, in order of preference; the CPU is always last */
    int32_t device_count;
    int32_t strict_dims;               /* 1: WRONG_SHAPE where open dimensions of one name get several sizes; else
                                        * every dimension has the size it is given, whatever it is called */
    int32_t reference;                 /* 1: only scalar reference kernels, no fusion, dense layouts. 2: laid out as
                                        * the plan of `bounds` with 2 is, of which it takes no more: slow, but where
                                        * sizes only grow with those of the inputs it fits at every shape inside */
    uint64_t max_bytes;                /* 0: no bound; else TOO_LARGE when a plan or a segment needs more. A signature
                                        * that assigns variables computes values again instead of keeping them, as far
                                        * as it must: the same bits. If that is not enough, `got` says what would be.
                                        * Planning itself takes at most 32 MiB more, else it is refused (TOO_LARGE) */
    const linnet_allocator *allocator; /* NULL: the model's */
    const linnet_shape *bounds; /* largest sizes: a dimension that neither the file nor `shapes` gives takes that of
                                 * its bound, so that `bounds` alone plan the upper corner; WRONG_SHAPE beyond. */
    int32_t bound_count;
    int32_t
        snapshot; /* 1: runs read the variables as the last run that assigned some, or write or load, left them, from
                   * a copy; they wait for no run of the store, and none waits for them, but for the time that it
                   * takes to copy the variables that have changed. INVALID_ARGUMENT if the signature assigns any. */
} linnet_plan_config;

/* Exact bytes by region. `total` is every byte that the model, this plan, one store and one session of it take through
 * their allocators for running: activations + scratch + packed_weights + constants + variables + io + snapshot +
 * committed + bookkeeping. The session is one with an arena and threads of its own; planning gives back all that it
 * took besides. Segments whose shapes depend on data come on top while running, within max_bytes. Further plans of the
 * model, for other shapes, take their totals less model, store, and the packed weights that they share with it. */
typedef struct linnet_plan_info {
    size_t struct_size;
    uint64_t activations;    /* the arena of intermediate tensors, as planned */
    uint64_t scratch;        /* working memory of kernels */
    uint64_t packed_weights; /* constants rearranged for the kernels, of the model's allocator */
    uint64_t constants;      /* values folded at plan time, but for those that the first session packs and frees */
    uint64_t variables;      /* the store's, at this model */
    uint64_t io;             /* input and output buffers of the session */
    uint64_t snapshot;       /* the session's copy of variables (linnet_plan_config.snapshot) */
    uint64_t committed;      /* what the store keeps of them for all such sessions together */
    uint64_t bookkeeping;    /* structures of model, plan and session themselves */
    uint64_t total;
    uint64_t mapped;      /* pages of the file, not in total */
    uint64_t lower_bound; /* largest sum of activations alive at one step */
    uint64_t naive;       /* sum of all activations without reuse */
    uint64_t gradients;   /* of activations: the most that updates of variables read at once */
    uint64_t folded; /* values that planning computed: constants, and those that the first session packs and frees */
    int32_t steps;
    int32_t segments; /* 1 unless shapes depend on data */
    int32_t threads;
    int32_t recomputed; /* steps that make a value again instead of keeping it, for max_bytes */
    const char *isa;
    uint64_t plan_ns; /* time that planning took */
} linnet_plan_info;

/* One step of a plan, and what it cost when traced. */
typedef struct linnet_step_info {
    size_t struct_size;
    const char *name;   /* node */
    const char *op;     /* runtime op */
    const char *kernel; /* full kernel name, e.g. "conv_f32_igemm_7x32__avx512" */
    const char *layout; /* "dense", "channels_last" */
    const char *device; /* "cpu" or an extension's */
    const char *fused;  /* names of nodes fused into this step, separated by "+", or "" */
    uint64_t bytes;     /* read and written */
    uint64_t flops;     /* multiply and add count as two; integer operations likewise */
    uint64_t runs;      /* traced runs */
    uint64_t total_ns;  /* over the traced runs */
} linnet_step_info;

LINNET_API void linnet_plan_config_init(linnet_plan_config *config);
/* `model` is kept alive by the plan. `config` may be NULL.
 * Errors: UNKNOWN_NAME (signature, input, fetch, ISA), UNKNOWN_SHAPE, WRONG_SHAPE, SHAPE_MISMATCH, UNSUPPORTED,
 * BAD_ATTRIBUTE, TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_plan_create(linnet_model *model, const linnet_plan_config *config, linnet_plan **out,
                                            linnet_error *error);
LINNET_API void linnet_plan_free(linnet_plan *plan);
LINNET_API linnet_status linnet_plan_get_info(const linnet_plan *plan, linnet_plan_info *info);
/* The most that a session takes at once: info.total, and what segments whose shapes depend on data add when every such
 * shape is as large as it can be. As max_bytes of a plan it is what sessions never exceed. They are planned to find
 * out, through the plan's allocator, and freed. Errors: UNKNOWN_SHAPE, naming the node that data may make of any size;
 * TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_plan_bound(const linnet_plan *plan, uint64_t *bytes, linnet_error *error);
/* Takes a share in the packed weights that plans of the model hold and this one needs too, so that they stay when those
 * plans go. Gives the bytes that this plan's first session will still pack; 0 for NULL. */
LINNET_API uint64_t linnet_plan_share(linnet_plan *plan);
/* Static facts of step i. Errors: INVALID_ARGUMENT past the end. */
LINNET_API linnet_status linnet_plan_get_step(const linnet_plan *plan, int i, linnet_step_info *info);
/* The concrete inputs that the fetches need, and the outputs (the fetches, in the order they were asked for). */
LINNET_API int linnet_plan_input_count(const linnet_plan *plan);
LINNET_API int linnet_plan_output_count(const linnet_plan *plan);
LINNET_API linnet_status linnet_plan_input(const linnet_plan *plan, int i, linnet_tensor_info *out);
LINNET_API linnet_status linnet_plan_output(const linnet_plan *plan, int i, linnet_tensor_info *out);

/* ---- session: one arena, constants packed, operands resolved --------------------------------------------------- */

typedef struct linnet_session_config {
    size_t struct_size;
    void *arena;       /* NULL: allocated; else the caller's, 64-byte aligned, for activations and scratch */
    size_t arena_size; /* must be at least activations + scratch of the plan */
    linnet_parallel_for parallel_for; /* NULL: an own pool of plan.threads - 1 workers */
    void *parallel_context;
    int32_t trace;                     /* 1: time every step */
    int32_t count_special;             /* 1: count saturations, Inf and NaN per step after each run (slow) */
    const linnet_allocator *allocator; /* NULL: the plan's */
    linnet_session *share_snapshot;    /* NULL, or a session of the same store and signature, never run at the same time
                                        * as this one (plans of one model for several shapes): both use its snapshot */
    uint64_t max_bytes; /* 0: that of the plan; else what the plan's total and later segments come to at most */
} linnet_session_config;

LINNET_API void linnet_session_config_init(linnet_session_config *config);
/* `store` may be NULL when the model has no variables, or to have a private one. Plan and store are kept alive. A
 * session on a snapshot that is not shared waits here, once, for the run of the store that is on.
 * What it needs is checked against linnet_memory_available first (OUT_OF_MEMORY, with both numbers).
 * Errors: ARENA_TOO_SMALL, OUT_OF_MEMORY, THREAD_FAILED, DEVICE_FAILED, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_session_create(linnet_plan *plan, linnet_store *store,
                                               const linnet_session_config *config, linnet_session **out,
                                               linnet_error *error);
LINNET_API void linnet_session_free(linnet_session *session);
/* Bytes that the session and its plan hold now, later segments and a snapshot (which all count that share it) included;
 * not those of the model (linnet_model_bytes), of the store (linnet_store_bytes) and of a caller's arena. 0 for NULL.
 */
LINNET_API size_t linnet_session_bytes(const linnet_session *session);
/* Buffer of input i, to be filled in place before a run (no copy): linnet_plan_input(i).bytes bytes. */
LINNET_API void *linnet_session_input(linnet_session *session, int i);
/* Buffer of output i, valid until the next run; its shape when it depends on data is in linnet_session_output_info. */
LINNET_API const void *linnet_session_output(const linnet_session *session, int i);
LINNET_API linnet_status linnet_session_output_info(const linnet_session *session, int i, linnet_tensor_info *out);
/* Copies `bytes` into the input of that name. Errors: UNKNOWN_NAME, WRONG_SHAPE (another size). */
LINNET_API linnet_status linnet_session_set(linnet_session *session, const char *input, const void *data, size_t bytes,
                                            linnet_error *error);
/* Runs all steps once. Allocates nothing, unless shapes depend on data (plan_info.segments > 1).
 * Errors: INDEX_OUT_OF_RANGE, DEVICE_FAILED, and for data-dependent segments those of linnet_plan_create. Variables
 * that the signature assigns keep their old values when it fails: they are written in place, but behind every step
 * that can fail. Others that share the store wait meanwhile, but for sessions on a snapshot. */
LINNET_API linnet_status linnet_run(linnet_session *session, linnet_error *error);

/* How a run may be ended early: between two steps and between two iterations of a loop, and while it waits for other
 * runs of its store. A step is never cut short, and from the first step that writes over a variable on the run is not
 * ended any more: it changes all variables that the signature assigns, or none. The session can run again at once. */
typedef struct linnet_run_config {
    size_t struct_size;
    uint64_t timeout_ns; /* 0: none; else counted from the call, by a clock that nobody sets: DEADLINE_EXCEEDED */
    const volatile int *cancel; /* NULL; else CANCELLED once it is not 0. Other threads (atomically) and signal handlers
                                 * may set it at any time; the library never writes it. */
    int (*poll)(void *context); /* NULL; else called some twenty times a second, by the thread that runs; CANCELLED once
                                 * it gives another value than 0 */
    void *poll_context;
} linnet_run_config;

LINNET_API void linnet_run_config_init(linnet_run_config *config);
/* linnet_run that may be ended early. `config` may be NULL, and is not kept. Errors: those of linnet_run, CANCELLED and
 * DEADLINE_EXCEEDED, which name the step that would have come next; INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_run_with(linnet_session *session, const linnet_run_config *config, linnet_error *error);
/* Timings gathered so far of step i (trace = 1). */
LINNET_API linnet_status linnet_session_get_step(const linnet_session *session, int i, linnet_step_info *info);
/* Values of step i's first output in the last run (count_special = 1): at the integer limits, infinite, NaN. */
LINNET_API linnet_status linnet_session_get_special(const linnet_session *session, int i, uint64_t *saturated,
                                                    uint64_t *infinite, uint64_t *not_a_number);

#ifdef __cplusplus
}
#endif
#endif
