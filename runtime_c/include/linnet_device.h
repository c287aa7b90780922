/* linnet_device.h - for devices: processors besides the CPU that run steps of a plan (OpenCL, CUDA, an NPU).
 * A device is a table of functions in a separate shared library. The library includes only public headers and exports
 * linnet_extension_devices. docs/devices.md explains how to write one; tests/ext/toy_device.c is an example.
 *
 * The life of a device in a session:
 *  - While a plan is made, the library calls `limits`, then `cost` for each step and `offer` for sequences of steps,
 *    and places steps on devices. Then it calls `claim` to learn how a device groups its consecutive steps, and
 *    `propose` and `accept` to learn the layouts of the values between them.
 *  - When a session is created, the library calls `open` (one queue per session), `allocate`, writes the constants that
 *    no other session of the model has on the device, and calls `prepare` once per claim.
 *  - A run calls `upload`, `run`, `download`, `copy` and `record`. These functions submit work to the queue and return
 *    at once; the device runs the work of one queue in the order of submission. The library calls `wait` only when a
 *    CPU kernel or the caller needs a result.
 *  - When the session is freed, the library calls `finish`, `unprepare`, `release` and `close`.
 *
 * Conventions:
 *  - Each function receives the `context` of the device. Functions that return int return 0 for success, and otherwise
 *    a code that the device chooses. The session then fails with LINNET_DEVICE_FAILED. The record names the device and
 *    the step, and has the text of `explain`. After a failure the session can be freed, or run again. The codes of
 *    linnet_device_code have a meaning for the library, and a device must not use them for anything else.
 *  - `limits`, `cost`, `offer`, `claim`, `propose`, `accept`, `layout_bytes` and `describe` may be called by several
 *    threads at once, and must give the same answers for the same steps. A queue is used by one thread at a time; other
 *    functions may be called by several threads for different queues.
 *  - struct_size is a minimum. The library sets it in the structs that it passes to a device, and a device must not
 *    use fields beyond it. A device sets it in linnet_device; the library treats fields beyond it as NULL. Structs
 *    without struct_size never change. */
#ifndef LINNET_DEVICE_H
#define LINNET_DEVICE_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LINNET_DEVICE_VERSION 3

/* linnet_struct_init without a call: a library of devices needs no symbol of liblinnet. */
static inline void linnet_device_struct_init(void *address, size_t size) {
    unsigned char *bytes = (unsigned char *)address;
    for (size_t i = sizeof size; i < size; ++i) bytes[i] = 0;
    *(size_t *)address = size;
}

/* An object of a device: a buffer, a queue, an event, or the state of a claim. The device chooses the number (an
 * address, an index); the library only stores it. 0: none. */
typedef uint64_t linnet_handle;

/* Codes that functions of a device may return besides its own. */
typedef enum linnet_device_code {
    LINNET_DEVICE_FULL = 1000001, /* the device has too little memory: returned by `allocate`, and by other functions if
                                     the device allocates late. The session fails with LINNET_OUT_OF_MEMORY, and the
                                     record has the numbers that `about` gives */
    LINNET_DEVICE_REFUSES =
        1000002, /* for `prepare`: the device cannot run the claim after all. The session is created again with its own
                    plan (linnet_session_plan), in which the steps of the claim are not on this device */
    LINNET_DEVICE_PENDING = 1000003 /* for `wait_until`: the event is not complete yet */
} linnet_device_code;

/* Bytes in a buffer. The library never computes addresses on a device: each operand is a buffer and an offset. */
typedef struct linnet_span {
    linnet_handle buffer; /* 0: an absent operand, or a value inside a fused claim */
    uint64_t offset;
    uint64_t bytes;
} linnet_span;

/* ---- steps: what a device may read of a plan --------------------------------------------------------------------- */

/* One node of a plan: op, attributes and operands. Valid until the callback that received it returns; the steps of a
 * linnet_work live as long as the session. */
typedef struct linnet_step linnet_step;

/* A layout: the order of the axes in memory. One axis may be cut into blocks. The index within a block is then the
 * innermost axis, and the last block is padded. An element with index i[d] along axis d begins at the sum of
 * i[d] * strides[d], where the block axis contributes i / block * stride + i % block. {{0, 1, 2, 3}, 1, 16} is NCHW
 * with blocks of 16 channels. */
typedef struct linnet_layout {
    int32_t order[LINNET_MAX_RANK]; /* the axes, the outermost first */
    int32_t block_axis;             /* 0 without blocks */
    int32_t block;                  /* elements of a block; 0: no blocks. -1: only the device knows the layout */
} linnet_layout;

/* An operand. real = (stored - zero) * scale. */
typedef struct linnet_device_tensor {
    size_t struct_size;
    const char *name;
    int32_t dtype; /* linnet_dtype; LINNET_NONE: the operand is absent, and the other fields are 0 */
    int32_t rank;
    int64_t shape[LINNET_MAX_RANK];
    int64_t strides[LINNET_MAX_RANK]; /* in elements, of the layout `axes`. If only the device knows the layout, they
                                         are those of a dense tensor */
    uint64_t bytes;                   /* in its layout */
    uint32_t layout;                  /* 0: dense; else a token that `propose` returned */
    bool constant;                    /* `data` has the value */
    const void *data;                 /* bytes of a constant in host memory, dense; NULL: known only in a run */
    const char *variable; /* name of the variable, if the operand is the value of a variable; otherwise NULL */
    int32_t quant_scheme; /* linnet_quant_scheme */
    int32_t bits;         /* of one stored element: 32 for F32, 4 for I4 */
    int32_t quant_axis;   /* AXIS and BLOCK; otherwise -1 */
    int32_t quant_block;  /* BLOCK; otherwise 0 */
    int64_t quant_count;  /* number of scales and zero points */
    const float *scales;  /* NULL: not quantized */
    const int32_t *zeros; /* NULL: all 0 */
    int32_t value; /* number that identifies the value: an output of one step and the inputs that read it have the same
                      number. The body of a loop or a branch is a graph with numbers of its own */
    linnet_layout axes; /* of the memory; what `describe` said if layout != 0 */
    int64_t readers; /* number of operands of steps that read the value, and 1 more if the value is a result of the plan
                        or is assigned to a variable. 1: a fused claim that contains the reader need not store the
                        value. 0: not known (`cost`, `offer`) */
} linnet_device_tensor;

/* Returns the name of the runtime op, or for a user op (linnet_ext.h) its own name, such as "com.example.crop". */
LINNET_API const char *linnet_step_op(const linnet_step *step);
LINNET_API const char *linnet_step_name(const linnet_step *step);
/* The inputs are those of the op, then the operands of the epilogue, if the step has one. If there is an epilogue,
 * every input that the op can have is counted, and a missing optional input has dtype LINNET_NONE. So input 2 of a conv
 * is always its bias, and the epilogue's operands begin at 3, which is linnet_map.first. Without an epilogue, missing
 * optional inputs at the end are not counted. */
LINNET_API int linnet_step_input_count(const linnet_step *step);
LINNET_API int linnet_step_output_count(const linnet_step *step);
/* Fill `out`, which linnet_device_tensor_init has initialized. Errors: INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_step_get_input(const linnet_step *step, int i, linnet_device_tensor *out);
LINNET_API linnet_status linnet_step_get_output(const linnet_step *step, int i, linnet_device_tensor *out);
/* Returns the values of an integer, bool, enum, dtype or integer-list attribute, and their number in *count; NULL if
 * the step does not have the attribute. docs/ops.md lists the attributes of each op, and the numbers that stand for the
 * values of an enum. */
LINNET_API const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count);
LINNET_API const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count);
/* Returns the linnet_precision of the plan, which says how the device may compute the step's sums of floats. The device
 * may always compute in f32, and otherwise only as the plan permits. f64 and integers stay as they are. */
LINNET_API int linnet_step_precision(const linnet_step *step);

/* What a step computes and moves, whichever processor runs it, and the time that the CPU would take. */
typedef struct linnet_step_counts {
    size_t struct_size;
    double macs;          /* multiply-accumulates */
    double operations;    /* other operations on elements; an exponential counts as several */
    double read, written; /* bytes of the operands and of the results */
    double cpu_ns;        /* modelled nanoseconds of the CPU's best kernel, on one thread; INFINITY: there is none */
} linnet_step_counts;

static inline void linnet_step_counts_init(linnet_step_counts *counts) {
    linnet_device_struct_init(counts, sizeof *counts);
}
/* Fills the counts of a step, for a device's `cost`. The planner compares the device's time with `cpu_ns`. The counts
 * of a loop are those of as many iterations as its bound allows, or of one if planning knows no bound. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED (a build without devices). */
LINNET_API linnet_status linnet_step_get_counts(const linnet_step *step, linnet_step_counts *out);

/* Computes the step with kernels of the CPU, on the calling thread. Operands are dense and in host memory. inputs[i]
 * has the order of linnet_step_get_input, and is NULL if the operand is absent. Sums of floats are f32, whatever the
 * plan permits. Use it in tests of devices, and in a device that cannot run a step for a few shapes. Errors:
 * UNSUPPORTED, INDEX_OUT_OF_RANGE, OUT_OF_MEMORY. Thread-safe. */
LINNET_API linnet_status linnet_step_evaluate(const linnet_step *step, const void *const *inputs, void *const *outputs,
                                              linnet_error *error);

static inline void linnet_device_tensor_init(linnet_device_tensor *tensor) {
    linnet_device_struct_init(tensor, sizeof *tensor);
}

/* ---- the bodies of loops and branches ---------------------------------------------------------------------------- */

/* A function that a `while` or an `if` runs: a graph of steps with value numbers of its own. Valid as long as its step.
 * All shapes in it are known, and it assigns no variable. */
typedef struct linnet_body linnet_body;

/* Returns a body of the step: 0 is that of a `while`, and of an `if` 0 is for a condition that holds and 1 for one that
 * does not; NULL past the last one. Other steps have none. A device gets steps with bodies only if it sets
 * linnet_device_limits.bodies. docs/ops.md says what such a step computes. */
LINNET_API const linnet_body *linnet_step_body(const linnet_step *step, int i);
/* Returns step i of the body, in an order in which every value is made before it is read; NULL past the last one. */
LINNET_API const linnet_step *linnet_body_step(const linnet_body *body, int i);
/* Fill `out`, which linnet_device_tensor_init has initialized. The inputs of the body of a `while` are the number of
 * finished iterations, the condition, and the step's inputs from 2 on: the carried values, then the captured ones. Its
 * outputs are the condition for the next iteration, the carried values, and the rows of the stacked values. The inputs
 * of the bodies of an `if` are the step's inputs from 1 on, and their outputs are its outputs. An output that nothing
 * needs has dtype LINNET_NONE. An output may be an input of the body, or a constant. Errors: INVALID_ARGUMENT, also
 * past the last one. */
LINNET_API linnet_status linnet_body_get_input(const linnet_body *body, int i, linnet_device_tensor *out);
LINNET_API linnet_status linnet_body_get_output(const linnet_body *body, int i, linnet_device_tensor *out);

/* ---- map programs ----------------------------------------------------------------------------------------------- */

/* The register program of a `map` step, or of the epilogue of another step. Instruction i is the five numbers from
 * program[5 * i] on: opcode, type, a, b, c. It writes register i. docs/ops.md defines the opcodes. In an epilogue, the
 * program computes the step's output from the result of the op, which is never stored. */
typedef struct linnet_map {
    size_t struct_size;
    int32_t instruction_count;
    const int64_t *program;
    const double *floats; /* immediates */
    int32_t float_count;
    const int64_t *integers;
    int32_t integer_count;
    int32_t rank; /* of the iteration shape; inputs are broadcast to it */
    int64_t shape[LINNET_MAX_RANK];
    int32_t input_count; /* inputs of the program */
    int32_t output_count;
    int32_t result; /* epilogue: the input of the program that is the result of the op; -1: the step is a `map` */
    int32_t first;  /* epilogue: the inputs of the program, except `result`, are the step's inputs from `first` on */
} linnet_map;

typedef struct linnet_map_opcode {
    size_t struct_size;
    const char *name; /* "add", as in docs/ops.md */
    int32_t arity;    /* registers that it reads: a, then b, then c */
    int32_t types;    /* register types that it computes with: 1 floats, 2 integers, 3 both, 0: moves and converts */
} linnet_map_opcode;

static inline void linnet_map_init(linnet_map *map) { linnet_device_struct_init(map, sizeof *map); }
static inline void linnet_map_opcode_init(linnet_map_opcode *opcode) {
    linnet_device_struct_init(opcode, sizeof *opcode);
}

/* Fills the program of a `map` step or of an epilogue. Errors: UNKNOWN_NAME (the step has no program),
 * INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_step_get_map(const linnet_step *step, linnet_map *out);
/* Describes the result of the op before the epilogue. The result has a dtype and a shape, but is never in memory.
 * Errors: UNKNOWN_NAME (the step has no epilogue), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_step_get_result(const linnet_step *step, linnet_device_tensor *out);
/* Errors: UNKNOWN_NAME (there is no opcode of this number), INVALID_ARGUMENT. */
LINNET_API linnet_status linnet_map_get_opcode(int opcode, linnet_map_opcode *out);

/* ---- map programs as source text -------------------------------------------------------------------------------- */

typedef enum linnet_source_language {
    LINNET_SOURCE_C = 0,      /* C99 or C++ */
    LINNET_SOURCE_OPENCL = 1, /* OpenCL C 1.2 */
    LINNET_SOURCE_CUDA = 2
} linnet_source_language;

typedef struct linnet_source_options {
    size_t struct_size;
    int32_t language; /* linnet_source_language */
    bool native;      /* f32 functions that linnet computes in f64 (log, pow, sin, ...) become functions of the target.
                       * They are faster on a GPU and need no f64, but their last bits differ */
    const char *prefix;      /* of the names of inputs and outputs, at most 32 characters; NULL: none */
    bool quantization_names; /* scales and zero points per tensor are names too, so steps that differ only in these
                                numbers have the same text; false: they are numbers in the text */
    int32_t reserved;        /* 0 */
    bool constant_names;     /* the same for f32 and i32 constants of maps and epilogues: realN and integerN */
} linnet_source_options;

static inline void linnet_source_options_init(linnet_source_options *options) {
    linnet_device_struct_init(options, sizeof *options);
}

/* Writes a block of statements, { ... }, for a map, an epilogue, or a step of cast, quantize or dequantize. The block
 * computes one element of each output from one element of each input of the program. The code around the block defines
 * these names, as variables or macros:
 *  - xN: the element of input N of the program, as it is stored. f16 and bf16 are their 16 bits (ln_u16), and bool is
 *    ln_u8. In an epilogue, the result of the op is a float if its dtype is a float of at most 32 bits.
 *  - xN_table: input N as an array, if it is a lookup table.
 *  - xN_scale, xN_zero: the quantization of input N per axis, as arrays of float and ln_i32. With `quantization_names`
 *    also that of an input with one scale (quant_count is 1), as a float and an integer. A missing zero point is 0.
 *  - yN: the variable to which the block assigns output N, as it is stored. yN_scale and yN_zero are as above.
 *  - realN, integerN: with `constant_names`, floats[N] of linnet_map as a float, and integers[N] as an ln_i32.
 *  - iN: the coordinate along axis N of the iteration shape, an integer.
 * Names that the program does not need are not in the block. The block reads all inputs before it assigns the first
 * output. All other names in it begin with ln_; linnet_map_prelude defines them. `options` NULL: all defaults.
 *
 * A cast, quantize or dequantize has the inputs and the output of the op, and iN are coordinates of its output. If the
 * step has them, x1 is the scale of the element and x2 its zero point. Each is the only element of its operand, or the
 * one at the coordinate along the attribute `axis`. Elements of i4 and u4 are ln_i8 and ln_u8. Quantization per block,
 * casts to i4 and u4, and casts of u64 to floats are UNSUPPORTED.
 *
 * At most `size` bytes of text are written, with a NUL at the end; `text` may be NULL if size is 0. *length is the
 * length of the whole text, without the NUL. Errors: UNKNOWN_NAME (the step has no program), INVALID_ARGUMENT,
 * UNSUPPORTED (as above, or a build without devices). Thread-safe. */
LINNET_API linnet_status linnet_step_map_source(const linnet_step *step, const linnet_source_options *options,
                                                char *text, size_t size, size_t *length);

/* The kind of numbers that convert the sums of a quantized product to its results. */
typedef enum linnet_requant_table {
    LINNET_REQUANT_NONE = 0,  /* i32 and i64 results are the sums */
    LINNET_REQUANT_SCALE = 1, /* one float per channel: result_scale */
    LINNET_REQUANT_FIXED = 2  /* an integer and a shift per channel: result_fixed, result_shift */
} linnet_requant_table;

/* How a conv, conv_transpose or matmul of quantized operands computes. Its sums are those of (x - x_zero) * (w -
 * w_zero[channel]), plus the bias. They are exact in 64 bits if `wide` is true, and otherwise wrap in 32 bits. The
 * caller sets the arrays and their capacity. The library fills the first `capacity` entries of each array that is not
 * NULL and that `table` needs. */
typedef struct linnet_requant {
    size_t struct_size;
    int64_t capacity; /* entries of each array of the caller */
    float *scale;     /* LINNET_REQUANT_SCALE; NULL: not wanted */
    int32_t *fixed;   /* LINNET_REQUANT_FIXED */
    int32_t *shift;
    int32_t *w_zero; /* always filled */
    int64_t channels;
    int32_t table;  /* linnet_requant_table */
    int32_t mode;   /* the attribute `requant` of the op */
    bool wide;      /* sums are 64-bit, because x is i16 */
    int32_t x_zero; /* zero point of input 0 */
    int32_t y_zero; /* zero point and range of an integer result; 0 if the table is NONE or the result is f32 */
    int32_t low, high;
} linnet_requant;

static inline void linnet_requant_init(linnet_requant *requant) { linnet_device_struct_init(requant, sizeof *requant); }

/* Fills *out for a conv, conv_transpose or matmul of quantized operands. Errors: UNKNOWN_NAME (any other step),
 * INVALID_ARGUMENT, OUT_OF_MEMORY, UNSUPPORTED (a build without devices). Thread-safe. */
LINNET_API linnet_status linnet_step_get_requant(const linnet_step *step, linnet_requant *out);
/* Writes a block of statements that converts the sum of such a step to the stored result. This is the step's output or,
 * if the step has an epilogue, the tensor of linnet_step_get_result. The code around the block defines these names,
 * each after the prefix:
 *  - sum: the sum, ln_i64 if sums are wide and otherwise ln_i32. channel: number of the output channel.
 *  - result_scale, or result_fixed and result_shift: arrays as linnet_step_get_requant fills them.
 *  - result_zero: with `quantization_names`, the number `y_zero` of linnet_step_get_requant.
 *  - result: the variable to which the block assigns the result.
 * Otherwise like linnet_step_map_source. Errors: those of linnet_step_get_requant. Thread-safe. */
LINNET_API linnet_status linnet_step_result_source(const linnet_step *step, const linnet_source_options *options,
                                                   char *text, size_t size, size_t *length);
/* Writes the types ln_i8, ln_u8, ... ln_u64 and the functions that `uses` calls. `uses` is one or more blocks of
 * linnet_step_map_source and linnet_step_result_source, or the device's own text. Put the prelude before them, once.
 * ln_f16_to_f32(ln_u16), ln_f32_to_f16(float) and the same functions for bf16 convert elements. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED. Thread-safe. */
LINNET_API linnet_status linnet_map_prelude(const linnet_source_options *options, const char *uses, char *text,
                                            size_t size, size_t *length);

/* ---- the device ------------------------------------------------------------------------------------------------- */

/* What the planner must know about a device. The library zeroes the struct and sets struct_size. */
typedef struct linnet_device_limits {
    size_t struct_size;
    uint64_t alignment;      /* of the offset of each operand: a power of two; 0: 64 */
    uint64_t padding;        /* bytes after each operand that kernels of the device may read and write */
    uint64_t largest_buffer; /* for `allocate`; operands that are larger stay on the CPU. 0: no limit */
    bool epilogues;          /* `cost` and `run` support epilogues (linnet_step_get_map); false: the library gives
                                  the device steps without epilogues */
    bool host_visible;       /* buffers can be mapped; the library then writes constants through `map` */
    bool shared;             /* kernels use memory from `import` as fast as their own, and the host sees their writes
                              * after `wait`. Inputs and outputs of the session are then imported and not copied */
    uint64_t transfer_ns;    /* fixed part of the time of a transfer between host and device, in nanoseconds */
    uint64_t transfer_rate;  /* bytes per microsecond of a transfer; 0: the bytes take no time */
    bool in_place;           /* a `map` may get the memory of an operand for its output. The operand has the same shape,
                              * layout and size of elements, and no later step reads it. The device must read each element
                              * before it writes the same element. In a fused claim, outputs have memory of their own. false:
                              * outputs have memory of their own */
    uint64_t import_alignment; /* of addresses and sizes for `import` and `import_constants`: a power of two; 0: 64. If
                                  it is more than 64, inputs and outputs are imported only if the device has
                                  `allocate_host`, and those of bodies of loops and branches are copied */
    bool bodies; /* `cost` and `run` support steps with bodies (linnet_step_body): the device runs a loop or a
                  * branch whole, with its condition. false: the library runs loops and branches, and gives
                  * the device steps of their bodies */
} linnet_device_limits;

/* A sequence of consecutive steps that the device executes as one: one kernel, a CUDA graph, a sub-graph of an NPU. The
 * library zeroes the struct and sets struct_size. `claim` fills the other fields. */
typedef struct linnet_claim {
    size_t struct_size;
    int32_t count; /* number of steps in the claim, counted from the first of the given steps. 0: the device refuses the
                      first step, although `cost` gave a time for it. The plan is then made again without this step on
                      the device */
    bool fused;    /* values that only steps of the claim read get no memory (their spans have buffer 0), and each
                    * other operand keeps its own memory until the whole claim has run. false: the steps run one after
                    * another, and the memory of a value may be reused after the last step that reads it */
    bool packs;    /* `prepare` reads constants from host memory and stores what kernels need in `packed`. `run`
                    * then gets no constant operands (buffer 0) */
    uint64_t scratch_bytes; /* memory that only lasts for one execution of the claim */
    uint64_t packed_bytes;  /* memory that `prepare` fills */
    const char *kernel;     /* shown in plans and traces; lives as long as the device. NULL: "device" */
    uint64_t own_bytes;     /* further memory that the device takes for the claim by itself, for as long as it is
                             * prepared. The library counts it but does not allocate it */
} linnet_claim;

/* The time of a sequence of steps if the device executes it as one. The library sets struct_size, and sets the other
 * fields to those of the first step alone. `offer` may change them. */
typedef struct linnet_offer {
    size_t struct_size;
    int32_t count;  /* number of steps, counted from the first of the given steps. 0: the device refuses the
                       first step */
    double cost_ns; /* nanoseconds of all of them together, at least 0 */
} linnet_offer;

/* A store in which a device keeps compiled programs from one process to the next. The host provides it
 * (linnet_session_config.program_cache). A key is a text of at most 200 characters without control characters. The key
 * must contain everything that a program depends on: its source, the device, the driver. Functions must be thread-safe.
 */
struct linnet_program_cache {
    size_t struct_size;
    void *context;
    /* Copies the program with this key to `data` if it has at most `size` bytes. Returns the size of the program, or 0
     * if there is none with this key. */
    size_t (*load)(void *context, const char *key, void *data, size_t size);
    /* Stores a program, and replaces an older one with the same key. A failure has no effect on the session. */
    void (*store)(void *context, const char *key, const void *data, size_t size);
};

/* A claim in a session. The struct stays at the same address from `prepare` to `unprepare`, and has the same spans in
 * each run. */
typedef struct linnet_work {
    size_t struct_size;
    int32_t count;                    /* steps of the claim */
    bool trace;                       /* `elapsed` will be called after runs */
    const linnet_step *const *steps;  /* `count` steps */
    const linnet_span *const *inputs; /* inputs[i]: linnet_step_input_count(steps[i]) spans */
    const linnet_span *const *outputs;
    linnet_span scratch, packed;
    const linnet_program_cache *cache; /* NULL: none. Only during `prepare` */
} linnet_work;

/* Work inside of the last execution of a claim. Texts are valid until the next run of the session. */
typedef struct linnet_device_span {
    size_t struct_size;
    const char *name, *op, *kernel; /* as in linnet_step_info */
    uint64_t start_ns, ns;          /* by the monotonic clock of this machine, as linnet_step_info.start_ns */
    uint64_t error_ns;              /* start_ns may be wrong by so much, because another clock was read */
    /* Only of span 0, which is the whole execution: */
    uint64_t begun_ns;     /* when the device began the message that brought the execution */
    uint64_t waited_ns;    /* how long it waited for values of other devices, between begun_ns and start_ns */
    uint64_t waited_bytes; /* of these values */
} linnet_device_span;

LINNET_API void linnet_device_span_init_sized(linnet_device_span *span, size_t size);
static inline void linnet_device_span_init(linnet_device_span *span) {
    linnet_device_span_init_sized(span, sizeof *span);
}

typedef enum linnet_device_kind {
    LINNET_DEVICE_OTHER = 0,
    LINNET_DEVICE_GPU = 1,
    LINNET_DEVICE_CPU = 2, /* such as PoCL: an OpenCL driver that computes on the processor */
    LINNET_DEVICE_NPU = 3
} linnet_device_kind;

/* What `linnet devices` shows. Texts live as long as the device; NULL: not known. */
typedef struct linnet_device_about {
    size_t struct_size;
    int32_t kind;         /* linnet_device_kind */
    const char *hardware; /* the name of the processor */
    const char *driver;   /* the name and version of its driver */
    const char *features; /* words, such as "f16 f64" */
    uint64_t memory;      /* bytes in all; 0: not known */
    uint64_t memory_free; /* bytes that can be allocated now; 0: not known */
} linnet_device_about;

static inline void linnet_device_about_init(linnet_device_about *about) {
    linnet_device_struct_init(about, sizeof *about);
}

/* The functions of a device. Fields marked "optional" may be NULL. The struct must outlive every plan that names it. */
struct linnet_device {
    size_t struct_size;
    uint32_t version; /* LINNET_DEVICE_VERSION */
    const char *name;
    void *context;

    /* Planning */
    int (*limits)(void *context, linnet_device_limits *limits);
    /* Returns the nanoseconds that the step would take on the device, without transfers. The number must come from a
     * model of the shapes, never from a clock. The library compares it with the modelled time of the CPU's kernel.
     * Negative: the device cannot run the step. Operands are dense. */
    double (*cost)(void *context, const linnet_step *step);
    /* Optional. `steps` are consecutive steps of the plan that are placed on this device. Fills `claim` for the first
     * of them; the library calls the function again for the rest. NULL: each step is a claim of its own, without
     * scratch. */
    int (*claim)(void *context, const linnet_step *const *steps, int count, linnet_claim *claim);
    /* Optional: layouts of the device. `propose` returns the token of the layout in which the device would like to keep
     * the output between its own steps; 0: dense. The output gets this layout if every step of the device that reads it
     * accepts. Other readers get it dense, because transfers convert. `propose` needs `accept`, and `layout_bytes` for
     * the tokens that `describe` does not describe. */
    uint32_t (*propose)(void *context, const linnet_step *step, int output);
    bool (*accept)(void *context, const linnet_step *step, int input, uint32_t layout);
    uint64_t (*layout_bytes)(void *context, const linnet_device_tensor *tensor, uint32_t layout);

    /* Memory. The library allocates all memory of operands, scratch and packed constants itself, so that a plan's
     * total is exact; a device need not allocate any in `prepare`. */
    int (*allocate)(void *context, uint64_t bytes, linnet_handle *buffer);
    void (*release)(void *context, linnet_handle buffer, uint64_t bytes);
    /* Optional; needed with limits.host_visible. `map` need not wait for work, because the library maps a
     * buffer only while no work uses it. */
    int (*map)(void *context, linnet_handle buffer, uint64_t bytes, void **host);
    int (*unmap)(void *context, linnet_handle buffer, void *host);
    /* Optional; needed with limits.shared. Makes a buffer of host memory, which is 64-byte aligned and outlives the
     * buffer. `release` frees the buffer, but not the memory. Imports for bodies of different loops and branches may
     * overlap; no two that overlap are in use at the same time. */
    int (*import)(void *context, void *host, uint64_t bytes, linnet_handle *buffer);

    /* Queues and events */
    int (*open)(void *context, linnet_handle *queue);
    void (*close)(void *context, linnet_handle queue); /* frees the queue, which has no work left */
    /* Waits until all work in the queue has ended, failed work included. Work of other queues that is submitted
     * afterwards sees what this queue has written, such as constants. After a failure the queue must accept new work,
     * or report the failure again. */
    int (*finish)(void *context, linnet_handle queue);
    int (*create_event)(void *context, linnet_handle *event);
    void (*free_event)(void *context, linnet_handle event);
    /* Submits a marker to the queue: the event is complete when all work that was submitted before the marker has
     * ended. Each run records the event again. It may do so before an earlier record is complete, if runs are
     * submitted (linnet_session_submit) or the caller has ended a wait; waits are then for the last record. */
    int (*record)(void *context, linnet_handle queue, linnet_handle event);
    /* Blocks the calling thread until the event is complete. Returns the failure of work that was submitted before the
     * event, if any has failed. */
    int (*wait)(void *context, linnet_handle event);
    /* Optional; needed with `reaches`. Work that is submitted to `queue` later begins only after `event` is complete.
     * The event is of another queue of this device, or of a device that `reaches` accepts. Does not block. */
    int (*follow)(void *context, linnet_handle queue, const linnet_device *of, linnet_handle event);

    /* Work: submitted to the queue. Host memory stays valid until an event that was recorded later is complete. Until
     * then the library does not write it (upload) or use it (download). Transfers convert between dense host memory and
     * tensor->layout. */
    int (*upload)(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from);
    int (*download)(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from);
    /* Optional: returns true if `copy` can read buffers of the other device. Values between the two devices then need
     * no host memory. `other` may be this device itself, with another queue or the same one. */
    bool (*reaches)(void *context, const linnet_device *other);
    /* Copies dense memory. from->bytes and to->bytes are equal. */
    int (*copy)(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from);
    /* Optional, both or none. Compiles kernels, packs constants (it may submit work to the queue), and captures graphs.
     * LINNET_DEVICE_REFUSES: the device cannot run the claim. `unprepare` is not called after a failure. */
    int (*prepare)(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *state);
    void (*unprepare)(void *context, linnet_handle state);
    int (*run)(void *context, linnet_handle queue, const linnet_work *work, linnet_handle state);
    /* Optional: gives the nanoseconds that the device spent on the last execution of the claim. The execution has
     * ended. Called only with work->trace. */
    int (*elapsed)(void *context, const linnet_work *work, linnet_handle state, uint64_t *ns);

    /* Optional: returns the text of a code, for the error record. The text must live as long as the device. */
    const char *(*explain)(void *context, int code);

    /* Optional: says what a token of `propose` means for tensors of this rank. The library zeroes *out. If the function
     * fills it and returns true, the library computes bytes and strides. If it returns false, the layout is private. */
    bool (*describe)(void *context, uint32_t layout, int rank, linnet_layout *out);

    /* Optional: says what sequences of steps cost, while the planner decides where nodes run. `steps` are connected
     * steps that the device can run and that would be consecutive, as in `claim`. Fills `offer` for the first of them;
     * the library calls the function again for the rest. The planner uses offer->cost_ns instead of the sum of the
     * steps' `cost`. Operands are dense. A map that the device runs as an epilogue (limits.epilogues) is already part
     * of its step. `claim` may group the steps in another way; the function is then called once more for the steps of
     * each claim, and its answers are their time in linnet_step_info.modelled_ns. NULL: the planner uses the sum of
     * `cost`. Like `cost`, it may be called by several threads at once, and must come from a model. */
    int (*offer)(void *context, const linnet_step *const *steps, int count, linnet_offer *offer);

    /* Optional: says what hardware this is, for `linnet devices`. The library zeroes `about` and sets struct_size. */
    int (*about)(void *context, linnet_device_about *about);

    /* Optional: like `open`, for a session that traces its runs and therefore calls `elapsed`. A queue that measures
     * may be slower. NULL: `open` is used. */
    int (*open_traced)(void *context, linnet_handle *queue);

    /* Optional: like `wait`, but for at most about `ns` nanoseconds. Returns LINNET_DEVICE_PENDING if the event is not
     * complete by then. The timeout, the flag and the poll of linnet_run_config end a wait of this kind. NULL: they
     * take effect only when `wait` has returned. */
    int (*wait_until)(void *context, linnet_handle event, uint64_t ns);

    /* Optional: like `import`, for constants in a model's file, which nobody writes while the buffer exists. Use it if
     * kernels can read memory of the host as fast as their own. Steps then read constants where they are, and plans
     * count no memory for them, except for those whose offset is not a multiple of limits.alignment. A result other
     * than 0 is not an error: the constants are then copied. May be called by several threads at once. */
    int (*import_constants)(void *context, const void *host, uint64_t bytes, linnet_handle *buffer);
    /* Optional, both or none. They are for buffers of `import`, if the two processors do not see each other's writes by
     * themselves. Both are submitted to the queue. `host_release` gives the memory to the device: later work of the
     * queue sees what the host has written, and the host does not touch the memory. `host_acquire` gives it back: the
     * host may read and write it once an event that is recorded later is complete. New buffers belong to the host. */
    int (*host_acquire)(void *context, linnet_handle queue, linnet_handle buffer, void *host, uint64_t bytes);
    int (*host_release)(void *context, linnet_handle queue, linnet_handle buffer, void *host, uint64_t bytes);
    /* Optional, both or none: memory of the host for a session's inputs and outputs, such as pinned memory, for which
     * transfers are fastest. Its address is a multiple of 64 and of limits.import_alignment. Its size is at least
     * `bytes`, rounded up to a multiple of limits.import_alignment. */
    int (*allocate_host)(void *context, uint64_t bytes, void **host);
    void (*release_host)(void *context, void *host, uint64_t bytes);
    /* Optional: begins the work that was submitted to the queue. The library calls it before the host waits or
     * computes, and at the end of a submitted run. Until then a device may collect the work, to send it as one message.
     * `wait`, `wait_until` and `finish` begin the work too. NULL: the device begins each piece of work by itself. */
    int (*flush)(void *context, linnet_handle queue);
    /* Optional: gives part i of what `elapsed` has measured last, for a device that knows more than the sum. Span 0 is
     * the whole execution, the next ones are steps within it. `name` stays NULL past the last one. Called only with
     * work->trace. */
    int (*span)(void *context, const linnet_work *work, linnet_handle state, int i, linnet_device_span *out);
    /* Optional, both or none: for a device that may lose its memory and come back, such as another machine. `keep`
     * submits work that stores the value of a variable where it survives. `number` grows with each new value. Until the
     * next call of `keep` has ended, the value before this one must stay, because the run may still fail elsewhere. The
     * library calls `keep` for the new values that stay on the device, at the end of each run and before it changes any
     * variable. `recall` submits work that brings back the value with exactly this number. It is called on a new queue,
     * after the device has failed. */
    int (*keep)(void *context, linnet_handle queue, const char *variable, uint64_t number, const linnet_span *from);
    int (*recall)(void *context, linnet_handle queue, const char *variable, uint64_t number, const linnet_span *to);
};

/* ---- libraries of devices ---------------------------------------------------------------------------------------- */

/* linnet's functions for devices, as a table: those of this header and linnet_dtype_name, each named without `linnet_`.
 * linnet passes the table to linnet_extension_devices. A library that calls linnet only through the table need not link
 * liblinnet. The same file of the library then works in Python, in the native tools, and in a program that links
 * liblinnet statically. Later versions append functions, so a library must not use fields beyond struct_size. */
typedef struct linnet_host {
    size_t struct_size;
    const char *(*dtype_name)(int dtype);
    const char *(*step_op)(const linnet_step *step);
    const char *(*step_name)(const linnet_step *step);
    int (*step_input_count)(const linnet_step *step);
    int (*step_output_count)(const linnet_step *step);
    linnet_status (*step_get_input)(const linnet_step *step, int i, linnet_device_tensor *out);
    linnet_status (*step_get_output)(const linnet_step *step, int i, linnet_device_tensor *out);
    const int64_t *(*step_integers)(const linnet_step *step, const char *attribute, int *count);
    const double *(*step_floats)(const linnet_step *step, const char *attribute, int *count);
    int (*step_precision)(const linnet_step *step);
    linnet_status (*step_get_counts)(const linnet_step *step, linnet_step_counts *out);
    linnet_status (*step_evaluate)(const linnet_step *step, const void *const *inputs, void *const *outputs,
                                   linnet_error *error);
    linnet_status (*step_get_map)(const linnet_step *step, linnet_map *out);
    linnet_status (*step_get_result)(const linnet_step *step, linnet_device_tensor *out);
    linnet_status (*map_get_opcode)(int opcode, linnet_map_opcode *out);
    linnet_status (*step_map_source)(const linnet_step *step, const linnet_source_options *options, char *text,
                                     size_t size, size_t *length);
    linnet_status (*map_prelude)(const linnet_source_options *options, const char *uses, char *text, size_t size,
                                 size_t *length);
    linnet_status (*step_result_source)(const linnet_step *step, const linnet_source_options *options, char *text,
                                        size_t size, size_t *length);
    linnet_status (*step_get_requant)(const linnet_step *step, linnet_requant *out);
    const linnet_body *(*step_body)(const linnet_step *step, int i);
    const linnet_step *(*body_step)(const linnet_body *body, int i);
    linnet_status (*body_get_input)(const linnet_body *body, int i, linnet_device_tensor *out);
    linnet_status (*body_get_output)(const linnet_body *body, int i, linnet_device_tensor *out);
} linnet_host;

/* The table of this liblinnet, for a program that loads devices without linnet_device_open. Never NULL. */
LINNET_API const linnet_host *linnet_device_host(void);

/* Devices of one library. The library owns them and all texts, and never frees them. */
typedef struct linnet_device_list {
    size_t struct_size;
    int32_t count;
    const linnet_device *const *devices;
    const char
        *missing; /* a sentence that says why there is no device, or why some devices of the machine are not in the
                     list, and what to do. For example, a driver is not installed. NULL: nothing is missing */
    const linnet_device
        *single; /* used by liblinnet: `devices` points here if the library exports linnet_extension_device. If you copy
                    the struct, set `devices` of the copy to the copy's `single` */
} linnet_device_list;

LINNET_API void linnet_device_list_init_sized(linnet_device_list *out, size_t size);
static inline void linnet_device_list_init(linnet_device_list *out) { linnet_device_list_init_sized(out, sizeof *out); }

/* A shared library of devices exports this function; liblinnet does not. It lists the devices of the machine. `options`
 * is the part of a device's name after the first comma, such as "f16=on,cache=/tmp/programs", or "". The same options
 * give the same devices; other options may give other structs for the same hardware. Returns 0, or another number if an
 * option is not known or has a bad value, with the reason in list->missing. The library zeroes the list before the call
 * and sets struct_size. Thread-safe. */
int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list);

/* A shared library with one device and no options may export this function instead. Such a library links liblinnet, or
 * calls none of its functions. The function returns NULL if the machine does not have the device. */
const linnet_device *linnet_extension_device(void);

/* Opens a device by its name: LIBRARY[:INDEX][,OPTION=VALUE]... LIBRARY is a path, or a short name such as "opencl" for
 * liblinnet_opencl.so. The file of a short name is looked up in the folder of the code that contains this function,
 * then in ../lib from there, then where the system looks for libraries. INDEX is the number of a device of the library;
 * the first and default one is 0. Another machine is remote:ADDRESS[,OPTION=VALUE]..., such as remote:pi1:7700
 * (docs/machines.md). Devices stay open until the process ends. Errors: NOT_FOUND (there is no such
 * library, or it has no such device; `got` or `hint` says why), INVALID_ARGUMENT (the name, an option, or a library
 * that exports neither function), UNSUPPORTED (a build without devices). Thread-safe. */
LINNET_API linnet_status linnet_device_open(const char *name, const linnet_device **device, linnet_error *error);
/* Lists all devices of a library. `name` is as for linnet_device_open; an index in it has no effect. A library without
 * devices is not an error; list->missing then says why there are none. Errors: as above. Thread-safe. */
LINNET_API linnet_status linnet_device_find(const char *name, linnet_device_list *list, linnet_error *error);

/* ---- inputs and outputs in a device's memory --------------------------------------------------------------------- */

/* Binds input i of the session's plan, or output i if `output` is true, to memory of a device of the plan: a buffer of
 * the device's `allocate` or `import`, an offset that is a multiple of limits.alignment, and exactly the bytes of the
 * dense tensor. The memory belongs to the caller, who must keep it until other memory is bound or the session is freed.
 * NULL binds the session's own memory again. If only steps of this device use the value, the device copies it, and the
 * host is not involved. Otherwise the value goes through host memory. A session on another queue may use an output once
 * linnet_session_wait or linnet_run has returned. Runs that have been submitted use the memory that was bound when they
 * were submitted. The session's own memory for a bound output gets no result. Do not call this function during a run.
 * Errors: INVALID_ARGUMENT (index, device, span), WRONG_SHAPE (bytes), UNSUPPORTED (an output that shares its memory
 * with another tensor, see linnet_plan_config.separate_outputs; an output whose shape depends on data; a build without
 * devices). */
LINNET_API linnet_status linnet_session_bind_device(linnet_session *session, bool output, int i,
                                                    const linnet_device *device, const linnet_span *span,
                                                    linnet_error *error);

/* Gives work that a device did inside of step `step` in the last run, if it measures that: the device's `span` says
 * what span `i` is. Only for a session with linnet_session_config.trace. Errors: INVALID_ARGUMENT, also past the last
 * span and for a step whose device measures nothing; UNSUPPORTED (a build without devices). */
LINNET_API linnet_status linnet_session_get_span(const linnet_session *session, int step, int i,
                                                 linnet_device_span *out);

/* ---- what a plan says about a device ---------------------------------------------------------------------------- */

/* Bytes on one device: exactly those that the first session of the model allocates there. A later session does not
 * allocate the constants again that other sessions of the model have there. The last session that uses a constant
 * releases it. linnet_plan_info.total contains the total of all devices. All numbers include the bodies of loops and
 * branches.
 */
typedef struct linnet_plan_device_info {
    size_t struct_size;
    const char *name;
    int32_t steps;        /* claims */
    int32_t nodes;        /* steps in them */
    uint64_t activations; /* the arena of values between steps */
    uint64_t scratch;
    uint64_t packed;
    uint64_t constants; /* shared by the sessions of the model */
    uint64_t variables; /* copies of variables, which stay on the device between runs */
    uint64_t total;
    uint64_t own; /* part of total: what the device allocates by itself (linnet_claim.own_bytes). It may be on another
                   * machine, so linnet_plan_info.total does not contain it */
} linnet_plan_device_info;

LINNET_API void linnet_plan_device_info_init_sized(linnet_plan_device_info *info, size_t size);
static inline void linnet_plan_device_info_init(linnet_plan_device_info *info) {
    linnet_plan_device_info_init_sized(info, sizeof *info);
}

/* Gives the bytes on the i-th device of the plan's config. Errors: INVALID_ARGUMENT, also past the end. */
LINNET_API linnet_status linnet_plan_get_device(const linnet_plan *plan, int i, linnet_plan_device_info *info);

#ifdef __cplusplus
}
#endif
#endif
