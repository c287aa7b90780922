/* cast.c - shape rule and reference kernel of `cast`: converts elements to another dtype, as convert.h defines it.
 * The fast kernel is a map of one load and one store (map_convert.c). */
#include "kernel/kernel.h"
#include "kernel/common/convert.h"
#include "kernel/common/index.h"

linnet_status ln_infer_cast(const ln_infer *infer) {
    const ln_cast_attributes *a = infer->attributes;
    if (ln_dtype_bits((int)a->dtype) == 0) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "cast to an unknown dtype");
        ln_expected(infer->error, "a linnet_dtype from 1 to 15");
        return ln_got(infer->error, "%lld", (long long)a->dtype);
    }
    ln_same_shape(&infer->inputs[0], &infer->outputs[0]);
    infer->outputs[0].dtype = (uint8_t)a->dtype;
    return LINNET_OK;
}

static linnet_status configure(ln_call *call) {
    /* Elements that share bytes are all stored by one thread. */
    call->work[0] = ln_dtype_bits(call->outputs[0].dtype) < 8 ? 1 : ln_count(&call->outputs[0]);
    call->grain = 4096;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (ln_dtype_bits(y->dtype) < 8) end = ln_clear_packed(b->outputs[0], y);
    for (int64_t i = begin; i < end; i++)
        ln_convert_element(b->outputs[0], y->dtype, ln_offset_of(y, i), b->inputs[0], x->dtype, ln_offset_of(x, i));
    return LINNET_OK;
}

const ln_kernel_code ln_reference_cast = {.configure = configure, .run = run};
