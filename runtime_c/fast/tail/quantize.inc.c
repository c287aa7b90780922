/* quantize.inc.c - quantizes floats in one pass, with one scale and one zero point that are operands.
 * The results have the same bits as those of the reference, quantize.c. Included after map/map_strip.inc.c. */
#include "base/layout.h"
#include "kernel/common/quant_operands.h"
#include "kernel/common/convert.h"

enum { LN_QUANTIZE_BLOCK = 1024 };

static LN_PLANNING bool LN_SIMD_NAME(quantize_can)(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    if (((const ln_quantize_attributes *)call->attributes)->block != 0 || call->n_inputs < 2) return false;
    for (int i = 1; i < call->n_inputs; i++)
        if (call->inputs[i].dtype != LINNET_NONE && ln_count(&call->inputs[i]) != 1) return false;
    return call->inputs[1].dtype != LINNET_NONE &&
           ((ln_is_dense(x) && ln_is_dense(y)) || (ln_is_channels_last(x) && ln_is_channels_last(y)));
}

static LN_PLANNING linnet_status LN_SIMD_NAME(quantize_configure)(ln_call *call) {
    call->work[0] = ln_ceil_div(ln_count(&call->inputs[0]), LN_QUANTIZE_BLOCK);
    call->grain = 8;
    return LINNET_OK;
}

static linnet_status LN_SIMD_NAME(quantize_run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                                int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t count = ln_count(x), x_size = (int64_t)ln_dtype_size(x->dtype),
                  y_size = (int64_t)ln_dtype_size(y->dtype);
    int64_t low, high;
    ln_map_step step = {.code = LN_MAP_STORE_QUANTIZED, .how = LN_MAP_QUOTIENT};
    ln_quant_range(y->dtype, y->quant ? y->quant->bits : 0, &low, &high);
    step.scale = (float)ln_load_f64(b->inputs[1], call->inputs[1].dtype, 0);
    if (ln_given(call->inputs, call->n_inputs, 2))
        step.zero = (int32_t)ln_load_i64(b->inputs[2], call->inputs[2].dtype, 0);
    step.least = (float)(low - step.zero);
    step.most = (float)(high - step.zero);
    for (int64_t i = begin * LN_QUANTIZE_BLOCK; i < ln_min(count, end * LN_QUANTIZE_BLOCK); i += LN_QUANTIZE_BLOCK) {
        const int n = (int)ln_min(LN_QUANTIZE_BLOCK, count - i);
        const char *from = (const char *)b->inputs[0] + i * x_size;
        int32_t single[LN_QUANTIZE_BLOCK];
        if (x->dtype != LINNET_F32) {
            LN_SIMD_NAME(widen)(x->dtype, from, n, single);
            from = (const char *)single;
        }
        LN_SIMD_NAME(map_store_small)
        (&step, y->dtype, (const float *)(const void *)from, n, (char *)b->outputs[0] + i * y_size);
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_quantize_simd) = {.can = LN_SIMD_NAME(quantize_can),
                                                       .configure = LN_SIMD_NAME(quantize_configure),
                                                       .run = LN_SIMD_NAME(quantize_run)};
