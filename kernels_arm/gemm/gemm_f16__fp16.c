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

/* Numbers are loaded and stored a row of a tile at a time. */
#define ROW_1(a) "{v" #a ".8h}"
#define ROW_2(a, b) "{v" #a ".8h-v" #b ".8h}"
#define ROW_3(a, b, c) "{v" #a ".8h-v" #c ".8h}"
#define START_1(a) "ld1 " ROW_1(a) ", [%[zeros]]\n"
#define START_2(a, b) "ld1 " ROW_2(a, b) ", [%[zeros]]\n"
#define START_3(a, b, c) "ld1 " ROW_3(a, b, c) ", [%[zeros]]\n"
#define STORE_1(a) "st1 " ROW_1(a) ", [%[to]], %[to_step]\n"
#define STORE_2(a, b) "st1 " ROW_2(a, b) ", [%[to]], %[to_step]\n"
#define STORE_3(a, b, c) "st1 " ROW_3(a, b, c) ", [%[to]], %[to_step]\n"
#define END(v, j)                                                                                                      \
    "fadd v" #v ".8h, v" #v ".8h, v" #j ".8h\n fmax v" #v ".8h, v" #v ".8h, v4.8h\n fmin v" #v ".8h, v" #v             \
    ".8h, v5.8h\n"
#define END_1(a) END(a, 0)
#define END_2(a, b) END(a, 0) END(b, 1)
#define END_3(a, b, c) END(a, 0) END(b, 1) END(c, 2)
#define BIAS_1 "{v0.8h}"
#define BIAS_2 "{v0.8h-v1.8h}"
#define BIAS_3 "{v0.8h-v2.8h}"

/* What a function for tiles of one size computes: sums of n products, at most BLOCK, in tiles below each other. */
typedef struct sums {
    int64_t n, tiles;
    int64_t gap; /* bytes of A between two tiles */
    float16_t *to;
    int64_t to_step;       /* bytes from row to row */
    const float16_t *bias; /* is added to the sums, which are then limited; NULL: the sums are stored as they are */
    float16_t limits[2];
} sums;

typedef void (*compute_sums)(const sums *t, const float16_t *a, const float16_t *b);

#define SUMS(R, V)                                                                                                     \
    static void sums_##R##x##V(const sums *t, const float16_t *a, const float16_t *b) {                                \
        static const float16_t zeros[VECTORS * LANES] = {0};                                                           \
        float16_t *to = t->to;                                                                                         \
        const float16_t *at;                                                                                           \
        int64_t n, fours, tiles = t->tiles;                                                                            \
        __asm__ volatile(                                                                                              \
            "1: mov %[b], %[first]\n and %[n], %[all], #3\n lsr %[fours], %[all], #2\n" ADDS_##R##_##V(                \
                START) "cbz %[fours], 4f\n"                                                                            \
                       "2:\n" BODY_##V(R) "subs %[fours], %[fours], #1\n"                                              \
                                          "b.gt 2b\n"                                                                  \
                                          "4: cbz %[n], 6f\n"                                                          \
                                          "5:\n" STEP_##V(R) "subs %[n], %[n], #1\n"                                   \
                                                             "b.gt 5b\n"                                               \
                                                             "6: cbz %[bias], 7f\n"                                    \
                                                             "ld1 " BIAS_##V                                           \
            ", [%[bias]]\n"                                                                                            \
            "ld2r {v4.8h-v5.8h}, [%[limits]]\n" ADDS_##R##_##V(END) "7:\n" ADDS_##R##_##V(                             \
                STORE) "add %[a], %[a], %[gap]\n"                                                                      \
                       "subs %[tiles], %[tiles], #1\n"                                                                 \
                       "b.gt 1b\n"                                                                                     \
            : [a] "+&r"(a), [b] "=&r"(at), [n] "=&r"(n), [fours] "=&r"(fours), [to] "+&r"(to), [tiles] "+&r"(tiles)    \
            : [first] "r"(b), [all] "r"(t->n), [zeros] "r"(zeros), [to_step] "r"(t->to_step), [bias] "r"(t->bias),     \
              [limits] "r"(t->limits), [gap] "r"(t->gap)                                                               \
            : "cc", "memory", VECTOR_REGISTERS);                                                                       \
    }
SUMS(8, 3)
SUMS(8, 2)
SUMS(8, 1)
SUMS(4, 3)
SUMS(4, 2)
SUMS(4, 1)
SUMS(2, 3)
SUMS(2, 2)
SUMS(2, 1)
SUMS(1, 3)
SUMS(1, 2)
SUMS(1, 1)
static const compute_sums all_sums[][VECTORS] = {{sums_1x1, sums_1x2, sums_1x3},
                                                 {sums_2x1, sums_2x2, sums_2x3},
                                                 {sums_4x1, sums_4x2, sums_4x3},
                                                 {sums_8x1, sums_8x2, sums_8x3}};

/* Rows of numbers that are `row` bytes apart; NULL: there are none. */
typedef struct rows_at {
    const void *at;
    int64_t row;
} rows_at;

/* The totals of a tile or several: the start values, to which the sums of `blocks` are added, and then a residual. */
typedef struct totals {
    rows_at start; /* f32 */
    const float16_t *sums;
    int64_t blocks, step; /* step: elements from the sums of a block to those of the next */
    rows_at residual;     /* of the type of the result */
    float low, high;
} totals;

/* Stores `vectors` vectors of totals of a row. */
static LN_ALWAYS_INLINE void store_totals(const bool halves, const int vectors, const totals *t, const float *start,
                                          const float16_t *s, const char *residual, char *c) {
    const float32x4_t low = vdupq_n_f32(t->low), high = vdupq_n_f32(t->high);
    float32x4_t v[2 * VECTORS];
    LN_UNROLL
    for (int i = 0; i < 2 * vectors; i++) v[i] = vld1q_f32(start + 4 * i);
    for (int64_t block = t->blocks; block > 0; block--, s += t->step) LN_UNROLL
    for (int i = 0; i < vectors; i++) {
        const float16x8_t more = vld1q_f16(s + LANES * i);
        v[2 * i] = vaddq_f32(v[2 * i], vcvt_f32_f16(vget_low_f16(more)));
        v[2 * i + 1] = vaddq_f32(v[2 * i + 1], vcvt_high_f32_f16(more));
    }
    if (residual != NULL) LN_UNROLL
    for (int i = 0; i < vectors; i++) {
        const float16_t *h = (const float16_t *)(const void *)residual + LANES * i;
        const float *f = (const float *)(const void *)residual + LANES * i;
        v[2 * i] = vaddq_f32(v[2 * i], halves ? vcvt_f32_f16(vld1_f16(h)) : vld1q_f32(f));
        v[2 * i + 1] = vaddq_f32(v[2 * i + 1], halves ? vcvt_f32_f16(vld1_f16(h + 4)) : vld1q_f32(f + 4));
    }
    LN_UNROLL
    for (int i = 0; i < 2 * vectors; i++) v[i] = vminq_f32(high, vmaxq_f32(low, v[i]));
    LN_UNROLL
    for (int i = 0; i < vectors; i++)
        if (halves) {
            vst1q_f16((float16_t *)(void *)c + LANES * i, vcvt_high_f16_f32(vcvt_f16_f32(v[2 * i]), v[2 * i + 1]));
        } else {
            vst1q_f32((float *)(void *)c + LANES * i, v[2 * i]);
            vst1q_f32((float *)(void *)c + LANES * i + 4, v[2 * i + 1]);
        }
}

static LN_ALWAYS_INLINE void store_row(const bool halves, const totals *t, int64_t width, const float *start,
                                       const float16_t *s, const char *residual, char *c) {
    const int64_t size = LANES * (halves ? 2 : 4);
    if (width == VECTORS * LANES) {
        store_totals(halves, VECTORS, t, start, s, residual, c);
        return;
    }
    for (int64_t n = 0; n < width; n += LANES, start += LANES, s += LANES, c += size) {
        store_totals(halves, 1, t, start, s, residual, c);
        if (residual != NULL) residual += size;
    }
}

/* Stores the first `columns` totals of each row as f16 or f32. Rows of whole panels are read and written as they are.
 */
static LN_NEVER_INLINE void store_rows(const totals *all, bool halves, int64_t rows, int64_t width, int64_t columns,
                                       char *c, int64_t c_row) {
    const size_t size = halves ? 2 : 4;
    const bool edge = columns < width;
    totals t = *all;
    float row[VECTORS * LANES], start[VECTORS * LANES], added[VECTORS * LANES];
    for (; rows > 0; rows--, t.sums += width, c += c_row) {
        const void *first = t.start.at, *residual = t.residual.at;
        if (edge) {
            first = memcpy(start, first, (size_t)columns * sizeof *start);
            if (residual != NULL) residual = memcpy(added, residual, (size_t)columns * size);
        }
        char *to = edge ? (char *)row : c;
        if (halves)
            store_row(true, &t, width, first, t.sums, residual, to);
        else
            store_row(false, &t, width, first, t.sums, residual, to);
        if (edge) memcpy(c, row, (size_t)columns * size);
        t.start.at = (const char *)t.start.at + t.start.row;
        if (residual != NULL) t.residual.at = (const char *)t.residual.at + t.residual.row;
    }
}

static bool exact(float v) { return (float)(float16_t)v == v; }

/* How sums become results: as f32, because they have several blocks or an end that f16 cannot hold; as they are; or
 * with bias and limits in f16. */
enum { ENDS_IN_F32, IS_RESULT, ENDS_IN_F16 };

/* Returns how sums become results, and rounds the bias to f16. */
static int ending_of(const ln_gemm_tile *t, int64_t width, float16_t *bias) {
    if (t->taps * t->kc > BLOCK || t->init == NULL || t->residual != NULL || !exact(t->low) || !exact(t->high))
        return ENDS_IN_F32;
    uint32x4_t same = vdupq_n_u32(UINT32_MAX), zero = same;
    for (int64_t n = 0; n < width; n += 4) {
        const float32x4_t v = vld1q_f32((const float *)t->init + n);
        const float16x4_t half = vcvt_f16_f32(v);
        vst1_f16(bias + n, half);
        same = vandq_u32(same, vceqq_f32(v, vcvt_f32_f16(half)));
        zero = vandq_u32(zero, vceqzq_f32(v));
    }
    if (vminvq_u32(same) == 0) return ENDS_IN_F32;
    return vminvq_u32(zero) != 0 && t->low == -INFINITY && t->high == INFINITY ? IS_RESULT : ENDS_IN_F16;
}

/* Where a strip reads A and writes C. a_size: bytes of A for each number; a number of f16 takes the first two. */
typedef struct place {
    const char *a;
    int64_t a_size;
    char *c;
    int64_t c_row; /* bytes */
    rows_at residual;
} place;

/* Computes tiles of 2^log rows below each other, `rows` rows in all. The sums of all blocks of some tiles are computed
 * first, and then their totals. A sum over very many products has groups of blocks. */
static LN_NEVER_INLINE void tiles_of(const ln_gemm_tile *t, int log, int64_t rows, place p, int64_t width, int ending,
                                     const float16_t *bias) {
    enum { SUMS = 32 * ROWS * VECTORS * LANES };
    static const float zeros[VECTORS * LANES] = {0};
    const compute_sums compute = all_sums[log][width / LANES - 1];
    const int64_t height = (int64_t)1 << log, k = t->taps * t->kc, blocks = ln_ceil_div(k, BLOCK);
    const int64_t most = ln_min(blocks, SUMS / (height * width));
    const bool wide = ending == ENDS_IN_F32, direct = !wide && t->halves && t->columns >= width;
    const int64_t tiles = direct ? rows : most < blocks ? 1 : SUMS / (height * width * most);
    float16_t kept[SUMS];
    float carried[ROWS * VECTORS * LANES];
    for (int64_t n; rows > 0; rows -= n) {
        n = ln_min(rows, tiles * height);
        totals total = {.start = {t->init != NULL ? t->init : p.c, t->init != NULL ? 0 : p.c_row},
                        .sums = kept,
                        .step = n * width,
                        .low = -INFINITY,
                        .high = INFINITY};
        if (!wide) total.start = (rows_at){zeros, 0};
        for (int64_t first = 0; first < blocks; first += total.blocks) {
            total.blocks = ln_min(most, blocks - first);
            for (int64_t i = 0; i < total.blocks; i++) {
                const int64_t from = (first + i) * BLOCK, products = ln_min(BLOCK, k - from);
                const sums block = {.n = products,
                                    .tiles = n / height,
                                    .gap = height * (k * p.a_size - products * 2),
                                    .to = direct ? (float16_t *)(void *)p.c : kept + i * total.step,
                                    .to_step = direct ? p.c_row : width * 2,
                                    .bias = ending == ENDS_IN_F16 ? bias : NULL,
                                    .limits = {(float16_t)t->low, (float16_t)t->high}};
                compute(&block, (const float16_t *)(const void *)p.a + height * from,
                        (const float16_t *)t->b + width * from);
            }
            if (direct) break;
            if (first + total.blocks < blocks) {
                store_rows(&total, false, n, width, width, (char *)carried, width * 4);
                total.start = (rows_at){carried, width * 4};
                continue;
            }
            if (wide) total.residual = p.residual, total.low = t->low, total.high = t->high;
            store_rows(&total, t->halves, n, width, t->columns, p.c, p.c_row);
        }
        p.a += n * k * p.a_size, p.c += n * p.c_row;
        if (p.residual.at != NULL) p.residual.at = (const char *)p.residual.at + n * p.residual.row;
    }
}

static void strip_of_f16(const ln_gemm_tile *t, int64_t rows, int64_t width, int64_t a_size) {
    float16_t bias[VECTORS * LANES];
    const int ending = ending_of(t, width, bias);
    place p = {t->packed, a_size, t->c, t->ldc * (t->halves ? 2 : 4), {t->residual, 0}};
    p.residual.row = p.c_row;
    for (int log = 3; rows > 0; log--) {
        const int64_t count = rows >> log << log;
        if (count == 0) continue;
        tiles_of(t, log, count, p, width, ending, bias);
        p.a += count * t->taps * t->kc * a_size, p.c += count * p.c_row, rows -= count;
        if (t->residual != NULL) p.residual.at = (const char *)p.residual.at + count * p.residual.row;
    }
}

static void strip(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of_f16(t, rows, width, 4); }
static void strip_from_halves(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of_f16(t, rows, width, 2); }

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
    int16_t *out = packed;
    for (; taps > 0; taps--, a += rows) {
        float16_t *at = (float16_t *)(void *)out;
        int64_t k = rows == 8 ? pack_halves_of(8, a, kc, at) : rows == 4 ? pack_halves_of(4, a, kc, at) : 0;
        for (out += k * rows; k < kc; k++)
            for (int64_t i = 0; i < rows; i++) *out++ = ((const int16_t *)a[i])[k];
    }
}

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_f32__neon.convert(dst, src, stride, n, src_dtype);
}

static void convert_halves(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    (void)src_dtype; /* f16 */
    for (int64_t i = 0; i < n; i++) ((int16_t *)dst)[i] = ((const int16_t *)src)[i * stride];
}

static const ln_gemm_set set = {.a_dtype = LINNET_F32,
                                .b_dtype = LINNET_F16,
                                .c_dtype = LINNET_F32,
                                .halves = true,
                                .stores_halves = true,
                                .rows = ROWS,
                                .width = VECTORS * LANES,
                                .unit = LANES,
                                .depth = 1,
                                .takes = 1u << LINNET_F32,
                                .takes_b = 1u << LINNET_F16,
                                .pack_rows = pack_rows,
                                .strip = strip,
                                .convert = convert};
static const ln_gemm_set set_of_halves = {.a_dtype = LINNET_F16,
                                          .b_dtype = LINNET_F16,
                                          .c_dtype = LINNET_F32,
                                          .halves = true,
                                          .stores_halves = true,
                                          .rows = ROWS,
                                          .width = VECTORS * LANES,
                                          .unit = LANES,
                                          .depth = 1,
                                          .takes = 1u << LINNET_F16,
                                          .takes_b = 1u << LINNET_F16,
                                          .pack_rows = pack_rows_of_halves,
                                          .strip = strip_from_halves,
                                          .convert = convert_halves};
static const ln_gemm_set *const sets[] = {&set, &set_of_halves};

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

/* Writes whole panels: a row has room for twice the numbers. */
static void strip_of_halves(const ln_gemm_tile *t, int64_t rows, int64_t width) {
    ln_gemm_tile halves = *t;
    halves.ldc = 2 * t->ldc, halves.columns = width, halves.halves = true;
    strip_of_f16(&halves, rows, width, 4);
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
