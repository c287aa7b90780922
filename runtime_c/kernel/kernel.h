/* kernel.h - the one interface between the plan and every kernel, reference or fast, of any ISA.
 * A kernel is its code, a `const ln_kernel_code`, and one line in a list, which says everything else about it.
 * Dispatch, tests and benchmarks use the table that dispatch/dispatch.c makes of the lists. */
#ifndef LN_KERNEL_H
#define LN_KERNEL_H

#include "kernel/op.h"
#include "generated/op_table.h"
#include "linnet_ext.h"

/* Features that a processor can have and a kernel can need. They are bits without an order, because each can exist
 * without most of the others. */
typedef uint32_t ln_features;
enum ln_feature {
#if defined(__x86_64__) || defined(_M_X64)
    LN_SSE2 = 1,        /* every x86-64 */
    LN_AVX2 = 2,        /* AVX2, FMA, F16C */
    LN_AVX512 = 4,      /* F, BW, DQ, VL */
    LN_AVX512VNNI = 8,  /* integer dot products of 512 bits */
    LN_AVXVNNI = 16,    /* those of 256 bits, which processors without AVX-512 have too */
    LN_AVX512BF16 = 32, /* bf16 dot products */
#elif defined(__aarch64__)
    LN_NEON = 1,    /* every ARMv8 */
    LN_FP16 = 2,    /* arithmetic on f16 */
    LN_DOTPROD = 4, /* integer dot products */
    LN_I8MM = 8,    /* products of int8 matrices */
    LN_BF16 = 16,   /* bf16 dot and matrix products */
    LN_SVE = 32,
#endif
    LN_NO_FEATURE = 0
};

/* Named sets of features. A file NAME__<isa>.c is compiled for the set of its name, so its kernels need this set. The
 * lists of kernels contain these names, so they are spelled as in the names of the files. */
enum ln_isa {
#if defined(__x86_64__) || defined(_M_X64)
    LN_ISA_sse2 = LN_SSE2,
    LN_ISA_avx2 = LN_ISA_sse2 | LN_AVX2,
    LN_ISA_avx512 = LN_ISA_avx2 | LN_AVX512,
    LN_ISA_avx512vnni = LN_ISA_avx512 | LN_AVX512VNNI,
#elif defined(__aarch64__)
    LN_ISA_neon = LN_NEON,
    LN_ISA_dotprod = LN_ISA_neon | LN_DOTPROD,
    LN_ISA_i8mm = LN_ISA_dotprod | LN_I8MM,
#endif
    LN_ISA_SCALAR = 0 /* the references */
};

/* A name for isa_max, and the largest set of features that a plan may then use. The library lists the name if the
 * machine has the feature `mark` and the build has kernels for it. */
typedef struct ln_isa_set {
    char name[12];
    ln_features mark, most;
} ln_isa_set;
extern const ln_isa_set ln_isa_sets[]; /* in the order of linnet_isa_name; the last one has no name */

typedef struct ln_epilogue ln_epilogue; /* kernel/map.h: a map applied to the op's result before it is stored */

/* One op call, complete and immutable after planning. */
typedef struct ln_call {
    const ln_op *op;
    const void *attributes;  /* the op's generated struct, e.g. const ln_conv_attributes * */
    const ln_tensor *inputs; /* n_inputs, then n_extra operands of the epilogue */
    const ln_tensor *outputs;
    const ln_tensor *inner;      /* with an epilogue: the op's own result, which is never stored; else == outputs */
    const ln_epilogue *epilogue; /* NULL: none */
    const struct ln_machine *machine; /* the rates by which times are modelled (kernel/machine.h) */
    int n_inputs, n_outputs;          /* of the op itself */
    int n_extra;
    ln_features features; /* the features that the plan may use; a kernel may choose its helper functions by them */
    int threads;          /* the largest number of threads that will run it */
    int precision;        /* linnet_precision: what the plan permits sums of floats to be computed in */
    bool in_place;        /* output 0 is written over input 0 */
    /* Set by configure: */
    uint32_t packed_inputs; /* bit i: only `pack` reads input i, never `run`, so a folded input can be freed */
    int phases;             /* default 1; all threads finish a phase before any thread begins the next */
    void *state;            /* plan-time data of the kernel, from ln_call_state */
    size_t packed_bytes;    /* bytes of rearranged constants, which `pack` fills; plans of the model that pack the same
                               constants share them */
    uint64_t packing;      /* what the result of pack depends on besides dtypes, attributes, constants and packed_bytes:
                              also `precision` and `features`, if it does */
    size_t scratch_bytes;  /* shared by all threads during the step */
    size_t scratch_thread; /* per thread */
    int64_t work[2];       /* independent work items of phase 0, and of each later phase; default 1 (on one thread) */
    int64_t grain;         /* the smallest number of items worth giving to one thread; default 1 */
    uint64_t flops;        /* for reports */
    void *plan;            /* opaque: used by ln_call_state */
} ln_call;

/* The memory of a call's operands during one run. */
typedef struct ln_buffers {
    const void *const *inputs; /* like call->inputs; NULL for absent inputs */
    void *const *outputs;      /* NULL for absent optional outputs */
    const void *packed;
    void *scratch;        /* scratch_bytes, 64-byte aligned */
    char *thread_scratch; /* the part of thread t begins at t * thread_stride; never NULL, even if a part has 0 bytes */
    size_t thread_stride;
    /* For ops flagged LN_OP_DATA_DEPENDENT (nonzero); NULL for all others. There are LN_MAX_RANK entries per output.
     * They hold the dims of call->outputs, which are an upper bound (nonzero: [rank, count(x)]). The kernel overwrites
     * them with the true dims and stores its result dense in the true shape, from the start of the buffer. */
    int64_t *output_dims;
    struct ln_run_error *error;
} ln_buffers;

enum ln_kernel_flag {
    LN_KERNEL_EPILOGUE = 1,  /* applies call->epilogue */
    LN_KERNEL_REFERENCE = 2, /* the scalar reference: any strides, any ISA, written for readability */
    LN_KERNEL_LESS = 4,      /* computes the result with less than the op's own work */
    LN_KERNEL_BYTES = 8      /* applies call->epilogue to results of 8 bits, too */
};

/* One more bit beside those of the layouts: strides that are those of no layout (views). Bit LN_LAYOUT_CHANNELS_LAST
 * means that the channels are innermost, so it also covers dense tensors of nodes whose channel_axis is the last one.
 */
enum { LN_STRIDED = 128 };

/* `can` decides what the kernel's line cannot say: from strides, attributes and combinations of dtypes, whether the
 * kernel's result for this call is right. It is asked only about calls that agree with the line. If `can` is NULL, the
 * kernel runs all of these calls. `cost` adds to the op's counts what this kernel does besides the op's own work:
 * products with the padding of its tile, conversions, transforms. It only adds, so a kernel that would already take too
 * long for the op's own work is not asked, unless it is flagged LN_KERNEL_LESS. If `cost` is NULL, the kernel does
 * nothing besides. `configure` (may be NULL) fills the fields of the call marked "Set by configure". `pack` (may be
 * NULL) writes packed_bytes from call->inputs[i].data, which is also set for variables then (ln_packable). `run`
 * computes items [begin, end) of the phase. Items must be independent, and a result must not depend on how the range is
 * split. No kernel reads or writes any byte outside its buffers.
 */
typedef struct ln_kernel ln_kernel;
typedef struct ln_kernel_code {
    bool (*can)(const ln_call *call);
    void (*cost)(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
    linnet_status (*configure)(ln_call *call);
    void (*pack)(const ln_call *call, void *packed);
    linnet_status (*run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread);
} ln_kernel_code;

/* A line of a list. An operand that is absent agrees with every mask. */
struct ln_kernel {
    char name[44]; /* "<op>_<method>_<tile>__<isa>", e.g. "conv_f32_igemm_6x16__avx2" */
    uint16_t op;
    uint16_t flags;
    ln_features needs;
    uint16_t takes[2];                    /* a bit per linnet_dtype of input 0, and of input 1 */
    uint16_t gives;                       /* of output 0, without the epilogue */
    uint8_t layouts_taken, layouts_given; /* of input 0, and of output 0: a bit per ln_layout, or LN_STRIDED */
    uint8_t tile[2];                      /* rows and columns that are computed at once; 0: the kernel has no tile */
    const ln_kernel_code *code;
};

/* All kernels of this build, best first, references last (dispatch/dispatch.c includes the lists). The last entry has
 * no code. */
extern const ln_kernel ln_kernels[];
/* What a call needs of a line: in each field one of the bits that are set. A tensor may have the strides of several
 * layouts. */
typedef struct ln_call_kinds {
    uint16_t takes[2], gives;
    uint8_t layouts_taken, layouts_given;
} ln_call_kinds;

#endif
