/* trace.c - counts special values in the output of a step: integers at their limits, Inf, NaN.
 * Only for sessions with count_special; scalar and deliberately simple. */
#include "run/trace.h"

#include <math.h>

static void count_range(const ln_resolved_step *resolved, ln_trace *trace, int64_t low, int64_t high, int64_t count) {
    const ln_tensor *t = &resolved->step->call.outputs[0];
    for (int64_t i = 0; i < count; ++i) {
        const int64_t v = ln_load_i64(resolved->buffers.outputs[0], t->dtype, i);
        trace->saturated += v <= low || v >= high;
    }
}

void ln_count_special(const ln_resolved_step *resolved, ln_trace *trace) {
    trace->saturated = trace->infinite = trace->not_a_number = 0;
    const ln_step *step = resolved->step;
    if (step->call.n_outputs == 0 || resolved->buffers.outputs[0] == NULL ||
        (step->kind != LN_STEP_KERNEL && step->kind < LN_STEP_LOOP))
        return;
    /* The elements are contiguous in both layouts, and their order does not matter here. */
    const ln_tensor *t = &step->call.outputs[0];
    const int64_t count = step->dims_slot >= 0 ? 0 : ln_count(t);
    switch (t->dtype) {
    case LINNET_I8: count_range(resolved, trace, INT8_MIN, INT8_MAX, count); return;
    case LINNET_U8: count_range(resolved, trace, 0, UINT8_MAX, count); return;
    case LINNET_I16: count_range(resolved, trace, INT16_MIN, INT16_MAX, count); return;
    case LINNET_U16: count_range(resolved, trace, 0, UINT16_MAX, count); return;
    default: break;
    }
    if (!ln_dtype_is_float(t->dtype)) return;
    for (int64_t i = 0; i < count; ++i) {
        const double v = ln_load_f64(resolved->buffers.outputs[0], t->dtype, i);
        trace->infinite += isinf(v) != 0;
        trace->not_a_number += isnan(v) != 0;
    }
}
