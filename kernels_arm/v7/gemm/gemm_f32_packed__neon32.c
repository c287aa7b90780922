/* gemm_f32_packed__neon32.c - f32 matmul and conv for ARMv7 with NEON, tiles of up to 4 x 12: 12 accumulators, a vector
 * of A (one step of K, packed as [k][rows]), and 3 of B, which are all 16 registers. A step of K loads A and B with two
 * instructions and has 12 products. Products with few rows or columns use gemm_f32__neon32.c, which reads A in place.
 * The loop is written in assembly, because compilers spill some of the registers. ARMv7 has no fused product with a
 * lane, so there is no variant for processors that have fused products. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_kernels.h"

#include <math.h>

enum { ROWS = 4, LANES = 4, VECTORS = 3, K_BLOCK = 512 };
enum { CLAMP_LOW = 1, CLAMP_HIGH = 2 };

/* What tiles below each other need besides A. The assembly reads the fields at their offsets and moves the pointers to
 * rows, which are distances of bytes apart, from tile to tile. */
typedef struct ends {
    const float *start;       /* 0: the start values */
    int32_t start_step;       /* 4 */
    const float *sums, *more; /* 8, 12: rows that are added, as far apart as those of c; NULL: nothing is added */
    int32_t clamp;            /* 16 */
    float low, high;          /* 20, 24 */
    const float *b;           /* 28 */
    int32_t n;                /* 32: steps of K */
    int32_t tiles;            /* 36: at least one; 0 at the end */
} ends;

/* The accumulators of row r and V vectors are q(4 + r * V) and on; A is in d0 and d1, and B in q1 to q3. */
#define FMA(c, b, a) "vmla.f32 q" #c ", q" #b ", " a "\n"
#define A_0 "d0[0]"
#define A_1 "d0[1]"
#define A_2 "d1[0]"
#define A_3 "d1[1]"
#define FMAS_3(a, c0, c1, c2) FMA(c0, 1, a) FMA(c1, 2, a) FMA(c2, 3, a)
#define FMAS_2(a, c0, c1) FMA(c0, 1, a) FMA(c1, 2, a)
#define FMAS_1(a, c0) FMA(c0, 1, a)
#define LOAD_A_4 "vld1.32 {d0, d1}, [%[a]]!\n"
#define LOAD_A_2 "vld1.32 {d0}, [%[a]]!\n"
#define LOAD_A_1 "vld1.32 {d0[0]}, [%[a]]!\n"
#define LOAD_B_3 "vldmia %[b]!, {d2-d7}\n"
#define LOAD_B_2 "vld1.32 {d2-d5}, [%[b]]!\n"
#define LOAD_B_1 "vld1.32 {d2-d3}, [%[b]]!\n"
/* STEP_<rows>_<vectors>: one step of K. */
#define STEP_1_3 LOAD_A_1 LOAD_B_3 FMAS_3(A_0, 4, 5, 6)
#define STEP_2_3 LOAD_A_2 LOAD_B_3 FMAS_3(A_0, 4, 5, 6) FMAS_3(A_1, 7, 8, 9)
#define STEP_4_3                                                                                                       \
    LOAD_A_4 LOAD_B_3 FMAS_3(A_0, 4, 5, 6) FMAS_3(A_1, 7, 8, 9) FMAS_3(A_2, 10, 11, 12) FMAS_3(A_3, 13, 14, 15)
#define STEP_1_2 LOAD_A_1 LOAD_B_2 FMAS_2(A_0, 4, 5)
#define STEP_2_2 LOAD_A_2 LOAD_B_2 FMAS_2(A_0, 4, 5) FMAS_2(A_1, 6, 7)
#define STEP_4_2 LOAD_A_4 LOAD_B_2 FMAS_2(A_0, 4, 5) FMAS_2(A_1, 6, 7) FMAS_2(A_2, 8, 9) FMAS_2(A_3, 10, 11)
#define STEP_1_1 LOAD_A_1 LOAD_B_1 FMAS_1(A_0, 4)
#define STEP_2_1 LOAD_A_2 LOAD_B_1 FMAS_1(A_0, 4) FMAS_1(A_1, 5)
#define STEP_4_1 LOAD_A_4 LOAD_B_1 FMAS_1(A_0, 4) FMAS_1(A_1, 5) FMAS_1(A_2, 6) FMAS_1(A_3, 7)
/* LINES_<rows>_<vectors> calls M for each row of a tile, with its registers as a list and one by one. */
#define LINES_1_3(M) M##_3("d8-d13", 4, 5, 6)
#define LINES_2_3(M) LINES_1_3(M) M##_3("d14-d19", 7, 8, 9)
#define LINES_4_3(M) LINES_2_3(M) M##_3("d20-d25", 10, 11, 12) M##_3("d26-d31", 13, 14, 15)
#define LINES_1_2(M) M##_2("d8-d11", 4, 5)
#define LINES_2_2(M) LINES_1_2(M) M##_2("d12-d15", 6, 7)
#define LINES_4_2(M) LINES_2_2(M) M##_2("d16-d19", 8, 9) M##_2("d20-d23", 10, 11)
#define LINES_1_1(M) M##_1("d8-d9", 4)
#define LINES_2_1(M) LINES_1_1(M) M##_1("d10-d11", 5)
#define LINES_4_1(M) LINES_2_1(M) M##_1("d12-d13", 6) M##_1("d14-d15", 7)

#define START(line) "vldmia %[x], {" line "}\n add %[x], %[x], %[y]\n"
#define START_3(line, ...) START(line)
#define START_2(line, ...) START(line)
#define START_1(line, ...) START(line)
#define STORE(line) "vstmia %[c], {" line "}\n add %[c], %[c], %[ldc]\n"
#define STORE_3(line, ...) STORE(line)
#define STORE_2(line, ...) STORE(line)
#define STORE_1(line, ...) STORE(line)
#define OF(op, c, from) op ".f32 q" #c ", q" #c ", q" #from "\n"
#define ADD_3(line, c0, c1, c2)                                                                                        \
    "vldmia %[x], {d0-d5}\n add %[x], %[x], %[ldc]\n" OF("vadd", c0, 0) OF("vadd", c1, 1) OF("vadd", c2, 2)
#define ADD_2(line, c0, c1) "vldmia %[x], {d0-d3}\n add %[x], %[x], %[ldc]\n" OF("vadd", c0, 0) OF("vadd", c1, 1)
#define ADD_1(line, c0) "vldmia %[x], {d0-d1}\n add %[x], %[x], %[ldc]\n" OF("vadd", c0, 0)
#define MAX_3(line, c0, c1, c2) OF("vmax", c0, 0) OF("vmax", c1, 0) OF("vmax", c2, 0)
#define MAX_2(line, c0, c1) OF("vmax", c0, 0) OF("vmax", c1, 0)
#define MAX_1(line, c0) OF("vmax", c0, 0)
#define MIN_3(line, c0, c1, c2) OF("vmin", c0, 0) OF("vmin", c1, 0) OF("vmin", c2, 0)
#define MIN_2(line, c0, c1) OF("vmin", c0, 0) OF("vmin", c1, 0)
#define MIN_1(line, c0) OF("vmin", c0, 0)

/* Adds e->n steps of K to the start values, adds the rows of e, and stores e->tiles tiles. Returns the end of A. */
/* LOG: the loop has 2^LOG steps. */
#define TIMES_2(step) step step step step
#define TIMES_3(step) TIMES_2(step) TIMES_2(step)
#define REST_2 "3"
#define REST_3 "7"
#define TILE(R, V, LOG)                                                                                                \
    static const float *tile_##R##x##V(const float *a, ends *e, float *c, int32_t ldc) {                               \
        const float *b, *x;                                                                                            \
        int32_t n, y;                                                                                                  \
        __asm__ volatile(                                                                                              \
            "0: ldrd %[x], %[y], [%[e]]\n" LINES_##R##_##V(                                                            \
                START) "str %[x], [%[e]]\n"                                                                            \
                       "ldr %[b], [%[e], #28]\n ldr %[n], [%[e], #32]\n lsrs %[x], %[n], #" #LOG "\n"                  \
                       "beq 2f\n"                                                                                      \
                       "1:\n" TIMES_##LOG(STEP_##R##_##V) "subs %[x], %[x], #1\n"                                      \
                                                          "bne 1b\n"                                                   \
                                                          "2: ands %[n], %[n], #" REST_##LOG "\n"                      \
                                                                                             "beq 4f\n"                \
                                                                                             "3:\n" STEP_##R##_##V     \
            "subs %[n], %[n], #1\n"                                                                                    \
            "bne 3b\n"                                                                                                 \
            "4: ldr %[x], [%[e], #8]\n"                                                                                \
            "cmp %[x], #0\n"                                                                                           \
            "beq 5f\n" LINES_##R##_##V(                                                                                \
                ADD) "str %[x], [%[e], #8]\n"                                                                          \
                     "5: ldr %[x], [%[e], #12]\n"                                                                      \
                     "cmp %[x], #0\n"                                                                                  \
                     "beq 6f\n" LINES_##R##_##V(                                                                       \
                         ADD) "str %[x], [%[e], #12]\n"                                                                \
                              "6: ldr %[y], [%[e], #16]\n"                                                             \
                              "add %[x], %[e], #20\n"                                                                  \
                              "tst %[y], #1\n"                                                                         \
                              "beq 7f\n"                                                                               \
                              "vld1.32 {d0[], d1[]}, [%[x]]\n" LINES_##R##_##V(                                        \
                                  MAX) "7: tst %[y], #2\n"                                                             \
                                       "beq 8f\n"                                                                      \
                                       "add %[x], %[x], #4\n"                                                          \
                                       "vld1.32 {d0[], d1[]}, [%[x]]\n" LINES_##R##_##V(MIN) "8:\n" LINES_##R##_##V(   \
                                           STORE) "ldr %[x], [%[e], #36]\n subs %[x], %[x], #1\n str %[x], [%[e], "    \
                                                  "#36]\n"                                                             \
                                                  "bne 0b\n"                                                           \
            : [a] "+&r"(a), [b] "=&r"(b), [c] "+&r"(c), [n] "=&r"(n), [x] "=&r"(x), [y] "=&r"(y)                       \
            : [e] "r"(e), [ldc] "r"(ldc * (int32_t)sizeof *c)                                                          \
            : "cc", "memory", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13",  \
              "q14", "q15");                                                                                           \
        return a;                                                                                                      \
    }
TILE(4, 3, 3)
TILE(4, 2, 2)
TILE(4, 1, 2)
TILE(2, 3, 2)
TILE(2, 2, 2)
TILE(2, 1, 2)
TILE(1, 3, 2)
TILE(1, 2, 2)
TILE(1, 1, 2)
typedef const float *tile_function(const float *a, ends *e, float *c, int32_t ldc);
static tile_function *const tiles[][VECTORS] = {
    {tile_1x1, tile_1x2, tile_1x3}, {tile_2x1, tile_2x2, tile_2x3}, {tile_4x1, tile_4x2, tile_4x3}};

static bool has_blocks(const ln_gemm_tile *t) { return !t->chained && t->taps * t->kc > K_BLOCK; }

/* Computes all.tiles tiles of `height` rows, of which `all` has the start values and the rows that are added. A long K
 * is divided into blocks, whose sums are added in c, and the last block adds the rows. Returns the end of A. */
static const float *blocks(const ln_gemm_tile *t, int32_t height, int32_t width, const float *a, ends all, float *c,
                           int32_t ldc) {
    static const float zeros[VECTORS * LANES] = {0};
    tile_function *const tile = tiles[height / 2][width / LANES - 1];
    const int32_t k = (int32_t)(t->taps * t->kc), move = height * ldc;
    const int32_t clamp = (t->low > -INFINITY ? CLAMP_LOW : 0) | (t->high < INFINITY ? CLAMP_HIGH : 0);
    all.b = t->b, all.low = t->low, all.high = t->high;
    if (!has_blocks(t)) {
        all.n = k, all.clamp = clamp;
        return tile(a, &all, c, ldc);
    }
    for (int32_t left = all.tiles; left > 0; left--, c += move) {
        ends e = all;
        e.more = NULL;
        for (int32_t done = 0; done < k; done += e.n, e.b += e.n * width) {
            if (done > 0) e.start = zeros, e.start_step = 0, e.sums = c;
            e.n = k - done < K_BLOCK ? k - done : K_BLOCK, e.tiles = 1;
            if (done + e.n == k) e.clamp = clamp, e.more = all.more;
            a = tile(a, &e, c, ldc);
        }
        all.start += height * all.start_step / (int32_t)sizeof *c;
        if (all.more != NULL) all.more += move;
    }
    return a;
}

/* Computes a whole tile on the stack, if its last vector is not complete, or if the first block of K would store its
 * sums over the residual. */
static const float *edge(const ln_gemm_tile *t, int32_t rows, int32_t width, const float *a, const float *residual,
                         float *c) {
    const int64_t size = (int64_t)sizeof *c;
    float made[ROWS * VECTORS * LANES] = {0}, added[ROWS * VECTORS * LANES] = {0};
    if (t->init == NULL) ln_gemm_copy_rows(made, width * size, c, t->ldc * size, rows, t->columns * size);
    if (residual != NULL) ln_gemm_copy_rows(added, width * size, residual, t->ldc * size, rows, t->columns * size);
    const ends e = {.start = t->init != NULL ? t->init : made,
                    .start_step = t->init != NULL ? 0 : width * (int32_t)size,
                    .more = residual != NULL ? added : NULL,
                    .tiles = 1};
    a = blocks(t, rows, width, a, e, made, width);
    ln_gemm_copy_rows(c, t->ldc * size, made, width * size, rows, t->columns * size);
    return a;
}

static void strip(const ln_gemm_tile *t, int64_t rows, int64_t width) {
    const float *a = t->packed, *residual = t->residual;
    const int32_t ldc = (int32_t)t->ldc, columns = (int32_t)width;
    const bool whole = t->columns == width && (residual == NULL || !has_blocks(t));
    float *c = t->c;
    int32_t left = (int32_t)rows;
    for (int32_t height = ROWS; left > 0; height /= 2)
        while (left >= height) {
            const int32_t count = whole ? left / height : 1, move = count * height * ldc;
            const ends e = {.start = t->init != NULL ? t->init : c,
                            .start_step = t->init != NULL ? 0 : ldc * (int32_t)sizeof *c,
                            .more = residual,
                            .tiles = count};
            a = whole ? blocks(t, height, columns, a, e, c, ldc) : edge(t, height, columns, a, residual, c);
            left -= count * height, c += move;
            if (residual != NULL) residual += move;
        }
}

static float *pack_four(const float *const *a, int32_t kc, float *out) {
    const float *r0 = a[0], *r1 = a[1], *r2 = a[2], *r3 = a[3];
    for (; kc >= 4; kc -= 4, out += 16) {
        const float32x4x4_t v = {{vld1q_f32(r0), vld1q_f32(r1), vld1q_f32(r2), vld1q_f32(r3)}};
        r0 += 4, r1 += 4, r2 += 4, r3 += 4;
        vst4q_f32(out, v);
    }
    for (; kc > 0; kc--) *out++ = *r0++, *out++ = *r1++, *out++ = *r2++, *out++ = *r3++;
    return out;
}

static void pack_rows(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed) {
    float *out = packed;
    for (; taps > 0; taps--, a += rows) {
        if (rows == 4) {
            out = pack_four((const float *const *)a, (int32_t)kc, out);
            continue;
        }
        for (int64_t k = 0; k < kc; k++)
            for (int64_t r = 0; r < rows; r++) *out++ = ((const float *)a[r])[k];
    }
}

static void convert_packed(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_f32__neon32.convert(dst, src, stride, n, src_dtype);
}

const ln_gemm_set ln_gemm_f32_packed__neon32 = {.a_dtype = LINNET_F32,
                                                .b_dtype = LINNET_F32,
                                                .c_dtype = LINNET_F32,
                                                .halves = true,
                                                .rows = ROWS,
                                                .width = VECTORS * LANES,
                                                .unit = LANES,
                                                .depth = 1,
                                                .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                                .takes_b = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,
                                                .pack_rows = pack_rows,
                                                .strip = strip,
                                                .in_place = &ln_gemm_f32__neon32,
                                                .convert = convert_packed};
static const ln_gemm_set *const sets[] = {&ln_gemm_f32_packed__neon32};

LN_GEMM_KERNELS(f32__neon32, sets)
