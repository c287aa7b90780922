/* dispatch.h - the kernels of the library, and the choice among those that can run a call. */
#ifndef LN_DISPATCH_H
#define LN_DISPATCH_H

#include "kernel/kernel.h"

/* Returns the dtypes and layouts that a kernel's line must accept so that the kernel can run the call: those of the
 * first two inputs and of the first output. */
ln_call_kinds ln_kinds_of(const ln_call *call);
/* Returns the kernel of least cost among those that need no more than call->features and can run the call. Among
 * kernels of equal cost, the first in ln_kernels wins. With reference_only, only references are considered. Returns
 * NULL if no kernel can run the call. Otherwise *ns becomes the modelled time of the step on one thread, in
 * nanoseconds; ns may be NULL. */
const ln_kernel *ln_choose_kernel(const ln_call *call, bool reference_only, double *ns);
/* Returns why the kernel cannot run the call, or LINNET_REFUSAL_NONE if it can. Precondition: the kernel's op is the
 * op of the call. */
linnet_refusal ln_kernel_refusal(const ln_kernel *kernel, const ln_call *call, bool reference_only);
/* Tells whether this build has a kernel for the op with this number (ln_op.id). */
bool ln_has_kernel(int op);

#endif
