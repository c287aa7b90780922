/* dispatch.c - the table of all kernels of this build, and the function that chooses one of them by cost. The lists are
   .inc files: the kernels of the architecture, then the references of runtime_c/ops. */
#include "dispatch/dispatch.h"

#include "base/layout.h"
#include "kernel/cost.h"
#include "kernel/parts.h"

/* The names that the lines of the lists use for dtypes, layouts and flags. */
enum {
    F32 = 1 << LINNET_F32,
    F64 = 1 << LINNET_F64,
    I8 = 1 << LINNET_I8,
    U8 = 1 << LINNET_U8,
    I16 = 1 << LINNET_I16,
    U16 = 1 << LINNET_U16,
    I32 = 1 << LINNET_I32,
    I64 = 1 << LINNET_I64,
    I4 = 1 << LINNET_I4,
    U4 = 1 << LINNET_U4,
    F16 = 1 << LINNET_F16,
    BF16 = 1 << LINNET_BF16,
    HALF = 1 << LINNET_F16 | 1 << LINNET_BF16,
    ALL = 0xFFFF, /* dtypes */
    DENSE = 1 << LN_LAYOUT_DENSE,
    LAST = 1 << LN_LAYOUT_CHANNELS_LAST,
    VIEWS = LN_STRIDED,
    ANY = 0xFF, /* layouts */
    EPILOGUE = LN_KERNEL_EPILOGUE,
    LESS = LN_KERNEL_LESS,
    BYTES = LN_KERNEL_BYTES
};

#define LN_KERNEL(op, method, isa, code, x, w, y, taken, given, rows, columns, flags)                                  \
    LN_IF_##isa(extern const ln_kernel_code code##__##isa;)
#define LN_REFERENCE(op) extern const ln_kernel_code ln_reference_##op;
#include "dispatch/lists.inc"
#include "generated/references.inc"
#undef LN_KERNEL
#undef LN_REFERENCE

/* The tile in a kernel's name, as in "_6x16". For a line with 0 rows, LN_NO_TILE_0 puts an empty text first. No other
   LN_NO_TILE_ macro exists, so every other number of rows selects the text with the tile. */
#define LN_TILE(rows, columns) LN_SECOND(LN_NO_TILE_##rows, "_" #rows "x" #columns, )
#define LN_NO_TILE_0 , ""
#define LN_SECOND(...) LN_SECOND_OF(__VA_ARGS__)
#define LN_SECOND_OF(first, second, ...) second

/* Every mask of dtypes includes bit 0, which is LINNET_NONE, the dtype of an absent operand. */
#define LN_KERNEL(op, method, isa, code, x, w, y, taken, given, rows, columns, flags)                                  \
    LN_IF_##isa({#op "_" #method LN_TILE(rows, columns) "__" #isa,                                                     \
                 LN_OP_NAMED_##op,                                                                                     \
                 flags,                                                                                                \
                 LN_ISA_##isa,                                                                                         \
                 {(x) | 1, (w) | 1},                                                                                   \
                 (y) | 1,                                                                                              \
                 taken,                                                                                                \
                 given,                                                                                                \
                 {rows, columns},                                                                                      \
                 &code##__##isa}, )
#define LN_REFERENCE(op)                                                                                               \
    {#op "_reference", LN_OP_NAMED_##op, LN_KERNEL_REFERENCE, 0, {ALL, ALL}, ALL, ANY, ANY, {0, 0}, &ln_reference_##op},
const ln_kernel ln_kernels[] = {
#include "dispatch/lists.inc"
#include "generated/references.inc"
    {.code = NULL},
};
#undef LN_KERNEL
#undef LN_REFERENCE

/* Returns the set of layouts that the operand's strides are valid for; LN_STRIDED if there is none. */
static uint8_t layouts_of(const ln_call *call, const ln_tensor *t) {
    if (t->dtype == LINNET_NONE) return ANY;
    const ln_op *op = call->op;
    uint8_t layouts = 0;
    if (ln_is_dense(t)) {
        layouts = DENSE;
        if (op->channel_axis > 0 && ln_axis(ln_channel_axis(op, call->attributes), t->rank) == t->rank - 1)
            layouts |= 1 << LN_LAYOUT_CHANNELS_LAST;
    }
    if (ln_is_channels_last(t)) layouts |= 1 << LN_LAYOUT_CHANNELS_LAST;
    return layouts != 0 ? layouts : LN_STRIDED;
}

ln_call_kinds ln_kinds_of(const ln_call *call) {
    ln_call_kinds kinds = {.takes = {1, 1}, .gives = 1, .layouts_taken = ANY, .layouts_given = ANY};
    for (int i = 0; i < 2 && i < call->n_inputs; ++i) kinds.takes[i] = (uint16_t)(1u << call->inputs[i].dtype);
    if (call->n_inputs > 0) kinds.layouts_taken = layouts_of(call, &call->inputs[0]);
    if (call->n_outputs > 0) {
        kinds.gives = (uint16_t)(1u << call->inner[0].dtype);
        kinds.layouts_given = layouts_of(call, &call->outputs[0]);
    }
    return kinds;
}

/* Returns the reason why the kernel cannot run the call, according to the kernel's line in the list alone. */
static linnet_refusal mismatch(const ln_kernel *kernel, const ln_call *call, const ln_call_kinds *kinds,
                               bool reference_only) {
    if ((kernel->needs & ~call->features) != 0) return LINNET_REFUSAL_FEATURES;
    if (reference_only && !(kernel->flags & LN_KERNEL_REFERENCE)) return LINNET_REFUSAL_REFERENCE;
    const int needed = call->epilogue == NULL             ? 0
                       : ln_is_byte(call->inner[0].dtype) ? LN_KERNEL_BYTES
                                                          : LN_KERNEL_EPILOGUE;
    if (needed != 0 && !(kernel->flags & needed)) return LINNET_REFUSAL_EPILOGUE;
    if (!(kernel->takes[0] & kinds->takes[0]) || !(kernel->takes[1] & kinds->takes[1]) ||
        !(kernel->gives & kinds->gives))
        return LINNET_REFUSAL_DTYPES;
    if (!(kernel->layouts_taken & kinds->layouts_taken) || !(kernel->layouts_given & kinds->layouts_given))
        return LINNET_REFUSAL_LAYOUT;
    return LINNET_REFUSAL_NONE;
}

static bool covers(const ln_kernel *kernel, const ln_call *call) {
    return kernel->code->can == NULL || kernel->code->can(call);
}

linnet_refusal ln_kernel_refusal(const ln_kernel *kernel, const ln_call *call, bool reference_only) {
    const ln_call_kinds kinds = ln_kinds_of(call);
    const linnet_refusal refusal = mismatch(kernel, call, &kinds, reference_only);
    return refusal == LINNET_REFUSAL_NONE && !covers(kernel, call) ? LINNET_REFUSAL_CALL : refusal;
}

const ln_kernel *ln_choose_kernel(const ln_call *call, bool reference_only, double *least) {
    const struct ln_machine *machine = ln_machine_for(call);
    const ln_kernel *best = NULL;
    const ln_call_kinds kinds = ln_kinds_of(call);
    ln_counts own;
    bool counted = false;
    double cost = 0;
    for (const ln_kernel *kernel = ln_kernels; kernel->code != NULL; ++kernel) {
        if (kernel->op != call->op->id || mismatch(kernel, call, &kinds, reference_only) != LINNET_REFUSAL_NONE)
            continue;
        if (!counted) ln_count_call(call, &own);
        counted = true;
        /* The op's own work is a lower bound for every kernel that does not have LN_KERNEL_LESS. A kernel that is too
         * slow by this bound is not asked for its cost. */
        double ns = ln_counts_ns(machine, kernel->needs, &own);
        const bool less = (kernel->flags & LN_KERNEL_LESS) != 0;
        if ((best != NULL && ns >= cost && !less) || !covers(kernel, call)) continue;
        if (kernel->code->cost != NULL) {
            ln_counts counts = own;
            kernel->code->cost(kernel, call, &counts);
            ns = ln_counts_ns(machine, kernel->needs, &counts);
            if (best != NULL && ns >= cost) continue;
        }
        best = kernel;
        cost = ns;
    }
    if (least != NULL && best != NULL) *least = (double)machine->step + cost;
    return best;
}

bool ln_has_kernel(int op) {
    for (const ln_kernel *kernel = ln_kernels; kernel->code != NULL; ++kernel)
        if (kernel->op == op) return true;
    return false;
}
