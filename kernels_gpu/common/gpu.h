/* gpu.h - what the backends of GPUs share: a step as kernels see it, the list of kernels, and the launches that compute
 * a step. It stands on linnet_device.h alone. A backend compiles the text of a launch and starts it. */
#ifndef LG_GPU_H
#define LG_GPU_H

#include "linnet_device.h"

#include <stdbool.h>

enum { LG_MOST_OPERANDS = 40, LG_MOST_ARGUMENTS = 72, LG_MOST_STEPS = 4 /* of a claim of a kernel */ };
enum { LG_SPACE = 3 /* spatial dimensions of windows */ };

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Text that grows. After a failed allocation, `failed` is true and the text stays as it is. Zeroed: empty. */
typedef struct lg_text {
    char *at;
    size_t length, size;
    bool failed;
} lg_text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void lg_put(lg_text *text, const char *format, ...);
void lg_put_text(lg_text *text, const char *other); /* of any length */
void lg_put_bytes(lg_text *text, const void *bytes, size_t size);
void lg_free(lg_text *text);
/* Whether the text contains the word, not as a part of a longer one. */
bool lg_has_word(const char *text, const char *word);

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

/* Reads the step. False: it has more operands than a launch takes. */
bool lg_step_open(lg_step *out, const lg_machine *machine, const linnet_step *step);
/* The attribute's first value, or the default if the list is empty. */
int64_t lg_integer(const lg_step *s, const char *attribute, int64_t otherwise);
double lg_real(const lg_step *s, const char *attribute, double otherwise);
/* Value i of a list; the default if it has no such value. */
int64_t lg_item(const lg_step *s, const char *attribute, int i, int64_t otherwise);
int lg_items(const lg_step *s, const char *attribute);

int64_t lg_count(const linnet_device_tensor *t); /* of elements */
bool lg_absent(const lg_step *s, int input);
bool lg_wanted(const lg_step *s, int output); /* false: nobody reads the output */
bool lg_same_shape(const linnet_device_tensor *a, const linnet_device_tensor *b);
int64_t lg_shape_product(const linnet_device_tensor *t, int from, int to);
int lg_axis(int64_t axis, int rank); /* from the end if negative */
/* Whether the step is a product of quantized integers, whose sums lg_put_store converts to results. */
bool lg_converts_sums(const lg_step *s);

/* A layout besides the dense one (layout.c): images of rank 4 with their channels last. */
enum { LG_CHANNELS_LAST = 1 };
static inline bool lg_is_last(const linnet_device_tensor *t) { return t->layout == LG_CHANNELS_LAST; }
/* The axis at place k in memory, from the outermost, 0, on. */
int lg_order(const linnet_device_tensor *t, int k);
/* For `propose`, `accept` and `describe` of a backend. */
uint32_t lg_propose_layout(const lg_step *s, int output);
bool lg_accepts_layout(const lg_step *s, int input, uint32_t layout);
bool lg_describe_layout(uint32_t layout, int rank, linnet_layout *out);

static inline bool lg_is_float(int dtype) {
    return dtype >= LINNET_F32 && dtype <= LINNET_BF16;
} /* of at most 32 bits */
static inline bool lg_is_quantizable(int dtype) {
    return dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16;
}
static inline bool lg_is_quantized(const linnet_device_tensor *t) { return t->quant_scheme != LINNET_QUANT_NONE; }
int lg_bytes_of(int dtype);        /* of an element; 0: packed or unknown */
const char *lg_type_of(int dtype); /* "ln_u16", as it is stored; NULL: kernels cannot read it */
const char *lg_word_of(int dtype); /* "f16" */

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
    int32_t step;        /* of the claim: whose operand it is; that of the launch when it was passed */
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
    int step;         /* of the claim, whose operands lg_pass passes; 0 at first */
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

void lg_plan_free(lg_plan *plan);
/* A further launch of the kernel; NULL if there is no memory. Its text begins with the definitions that follow from the
 * dtypes, which the functions below write. The pointer is valid until the next launch is added. */
lg_launch *lg_add(lg_plan *plan, const char *kernel);
void lg_range(lg_launch *launch, int64_t x, int64_t y, int64_t z);
void lg_local(lg_launch *launch, size_t x, size_t y, size_t z);
void lg_pass(lg_launch *launch, lg_kind kind, int index); /* an operand of launch->step, scratch or packed memory */
void lg_pass_integer(lg_launch *launch, int64_t value);   /* the low 32 bits: `can` has seen to it that it fits */
void lg_pass_real(lg_launch *launch, double value);
void lg_pass_map(lg_launch *launch, const lg_tensor_map *map);
/* Passes an integer as a parameter of LG_EXTRAS and returns its number k: its name is lg_n<k>. So the text is the same
 * for other values. After the kernel's own arguments. */
int lg_number(lg_launch *launch, int64_t value);
/* #define NAME value */
void lg_define(lg_launch *launch, const char *name, int64_t value);
/* #define NAME_T type, NAME_GET(p, i), which gives a float or an integer, and NAME_PUT(p, i, value). */
void lg_define_operand(lg_launch *launch, const char *name, int dtype);
/* Appends bytes to packed memory, aligned to 16; returns their offset. */
size_t lg_pack(lg_plan *plan, const void *bytes, size_t size);

/* Reserves the two numbers by which a kernel says that an index is out of range. It passes nothing. */
void lg_check_indices(lg_plan *plan, int64_t size);

/* Writes LG_STORE(value, at, channel), which stores the op's result at element `at` of the output, and LG_EXTRAS, the
 * parameters that a kernel needs for it, which begin with a comma. It also passes the arguments, so the op's own ones
 * are passed before it. `value` is a float for float results, an integer for integers, and the sum of the products for
 * quantized results, which is converted. The kernel's output is the parameter y. In kernels, LG_STORE is used in the
 * kernel function only. */
void lg_put_store(lg_plan *plan, lg_launch *launch, const lg_step *s);
/* Whether lg_put_store can. */
bool lg_can_store(const lg_step *s);
/* Writes the function lg_score(value, at LG_EXTRAS), which gives the float that the step's epilogue or map makes of the
 * value at element `at`, and the text LG_EXTRAS. Of a map, the value is input map.result, which must be set and is not
 * read from memory. Without a map, the result is the value. The kernel passes LG_EXTRA_NAMES on. */
void lg_put_score(lg_plan *plan, lg_launch *launch, const lg_step *s);

/* The texts of the dialect and of the files of kernels_gpu/common, which the build embeds (embed.cmake). The dialect is
 * the first; a name of NULL ends the list. */
typedef struct lg_file {
    const char *name, *text;
} lg_file;
extern const lg_file lg_files[];
/* Appends the text of a file of kernels_gpu/common, by its name without the ending. */
void lg_put_file(lg_launch *launch, const char *name);

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* A kernel: a line of kernels.inc. Where several can run a step, the one with the least cost does. */
typedef struct lg_kernel {
    const char *op, *name;
    bool (*can)(const lg_step *s);
    void (*build)(const lg_step *s, lg_plan *plan);
    int percent; /* of the machine's multiply-accumulates that it reaches, or of its bandwidth if it has no products */
} lg_kernel;

/* The kernel that runs the step, and its modelled nanoseconds; NULL: none can. */
const lg_kernel *lg_choose(const lg_step *s, double *cost_ns);
/* attention.c: if the first steps are attention, softmax(f(q k^T)) v with a map f or none, and one kernel can run them,
 * returns their number, 3 or 4; else 0. The products and the softmax of them are then never stored: the claim is fused.
 * The plan, if it is not NULL, gets the launches, and *cost_ns, if it is not NULL, the modelled nanoseconds. */
int lg_match_attention(const lg_machine *machine, const linnet_step *const *steps, int count, lg_plan *plan,
                       double *cost_ns);
/* Plans the first of the steps: several that one kernel runs, whose claim is fused, or one. Returns their number, and
 * the kernel's name; 0: no kernel can run the first. The caller frees the plan. */
int lg_plan_steps(const lg_machine *machine, const linnet_step *const *steps, int count, lg_plan *plan,
                  const char **name);

/* Whether the values between steps that one kernel runs have no memory, as the claim has asked. */
bool lg_are_inside(const lg_machine *machine, const linnet_work *work);

#define LG_LINE(op, name, can, build, percent)                                                                         \
    bool can(const lg_step *s);                                                                                        \
    void build(const lg_step *s, lg_plan *plan);
#include "kernels_gpu/common/kernels.inc"
#ifdef LG_CUDA_KERNELS
#include "kernels_gpu/cuda/kernels.inc"
#endif
#undef LG_LINE

#endif
