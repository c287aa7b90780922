/* depthwise__fp16.c - depthwise convolutions by 3 x 3 with sums of f16, for plans that permit them (precision). Inputs
 * and results are f16 or f32 in memory; 8 channels are computed at a time. The memory, the packed weights, the loops
 * around the rows, and the cases of f32 that a slide does not compute, are those of f32. */
#include "fast/tail/depthwise_plan.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <math.h>

#define TO_F16(v) "fcvtn v" #v ".4h, v26.4s\n fcvtn2 v" #v ".8h, v27.4s\n"
#define LIMITED(sum) "fmax v" #sum ".8h, v" #sum ".8h, v24.8h\n fmin v" #sum ".8h, v" #sum ".8h, v25.8h\n"
#define WEIGHT(v) "ld1 {v26.4s-v27.4s}, [%[w]], %[tap]\n" TO_F16(v)
#define BOUND(v, from) "ld1r {v26.4s}, [%[" #from "]]\n mov v27.16b, v26.16b\n" TO_F16(v)
#define SETUP                                                                                                          \
    WEIGHT(8)                                                                                                          \
    WEIGHT(9)                                                                                                          \
    WEIGHT(10)                                                                                                         \
    WEIGHT(11)                                                                                                         \
    WEIGHT(12)                                                                                                         \
    WEIGHT(13)                                                                                                         \
    WEIGHT(14)                                                                                                         \
    WEIGHT(15) WEIGHT(16) "ld1 {v26.4s-v27.4s}, [%[bias]]\n" TO_F16(23) BOUND(24, low) BOUND(25, high)

#define DW_TAP(sum, v, k) "fmla v" #sum ".8h, v" #v ".8h, v" #k ".8h\n"
#define DW_SETUP SETUP
#define DW_LOAD(v, row) "ld1 {v26.4s-v27.4s}, [%[in" #row "]], %[step" #row "]\n" TO_F16(v)
#define DW_STORE(sum, row)                                                                                             \
    LIMITED(sum)                                                                                                       \
    "fcvtl v26.4s, v" #sum ".4h\n fcvtl2 v27.4s, v" #sum ".8h\n"                                                       \
    "st1 {v26.4s-v27.4s}, [%[out" #row "]], %[move]\n"
#define DW_SLIDE slide
#define DW_SIZE 4
#include "fast/tail/depthwise_slide.inc.c"

#define DW_TAP(sum, v, k) "fmla v" #sum ".8h, v" #v ".8h, v" #k ".8h\n"
#define DW_SETUP SETUP
#define DW_LOAD(v, row) "ld1 {v" #v ".8h}, [%[in" #row "]], %[step" #row "]\n"
#define DW_STORE(sum, row) LIMITED(sum) "st1 {v" #sum ".8h}, [%[out" #row "]], %[move]\n"
#define DW_SLIDE slide_halves
#define DW_SIZE 2
#include "fast/tail/depthwise_slide.inc.c"

static bool exact(float limit) { return (float)(__fp16)limit == limit; }

/* Tells whether inputs and results of f16 can be read and written as they are: the slide computes all lines. */
static bool slides_halves(const ln_call *call) {
    const ln_epilogue *e = call->epilogue;
    const ln_tensor *w = &call->inputs[1];
    ln_window g;
    if (call->inputs[0].dtype != LINNET_F16 || call->outputs[0].dtype != LINNET_F16 || w->data == NULL ||
        (e != NULL && (!e->half_sum || e->half_added != 0)) ||
        ln_window_conv(call->attributes, &call->inputs[0], w, &g, NULL) != LINNET_OK ||
        g.out_channels != g.in_channels || g.in_channels < 8 || ln_depthwise_inside(&g) < 1)
        return false;
    /* Padding is multiplied by weights like other inputs. */
    for (int64_t i = 0; i < ln_count(w); i++)
        if (!isfinite(ln_load_f64(w->data, w->dtype, i))) return false;
    return true;
}

static bool can(const ln_call *call) {
    const bool f32 = call->inputs[0].dtype == LINNET_F32 && call->outputs[0].dtype == LINNET_F32;
    return ln_depthwise_can_f16(call) && (f32 || slides_halves(call));
}

static linnet_status configure(ln_call *call) {
    const linnet_status status = ln_depthwise_configure(call);
    if (status != LINNET_OK) return status;
    ln_depthwise *d = call->state;
    if (call->inputs[0].dtype == LINNET_F32) {
        if (exact(d->floats.low) && exact(d->floats.high)) d->floats.f16_slide = slide;
        return LINNET_OK;
    }
    if (call->epilogue != NULL) d->floats.low = call->epilogue->low, d->floats.high = call->epilogue->high;
    d->floats.halves = d->floats.direct = true;
    d->floats.f16_slide = slide_halves;
    d->widen = d->apply = false;
    d->row_bytes = call->scratch_thread = 0;
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    return ln_depthwise_float__neon.run(call, b, phase, begin, end, thread);
}

/* The instructions of MobileNetV2's layers, divided by those in f32. */
#define FASTER 0.7
static void cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    ln_depthwise_cost(kernel, call, counts);
    ln_scale_products(counts, FASTER);
}

const ln_kernel_code ln_depthwise_f16__fp16 = {
    .can = can, .cost = cost, .configure = configure, .pack = ln_depthwise_pack, .run = run};
