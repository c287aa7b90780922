/* dispatch.h - the kernels of the library, and the choice among those that can run a call. */
#ifndef LN_DISPATCH_H
#define LN_DISPATCH_H

#include "kernel/kernel.h"

ln_call_kinds ln_kinds_of(const ln_call *call);
/* Returns the kernel of least cost among those that need no more than call->features and can run the call. If several
 * kernels have this cost, returns the first in ln_kernels. Returns NULL if no kernel can run the call. *ns (may be
 * NULL) becomes its cost. */
const ln_kernel *ln_choose_kernel(const ln_call *call, bool reference_only, double *ns);
/* Why the kernel cannot run the call. It must be a kernel of the call's op. */
linnet_refusal ln_kernel_refusal(const ln_kernel *kernel, const ln_call *call, bool reference_only);
/* Whether ln_kernels has any kernel of the op. */
bool ln_has_kernel(int op);

#endif
