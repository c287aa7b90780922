/* gemm_f16__fp16.c - matmul and conv with f16 arithmetic, for plans that permit sums of f16 (precision). Tiles of up to
 * 8 x 24: 24 accumulators of 8 f16 each, 4 vectors of A (packed as [k][rows]), and 4 of B. At most 64 products are
 * summed in f16; these sums are added up in f32. The loop is written in assembly, because compilers spill some of the
 * 32 registers. */
#include "fast/gemm/gemm_kernels.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <arm_neon.h>
#include <string.h>

enum { ROWS = 8, LANES = 8, VECTORS = 3, BLOCK = 64 };
#include "kernels_arm/gemm/gemm_packed.inc"

#define FMA(acc, b, a, lane) "fmla v" #acc ".8h, v" #b ".8h, v" #a ".h[" #lane "]\n"
#define FMA_LOW(b, a, c0, c1, c2, c3) FMA(c0, b, a, 0) FMA(c1, b, a, 1) FMA(c2, b, a, 2) FMA(c3, b, a, 3)
#define FMA_HIGH(b, a, c0, c1, c2, c3) FMA(c0, b, a, 4) FMA(c1, b, a, 5) FMA(c2, b, a, 6) FMA(c3, b, a, 7)
#define FMA_8(b, a, c0, c1, c2, c3, c4, c5, c6, c7) FMA_LOW(b, a, c0, c1, c2, c3) FMA_HIGH(b, a, c4, c5, c6, c7)
#define FMA_8_0(b, ...) FMA_8(b, 0, __VA_ARGS__)
#define FMA_8_1(b, ...) FMA_8(b, 1, __VA_ARGS__)
#define FMA_8_2(b, ...) FMA_8(b, 2, __VA_ARGS__)
#define FMA_8_3(b, ...) FMA_8(b, 3, __VA_ARGS__)
#define FMA_4_0(b, c0, c1, c2, c3, ...) FMA_LOW(b, 0, c0, c1, c2, c3)
#define FMA_4_1(b, c0, c1, c2, c3, ...) FMA_HIGH(b, 0, c0, c1, c2, c3)
#define FMA_4_2(b, c0, c1, c2, c3, ...) FMA_LOW(b, 1, c0, c1, c2, c3)
#define FMA_4_3(b, c0, c1, c2, c3, ...) FMA_HIGH(b, 1, c0, c1, c2, c3)
#define FMA_2_0(b, c0, c1, ...) FMA(c0, b, 0, 0) FMA(c1, b, 0, 1)
#define FMA_2_1(b, c0, c1, ...) FMA(c0, b, 0, 2) FMA(c1, b, 0, 3)
#define FMA_2_2(b, c0, c1, ...) FMA(c0, b, 0, 4) FMA(c1, b, 0, 5)
#define FMA_2_3(b, c0, c1, ...) FMA(c0, b, 0, 6) FMA(c1, b, 0, 7)
#define FMA_1_0(b, c0, ...) FMA(c0, b, 0, 0)
#define FMA_1_1(b, c0, ...) FMA(c0, b, 0, 1)
#define FMA_1_2(b, c0, ...) FMA(c0, b, 0, 2)
#define FMA_1_3(b, c0, ...) FMA(c0, b, 0, 3)
#define LOAD_A_8_0 "ld1 {v0.8h-v3.8h}, [%[a]], #64\n"
#define LOAD_A_8_2
#define LOAD_A_4_0 "ld1 {v0.8h-v1.8h}, [%[a]], #32\n"
#define LOAD_A_4_2
#define LOAD_A_2_0 "ldr q0, [%[a]], #16\n"
#define LOAD_A_2_2
#define LOAD_A_1_0 "ldr d0, [%[a]], #8\n"
#define LOAD_A_1_2
#define LOAD_A_STEP_8 "ldr q0, [%[a]], #16\n"
#define LOAD_A_STEP_4 "ldr d0, [%[a]], #8\n"
#define LOAD_A_STEP_2 "ldr s0, [%[a]], #4\n"
#define LOAD_A_STEP_1 "ldr h0, [%[a]], #2\n"

#define ZERO(v) "movi v" #v ".8h, #0\n"
/* What is done with the sums of a block. Each macro takes an accumulator.
 * MORE adds them to f32 numbers at `from`, and stores the totals at `to`.
 * LAST also limits the totals.
 * HALVES stores the sums themselves.
 * ALONE adds the bias and limits the results in f16, for a sum of one block: v0 to v2 are the bias, and v4 and v5 the
 * limits, which are numbers of f16. */
#define TOTAL(v)                                                                                                       \
    "ld1 {v2.4s-v3.4s}, [%[from]], #32\n fcvtl v0.4s, v" #v ".4h\n fcvtl2 v1.4s, v" #v ".8h\n"                         \
    "fadd v0.4s, v0.4s, v2.4s\n fadd v1.4s, v1.4s, v3.4s\n"
#define STORE_TOTAL "st1 {v0.4s-v1.4s}, [%[to]], #32\n"
#define NEXT_ROW "add %[from], %[from], %[from_gap]\n" NEXT_ROW_TO
#define NEXT_ROW_TO "add %[to], %[to], %[to_gap]\n"
#define MORE(v) TOTAL(v) STORE_TOTAL
#define MORE_1(a) MORE(a) NEXT_ROW
#define MORE_2(a, b) MORE(a) MORE(b) NEXT_ROW
#define MORE_3(a, b, c) MORE(a) MORE(b) MORE(c) NEXT_ROW
#define LAST(v)                                                                                                        \
    TOTAL(v)                                                                                                           \
    "fmax v0.4s, v0.4s, v4.4s\n fmax v1.4s, v1.4s, v4.4s\n fmin v0.4s, v0.4s, v5.4s\n fmin v1.4s, v1.4s, "             \
    "v5.4s\n" STORE_TOTAL
#define LAST_1(a) LAST(a) NEXT_ROW
#define LAST_2(a, b) LAST(a) LAST(b) NEXT_ROW
#define LAST_3(a, b, c) LAST(a) LAST(b) LAST(c) NEXT_ROW
#define ALONE(v, j)                                                                                                    \
    "fadd v" #v ".8h, v" #v ".8h, v" #j ".8h\n fmax v" #v ".8h, v" #v ".8h, v4.8h\n fmin v" #v ".8h, v" #v             \
    ".8h, v5.8h\n fcvtl v6.4s, v" #v ".4h\n fcvtl2 v7.4s, v" #v ".8h\n st1 {v6.4s-v7.4s}, [%[to]], #32\n"
#define ALONE_1(a) ALONE(a, 0) NEXT_ROW_TO
#define ALONE_2(a, b) ALONE(a, 0) ALONE(b, 1) NEXT_ROW_TO
#define ALONE_3(a, b, c) ALONE(a, 0) ALONE(b, 1) ALONE(c, 2) NEXT_ROW_TO
#define TO_F16(v) "fcvtn v" #v ".4h, v6.4s\n fcvtn2 v" #v ".8h, v7.4s\n"
#define BIAS(v) "ld1 {v6.4s-v7.4s}, [%[from]], #32\n" TO_F16(v)
#define BIAS_1 BIAS(0)
#define BIAS_2 BIAS_1 BIAS(1)
#define BIAS_3 BIAS_2 BIAS(2)
#define BOTH_HALVES(v) "mov v6.16b, v" #v ".16b\n mov v7.16b, v" #v ".16b\n" TO_F16(v)
#define HALVES(v) "st1 {v" #v ".8h}, [%[to]], #16\n"
#define HALVES_1(a) HALVES(a) NEXT_ROW_TO
#define HALVES_2(a, b) HALVES(a) HALVES(b) NEXT_ROW_TO
#define HALVES_3(a, b, c) HALVES(a) HALVES(b) HALVES(c) NEXT_ROW_TO
#define ENDING(R, V)                                                                                                   \
    "tbnz %w[ending], #1, 8f\n tbnz %w[ending], #0, 7f\n" ADDS_##R##_##V(                                              \
        MORE) "b 9f\n"                                                                                                 \
              "7:\n" ADDS_##R##_##V(HALVES) "b 9f\n"                                                                   \
                                            "8: ld1r {v4.4s}, [%[low]]\n ld1r {v5.4s}, [%[high]]\n tbnz %w[ending], "  \
                                            "#0, 7f\n" ADDS_##R##_##V(LAST) "b 9f\n"                                   \
                                                                            "7:\n" BIAS_##V BOTH_HALVES(4)             \
                                                                                BOTH_HALVES(5)                         \
                                                                                    ADDS_##R##_##V(ALONE) "9:\n"
enum { IS_MORE = 0, IS_HALVES = 1, IS_LAST = 2, IS_ALONE = 3 };

/* The arguments of one block of K: `n` products per sum, at most BLOCK. */
typedef struct block {
    int64_t n;
    const float *from;
    int64_t from_step; /* elements from row to row */
    float *to;
    int64_t to_step;
    float low, high;
    int ending;
} block;

typedef void (*compute_block)(const block *t, const float16_t *a, const float16_t *b);

/* What the tiles of a strip have in common. */
typedef struct shape {
    compute_block compute;
    int64_t rows, width;
} shape;

/* Computes `count` tiles of R rows below each other. Each is packed in the first half of its part of A (pack_rows). */
#define TILES(R, V)                                                                                                    \
    static void block_##R##x##V(const block *t, const float16_t *a, const float16_t *b) {                              \
        const float *from = t->from;                                                                                   \
        float *to = t->to;                                                                                             \
        int64_t n = t->n & 3, fours = t->n >> 2;                                                                       \
        __asm__ volatile(                                                                                              \
            EACH_##R##_##V(ZERO) "cbz %[fours], 4f\n"                                                                  \
                                 "2:\n" BODY_##V(R) "subs %[fours], %[fours], #1\n"                                    \
                                                    "b.gt 2b\n"                                                        \
                                                    "4: cbz %[n], 6f\n"                                                \
                                                    "5:\n" STEP_##V(R) "subs %[n], %[n], #1\n"                         \
                                                                       "b.gt 5b\n"                                     \
                                                                       "6:\n" ENDING(R, V)                             \
            : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [fours] "+&r"(fours), [from] "+&r"(from), [to] "+&r"(to)       \
            : [from_gap] "r"((t->from_step - (V) * LANES) * 4), [to_gap] "r"((t->to_step - (V) * LANES) * 4),          \
              [low] "r"(&t->low), [high] "r"(&t->high), [ending] "r"(t->ending)                                        \
            : "cc", "memory", VECTOR_REGISTERS);                                                                       \
    }                                                                                                                  \
    static void tiles_##R##x##V(const ln_gemm_tile *t, int64_t count, const float *a, const float *init,               \
                                int64_t init_step, const float *residual, float *c, int64_t ldc) {                     \
        static const shape s = {block_##R##x##V, R, (V) * LANES};                                                      \
        tiles_of(&s, t, count, a, init, init_step, residual, c, ldc);                                                  \
    }

/* Tells whether a sum of one block can be finished in f16. */
static bool is_narrow(const ln_gemm_tile *t, const float *bias, int64_t width) {
    uint32x4_t same = vdupq_n_u32(t->taps * t->kc <= BLOCK && (float)(float16_t)t->low == t->low &&
                                          (float)(float16_t)t->high == t->high
                                      ? UINT32_MAX
                                      : 0);
    for (int64_t n = 0; n < width; n += 4) {
        const float32x4_t v = vld1q_f32(bias + n);
        same = vandq_u32(same, vceqq_f32(v, vcvt_f32_f16(vcvt_f16_f32(v))));
    }
    return vminvq_u32(same) != 0;
}

/* Computes `count` tiles below each other, each block by block of K. Never inlined: clang would repeat it in each of
 * the twelve functions for tiles, which is 22 kB. */
static LN_NEVER_INLINE void tiles_of(const shape *s, const ln_gemm_tile *t, int64_t count, const float *packed,
                                     const float *init, int64_t init_step, const float *residual, float *c,
                                     int64_t ldc) {
    const int64_t rows = s->rows, width = s->width;
    const bool narrow = init_step == 0 && residual == NULL && is_narrow(t, init, width);
    const float32x4_t low = vdupq_n_f32(t->low), high = vdupq_n_f32(t->high);
    float total[ROWS * VECTORS * LANES];
    for (; count > 0; count--, packed += rows * t->taps * t->kc, init += rows * init_step, c += rows * ldc) {
        const float16_t *a = (const float16_t *)(const void *)packed, *b = t->b;
        block k = {BLOCK, init, init_step, total, width, t->low, t->high, IS_MORE};
        int64_t left = t->taps * t->kc;
        for (; left > BLOCK; left -= BLOCK, a += rows * BLOCK, b += width * BLOCK, k.from = total, k.from_step = width)
            s->compute(&k, a, b);
        k.n = left;
        if (residual == NULL) k.to = c, k.to_step = ldc, k.ending = narrow ? IS_ALONE : IS_LAST;
        s->compute(&k, a, b);
        if (residual == NULL) continue;
        for (int64_t i = 0; i < rows; i++, residual += ldc)
            for (int64_t n = 0; n < width; n += 4) {
                const float32x4_t v = vaddq_f32(vld1q_f32(total + i * width + n), vld1q_f32(residual + n));
                vst1q_f32(c + i * ldc + n, vminq_f32(high, vmaxq_f32(low, v)));
            }
    }
}

TILES(8, 3)
TILES(8, 2)
TILES(8, 1)
TILES(4, 3)
TILES(4, 2)
TILES(4, 1)
TILES(2, 3)
TILES(2, 2)
TILES(2, 1)
TILES(1, 3)
TILES(1, 2)
TILES(1, 1)
static const tiles_function all[][VECTORS] = {{tiles_1x1, tiles_1x2, tiles_1x3},
                                              {tiles_2x1, tiles_2x2, tiles_2x3},
                                              {tiles_4x1, tiles_4x2, tiles_4x3},
                                              {tiles_8x1, tiles_8x2, tiles_8x3}};

static void strip(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of(t, rows, width, all); }

/* Packs 4 or 8 rows. Four columns are transposed at a time, in two vectors' halves: rows 0 to 3, and rows 4 to 7. */
static LN_ALWAYS_INLINE float16_t *pack_tap(const int rows, const void *const *a, int64_t kc, float16_t *out) {
    const float *row[ROWS];
    LN_UNROLL
    for (int i = 0; i < rows; i++) row[i] = a[i];
    int64_t k = 0;
    for (; k + 4 <= kc; k += 4, out += 4 * rows) {
        float16x8_t v[4], y[4];
        LN_UNROLL
        for (int i = 0; i < 4; i++)
            v[i] = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(row[i] + k)), vld1q_f32(row[rows == 8 ? i + 4 : i] + k));
        const uint32x4_t low = vreinterpretq_u32_f16(vtrn1q_f16(v[0], v[1])),
                         odd = vreinterpretq_u32_f16(vtrn2q_f16(v[0], v[1]));
        const uint32x4_t low2 = vreinterpretq_u32_f16(vtrn1q_f16(v[2], v[3])),
                         odd2 = vreinterpretq_u32_f16(vtrn2q_f16(v[2], v[3]));
        y[0] = vreinterpretq_f16_u32(vtrn1q_u32(low, low2)), y[1] = vreinterpretq_f16_u32(vtrn1q_u32(odd, odd2));
        y[2] = vreinterpretq_f16_u32(vtrn2q_u32(low, low2)), y[3] = vreinterpretq_f16_u32(vtrn2q_u32(odd, odd2));
        LN_UNROLL
        for (int i = 0; i < 4; i++)
            if (rows == 8)
                vst1q_f16(out + i * 8, y[i]);
            else
                vst1_f16(out + i * 4, vget_low_f16(y[i]));
    }
    for (; k < kc; k++) LN_UNROLL
    for (int i = 0; i < rows; i++) *out++ = (float16_t)row[i][k];
    return out;
}

/* The driver reserves the bytes of f32 for each tile. A tile of f16 takes the first half of them. */
static void pack_rows(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed) {
    float16_t *out = packed;
    for (; taps > 0; taps--, a += rows) {
        if (rows == 8) {
            out = pack_tap(8, a, kc, out);
        } else if (rows == 4) {
            out = pack_tap(4, a, kc, out);
        } else {
            const float *first = a[0], *second = a[rows - 1];
            for (int64_t k = 0; k < kc; k++) {
                *out++ = (float16_t)first[k];
                if (rows == 2) *out++ = (float16_t)second[k];
            }
        }
    }
}

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_f32__neon.convert(dst, src, stride, n, src_dtype);
}

static const ln_gemm_set set = {.a_dtype = LINNET_F32,
                                .b_dtype = LINNET_F16,
                                .c_dtype = LINNET_F32,
                                .halves = true,
                                .rows = ROWS,
                                .width = VECTORS * LANES,
                                .unit = LANES,
                                .depth = 1,
                                .takes = 1u << LINNET_F32 | 1u << LINNET_F16,
                                .takes_b = 1u << LINNET_F16,
                                .pack_rows = pack_rows,
                                .strip = strip,
                                .convert = convert};
static const ln_gemm_set *const sets[] = {&set};

/* Filters of one channel are summed in one order by all kernels (ln_gemm_depth), so they are left to f32. */
static bool permitted(const ln_call *call) {
    const ln_tensor *w = &call->inputs[1];
    const bool filters = call->op->id != LN_OP_MATMUL && w->dims[1] == 1;
    return call->precision == LINNET_PRECISION_F16 && ln_packable(w) && !filters;
}

/* The instructions of MobileNetV2's products, divided by those in f32: half as many products, but as much packing, and
 * the sums of blocks. */
LN_GEMM_KERNELS_FASTER(permitted(call), 0.65, f16__fp16, sets)

/* ---- products of Winograd's method: f16 in memory, in rows that are as far apart as rows of f32 ------------------ */

static const compute_block all_blocks[][VECTORS] = {{block_1x1, block_1x2, block_1x3},
                                                    {block_2x1, block_2x2, block_2x3},
                                                    {block_4x1, block_4x2, block_4x3},
                                                    {block_8x1, block_8x2, block_8x3}};

static void tile_of_halves(const shape *s, const ln_gemm_tile *t, const float *packed, float *c) {
    float total[ROWS * VECTORS * LANES];
    const float16_t *a = (const float16_t *)(const void *)packed, *b = t->b;
    block k = {BLOCK, t->init, 0, total, s->width, -INFINITY, INFINITY, IS_MORE};
    int64_t left = t->kc;
    for (; left > BLOCK;
         left -= BLOCK, a += s->rows * BLOCK, b += s->width * BLOCK, k.from = total, k.from_step = s->width)
        s->compute(&k, a, b);
    k.n = left;
    if (k.from != total) k.to = c, k.to_step = t->ldc + s->width / 2, k.ending = IS_HALVES;
    s->compute(&k, a, b);
    if (k.from != total) return;
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t n = 0; n < s->width; n += 4)
            vst1_f16((float16_t *)(void *)(c + i * t->ldc) + n, vcvt_f16_f32(vld1q_f32(total + i * s->width + n)));
}

/* Writes whole panels: a row has room for twice the numbers. */
static void strip_of_halves(const ln_gemm_tile *t, int64_t rows, int64_t width) {
    const float *a = t->packed;
    float *c = t->c;
    for (int log = 3; rows > 0; log--) {
        const shape s = {all_blocks[log][width / LANES - 1], (int64_t)1 << log, width};
        for (; rows >= s.rows; rows -= s.rows, a += s.rows * t->kc, c += s.rows * t->ldc) tile_of_halves(&s, t, a, c);
    }
}

/* Packs 4 or 8 rows by transposing 8 columns at a time, and returns how many columns are packed. */
static LN_ALWAYS_INLINE int64_t pack_halves_of(const int rows, const void *const *a, int64_t kc, float16_t *out) {
    int64_t k = 0;
    for (; k + 8 <= kc; k += 8) {
        float16x8_t v[ROWS], to[ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++) v[i] = vld1q_f16((const float16_t *)a[i] + k);
        LN_UNROLL
        for (int done = 1; done < rows; done *= 2) {
            LN_UNROLL
            for (int i = 0; i < rows / 2; i++)
                to[2 * i] = vzip1q_f16(v[i], v[i + rows / 2]), to[2 * i + 1] = vzip2q_f16(v[i], v[i + rows / 2]);
            LN_UNROLL
            for (int i = 0; i < rows; i++) v[i] = to[i];
        }
        LN_UNROLL
        for (int i = 0; i < rows; i++, out += 8) vst1q_f16(out, v[i]);
    }
    return k;
}

static void pack_rows_of_halves(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed) {
    (void)taps; /* one */
    int64_t k = rows == 8 ? pack_halves_of(8, a, kc, packed) : rows == 4 ? pack_halves_of(4, a, kc, packed) : 0;
    int16_t *out = (int16_t *)packed + k * rows;
    for (; k < kc; k++)
        for (int64_t i = 0; i < rows; i++) *out++ = ((const int16_t *)a[i])[k];
}

const ln_gemm_set ln_gemm_f16_halves__fp16 = {.a_dtype = LINNET_F16,
                                              .b_dtype = LINNET_F16,
                                              .c_dtype = LINNET_F16,
                                              .rows = ROWS,
                                              .width = VECTORS * LANES,
                                              .unit = LANES,
                                              .depth = 1,
                                              .pack_rows = pack_rows_of_halves,
                                              .strip = strip_of_halves};
