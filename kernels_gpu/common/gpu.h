/* gpu.h - the types that kernels and backends of GPUs share: a step as kernels see it, a kernel, and the launches that
 * compute a step. This header needs only linnet_device.h. A backend compiles the text of a launch and starts
 * it. */
#ifndef LG_GPU_H
#define LG_GPU_H

#include "kernels_gpu/common/text.h"
#include "linnet_device.h"

enum { LG_MOST_OPERANDS = 40, LG_MOST_ARGUMENTS = 72 };
enum { LG_SPACE = 3 /* spatial dimensions of windows */ };

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* What the hardware can do. The choice of kernels depends on this alone. */
typedef struct lg_machine {
    const linnet_host *host;
    int language; /* linnet_source_language */
    bool f64;
    bool f16;    /* the machine computes in f16, and does not only store it */
    bool is_cpu; /* an OpenCL device that is a processor: it has no fast local memory, and uses vector instructions
                    only where kernels use vectors */
    size_t most_items;   /* most work items of a work group */
    size_t local_bytes;  /* bytes of local memory of a work group */
    double macs;         /* f32 multiply-accumulates per nanosecond, at best */
    double bandwidth;    /* bytes per nanosecond */
    double launch_ns;    /* time that the launch of any kernel takes */
    const char *prefer;  /* for tests: the name of a kernel that runs every step that it can run; or "" */
    int compute;         /* CUDA: the architecture, such as 90 for 9.0; otherwise 0, and the fields below are not set */
    int units;           /* number of multiprocessors */
    size_t shared_bytes; /* most shared memory of a work group: the limit of lg_launch.shared_bytes */
} lg_machine;

/* A step of a plan: an op, perhaps with an epilogue, which is a map that follows the op in the same step. */
typedef struct lg_step {
    const linnet_step *step;
    const lg_machine *machine;
    const char *op;
    int n_inputs; /* inputs of the op itself; absent inputs at the end are not counted */
    int n_extra;  /* further operands of the epilogue, which follow the op's inputs in `inputs` */
    int n_outputs;
    linnet_device_tensor inputs[LG_MOST_OPERANDS], outputs[LG_MOST_OPERANDS];
    bool has_map;       /* the step is a `map` or a conversion or has an epilogue, so `map` is filled */
    bool is_conversion; /* cast, quantize or dequantize; inputs 1 and 2 are the scale and the zero point */
    bool has_epilogue;  /* the op computes `result`, and the map computes outputs[0] from it */
    linnet_map map;
    linnet_device_tensor result; /* the result of the op; equal to outputs[0] without an epilogue */
} lg_step;

/* The only layout besides dense (layout.c): tensors of rank 4 with their channels last. */
enum { LG_CHANNELS_LAST = 1 };
static inline bool lg_is_last(const linnet_device_tensor *t) { return t->layout == LG_CHANNELS_LAST; }
/* Tells whether the dtype is a float of at most 32 bits. */
static inline bool lg_is_float(int dtype) { return dtype >= LINNET_F32 && dtype <= LINNET_BF16; }
static inline bool lg_is_quantizable(int dtype) {
    return dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16;
}
static inline bool lg_is_quantized(const linnet_device_tensor *t) { return t->quant_scheme != LINNET_QUANT_NONE; }

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* What an argument of a kernel is: an operand (input, output, scratch or packed memory), a number, or a tensor map. */
typedef enum lg_kind { LG_INPUT, LG_OUTPUT, LG_SCRATCH, LG_PACKED, LG_INTEGER, LG_REAL, LG_MAP } lg_kind;

enum { LG_MAP_RANK = 3, LG_MOST_MAPS = 3 };

/* Describes a CUtensorMap, by which Hopper's copy engine reads boxes of an operand. The backend calls
 * cuTensorMapEncodeTiled without interleaving, with element strides of 1, zeros outside, and L2 promotion of 256 bytes.
 * Dimension 0 is the innermost, and its elements are neighbours. The kernel's parameter is a `const __grid_constant__
 * lg_tensor_map` of 128 bytes, aligned to 64. */
typedef struct lg_tensor_map {
    int32_t kind, index; /* the operand: LG_INPUT, LG_OUTPUT, LG_SCRATCH or LG_PACKED */
    uint64_t offset;     /* bytes from its beginning; a multiple of 16 */
    int32_t dtype;       /* LINNET_F32, LINNET_F16, LINNET_BF16 or LINNET_U8; also LINNET_I8, which is read as U8 */
    bool tf32;           /* with dtype F32: the type of the CUtensorMap is TFLOAT32 */
    int32_t rank;        /* 2 or 3 */
    uint64_t sizes[LG_MAP_RANK];   /* in elements */
    uint64_t strides[LG_MAP_RANK]; /* in bytes, multiples of 16; strides[0] is not used, because CUDA's strides begin
                                      with dimension 1 */
    uint32_t box[LG_MAP_RANK];     /* in elements */
    int32_t swizzle;               /* 0 or 128 bytes */
} lg_tensor_map;

/* An argument of a kernel. */
typedef struct lg_argument {
    int32_t kind, index; /* lg_kind, and the number of the operand; LG_MAP: index into lg_launch.maps */
    int32_t integer;     /* the value of LG_INTEGER */
    float real;          /* the value of LG_REAL */
} lg_argument;

/* One start of a kernel: the kernel's text (without the dialect and the prelude) and name, its arguments and its range.
 */
typedef struct lg_launch {
    lg_text source;
    lg_text extras; /* the declarations of the macro LG_EXTRAS, each after a comma: further parameters of the kernel */
    int n_numbers;  /* number of parameters that lg_number and lg_real_number have added */
    const char *kernel;
    lg_argument arguments[LG_MOST_ARGUMENTS];
    int n_arguments;
    size_t global[3]; /* work items that are needed; a backend rounds up to `local` */
    size_t local[3];
    size_t shared_bytes; /* CUDA: bytes of dynamic shared memory; otherwise 0 */
    lg_tensor_map maps[LG_MOST_MAPS];
    int n_maps;
} lg_launch;

/* The launches of a step, which run in order. Zeroed memory is an empty plan. */
typedef struct lg_plan {
    bool sizes_only; /* set before the first launch: the plan is for its sizes, and the launches have no text */
    lg_launch *launches;
    int n;
    uint64_t scratch_bytes; /* memory in which launches leave data for later launches of the step */
    lg_text packed;         /* data that kernels read and that is no operand, such as scales per channel */
    bool checks;            /* a kernel checks indices (checks.h); otherwise the next two fields are not set */
    size_t status;          /* offset in packed memory of two i32: 1 and the index, if an index is out of range */
    int64_t check_size;     /* the size of the axis, for the message */
    bool failed;            /* out of memory; nothing may be launched */
} lg_plan;

/* The texts of the dialect (definitions that hide the differences between CUDA and OpenCL) and of the files of
 * kernels_gpu/common, which the build embeds (embed.cmake). The dialect is the first entry. An entry with the name NULL
 * ends the list. */
typedef struct lg_file {
    const char *name, *text;
} lg_file;
extern const lg_file lg_files[];

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* A kernel: a line of kernels.inc. If several kernels can run a step, the one with the least modelled time runs it.
 * `can` tells whether the kernel can run the step; `build` adds the launches and is called only if `can` returned true.
 */
typedef struct lg_kernel {
    const char *op, *name;
    bool (*can)(const lg_step *s);
    void (*build)(const lg_step *s, lg_plan *plan);
    int percent; /* share of the machine's multiply-accumulates per second that the kernel reaches; for a kernel without
                    products, share of the machine's bandwidth */
} lg_kernel;

#endif
