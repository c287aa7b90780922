/* result_source.c - what a device needs to convert the exact sums of quantized products: tables per channel, and source
 * text that gives the bits of ln_requant_store (linnet_device.h). */
#include "base/memory.h"
#include "base/structs.h"
#include "kernel/common/requant.h"
#include "kernel/step.h"
#include "map/source_text.h"
#include "map/source_writer.h"

#include <stdio.h>
#include <string.h>

#ifdef LN_WITHOUT_DEVICES

linnet_status linnet_step_get_requant(const linnet_step *step, linnet_requant *out) {
    (void)step, (void)out;
    return LINNET_UNSUPPORTED;
}

linnet_status linnet_step_result_source(const linnet_step *step, const linnet_source_options *options, char *text,
                                        size_t size, size_t *length) {
    (void)step, (void)options, (void)text, (void)size, (void)length;
    return LINNET_UNSUPPORTED;
}

#else

/* Returns the value of an attribute; 0 if the op does not have it. */
static int64_t attribute(const linnet_step *step, const char *name) {
    int count;
    const int64_t *v = linnet_step_integers(step, name, &count);
    return v != NULL ? *v : 0;
}

/* Prepares the same ln_requant as the CPU's kernels, in memory of the pool. */
static linnet_status prepare(const linnet_step *step, ln_pool *pool, ln_requant *r) {
    ln_call call = step->call;
    if (!(call.op->flags & LN_OP_EPILOGUE) || ln_dtype_is_float(call.inputs[0].dtype)) return LINNET_UNKNOWN_NAME;
    const ln_tensor *w = &call.inputs[1];
    int axis = 0;
    int64_t channels = 1;
    if (call.op->id == LN_OP_MATMUL) {
        axis = w->rank == 1 ? -1 : w->rank - (attribute(step, "transpose_b") ? 2 : 1);
    } else if (call.op->id == LN_OP_CONV_TRANSPOSE) {
        axis = 1;
        channels = attribute(step, "group");
    }
    if (axis >= 0) channels *= w->dims[axis];
    call.plan = pool;
    const linnet_status status =
        ln_requant_prepare(&call, &call.inputs[0], w, axis, call.inner, channels, (int)attribute(step, "requant"), r);
    return status == LINNET_UNSUPPORTED ? LINNET_UNKNOWN_NAME : status; /* a product of integers without quantization */
}

linnet_status linnet_step_get_requant(const linnet_step *step, linnet_requant *out) {
    linnet_requant own;
    linnet_status status = LN_TAKE(linnet_requant, high, &own, out, NULL);
    if (status != LINNET_OK) return status;
    ln_memory memory;
    ln_pool pool;
    ln_requant r;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    status = prepare(step, &pool, &r);
    if (status == LINNET_OK) {
        const size_t n = (size_t)(own.capacity < r.channels ? own.capacity > 0 ? own.capacity : 0 : r.channels);
        own.table = r.scale != NULL   ? LINNET_REQUANT_SCALE
                    : r.fixed != NULL ? LINNET_REQUANT_FIXED
                                      : LINNET_REQUANT_NONE;
        own.channels = r.channels;
        own.mode = r.mode;
        own.wide = r.wide;
        own.x_zero = r.x_zero;
        own.y_zero = r.y_zero;
        const bool stored = r.output_dtype == LINNET_I8 || r.output_dtype == LINNET_U8 || r.output_dtype == LINNET_I16;
        own.low = stored ? r.low : 0;
        own.high = stored ? r.high : 0;
        if (own.scale != NULL && r.scale != NULL) memcpy(own.scale, r.scale, n * sizeof *own.scale);
        if (own.fixed != NULL && r.fixed != NULL) memcpy(own.fixed, r.fixed, n * sizeof *own.fixed);
        if (own.shift != NULL && r.shift != NULL) memcpy(own.shift, r.shift, n * sizeof *own.shift);
        for (size_t c = 0; own.w_zero != NULL && c < n; c++) own.w_zero[c] = ln_requant_w_zero(&r, (int64_t)c);
        status = LN_GIVE(linnet_requant, high, &own, out);
    }
    ln_pool_free(&pool);
    return status;
}

linnet_status linnet_step_result_source(const linnet_step *step, const linnet_source_options *options, char *text,
                                        size_t size, size_t *length) {
    linnet_source_options own;
    linnet_requant r;
    linnet_requant_init(&r);
    linnet_status status = ln_source_take(options, &own, text, size, length);
    if (status == LINNET_OK) status = linnet_step_get_requant(step, &r);
    if (status != LINNET_OK) return status;
    const char *p = own.prefix, *type = ln_source_element(step->call.inner->dtype);
    char part[512], zero[48];
    if (own.quantization_names)
        snprintf(zero, sizeof zero, "%sresult_zero", p);
    else
        snprintf(zero, sizeof zero, "%d", (int)r.y_zero);
    if (step->call.inner->dtype == LINNET_F32) {
        snprintf(part, sizeof part, "%sresult=(float)%ssum*%sresult_scale[%schannel]", p, p, p, p);
    } else if (r.table == LINNET_REQUANT_NONE) {
        const bool saturates = r.wide && step->call.inner->dtype == LINNET_I32;
        snprintf(part, sizeof part,
                 saturates ? "%sresult=(ln_i32)ln_clamp_l(%ssum,-2147483647-1,2147483647)" : "%sresult=%ssum", p, p);
    } else if (r.table == LINNET_REQUANT_SCALE) { /* a scale of 1 leaves the product as it is */
        snprintf(part, sizeof part, "%sresult=(%s)ln_quantize_f((float)%ssum*%sresult_scale[%schannel],1.0f,%s,%d,%d)",
                 p, type, p, p, p, zero, (int)r.low, (int)r.high);
    } else {
        static const char *const functions[] = {"map_fixed_multiply", "map_fixed_multiply_single",
                                                "fixed_multiply_wide"};
        snprintf(part, sizeof part,
                 "%sresult=(%s)ln_clamp_l((ln_i64)ln_%s(%ssum,%sresult_fixed[%schannel],%s%sresult_shift[%schannel])"
                 "+(%s),%d,%d)",
                 p, type, functions[r.wide ? 2 : r.mode - 1], p, p, p, r.wide ? "" : "-", p, p, zero, (int)r.low,
                 (int)r.high);
    }
    ln_source_block(own.language, part, text, size, length);
    return LINNET_OK;
}

#endif
