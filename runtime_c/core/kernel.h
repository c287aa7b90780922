/* kernel.h - the one interface between the plan and every kernel, reference or fast, of any ISA.
 * A kernel is one `const ln_kernel` object and one line in a kernels.inc list; lists feed dispatch, tests and benches.
 */
#ifndef LN_KERNEL_H
#define LN_KERNEL_H

#include "core/op.h"
#include "generated/op_table.h"

/* Ordered within an architecture. `isa_max` names them; "scalar" means reference kernels only. */
enum ln_isa {
    LN_ISA_SCALAR = 0,
#if defined(__x86_64__) || defined(_M_X64)
    LN_ISA_SSE2 = 1,       /* every x86-64 */
    LN_ISA_AVX2 = 2,       /* AVX2, FMA, F16C */
    LN_ISA_AVX512 = 3,     /* F, BW, DQ, VL */
    LN_ISA_AVX512VNNI = 4, /* and VNNI */
    LN_ISA_COUNT = 5
#elif defined(__aarch64__)
    LN_ISA_NEON = 1,    /* every ARMv8 */
    LN_ISA_DOTPROD = 2, /* ARMv8.2 dot product and fp16 */
    LN_ISA_I8MM = 3,    /* and int8 matrix multiply */
    LN_ISA_COUNT = 4
#elif defined(__ARM_NEON)
    LN_ISA_NEON = 1,
    LN_ISA_COUNT = 2
#else
    LN_ISA_COUNT = 1
#endif
};

/* core/cpu.c */
int ln_isa_detect(void);           /* the best this machine runs */
const char *ln_isa_text(int isa);  /* "avx2"; NULL past the end */
int ln_isa_find(const char *name); /* -1: not of this build */

typedef struct ln_epilogue ln_epilogue; /* core/map.h: a map applied to the op's result before it is stored */

/* One op call, complete and immutable after planning. */
typedef struct ln_call {
    const ln_op *op;
    const void *attributes;  /* the op's generated struct, e.g. const ln_conv_attributes * */
    int n_inputs, n_outputs; /* of the op itself */
    const ln_tensor *inputs; /* n_inputs, then n_extra operands of the epilogue */
    const ln_tensor *outputs;
    int n_extra;
    const ln_tensor *inner;      /* with an epilogue: the op's own result (never stored); else == outputs */
    const ln_epilogue *epilogue; /* NULL: none */
    int isa;                     /* the plan's limit; a kernel may consult it for its helpers */
    int threads;                 /* most threads that will run it */
    /* Set by configure: */
    void *state;         /* plan-time data of the kernel, from ln_call_state */
    size_t packed_bytes; /* constants rearranged; filled by pack, shared by all plans of the model that pack the same */
    uintptr_t packing;   /* what pack's result depends on besides types, attributes, constants and packed_bytes */
    uint32_t packed_inputs; /* bit i: `pack` alone reads input i, `run` never does, so that a folded one can be freed */
    size_t scratch_bytes;   /* shared by all threads during the step */
    size_t scratch_thread;  /* per thread */
    int phases;             /* default 1: all threads end a phase before any begins the next */
    int64_t work[2];        /* independent work items of phase 0, and of each later one; default 1 (on one thread) */
    int64_t grain;          /* fewest items worth giving one thread; default 1 */
    uint64_t flops;         /* for reports */
    void *plan;             /* opaque: used by ln_call_state */
} ln_call;

/* Memory that lives as long as the plan, zeroed; NULL when out of memory (return LINNET_OUT_OF_MEMORY). */
void *ln_call_state(ln_call *call, size_t bytes);

/* Where the operands of a call lie during one run. */
typedef struct ln_buffers {
    const void *const *inputs; /* as call->inputs; NULL for absent ones */
    void *const *outputs;      /* NULL for absent optional outputs */
    const void *packed;
    void *scratch;        /* scratch_bytes, 64-byte aligned */
    char *thread_scratch; /* thread t's part begins at t * thread_stride; never NULL, even if a part has 0 bytes */
    size_t thread_stride;
    /* For ops flagged LN_OP_DATA_DEPENDENT (nonzero); NULL for all others. LN_MAX_RANK entries per output, which hold
     * the dims of call->outputs, an upper bound (nonzero: [rank, count(x)]). The kernel overwrites them with the true
     * dims and stores its result dense in the true shape, from the start of the buffer. */
    int64_t *output_dims;
    struct ln_run_error *error;
} ln_buffers;

/* What may go wrong while running: a data-dependent index. First one reported wins; thread safe. Returns
 * LINNET_INDEX_OUT_OF_RANGE, which the kernel returns. */
linnet_status ln_index_error(const ln_buffers *b, const char *operand, int64_t index, int64_t low, int64_t high);

enum ln_kernel_flag {
    LN_KERNEL_EPILOGUE = 1, /* applies call->epilogue */
    LN_KERNEL_VIEWS = 2,    /* takes any strides on input 0 and output 0, not only dense or channels-last */
    LN_KERNEL_REFERENCE = 4 /* the scalar reference: any strides, any ISA, written to be read */
};

/* `supports` decides from dtypes, strides, attributes and shapes whether the kernel takes this call (layouts included:
 * look at strides). `configure` (may be NULL) fills the fields of call that are marked so. `pack` (may be NULL) writes
 * packed_bytes from call->inputs[i].data. `run` does items [begin, end) of the phase; items must be independent, and a
 * result may never depend on how the range is cut. No kernel reads or writes outside its buffers, not by one byte. */
typedef struct ln_kernel {
    char name[44]; /* "<op>_<dtypes>_<method>_<tile>__<isa>", e.g. "conv_f32_igemm_6x16__avx2" */
    uint16_t op;
    uint8_t isa;
    uint8_t flags;
    bool (*supports)(const ln_call *call);
    linnet_status (*configure)(ln_call *call);
    void (*pack)(const ln_call *call, void *packed);
    linnet_status (*run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread);
} ln_kernel;

/* All kernels of this build, best first, references last (core/dispatch.c includes the .inc lists). NULL-terminated. */
extern const ln_kernel *const ln_kernels[];
/* First kernel of ln_kernels at or below `isa` that supports the call; NULL: none. */
const ln_kernel *ln_choose_kernel(const ln_call *call, int isa, bool reference_only);

#endif
