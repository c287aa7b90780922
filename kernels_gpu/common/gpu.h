/* gpu.h - the types that kernels and backends of GPUs share: a step as kernels see it, a kernel, and the launches that
 * compute a step. They stand on linnet_device.h alone. A backend compiles the text of a launch and starts it. */
#ifndef LG_GPU_H
#define LG_GPU_H

#include "kernels_gpu/common/text.h"
#include "linnet_device.h"

enum { LG_MOST_OPERANDS = 40, LG_MOST_ARGUMENTS = 72 };
enum { LG_SPACE = 3 /* spatial dimensions of windows */ };

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* What the hardware can do, which decides what kernels are used. */
typedef struct lg_machine {
    const linnet_host *host;
    int language; /* linnet_source_language */
    bool f64;
    bool f16;            /* arithmetic, not only storage */
    bool is_cpu;         /* no local memory of its own, and vectors only where kernels write them */
    size_t most_items;   /* of a work group */
    size_t local_bytes;  /* memory of a work group */
    double macs;         /* f32 multiply-accumulates per nanosecond, at best */
    double bandwidth;    /* bytes per nanosecond */
    double launch_ns;    /* of any kernel */
    const char *prefer;  /* the name of a kernel that runs what it can, for tests; or "" */
    int compute;         /* CUDA: the architecture, such as 90 for 9.0; else 0, and nothing below is set */
    int units;           /* multiprocessors */
    size_t shared_bytes; /* of a work group, at most: what a launch may ask for in `shared_bytes` */
} lg_machine;

typedef struct lg_step {
    const linnet_step *step;
    const lg_machine *machine;
    const char *op;
    int n_inputs; /* of the op itself; absent ones at the end are left out */
    int n_extra;  /* operands of the epilogue, which follow them in `inputs` */
    int n_outputs;
    linnet_device_tensor inputs[LG_MOST_OPERANDS], outputs[LG_MOST_OPERANDS];
    bool has_map;       /* a `map` step, an epilogue, or a conversion: elements are computed by a block of the host */
    bool is_conversion; /* cast, quantize or dequantize; inputs 1 and 2 are the scale and the zero point */
    bool has_epilogue;  /* `result` is what the op computes, and the map's output is stored */
    linnet_map map;
    linnet_device_tensor result; /* outputs[0] without an epilogue */
} lg_step;

/* A layout besides the dense one (layout.c): images of rank 4 with their channels last. */
enum { LG_CHANNELS_LAST = 1 };
static inline bool lg_is_last(const linnet_device_tensor *t) { return t->layout == LG_CHANNELS_LAST; }
static inline bool lg_is_float(int dtype) {
    return dtype >= LINNET_F32 && dtype <= LINNET_BF16;
} /* of at most 32 bits */
static inline bool lg_is_quantizable(int dtype) {
    return dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16;
}
static inline bool lg_is_quantized(const linnet_device_tensor *t) { return t->quant_scheme != LINNET_QUANT_NONE; }

/* ---- launches ---------------------------------------------------------------------------------------------------- */

typedef enum lg_kind { LG_INPUT, LG_OUTPUT, LG_SCRATCH, LG_PACKED, LG_INTEGER, LG_REAL, LG_MAP } lg_kind;

enum { LG_MAP_RANK = 3, LG_MOST_MAPS = 3 };

/* A CUtensorMap, by which Hopper's copy engine reads boxes of an operand (cuTensorMapEncodeTiled, no interleaving,
 * element strides of 1, zeros outside, L2 promotion of 256 bytes). Dimension 0 is the innermost, and its elements are
 * neighbours. The kernel's parameter is a `const __grid_constant__ lg_tensor_map`, 128 bytes aligned to 64. */
typedef struct lg_tensor_map {
    int32_t kind, index; /* the operand: LG_INPUT, LG_OUTPUT, LG_SCRATCH or LG_PACKED */
    uint64_t offset;     /* bytes from its beginning; a multiple of 16 */
    int32_t dtype;       /* LINNET_F32, LINNET_F16, LINNET_BF16 or LINNET_U8; also LINNET_I8, which is read as U8 */
    bool tf32;           /* F32: the map's type is TFLOAT32 */
    int32_t rank;        /* 2 or 3 */
    uint64_t sizes[LG_MAP_RANK];   /* in elements */
    uint64_t strides[LG_MAP_RANK]; /* in bytes, multiples of 16; strides[0] is not used (CUDA's begin at dimension 1) */
    uint32_t box[LG_MAP_RANK];     /* in elements */
    int32_t swizzle;               /* 0 or 128 bytes */
} lg_tensor_map;

typedef struct lg_argument {
    int32_t kind, index; /* of an operand; LG_MAP: of `maps` */
    int32_t integer;
    float real;
} lg_argument;

/* One kernel: its text without the dialect and the prelude, its name, its arguments and its range. */
typedef struct lg_launch {
    lg_text source;
    lg_text extras; /* parameters of LG_EXTRAS, each after a comma */
    int n_numbers;  /* of lg_number */
    const char *kernel;
    lg_argument arguments[LG_MOST_ARGUMENTS];
    int n_arguments;
    size_t global[3]; /* work items that are needed; a backend rounds up to `local` */
    size_t local[3];
    size_t shared_bytes; /* CUDA: dynamic shared memory */
    lg_tensor_map maps[LG_MOST_MAPS];
    int n_maps;
} lg_launch;

/* The launches of a step, run in order. `packed` is what kernels read besides operands, such as scales per channel. */
typedef struct lg_plan {
    lg_launch *launches;
    int n;
    uint64_t scratch_bytes;
    lg_text packed;
    bool checks;        /* a kernel may find an index that is out of range, and writes it to packed memory: */
    size_t status;      /* the place of two i32: 1 if it has, and the index */
    int64_t check_size; /* the size of the axis, for the message */
    bool failed;
} lg_plan;

/* The texts of the dialect and of the files of kernels_gpu/common, which the build embeds (embed.cmake). The dialect is
 * the first; a name of NULL ends the list. */
typedef struct lg_file {
    const char *name, *text;
} lg_file;
extern const lg_file lg_files[];

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* A kernel: a line of kernels.inc. Where several can run a step, the one with the least cost does. */
typedef struct lg_kernel {
    const char *op, *name;
    bool (*can)(const lg_step *s);
    void (*build)(const lg_step *s, lg_plan *plan);
    int percent; /* of the machine's multiply-accumulates that it reaches, or of its bandwidth if it has no products */
} lg_kernel;

#endif
