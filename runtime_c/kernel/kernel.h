/* kernel.h - the one interface between the plan and every kernel, reference or fast, of any ISA.
 * A kernel is its code, a `const ln_kernel_code`, and one line in a list, which says everything else about it.
 * Dispatch, tests and benchmarks use the table that dispatch/dispatch.c makes of the lists. */
#ifndef LN_KERNEL_H
#define LN_KERNEL_H

#include "kernel/op.h"
#include "generated/op_table.h"
#include "linnet_ext.h"

/* Features that a processor can have and a kernel can need. They are independent bits, not levels, because most of them
 * can exist without the others. */
typedef uint32_t ln_features;
enum ln_feature {
#if defined(__x86_64__) || defined(_M_X64)
    LN_SSE2 = 1,        /* every x86-64 */
    LN_AVX2 = 2,        /* AVX2, FMA, F16C */
    LN_AVX512 = 4,      /* F, BW, DQ, VL */
    LN_AVX512VNNI = 8,  /* integer dot products of 512 bits */
    LN_AVXVNNI = 16,    /* integer dot products of 256 bits, which processors without AVX-512 have, too */
    LN_AVX512BF16 = 32, /* bf16 dot products */
#elif defined(__aarch64__)
    LN_NEON = 1,    /* every ARMv8 */
    LN_FP16 = 2,    /* arithmetic on f16 */
    LN_DOTPROD = 4, /* integer dot products */
    LN_I8MM = 8,    /* products of int8 matrices */
    LN_BF16 = 16,   /* bf16 dot and matrix products */
    LN_SVE = 32,
#elif defined(__arm__) && defined(__ARM_NEON)
    LN_NEON32 = 1, /* ARMv7 with NEON; it has no name in common with 64 bits, because its tiles are others */
#endif
    LN_NO_FEATURE = 0
};

/* The feature of kernels that compute in f16: they read and write f16 as it is, without conversions. */
#ifdef __aarch64__
#define LN_HALVES LN_FP16
#else
#define LN_HALVES LN_NO_FEATURE
#endif

/* Named sets of features. A file NAME__<isa>.c is compiled for the set in its name, so its kernels need this set. The
 * enumerators are spelled like the file names, because the lists of kernels build both from one word. */
enum ln_isa {
#if defined(__x86_64__) || defined(_M_X64)
    LN_ISA_sse2 = LN_SSE2,
    LN_ISA_avx2 = LN_ISA_sse2 | LN_AVX2,
    LN_ISA_avx512 = LN_ISA_avx2 | LN_AVX512,
    LN_ISA_avx512vnni = LN_ISA_avx512 | LN_AVX512VNNI,
#elif defined(__aarch64__)
    LN_ISA_neon = LN_NEON,
    LN_ISA_fp16 = LN_ISA_neon | LN_FP16, /* has no name of its own for isa_max: dotprod includes it */
    LN_ISA_dotprod = LN_ISA_neon | LN_DOTPROD,
    LN_ISA_i8mm = LN_ISA_dotprod | LN_I8MM,
    LN_ISA_bf16 = LN_ISA_neon | LN_BF16, /* i8mm includes it */
#elif defined(__arm__) && defined(__ARM_NEON)
    LN_ISA_neon32 = LN_NEON32,
#endif
    LN_ISA_SCALAR = 0 /* the references */
};

/* A value of the option isa_max, and the features that a plan may use with it (`most`). linnet_isa_name lists the name
 * if the machine has the feature `mark` and the build has kernels for it. */
typedef struct ln_isa_set {
    char name[12];
    ln_features mark, most;
} ln_isa_set;
extern const ln_isa_set ln_isa_sets[]; /* in the order of linnet_isa_name; an entry with the name "" ends the table */

typedef struct ln_epilogue ln_epilogue; /* kernel/map.h: a map applied to the op's result before it is stored */

/* One call of an op. The planner fills in the operands, chooses a kernel, and calls its `configure` and then its
 * `pack`. After that, the call does not change, and any number of runs may use it at the same time. */
typedef struct ln_call {
    const ln_op *op;
    const void *attributes;  /* the op's generated struct, e.g. const ln_conv_attributes * */
    const ln_tensor *inputs; /* n_inputs, then n_extra operands of the epilogue */
    const ln_tensor *outputs;
    const ln_tensor *inner;      /* with an epilogue: the op's own result, which is never stored; else == outputs */
    const ln_epilogue *epilogue; /* NULL: none */
    const struct ln_machine *machine; /* the rates by which times are modelled (kernel/machine.h) */
    int n_inputs, n_outputs;          /* numbers of the op's own operands and results */
    int n_extra;
    ln_features features;   /* the features that the plan may use; a kernel may choose its helper functions by them */
    int threads;            /* the largest number of threads that will run the call */
    int precision;          /* linnet_precision: the precisions in which the plan permits sums of floats */
    bool in_place;          /* output 0 is written over input 0 */
                            /* Set by configure: */
    uint32_t packed_inputs; /* bit i: `pack` reads input i and `run` never does, so a folded input can be freed */
    int phases;             /* default 1; all threads finish a phase before any thread begins the next */
    void *state;            /* plan-time data of the kernel, from ln_call_state */
    size_t packed_bytes;    /* bytes of rearranged constants, which `pack` fills; plans of a model that pack the same
                               constants share them; 0: nothing is packed */
    uint64_t packing;       /* identifies everything that the result of `pack` depends on, except dtypes, attributes,
                               constants and packed_bytes; includes `precision` and `features` if `pack` reads them */
    size_t scratch_bytes;   /* memory that all threads share during the step */
    size_t scratch_thread;  /* memory of each thread during the step */
    /* Number of independent work items of phase 0, and of each later phase; default 1, for one thread. */
    int64_t work[2];
    int64_t grain;  /* the smallest number of items worth giving to one thread; default 1 */
    uint64_t flops; /* number of operations, for reports */
    void *plan;     /* the plan's memory; only ln_call_state and ln_call_memory use it */
} ln_call;

/* The memory of a call during one run. */
typedef struct ln_buffers {
    const void *const *inputs; /* like call->inputs; NULL for absent inputs */
    void *const *outputs;      /* NULL for absent optional outputs */
    const void *packed;
    void *scratch;        /* scratch_bytes, 64-byte aligned */
    char *thread_scratch; /* the part of thread t begins at t * thread_stride; never NULL, even if a part has 0 bytes */
    size_t thread_stride;
    /* Only for ops flagged LN_OP_DATA_DEPENDENT, such as nonzero; NULL for all others. There are LN_MAX_RANK entries
     * per output. At first they hold the dims of call->outputs, which are upper bounds ([rank, count(x)] for nonzero).
     * The kernel overwrites them with the true dims and stores its result dense in the true shape, from the start of
     * the buffer. */
    int64_t *output_dims;
    struct ln_run_error *error; /* where ln_index_error puts its report; NULL: nowhere */
} ln_buffers;

enum ln_kernel_flag {
    LN_KERNEL_EPILOGUE = 1,  /* the kernel applies call->epilogue */
    LN_KERNEL_REFERENCE = 2, /* the scalar reference: any strides, any ISA, written for readability */
    LN_KERNEL_LESS = 4,      /* computes the result with less work than the op's `count` says, as Winograd does */
    LN_KERNEL_BYTES = 8      /* the kernel applies call->epilogue to results of 8 bits, too */
};

/* One more bit beside those of ln_layout: the strides are those of no layout, as in a view. The bit of
 * LN_LAYOUT_CHANNELS_LAST means that the channels are innermost. A dense tensor has this bit, too, if the node's
 * channel_axis is the last axis. */
enum { LN_STRIDED = 128 };

/* The functions of a kernel, in the order in which they are called. All but `run` may be NULL. No kernel reads or
 * writes any byte outside its buffers.
 *
 * can: tells whether the kernel computes this call correctly. It checks what the line cannot express: strides,
 *   attributes, combinations of dtypes. It is called only for calls that agree with the line. NULL: the kernel can run
 *   all of these calls.
 * cost: *counts has the op's own work. This function adds the extra work of the kernel: products with the padding of a
 *   tile, conversions, transforms. It may subtract only if the kernel is flagged LN_KERNEL_LESS, because dispatch does
 *   not call it for another kernel that is too slow for the op's own work. NULL: there is no extra work.
 * configure: fills the fields of the call that are marked "Set by configure". NULL: they keep their defaults.
 * pack: writes call->packed_bytes bytes from call->inputs[i].data, which is set for constants and, during `pack`, also
 *   for variables that are packable (ln_packable).
 * run: computes items [begin, end) of a phase. Items must be independent of each other, and the result must not depend
 *   on how a range is split among calls of `run`. */
typedef struct ln_kernel ln_kernel;
typedef struct ln_kernel_code {
    bool (*can)(const ln_call *call);
    void (*cost)(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
    linnet_status (*configure)(ln_call *call);
    void (*pack)(const ln_call *call, void *packed);
    linnet_status (*run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread);
} ln_kernel_code;

/* A kernel: its line in a list of kernels says everything but `code`. The masks have one bit for each dtype or layout
 * that the kernel can read or write. An absent operand agrees with every mask. */
struct ln_kernel {
    char name[44]; /* "<op>_<method>_<tile>__<isa>", e.g. "conv_f32_igemm_6x16__avx2" */
    uint16_t op;
    uint16_t flags;
    ln_features needs;
    uint16_t takes[2];                    /* masks of linnet_dtype: for input 0, and for input 1 */
    uint16_t gives;                       /* mask of linnet_dtype: for output 0, before the epilogue */
    uint8_t layouts_taken, layouts_given; /* masks of ln_layout and LN_STRIDED: for input 0, and for output 0 */
    uint8_t tile[2];                      /* rows and columns that are computed at once; 0: the kernel has no tile */
    const ln_kernel_code *code;
};

/* All kernels of this build, in the order of the lists that dispatch/dispatch.c includes; references come last. An
 * entry without code ends the table. */
extern const ln_kernel ln_kernels[];
/* The dtypes and layouts of a call, as masks. A kernel can run the call only if its masks share at least one bit with
 * each of these. A mask of layouts may have several bits, because the strides of a tensor may fit several layouts. */
typedef struct ln_call_kinds {
    uint16_t takes[2], gives;
    uint8_t layouts_taken, layouts_given;
} ln_call_kinds;

#endif
