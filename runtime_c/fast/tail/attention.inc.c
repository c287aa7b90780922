/* attention.inc.c - the loops of attention over tiles of scores: the weights of a row, products with few queries, and
 * the packing of keys. Compiled per ISA by longtail__<isa>.c. */
#include "fast/tail/attention_tiles.h"
#include "fast/tail/any.inc.c"
#include "fast/tail/exp.inc.c"
#include "fast/tail/tile_4.inc.c"
#include "simd/math.h"

/* Returns the vector of scores of the keys from `at` on. Scores of keys outside [low, high) become -infinity. */
static inline vf attention_seen(vf score, int64_t at, int64_t low, int64_t high) {
    const vf hidden = vf_set1(-INFINITY);
    if (at + VF_WIDTH > high) score = vf_select(vm_first((int)ln_max(0, high - at)), score, hidden);
    if (at < low) score = vf_select(vm_first((int)ln_min(VF_WIDTH, low - at)), hidden, score);
    return score;
}

static float attention_weigh(const ln_attention_row *row, float *top, float *sum) {
    float *s = row->scores;
    const vf scale = vf_set1(row->scale), hidden = vf_set1(-INFINITY);
    vf most = hidden, total = vf_zero();
    for (int64_t i = 0; i < row->n; i += VF_WIDTH) {
        vf v = vf_mul(vf_load(s + i), scale);
        if (row->cap > 0) {
            float lanes[VF_WIDTH];
            vf_store(lanes, v);
            for (int k = 0; k < VF_WIDTH; k++) lanes[k] = row->cap * ln_tanh_f(lanes[k] / row->cap);
            v = vf_load(lanes);
        }
        if (row->mask != NULL) {
            const int left = (int)ln_min(VF_WIDTH, row->n - i);
            v = vf_add(v, any_load(true, LINNET_F32, row->mask, i, left));
        }
        v = attention_seen(v, i, row->low, row->high);
        vf_store(s + i, v);
        most = vf_max(most, v);
    }
    const float before = *top, now = vf_reduce_max(most) > before ? vf_reduce_max(most) : before;
    const vf level = vf_set1(now);
    for (int64_t i = 0; i < row->n; i += VF_WIDTH) {
        const vf v = vf_load(s + i);
        const vf e = vf_select(vf_eq(v, hidden), vf_zero(), exp_not_positive(vf_sub(v, level)));
        vf_store(s + i, e);
        total = vf_add(total, e);
    }
    const float factor = now == before ? 1.0f : before == -INFINITY ? 0.0f : ln_exp_f(before - now);
    *top = now;
    *sum = *sum * factor + vf_reduce_add(total);
    return factor;
}

static void attention_dots(const float *x, const float *vectors, int64_t stride, int64_t n, int64_t depth, float *y) {
    enum { AT_ONCE = 4 };
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int count = (int)ln_min(AT_ONCE, n - i);
        const float *v[AT_ONCE];
        vf sums[AT_ONCE];
        LN_SIMD_UNROLL
        for (int k = 0; k < AT_ONCE; k++) v[k] = vectors + (i + ln_min(k, count - 1)) * stride, sums[k] = vf_zero();
        for (int64_t d = 0; d < depth; d += VF_WIDTH) {
            const int left = (int)ln_min(VF_WIDTH, depth - d);
            const vf one = any_load(true, LINNET_F32, x, d, left);
            LN_SIMD_UNROLL
            for (int k = 0; k < AT_ONCE; k++) sums[k] = vf_fma(any_load(true, LINNET_F32, v[k], d, left), one, sums[k]);
        }
        for (int k = 0; k < count; k++) y[i + k] = vf_reduce_add(sums[k]);
    }
}

static void attention_scale(float factor, const float *x, int64_t n, int dtype, void *y) {
    const vf f = vf_set1(factor);
    for (int64_t i = 0; i < n; i += VF_WIDTH) {
        const int left = (int)ln_min(VF_WIDTH, n - i);
        const vf v = vf_mul(any_load(true, LINNET_F32, x, i, left), f);
        any_store(dtype == LINNET_F32, dtype, y, i, left, v);
    }
}

static void attention_pack(const float *vectors, int64_t stride, int64_t depth, int64_t columns, int64_t width,
                           float *panel) {
    const int64_t whole_columns = columns / LN_TILE_4 * LN_TILE_4, whole_depth = depth / LN_TILE_4 * LN_TILE_4;
    const int64_t from_stride = stride * (int64_t)sizeof *panel, to_stride = width * (int64_t)sizeof *panel;
    for (int64_t c = 0; c < whole_columns; c += LN_TILE_4)
        for (int64_t d = 0; d < whole_depth; d += LN_TILE_4)
            tile_4((const char *)(vectors + c * stride + d), from_stride, (char *)(panel + d * width + c), to_stride);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t d = c < whole_columns ? whole_depth : 0; d < depth; d++)
            panel[d * width + c] = vectors[c * stride + d];
}

static const ln_attention_vectors attention_vectors = {.set = &LN_SIMD_NAME(ln_gemm_f32),
                                                       .weigh = attention_weigh,
                                                       .dots = attention_dots,
                                                       .scale = attention_scale,
                                                       .pack = attention_pack};

static linnet_status attention_configure(ln_call *call) { return ln_attention_configure(call, &attention_vectors); }

static linnet_status attention_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    (void)phase;
    return ln_attention_run(&attention_vectors, call, b, begin, end, thread);
}

const ln_kernel_code LN_SIMD_NAME(ln_attention) = {
    .can = ln_attention_can, .configure = attention_configure, .run = attention_run};
