/* context.c - the context of a CUDA device, which is current for the thread while it calls the driver
 * (kernels_gpu/cuda/backend.h). */
#include "kernels_gpu/cuda/context.h"

int lg_enter(lg_device *d) {
    if (d->cu == NULL)
        return lg_failure(&d->failures, "the device %s only plans for a GPU that is not there, because of for=%d",
                          d->name, d->options.compute);
    return lg_code(d->cu->CtxPushCurrent(d->context));
}

void lg_leave(const lg_device *d) { d->cu->CtxPopCurrent(NULL); }
