/* dispatch.c - the table of all kernels of this build, and the function that chooses one of them by cost. The lists are
   .inc files: the kernels of the architecture, then the references of runtime_c/ops. */
#include "kernel/kernel.h"
#include "kernel/parts.h"

#if defined(__x86_64__) || defined(_M_X64)
#if __has_include("kernels_x86/kernels.inc")
#define LN_KERNEL_LIST "kernels_x86/kernels.inc"
#endif
#elif defined(__aarch64__) || defined(__ARM_NEON)
#if __has_include("kernels_arm/kernels.inc")
#define LN_KERNEL_LIST "kernels_arm/kernels.inc"
#endif
#endif

#define LN_ISA_KERNEL(isa, name) LN_IF_##isa(LN_KERNEL(name##__##isa))

#define LN_KERNEL(symbol) extern const ln_kernel symbol;
#ifdef LN_KERNEL_LIST
#include LN_KERNEL_LIST
#endif
#include "generated/references.inc"
#undef LN_KERNEL

#define LN_KERNEL(symbol) &symbol,
const ln_kernel *const ln_kernels[] = {
#ifdef LN_KERNEL_LIST
#include LN_KERNEL_LIST
#endif
#include "generated/references.inc"
    NULL,
};
#undef LN_KERNEL
#undef LN_ISA_KERNEL

/* Why the kernel cannot run the call, as far as its line says. */
static linnet_refusal mismatch(const ln_kernel *kernel, const ln_call *call, bool reference_only) {
    if ((kernel->needs & ~call->features) != 0) return LINNET_REFUSAL_FEATURES;
    if (reference_only && !(kernel->flags & LN_KERNEL_REFERENCE)) return LINNET_REFUSAL_REFERENCE;
    if (call->epilogue != NULL && !(kernel->flags & LN_KERNEL_EPILOGUE)) return LINNET_REFUSAL_EPILOGUE;
    return LINNET_REFUSAL_NONE;
}

linnet_refusal ln_kernel_refusal(const ln_kernel *kernel, const ln_call *call, bool reference_only) {
    const linnet_refusal refusal = mismatch(kernel, call, reference_only);
    return refusal == LINNET_REFUSAL_NONE && !kernel->can(call) ? LINNET_REFUSAL_CALL : refusal;
}

const ln_kernel *ln_choose_kernel(const ln_call *call, bool reference_only) {
    const ln_kernel *best = NULL;
    double rate = 0,
           cost = 0; /* in the unit of `rate` where no kernel has a cost of its own: most calls need no model */
    for (const ln_kernel *const *k = ln_kernels; *k != NULL; ++k) {
        const ln_kernel *kernel = *k;
        if (kernel->op != call->op->id || mismatch(kernel, call, reference_only) != LINNET_REFUSAL_NONE) continue;
        const double least = ln_slowness(kernel);
        if ((best != NULL && least >= cost) || !kernel->can(call)) continue;
        double own = least;
        if (kernel->cost != NULL) {
            if (rate == 0) rate = ln_full_rate_ns(call);
            own = kernel->cost(call, least * rate) / rate;
            if (best != NULL && own >= cost) continue;
        }
        best = kernel;
        cost = own;
    }
    return best;
}

bool ln_has_kernel(int op) {
    for (const ln_kernel *const *k = ln_kernels; *k != NULL; ++k)
        if ((*k)->op == op) return true;
    return false;
}
