/* gemm_f32__neon.c - f32 matmul and conv for every ARMv8, tiles of up to 8 x 8: 16 accumulators, 8 vectors of A (each
 * holds four steps of K), and 2 of B. f16 and bf16 activations are widened when they are gathered; weights are widened
 * panel by panel. Products are summed in blocks of K_BLOCK, as in kernels_x86/gemm/gemm_f32.inc, for a smaller
 * error. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_kernels.h"

#include <arm_neon.h>
#include <string.h>

#define MAX_ROWS 8
#define LANES 4

enum { K_BLOCK = 128 };

static inline float32x4_t load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p)));
}

static inline float32x4_t load_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p), 16));
}

/* Computes one of the four steps of K. The lane must be a constant. */
#define STEP(lane)                                                                                                     \
    do {                                                                                                               \
        float32x4_t column[2];                                                                                         \
        LN_UNROLL                                                                                                      \
        for (int j = 0; j < vectors; j++) column[j] = vld1q_f32((const float *)(const void *)b + j * LANES);           \
        b += b_step;                                                                                                   \
        LN_UNROLL                                                                                                      \
        for (int i = 0; i < rows; i++) LN_UNROLL                                                                       \
        for (int j = 0; j < vectors; j++) sum[i][j] = vfmaq_laneq_f32(sum[i][j], column[j], value[i], lane);           \
    } while (0)

static inline __attribute__((always_inline)) void gemm_f32(const int rows, const int vectors, const ln_gemm_tile *t) {
    const char *b = t->b;
    const void *const *a = t->a;
    const int64_t b_step = t->b_step, a_step = t->a_step;
    const int64_t width = vectors * LANES;
    /* A tile at the edge is extended to a full tile on the stack. */
    _Alignas(64) float edge[MAX_ROWS * 2 * LANES];
    const bool whole = t->columns == width;
    float *c = whole ? t->c : edge;
    const int64_t ldc = whole ? t->ldc : width, edge_bytes = t->columns * (int64_t)sizeof *edge;
    if (t->init == NULL && !whole) {
        memset(edge, 0, sizeof edge);
        ln_gemm_copy_rows(edge, width * (int64_t)sizeof *edge, t->c, t->ldc * (int64_t)sizeof *edge, rows, edge_bytes);
    }
    const float *init = t->init != NULL ? t->init : c;
    const int64_t init_step = t->init != NULL ? 0 : ldc;
    float32x4_t sum[MAX_ROWS][2];
    float blocks[MAX_ROWS * 2 * LANES];
    bool blocked = false;
    const int64_t k_block = t->chained ? INT64_MAX : K_BLOCK;
    int64_t room = k_block;
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) sum[i][j] = vld1q_f32(init + i * init_step + j * LANES);
    for (int64_t taps = t->taps; taps > 0; taps--, a += rows) {
        const float *row[MAX_ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++) row[i] = a[i];
        for (int64_t kc = t->kc; kc > 0;) {
            int64_t left = kc < room ? kc : room;
            kc -= left, room -= left;
            for (; left >= 4 && a_step == 1; left -= 4) {
                float32x4_t value[MAX_ROWS];
                LN_UNROLL
                for (int i = 0; i < rows; i++, row[i - 1] += 4) value[i] = vld1q_f32(row[i]);
                STEP(0);
                STEP(1);
                STEP(2);
                STEP(3);
            }
            for (; left > 0; left--) {
                float32x4_t value[MAX_ROWS];
                LN_UNROLL
                for (int i = 0; i < rows; i++, row[i - 1] += a_step) value[i] = vld1q_dup_f32(row[i]);
                STEP(0);
            }
            if (room > 0) continue;
            room = k_block;
            LN_UNROLL
            for (int i = 0; i < rows; i++) LN_UNROLL
            for (int j = 0; j < vectors; j++) {
                float *block = blocks + (i * vectors + j) * LANES;
                vst1q_f32(block, blocked ? vaddq_f32(sum[i][j], vld1q_f32(block)) : sum[i][j]);
                sum[i][j] = vdupq_n_f32(0);
            }
            blocked = true;
        }
    }
    if (blocked) {
        LN_UNROLL
        for (int i = 0; i < rows; i++) LN_UNROLL
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vaddq_f32(sum[i][j], vld1q_f32(blocks + (i * vectors + j) * LANES));
    }
    float32x4_t low = vdupq_n_f32(t->low), high = vdupq_n_f32(t->high);
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) vst1q_f32(c + i * ldc + j * LANES, vminq_f32(high, vmaxq_f32(low, sum[i][j])));
    if (!whole)
        ln_gemm_copy_rows(t->c, t->ldc * (int64_t)sizeof *edge, edge, width * (int64_t)sizeof *edge, rows, edge_bytes);
}

#define GEMM_INSTANCE(r)                                                                                               \
    static void full_##r(const ln_gemm_tile *t) { gemm_f32(r, 2, t); }                                                 \
    static void half_##r(const ln_gemm_tile *t) { gemm_f32(r, 1, t); }
LN_GEMM_ROWS_8(GEMM_INSTANCE)
#define GEMM_FULL(r) [r] = full_##r,
#define GEMM_HALF(r) [r] = half_##r,
static const ln_gemm_ukernel full[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_FULL)};
static const ln_gemm_ukernel half[MAX_ROWS + 1] = {LN_GEMM_ROWS_8(GEMM_HALF)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    float *y = dst;
    const uint16_t *x = src;
    int64_t i = 0;
    if (stride == 1 && src_dtype == LINNET_F16) {
        for (; i + 4 * LANES <= n; i += 4 * LANES) { /* two loads and two stores of two registers */
            const uint16x8_t low = vld1q_u16(x + i), high = vld1q_u16(x + i + 2 * LANES);
            const float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
            vst1q_f32(y + i, vcvt_f32_f16(vget_low_f16(a)));
            vst1q_f32(y + i + LANES, vcvt_high_f32_f16(a));
            vst1q_f32(y + i + 2 * LANES, vcvt_f32_f16(vget_low_f16(b)));
            vst1q_f32(y + i + 3 * LANES, vcvt_high_f32_f16(b));
        }
        for (; i + LANES <= n; i += LANES) vst1q_f32(y + i, load_f16(x + i));
    }
    if (stride == 1 && src_dtype == LINNET_BF16)
        for (; i + LANES <= n; i += LANES) vst1q_f32(y + i, load_bf16(x + i));
    ln_gemm_convert_any(y + i, (const char *)src + i * stride * (int64_t)ln_dtype_size(src_dtype), stride, n - i,
                        src_dtype, LINNET_F32);
}

const ln_gemm_set ln_gemm_f32__neon = {.a_dtype = LINNET_F32,
                                       .b_dtype = LINNET_F32,
                                       .c_dtype = LINNET_F32,
                                       .halves = true,
                                       .rows = MAX_ROWS,
                                       .width = 2 * LANES,
                                       .depth = 1,
                                       .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .takes_b = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                       .full = full,
                                       .half = half,
                                       .convert = convert};

LN_GEMM_BACKWARD(f32__neon, &ln_gemm_f32__neon)
