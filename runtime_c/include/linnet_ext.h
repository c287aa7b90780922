/* linnet_ext.h - for programs that build graphs, account for memory, run on their own memory, choose kernels, or have
 * their own ops. A program that builds graphs can infer the shapes of one op, evaluate the op, and compute the checksum
 * of a segment. A program that accounts for memory can ask for bounds, check the weights of a file, and use variables
 * in place. A program that tunes plans can ask which kernels could run a step, and why the others cannot. A user op is
 * a table of functions that is registered with a model whose file names the op. LINNET_EXT_VERSION is the version of
 * this header, which is independent of the library's version. */
#ifndef LINNET_EXT_H
#define LINNET_EXT_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LINNET_EXT_VERSION 1

/* ---- one op, for builders (the Python converter folds constants with it) -------------------------------------- */

typedef struct linnet_operand {
    int32_t dtype;                  /* LINNET_NONE: absent */
    int32_t rank;                   /* -1: unknown */
    int64_t shape[LINNET_MAX_RANK]; /* -1: unknown */
    void *data;                     /* dense; NULL: the value is not known */
    int32_t quant_scheme;           /* linnet_quant_scheme */
    int32_t bits;                   /* of one stored element; ignored in outputs that are passed to a function */
    int32_t quant_axis;             /* AXIS and BLOCK; otherwise ignored */
    int32_t quant_block;            /* BLOCK; otherwise ignored */
    int64_t quant_count;            /* number of scales and zero points. Those of blocks are in row-major order */
    const float *scales;            /* NULL: not quantized */
    const int32_t *zeros;           /* NULL: all 0 */
} linnet_operand;

/* Infers the shapes and dtypes of the outputs. `node` is a finished flatbuffer with root linnet.fb.Node; the function
 * reads its op and attributes, but not its indices. Set outputs[i].dtype to the dtype that the file will declare, or to
 * LINNET_NONE.
 * Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE, SHAPE_MISMATCH, WRONG_DTYPE, OUT_OF_MEMORY. Thread-safe. */
LINNET_API linnet_status linnet_op_infer(const void *node, size_t size, const linnet_operand *inputs, int input_count,
                                         linnet_operand *outputs, int output_count, linnet_error *error);
/* Computes the outputs with the reference kernel into outputs[i].data, which the caller has allocated for the shapes
 * that linnet_op_infer gave. Errors: those of linnet_op_infer, and INDEX_OUT_OF_RANGE. Thread-safe. */
LINNET_API linnet_status linnet_op_evaluate(const void *node, size_t size, const linnet_operand *inputs,
                                            int input_count, linnet_operand *outputs, int output_count,
                                            linnet_error *error);

/* Returns the CRC-32C (RFC 3720, B.4) of all bytes up to the end of `data`. `crc` is the checksum of the bytes before
 * `data`, or 0 if there are none. Segments of .lnt files and frames (docs/protocol.md) have this checksum. Uses CRC
 * instructions if the processor has them. Thread-safe. */
LINNET_API uint32_t linnet_crc32c(uint32_t crc, const void *data, size_t size);

/* ---- error records, for libraries beside linnet that report errors as linnet does ------------------------------ */

typedef enum linnet_error_part {
    LINNET_ERROR_AT = 0,       /* error.tensor: the name of the tensor, file, address, ... */
    LINNET_ERROR_EXPECTED = 1, /* a noun phrase */
    LINNET_ERROR_GOT = 2,      /* a noun phrase */
    LINNET_ERROR_HINT = 3      /* an instruction */
} linnet_error_part;
/* Begin a record with a code and what went wrong, and add a text to a record. Each field becomes one printable line,
 * and a text that is too long ends at the border of a character. `error` may be NULL; a NULL text is "". Both return
 * the record's code; without a record, `code` and LINNET_INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_error_begin(linnet_error *error, linnet_status code, const char *what);
LINNET_API linnet_status linnet_error_add(linnet_error *error, linnet_error_part part, const char *text);

/* Copy a struct between two versions of a header, as linnet does with its own structs (linnet.h has the rules). These
 * functions are for libraries whose own structs have a struct_size. `ours` has the `size` of the library's header,
 * `theirs` is the caller's, and `first` is the size of the struct in its first version. `name` is the struct's name,
 * for the error. linnet_struct_take reads a config, linnet_struct_give fills an info. Errors: INVALID_ARGUMENT.
 * Thread-safe. */
LINNET_API linnet_status linnet_struct_take(void *ours, size_t size, const void *theirs, size_t first, const char *name,
                                            linnet_error *error);
LINNET_API linnet_status linnet_struct_give(const void *ours, size_t size, void *theirs, size_t first, const char *name,
                                            linnet_error *error);

/* ---- for bindings in other languages, and programs that know tensors by name ---------------------------------- */

/* Set all fields of a struct of linnet.h to their defaults. `size` is the size of the struct as the binding declares
 * it. */
LINNET_API void linnet_tensor_info_init_sized(linnet_tensor_info *info, size_t size);
LINNET_API void linnet_model_config_init_sized(linnet_model_config *config, size_t size);
LINNET_API void linnet_checkpoint_config_init_sized(linnet_checkpoint_config *config, size_t size);
LINNET_API void linnet_plan_info_init_sized(linnet_plan_info *info, size_t size);
LINNET_API void linnet_step_info_init_sized(linnet_step_info *info, size_t size);
LINNET_API void linnet_plan_config_init_sized(linnet_plan_config *config, size_t size);
LINNET_API void linnet_session_config_init_sized(linnet_session_config *config, size_t size);
LINNET_API void linnet_run_config_init_sized(linnet_run_config *config, size_t size);
/* Index of the input or output of that name, or -1. */
LINNET_API int linnet_plan_find_input(const linnet_plan *plan, const char *name);
LINNET_API int linnet_plan_find_output(const linnet_plan *plan, const char *name);

/* ---- partial runs, and memory of the caller ---------------------------------------------------------------------- */

/* Describes any tensor of the signature's function by name, as the file declares it. A plan can start at such a tensor
 * (linnet_plan_config.feeds) or end there (fetches). The name of a node stands for its first output.
 * INVALID_ARGUMENT if nothing has the name. */
LINNET_API linnet_status linnet_model_get_tensor(const linnet_model *model, int signature, const char *name,
                                                 linnet_tensor_info *out);

/* Makes `data` the memory of input i or of output i of the session's plan, so that runs read and write it without a
 * copy. The memory must be dense, aligned to 64 bytes, and have exactly `bytes` bytes (linnet_tensor_info). It belongs
 * to the caller, who must keep it until other memory is bound or the session is freed. NULL binds the session's own
 * memory again. Runs only read the memory of inputs; linnet_session_set writes it. Several inputs may have the same
 * memory, but an output must not overlap anything else that is bound. The call takes time in proportion to the number
 * of steps. Do not call it during a run. Errors: INVALID_ARGUMENT (index, alignment, overlap), WRONG_SHAPE (bytes),
 * UNSUPPORTED (an output that shares its memory with another tensor, see linnet_plan_config.separate_outputs; an output
 * whose shape depends on data; a device that reads the session's memory in place). */
LINNET_API linnet_status linnet_session_bind_input(linnet_session *session, int i, void *data, size_t bytes,
                                                   linnet_error *error);
LINNET_API linnet_status linnet_session_bind_output(linnet_session *session, int i, void *data, size_t bytes,
                                                    linnet_error *error);
/* Begins a run. Returns when the host has nothing more to compute, while devices may still work. Inputs must not
 * change, and outputs are not complete, until linnet_session_wait, linnet_run or linnet_session_free has returned. If
 * devices run all steps, several runs can be submitted, and other memory can be bound in between; the runs are executed
 * in order. Otherwise a run begins when the one before it has ended. If the session assigns variables, traces its runs,
 * or has sizes that depend on data, the call returns only when the run has ended. Errors: those of linnet_run. */
LINNET_API linnet_status linnet_session_submit(linnet_session *session, linnet_error *error);
/* Waits until all submitted runs have ended. `config` may be NULL. Errors: those of linnet_run, for any of these runs;
 * INVALID_ARGUMENT; CANCELLED and DEADLINE_EXCEEDED. After these two, the runs go on, and the caller can wait for them
 * again. The timeout, the flag and the poll end a wait only if the device has `wait_until`. */
LINNET_API linnet_status linnet_session_wait(linnet_session *session, const linnet_run_config *config,
                                             linnet_error *error);

/* ---- memory and files, for hosts that account for them ------------------------------------------------------------
 */

/* Bytes that this process can allocate before the machine or the process's control group runs out of memory. Free swap
 * is included. UINT64_MAX if the system does not report the number. linnet_session_create compares the memory that the
 * session needs with this number, unless the host has given its own allocator. */
LINNET_API uint64_t linnet_memory_available(void);
/* Bytes of the file that are mapped, not allocated; 0 for a copied model. */
LINNET_API size_t linnet_model_mapped_bytes(const linnet_model *model);
/* Bytes that linnet_store_create allocates for this model's variables. A host with little memory compares them with its
 * limit first. A plan counts them too, so linnet_plan_create refuses them before a store exists. */
LINNET_API size_t linnet_model_store_bytes(const linnet_model *model);
/* Computes the largest number of bytes that a session can hold at once: info.total plus the segments whose shapes
 * depend on data, each at its largest shape. If the plan's max_bytes is this number, no session exceeds it. The
 * function plans those segments with the plan's allocator and frees them again. Errors: UNKNOWN_SHAPE (names the node
 * whose size has no upper bound), TOO_LARGE, OUT_OF_MEMORY, INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_plan_bound(const linnet_plan *plan, uint64_t *bytes, linnet_error *error);
/* The plan that the session runs. It is the one given to linnet_session_create, with one exception: if a device refused
 * steps while the session was created (linnet_device.h), the session has made its own plan. Valid until the session is
 * freed. NULL if `session` is NULL. */
LINNET_API linnet_plan *linnet_session_plan(const linnet_session *session);
/* Takes references to the packed weights that this plan shares with other plans of the model. The weights then stay in
 * memory when other plans are freed. Returns the bytes that this plan's first session must still pack; 0 for NULL. */
LINNET_API uint64_t linnet_plan_share(linnet_plan *plan);

/* Constants as a kernel of a plan packs them. A file of the model can hold them, so that sessions use them in place
 * (docs/format.md, "Packed weights"). */
typedef struct linnet_packed {
    size_t struct_size;
    const char *kernel;
    uint64_t bytes; /* a multiple of 64 */
    char key[40];   /* what was packed and how, as text */
} linnet_packed;

LINNET_API void linnet_packed_init_sized(linnet_packed *out, size_t size);
static inline void linnet_packed_init(linnet_packed *out) { linnet_packed_init_sized(out, sizeof *out); }
/* Describes item i of the constants that the plan's steps pack. The same constants may be described more than once.
 * `to` is NULL, or memory of linnet_packed.bytes bytes, into which the function packs the constants. Call it before the
 * plan's first session, because a session frees constants that it has packed. Thread-safe. Errors: INVALID_ARGUMENT
 * (there is no item i, or the plan has had a session). */
LINNET_API linnet_status linnet_plan_get_packed(const linnet_plan *plan, int i, void *to, linnet_packed *out);

typedef struct linnet_verified {
    size_t struct_size;
    int32_t segments;       /* parts of the file outside its structure: weights, initial values, ... */
    int32_t without_digest; /* segments without a digest, which cannot be checked */
    int32_t problems;       /* segments, and gaps between segments, that have changed since they were written */
    uint64_t bytes;         /* bytes of the segments that match their digests */
} linnet_verified;

LINNET_API void linnet_verified_init_sized(linnet_verified *out, size_t size);
static inline void linnet_verified_init(linnet_verified *out) { linnet_verified_init_sized(out, sizeof *out); }

/* Reads the whole file, and checks that each segment matches its digest and that the bytes between segments are 0.
 * (linnet_model_open has checked the structure.) If `how` is STRICT, a segment without a digest gives CORRUPT, and a
 * file whose format is too new to be checked completely gives NEWER_FORMAT. `out` may be NULL; it is filled even on an
 * error. Errors: CORRUPT (names the first damaged tensor), NEWER_FORMAT, INVALID_ARGUMENT. Thread-safe. */
LINNET_API linnet_status linnet_model_verify(const linnet_model *model, linnet_verify how, linnet_verified *out,
                                             linnet_error *error);

/* ---- store: values in place -------------------------------------------------------------------------------------- */

typedef enum linnet_access { LINNET_READ = 0, LINNET_WRITE = 1 } linnet_access;

/* Returns the variable's own memory: 64-byte aligned, dense, and at the same address while the store lives.
 * With LINNET_WRITE the variable counts as changed, so checkpoints include it. While the caller uses the memory, no
 * run, read or save of the store may be active, except runs on snapshots (linnet_plan_config). Runs on snapshots see
 * the new values after linnet_store_publish, or after the next run, read or save of the store has begun. A caller that
 * keeps the pointer must call this function again before each later write, because sessions keep packed copies of
 * variables. If a session of the store trains on a device, the first call for a variable waits for the active run.
 * After this call, each run writes the variable's new value to this memory. Returns NULL and sets `error` on
 * UNKNOWN_NAME, INVALID_ARGUMENT and DEVICE_FAILED (the value is on a device that fails). */
LINNET_API void *linnet_store_data(linnet_store *store, const char *name, linnet_access access, linnet_error *error);
/* Marks all values written through linnet_store_data as complete. The next snapshot then takes all of them at once.
 * Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_store_publish(linnet_store *store, linnet_error *error);

/* Returns how often variables of this store have been packed for kernels. A packed copy is made before its first use.
 * It is made again before a run if one of its variables has been written since. 0 for NULL. Thread-safe. */
LINNET_API uint64_t linnet_store_packs(const linnet_store *store);

/* ---- kernels: which of them could run a step (docs/tuning.md) ---------------------------------------------------- */

/* Why a kernel cannot run a step. */
typedef enum linnet_refusal {
    LINNET_REFUSAL_NONE = 0,      /* it can */
    LINNET_REFUSAL_FEATURES = 1,  /* it needs features of the processor that the plan may not use */
    LINNET_REFUSAL_REFERENCE = 2, /* linnet_plan_config.reference asks for reference kernels only */
    LINNET_REFUSAL_EPILOGUE = 3,  /* it cannot apply the map that is fused into the step */
    LINNET_REFUSAL_DTYPES = 4,
    LINNET_REFUSAL_LAYOUT = 5,
    LINNET_REFUSAL_CALL = 6 /* its code does not cover these attributes, shapes, strides or values of constants */
} linnet_refusal;

/* A kernel of a step's op. */
typedef struct linnet_plan_candidate {
    size_t struct_size;
    const char *kernel; /* its name, as in linnet_step_info */
    double cost_ns;     /* the modelled time; 0 if the kernel cannot run the step */
    bool chosen;        /* it runs the step */
    bool reference;     /* it is the scalar reference */
    int32_t refusal;    /* linnet_refusal */
    bool tuned;         /* it was chosen by linnet_plan_config.tuning, whatever it costs */
    char why[104]; /* the refusal in words: "needs avx512vnni, which isa_max excludes"; "" if it can run the step */
} linnet_plan_candidate;

LINNET_API void linnet_plan_candidate_init_sized(linnet_plan_candidate *out, size_t size);
static inline void linnet_plan_candidate_init(linnet_plan_candidate *out) {
    linnet_plan_candidate_init_sized(out, sizeof *out);
}
/* Gives kernel i of those that this build has for the op of the step. Of the kernels that can run the step, the plan
 * has chosen the one of least cost. If several cost the same, it has chosen the first. Steps of devices, transfers,
 * loops and branches have no kernels. Call it before the plan's first session, because a session frees constants whose
 * values decide whether a kernel can run a step. Errors: INVALID_ARGUMENT (no such step or kernel, or the constants are
 * gone), UNSUPPORTED (the build has no LINNET_TUNING). Thread-safe. */
LINNET_API linnet_status linnet_plan_get_candidate(const linnet_plan *plan, int step, int i,
                                                   linnet_plan_candidate *out);
/* Writes the key of the step's call: the op, operands and attributes, which decide how fast each kernel is. Steps with
 * the same key have the same candidates. The number of threads is not a part of it, because it must not change results.
 * Returns the whole length, like snprintf; 0 if the step has no kernel. Thread-safe. */
LINNET_API size_t linnet_plan_get_key(const linnet_plan *plan, int step, char *text, size_t size);

/* A pass of planning, and what it changed in the graph of the plan's first segment. docs/architecture.md says what each
 * pass does. Fields in pairs have the numbers before and after the pass. */
typedef struct linnet_plan_pass {
    size_t struct_size;
    const char *name;
    bool ran;                          /* false: the plan left it out, and it changed nothing */
    int32_t added, removed;            /* nodes */
    int32_t moved;                     /* nodes that now come after a node that they preceded */
    int32_t fused;                     /* nodes that have become epilogues */
    int32_t nodes_before, nodes_after; /* nodes that are left, including those of later segments */
    int32_t values_before, values_after;
    uint64_t bytes_before,
        bytes_after; /* of all results of nodes. From the pass "alias" on: of the buffers, which results share. From the
                        pass "offsets" on: of the memory, which buffers share */
} linnet_plan_pass;

LINNET_API void linnet_plan_pass_init_sized(linnet_plan_pass *out, size_t size);
static inline void linnet_plan_pass_init(linnet_plan_pass *out) { linnet_plan_pass_init_sized(out, sizeof *out); }
/* Gives pass i, in the order of the passes. The plan must have been made with linnet_plan_config.passes. Thread-safe.
 * Errors: INVALID_ARGUMENT (no such pass, or the plan kept nothing). */
LINNET_API linnet_status linnet_plan_get_pass(const linnet_plan *plan, int i, linnet_plan_pass *out);

/* ---- user ops: ops that a file names and the program provides (docs/user_ops.md) --------------------------------- */

/* Types of a node's attributes. */
typedef enum linnet_user_type {
    LINNET_USER_INTEGERS = 0,
    LINNET_USER_FLOATS = 1,
    LINNET_USER_TEXT = 2,
    LINNET_USER_BYTES = 3 /* text that is not UTF-8 */
} linnet_user_type;

typedef struct linnet_user_call linnet_user_call;
/* One call of a callback. Everything that it points to is valid only during the call. */
struct linnet_user_call {
    size_t struct_size;
    void *context;       /* of the op */
    const void *node;    /* private; the functions below read its attributes */
    int32_t version;     /* version that the node needs; at most the version of the op */
    int32_t input_count; /* inputs at the end may be left out */
    int32_t output_count;
    const linnet_operand *const *inputs; /* dtype LINNET_NONE: absent */
    linnet_operand *const *outputs;
    char *problem; /* a callback that fails may write the reason here, as NUL-terminated text */
    size_t problem_size;
    size_t scratch_size; /* set by `prepare`: bytes of `scratch`; default 0 */
    int64_t items; /* set by `prepare`: number of independent parts of the work, which threads may share; default 1 */
    int64_t grain; /* set by `prepare`: smallest number of items that is worth a thread; default 1 */
    void *scratch; /* `run`: scratch_size bytes, 64-byte aligned, for this call alone */
    int64_t begin, end; /* `run`: the items to compute. A single item stands for all outputs */
    /* The functions linnet_user_... below call these pointers, so that a library of user ops need not link liblinnet.
     */
    const char *(*attribute)(const linnet_user_call *call, int i, int *type, int64_t *count);
    const int64_t *(*integers)(const linnet_user_call *call, const char *attribute, int64_t *count);
    const double *(*floats)(const linnet_user_call *call, const char *attribute, int64_t *count);
    const char *(*text)(const linnet_user_call *call, const char *attribute, int64_t i, size_t *size);
    int32_t precision; /* `prepare` and `run`: linnet_precision of the plan; linnet_user_precision reads it */
};

/* Name of the node's attribute i; NULL past the end. `type` and `count` may be NULL. *count is the number of values, or
 * -1 for a single value that is not a list. */
static inline const char *linnet_user_attribute(const linnet_user_call *call, int i, int *type, int64_t *count) {
    return call->attribute(call, i, type, count);
}
/* Return the values of the node's attribute of that name, and their number in *count; NULL if the node has no attribute
 * of this name and type. `count` may be NULL. */
static inline const int64_t *linnet_user_integers(const linnet_user_call *call, const char *name, int64_t *count) {
    return call->integers(call, name, count);
}
static inline const double *linnet_user_floats(const linnet_user_call *call, const char *name, int64_t *count) {
    return call->floats(call, name, count);
}
/* Returns text i of the attribute and its size. The text may contain any bytes, and a NUL follows it. Returns NULL past
 * the end, or if the node has no attribute of this name. `size` may be NULL. */
static inline const char *linnet_user_text(const linnet_user_call *call, const char *name, int64_t i, size_t *size) {
    return call->text(call, name, i, size);
}

/* Returns the linnet_precision that the plan permits, for use in `prepare` and `run`. It is F32 in `infer`, for values
 * that planning computes, and if the library is so old that its linnet_user_call has no `precision`. */
static inline int linnet_user_precision(const linnet_user_call *call) {
    const size_t least = offsetof(linnet_user_call, precision) + sizeof call->precision;
    return call->struct_size >= least ? call->precision : LINNET_PRECISION_F32;
}

typedef enum linnet_user_op_flag {
    LINNET_USER_OP_IN_PLACE = 1, /* outputs[0]->data may be inputs[0]->data, if both have the same shape and size */
    LINNET_USER_OP_EXACT = 2,    /* the same inputs always give the same bits. A plan may then compute a constant result
                                  * once, or a result twice to save memory */
    LINNET_USER_OP_DECIDES_SIZES = 4 /* `run` decides dimensions that `infer` has set to linnet_user_at_most(n) */
} linnet_user_op_flag;

/* If only `run` knows a dimension, and it is at most n, `infer` sets it to this value. `run` then sets the dimension in
 * outputs[i]->shape, and stores the output densely in its true shape. `items` must stay 1 for such an op. */
static inline int64_t linnet_user_at_most(int64_t n) { return n < 0 || n > INT64_MAX - 2 ? -1 : -2 - n; }

/* An op of the program, for linnet_model_config.user_ops. The model copies the struct and the name. Sessions of one
 * model may call the callbacks from several threads at the same time. A callback returns 0, or another number if it
 * fails; then planning or the run fails with LINNET_USER_OP_FAILED and the text in call->problem. */
struct linnet_user_op {
    size_t struct_size;
    const char *name; /* a domain that you own and a name: "com.example.crop". A file stores it. At most 95 bytes */
    int32_t version;  /* 1 or more. The op runs nodes of its version and of all earlier versions */
    int32_t flags;    /* LINNET_USER_OP_... */
    int32_t least_inputs, most_inputs; /* -1: no upper limit. The first `least_inputs` inputs are never absent */
    int32_t least_outputs, most_outputs;
    void *context;
    /* Completes the dtype, rank and shape of every output. Before the call, the outputs are as the file declares them.
     * Where the file leaves them open, the rank or a dimension is -1. While a graph is built, the dtypes are
     * LINNET_NONE. Inputs have their true shapes in a plan, and ranks and dimensions may be -1 while a graph is built.
     * `data` is not NULL if the value is known. If an output depends on a value that is not known yet, leave its
     * dimensions at -1: once the value has been computed, the rule is called again. NULL: every file must declare the
     * whole shape. */
    int (*infer)(linnet_user_call *call);
    /* Sets scratch_size, items and grain. All shapes are known. NULL: no scratch, one item. */
    void (*prepare)(linnet_user_call *call);
    /* Computes the items from call->begin to call->end. All buffers are dense; `data` of an operand without elements
     * may be NULL. Several threads may call it at the same time for different items of one run. */
    int (*run)(linnet_user_call *call);
};
LINNET_API void linnet_user_op_init_sized(linnet_user_op *out, size_t size);
static inline void linnet_user_op_init(linnet_user_op *out) { linnet_user_op_init_sized(out, sizeof *out); }

/* Infers the outputs of a node of the user op `op`. With `op` NULL, this is linnet_op_infer. Errors: those of
 * linnet_op_infer, INVALID_ARGUMENT (the op), and USER_OP_FAILED. */
LINNET_API linnet_status linnet_user_op_infer(const linnet_user_op *op, const void *node, size_t size,
                                              const linnet_operand *inputs, int input_count, linnet_operand *outputs,
                                              int output_count, linnet_error *error);

/* A shared library of user ops exports this function; liblinnet does not. It returns the ops and their number. Python's
 * linnet.load_user_ops(path) calls the function. The shared library still owns the ops. */
const linnet_user_op *const *linnet_extension_user_ops(int *count);

#ifdef __cplusplus
}
#endif
#endif
