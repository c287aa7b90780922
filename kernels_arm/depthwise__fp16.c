/* depthwise__fp16.c - depthwise convolutions by 3 x 3 with sums of f16, for plans that permit them (precision). Inputs
 * and results are f32 in memory; 8 channels are computed at a time. The memory, the packed weights, the loops around
 * the rows, and the cases that slide() does not compute, are those of f32. */
#include "fast/tail/depthwise_plan.h"
#include "kernel/cost.h"

#define TO_F16(v) "fcvtn v" #v ".4h, v26.4s\n fcvtn2 v" #v ".8h, v27.4s\n"
#define DW_LOAD(v, row) "ld1 {v26.4s-v27.4s}, [%[in" #row "]], %[step" #row "]\n" TO_F16(v)
#define DW_TAP(sum, v, k) "fmla v" #sum ".8h, v" #v ".8h, v" #k ".8h\n"
#define DW_STORE(sum, row)                                                                                             \
    "fmax v" #sum ".8h, v" #sum ".8h, v24.8h\n fmin v" #sum ".8h, v" #sum ".8h, v25.8h\n"                              \
    "fcvtl v26.4s, v" #sum ".4h\n fcvtl2 v27.4s, v" #sum ".8h\n"                                                       \
    "st1 {v26.4s-v27.4s}, [%[out" #row "]], %[move]\n"
#define DW_WEIGHT(v) "ld1 {v26.4s-v27.4s}, [%[w]], %[tap]\n" TO_F16(v)
#define BOUND(v, from) "ld1r {v26.4s}, [%[" #from "]]\n mov v27.16b, v26.16b\n" TO_F16(v)
/* clang-format off */
#define DW_SETUP                                                                                                       \
    DW_WEIGHT(8) DW_WEIGHT(9) DW_WEIGHT(10) DW_WEIGHT(11) DW_WEIGHT(12) DW_WEIGHT(13) DW_WEIGHT(14) DW_WEIGHT(15)       \
    DW_WEIGHT(16) "ld1 {v26.4s-v27.4s}, [%[bias]]\n" TO_F16(23) BOUND(24, low) BOUND(25, high)
/* clang-format on */
#define DW_SLIDE slide
#include "fast/tail/depthwise_slide.inc.c"

static bool exact(float limit) { return (float)(__fp16)limit == limit; }

static linnet_status configure(ln_call *call) {
    const linnet_status status = ln_depthwise_configure(call);
    if (status != LINNET_OK) return status;
    ln_depthwise *d = call->state;
    if (exact(d->floats.low) && exact(d->floats.high)) d->floats.f16_slide = slide;
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
    .can = ln_depthwise_can_f16, .cost = cost, .configure = configure, .pack = ln_depthwise_pack, .run = run};
