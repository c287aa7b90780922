/* random.c - shape rule and kernel of `random`: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random
 * numbers: as easy as 1, 2, 3; SC 2011). Blocks of four numbers are independent; docs/numerics.md has the full
 * definition. */
#include "base/layout.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/infer.h"
#include "simd/math.h"

/* The block counter has 32 bits. */
#define MOST_ELEMENTS ((uint64_t)4 << 32)

linnet_status ln_infer_random(const ln_infer *infer) {
    const ln_random_attributes *a = infer->attributes;
    const ln_tensor *counter = infer->n_inputs > 0 ? &infer->inputs[0] : NULL;
    const ln_tensor *shape = infer->n_inputs > 1 ? &infer->inputs[1] : NULL;
    ln_tensor *y = &infer->outputs[0];
    y->dtype = a->kind == LN_RANDOM_KIND_BITS ? LINNET_U32 : LINNET_F32;
    if (counter && counter->dtype != LINNET_NONE &&
        (counter->dtype != LINNET_I64 || (ln_count(counter) >= 0 && ln_count(counter) != 1))) {
        ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "random: the counter is not one i64 number");
        return ln_expected(infer->error, "i64 of 1 element");
    }
    int64_t dims[2 * LN_MAX_RANK];
    int rank = 0;
    if (shape && shape->dtype != LINNET_NONE) {
        rank = ln_int_operand(shape, dims);
        if (rank == -1) {
            y->rank =
                shape->rank == 1 && shape->dims[0] >= 0 && shape->dims[0] <= LN_MAX_RANK ? (int)shape->dims[0] : -1;
            for (int d = 0; d < y->rank; d++) y->dims[d] = -1;
            return LINNET_OK;
        }
    } else {
        for (rank = 0; rank < a->shape.n && rank <= LN_MAX_RANK; rank++) dims[rank] = a->shape.v[rank];
    }
    bool fits = rank >= 0 && rank <= LN_MAX_RANK;
    y->rank = fits ? rank : 0;
    for (int d = 0; d < y->rank; d++) fits = fits && (y->dims[d] = dims[d]) >= 0;
    uint64_t bytes;
    if (fits && ln_bytes(y, &bytes) && bytes / 4 <= MOST_ELEMENTS) return LINNET_OK;
    char text[96];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "random: the shape is not supported");
    ln_expected(infer->error, "at most %d dimensions, none negative, and at most 2^34 elements", LN_MAX_RANK);
    return ln_got(infer->error, "%s", ln_shape_text(y->dims, y->rank, text, sizeof text));
}

void ln_count_random(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MOVE] += 3 * (double)ln_count(&call->outputs[0]);
}

static LN_PLANNING linnet_status configure(ln_call *call) {
    call->work[0] = ln_ceil_div(ln_count(&call->outputs[0]), 4);
    call->grain = 1024;
    return LINNET_OK;
}

/* Applies the ten rounds of the generator to x. The multipliers and the Weyl constants of the key are from the paper.
 */
static void philox(uint32_t *x, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a = (uint64_t)x[0] * 0xD2511F53u, b = (uint64_t)x[2] * 0xCD9E8D57u;
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ k0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ k1;
        x[3] = (uint32_t)a;
    }
}

/* Turns two uniform numbers into two normal ones (G. Box and M. Muller, 1958). */
static void normal_pair(uint32_t a, uint32_t b, float *y) {
    float radius = sqrtf(-2.0f * ln_log_f((float)a * 0x1p-32f + 0x1p-33f)); /* in (0, 1]: never the log of 0 */
    float angle = (float)(int32_t)b * 0x1.921fb6p-30f;                      /* in [-pi, pi] */
    y[0] = radius * ln_cos_f(angle);
    y[1] = radius * ln_sin_f(angle);
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_random_attributes *a = call->attributes;
    const ln_tensor *y = &call->outputs[0];
    const uint64_t counter = call->n_inputs > 0 && b->inputs[0] ? *(const uint64_t *)b->inputs[0] : 0;
    const int64_t count = ln_count(y);
    const bool dense = ln_is_dense(y);
    for (int64_t block = begin; block < end; block++) {
        uint32_t x[4] = {(uint32_t)block, (uint32_t)a->stream, (uint32_t)counter, (uint32_t)(counter >> 32)};
        float f[4];
        philox(x, (uint64_t)a->seed);
        if (a->kind == LN_RANDOM_KIND_NORMAL) {
            normal_pair(x[0], x[1], f);
            normal_pair(x[2], x[3], f + 2);
        } else if (a->kind == LN_RANDOM_KIND_UNIFORM) {
            for (int i = 0; i < 4; i++) f[i] = (float)(x[i] >> 8) * 0x1p-24f;
        } else {
            memcpy(f, x, sizeof f);
        }
        for (int64_t i = 4 * block; i < ln_min(4 * block + 4, count); i++)
            memcpy((float *)b->outputs[0] + (dense ? i : ln_offset_of(y, i)), f + (i & 3), sizeof *f);
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_random = {.configure = configure, .run = run};
