/* gemm_f32_packed__neon.c - f32 matmul and conv for every ARMv8, tiles of up to 8 x 12: 24 accumulators, 4 vectors of A
 * (two steps of K, packed as [k][rows]), and 4 of B. Both are read from packed memory by loads of four vectors, so that
 * 94 of 100 instructions of the loop are products. Products with few rows or columns use gemm_f32__neon.c, which reads
 * A in place. The loop is written in assembly, because compilers spill some of the 32 registers. */
#include "fast/gemm/gemm.h"
#include "fast/gemm/gemm_kernels.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

enum { ROWS = 8, LANES = 4, VECTORS = 3, K_BLOCK = 512 };
#include "kernels_arm/gemm/gemm_strip.inc"

#define FMA(acc, b, a, lane) "fmla v" #acc ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n"
#define FMA_4(b, a, c0, c1, c2, c3) FMA(c0, b, a, 0) FMA(c1, b, a, 1) FMA(c2, b, a, 2) FMA(c3, b, a, 3)
/* FMA_<rows>_<k>: one vector of B times all rows, for step k of 4. */
#define FMA_8_0(b, c0, c1, c2, c3, c4, c5, c6, c7) FMA_4(b, 0, c0, c1, c2, c3) FMA_4(b, 1, c4, c5, c6, c7)
#define FMA_8_1(b, c0, c1, c2, c3, c4, c5, c6, c7) FMA_4(b, 2, c0, c1, c2, c3) FMA_4(b, 3, c4, c5, c6, c7)
#define FMA_8_2 FMA_8_0
#define FMA_8_3 FMA_8_1
#define FMA_4_0(b, c0, c1, c2, c3, ...) FMA_4(b, 0, c0, c1, c2, c3)
#define FMA_4_1(b, c0, c1, c2, c3, ...) FMA_4(b, 1, c0, c1, c2, c3)
#define FMA_4_2(b, c0, c1, c2, c3, ...) FMA_4(b, 2, c0, c1, c2, c3)
#define FMA_4_3(b, c0, c1, c2, c3, ...) FMA_4(b, 3, c0, c1, c2, c3)
#define FMA_2_0(b, c0, c1, ...) FMA(c0, b, 0, 0) FMA(c1, b, 0, 1)
#define FMA_2_1(b, c0, c1, ...) FMA(c0, b, 0, 2) FMA(c1, b, 0, 3)
#define FMA_2_2(b, c0, c1, ...) FMA(c0, b, 1, 0) FMA(c1, b, 1, 1)
#define FMA_2_3(b, c0, c1, ...) FMA(c0, b, 1, 2) FMA(c1, b, 1, 3)
#define FMA_1_0(b, c0, ...) FMA(c0, b, 0, 0)
#define FMA_1_1(b, c0, ...) FMA(c0, b, 0, 1)
#define FMA_1_2(b, c0, ...) FMA(c0, b, 0, 2)
#define FMA_1_3(b, c0, ...) FMA(c0, b, 0, 3)
#define LOAD_A4 "ld1 {v0.4s-v3.4s}, [%[a]], #64\n"
#define LOAD_A2 "ld1 {v0.4s-v1.4s}, [%[a]], #32\n"
#define LOAD_A1 "ld1 {v0.4s}, [%[a]], #16\n"
/* LOAD_A_<rows>_<k>: the next elements of A, if they are needed before step k. */
#define LOAD_A_8_0 LOAD_A4
#define LOAD_A_8_2 LOAD_A4
#define LOAD_A_4_0 LOAD_A4
#define LOAD_A_4_2
#define LOAD_A_2_0 LOAD_A2
#define LOAD_A_2_2
#define LOAD_A_1_0 LOAD_A1
#define LOAD_A_1_2
/* One step of K. */
#define LOAD_A_STEP_8 LOAD_A2
#define LOAD_A_STEP_4 LOAD_A1
#define LOAD_A_STEP_2 "ldr d0, [%[a]], #8\n"
#define LOAD_A_STEP_1 "ldr s0, [%[a]], #4\n"
/* LINES_<rows>_<vectors> calls M for each row of a tile, with the list of its registers. */
#define LINES_1_3(M) M("v8.4s-v10.4s")
#define LINES_2_3(M) LINES_1_3(M) M("v11.4s-v13.4s")
#define LINES_4_3(M) LINES_2_3(M) M("v14.4s-v16.4s") M("v17.4s-v19.4s")
#define LINES_8_3(M) LINES_4_3(M) M("v20.4s-v22.4s") M("v23.4s-v25.4s") M("v26.4s-v28.4s") M("v29.4s-v31.4s")
#define LINES_1_2(M) M("v8.4s-v9.4s")
#define LINES_2_2(M) LINES_1_2(M) M("v10.4s-v11.4s")
#define LINES_4_2(M) LINES_2_2(M) M("v12.4s-v13.4s") M("v14.4s-v15.4s")
#define LINES_8_2(M) LINES_4_2(M) M("v16.4s-v17.4s") M("v18.4s-v19.4s") M("v20.4s-v21.4s") M("v22.4s-v23.4s")
#define LINES_1_1(M) M("v8.4s")
#define LINES_2_1(M) LINES_1_1(M) M("v9.4s")
#define LINES_4_1(M) LINES_2_1(M) M("v10.4s") M("v11.4s")
#define LINES_8_1(M) LINES_4_1(M) M("v12.4s") M("v13.4s") M("v14.4s") M("v15.4s")
#define INIT(line) "ld1 {" line "}, [%[init]], %[init_step]\n"
#define STORE(line) "st1 {" line "}, [%[c]], %[ldc]\n"
#define ADD_BLOCKS(v) "ldr q0, [%[n]], #16\n fadd v" #v ".4s, v" #v ".4s, v0.4s\n"
#define SPILL(v)                                                                                                       \
    "ldr q0, [%[n]]\n fadd v" #v ".4s, v" #v ".4s, v0.4s\n str q" #v ", [%[n]], #16\n movi v" #v ".4s, #0\n"
#define MAX(v) "fmax v" #v ".4s, v" #v ".4s, v0.4s\n"
#define MIN(v) "fmin v" #v ".4s, v" #v ".4s, v1.4s\n"

/* Adds a residual to the rows of a tile. */
#define ADD(v, from) "fadd v" #v ".4s, v" #v ".4s, v" #from ".4s\n"
#define ADD_1(a) "ld1 {v0.4s}, [%[residual]], %[ldc]\n" ADD(a, 0)
#define ADD_2(a, b) "ld1 {v0.4s-v1.4s}, [%[residual]], %[ldc]\n" ADD(a, 0) ADD(b, 1)
#define ADD_3(a, b, c) "ld1 {v0.4s-v2.4s}, [%[residual]], %[ldc]\n" ADD(a, 0) ADD(b, 1) ADD(c, 2)
enum { CLAMP_LOW = 1, CLAMP_HIGH = 2 };

/* Sums all of K in blocks and stores the tile. %[n] counts steps of a block, %[fours] groups of four steps. LOOP goes
 * over these groups. The code at label 4 then does the steps that remain. */
#define TILE(STARTS, LOOP, STEP, EACH, RESIDUAL, STORES)                                                               \
    STARTS                                                                                                             \
    "1: cmp %[k], %[block]\n"                                                                                          \
    "csel %[n], %[k], %[block], lt\n"                                                                                  \
    "sub %[k], %[k], %[n]\n"                                                                                           \
    "lsr %[fours], %[n], #2\n"                                                                                         \
    "cbz %[fours], 4f\n" LOOP "4: ands %[n], %[n], #3\n"                                                               \
    "b.eq 6f\n"                                                                                                        \
    "5:\n" STEP "subs %[n], %[n], #1\n"                                                                                \
    "b.gt 5b\n"                                                                                                        \
    "6: cbz %[k], 7f\n"                                                                                                \
    "mov %[n], %[blocks]\n" EACH(SPILL) "b 1b\n"                                                                       \
                                        "7: cmp %[all], %[block]\n"                                                    \
                                        "b.le 8f\n"                                                                    \
                                        "mov %[n], %[blocks]\n" EACH(                                                  \
                                            ADD_BLOCKS) "8:\n" RESIDUAL "tbz %w[clamp], #0, 9f\n"                      \
                                                        "ld1r {v0.4s}, [%[low]]\n" EACH(                               \
                                                            MAX) "9: tbz %w[clamp], #1, 10f\n"                         \
                                                                 "ld1r {v1.4s}, [%[high]]\n" EACH(MIN) "10:\n" STORES
/* The loop has two bodies. If the number of groups is odd, it starts with the second one. */
#define LOOP_TWICE(BODY)                                                                                               \
    "tbnz %[fours], #0, 3f\n"                                                                                          \
    "2:\n" BODY "3:\n" BODY "subs %[fours], %[fours], #2\n"                                                            \
    "b.gt 2b\n"
static unsigned clamp_of(const ln_gemm_tile *t) {
    return (t->low > -INFINITY ? CLAMP_LOW : 0) | (t->high < INFINITY ? CLAMP_HIGH : 0);
}

/* Computes `count` tiles of R rows below each other. */
#define TILES(NAME, R, V, LOOP)                                                                                        \
    static void NAME(const ln_gemm_tile *t, int64_t count, const float *a, const float *init, int64_t init_step,       \
                     const float *residual, float *c, int64_t ldc) {                                                   \
        const int64_t k_all = t->taps * t->kc, block = t->chained ? INT64_MAX : K_BLOCK;                               \
        const unsigned clamp = clamp_of(t);                                                                            \
        float blocks[R * V * LANES];                                                                                   \
        for (; count > 0; count--, init += R * init_step) {                                                            \
            const float *b = t->b, *start = init;                                                                      \
            int64_t k = k_all, n, fours;                                                                               \
            if (k > block) memset(blocks, 0, sizeof blocks);                                                           \
            __asm__ volatile(TILE(LINES_##R##_##V(INIT), LOOP(R), STEP_##V(R), EACH_##R##_##V,                         \
                                  "cbz %[residual], 11f\n" ADDS_##R##_##V(ADD) "11:\n", LINES_##R##_##V(STORE))        \
                             : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [residual] "+&r"(residual),                   \
                               [init] "+&r"(start), [k] "+&r"(k), [n] "=&r"(n), [fours] "=&r"(fours)                   \
                             : [ldc] "r"(ldc * (int64_t)sizeof *c), [init_step] "r"(init_step * (int64_t)sizeof *c),   \
                               [block] "r"(block), [all] "r"(k_all), [blocks] "r"(blocks), [clamp] "r"(clamp),         \
                               [low] "r"(&t->low), [high] "r"(&t->high)                                                \
                             : "cc", "memory", VECTOR_REGISTERS);                                                      \
        }                                                                                                              \
    }
#define LOOP_3(R) LOOP_TWICE(BODY_3(R))
#define LOOP_2(R) LOOP_TWICE(BODY_2(R))
#define LOOP_1(R) LOOP_TWICE(BODY_1(R))

/* The schedule for cores that execute in order: each load is at least five instructions before the first use of its
 * result, between two products. v0 to v3 are two pairs of registers, and A of the next step goes to the pair that is
 * not in use. The last step loads nothing, because it would read beyond the end. */
#define LOAD(v, p, at) "ldr q" #v ", [%[" #p "], #" #at "]\n"
#define PRODUCTS(b, a0, a1, load1, load2, load3, c0, c1, c2, c3, c4, c5, c6, c7)                                       \
    FMA(c0, b, a0, 0)                                                                                                  \
    load1 FMA(c1, b, a0, 1) FMA(c2, b, a0, 2) load2 FMA(c3, b, a0, 3) FMA(c4, b, a1, 0) load3 FMA(c5, b, a1, 1)        \
        FMA(c6, b, a1, 2) FMA(c7, b, a1, 3)
#define NO_LOAD(v, p, at)
/* Step s of K with A in a0 and a1; n0 and n1 are the registers for A of the next step. NEXT is LOAD, or NO_LOAD in the
 * last step. */
#define ORDERED_3(s, a0, a1, n0, n1, b0, b1, next0, next1, NEXT)                                                       \
    CALL(PRODUCTS, 4, a0, a1, LOAD(6, b, 48 * s), , NEXT(n0, a, 32 * s), ACC_3_0)                                      \
    CALL(PRODUCTS, 5, a0, a1, NEXT(4, b, 48 * s + 16), , NEXT(n1, a, 32 * s + 16), ACC_3_1)                            \
    CALL(PRODUCTS, 6, a0, a1, NEXT(5, b, 48 * s + 32), , , ACC_3_2)
#define ORDERED_2(s, a0, a1, n0, n1, b0, b1, next0, next1, NEXT)                                                       \
    CALL(PRODUCTS, b0, a0, a1, NEXT(n0, a, 32 * s), , NEXT(n1, a, 32 * s + 16), ACC_2_0)                               \
    CALL(PRODUCTS, b1, a0, a1, NEXT(next0, b, 32 * s), , NEXT(next1, b, 32 * s + 16), ACC_2_1)
#define ORDERED_1(s, a0, a1, n0, n1, b0, b1, next0, next1, NEXT)                                                       \
    CALL(PRODUCTS, b0, a0, a1, NEXT(next0, b, 16 * s), NEXT(n0, a, 32 * s), NEXT(n1, a, 32 * s + 16), ACC_1_0)
#define ORDERED_4(V, NEXT)                                                                                             \
    ORDERED_##V(0, 0, 1, 2, 3, 4, 5, 6, 7, LOAD) ORDERED_##V(1, 2, 3, 0, 1, 6, 7, 4, 5, LOAD)                          \
        ORDERED_##V(2, 0, 1, 2, 3, 4, 5, 6, 7, LOAD) ORDERED_##V(3, 2, 3, 0, 1, 6, 7, 4, 5, NEXT)
/* LOOP for the schedule above. `ahead` is the number of vectors of B that are loaded before a step begins. */
#define ORDERED_LOOP(V, ahead)                                                                                         \
    "ldr q0, [%[a]]\n"                                                                                                 \
    "ldp q4, q5, [%[b]]\n"                                                                                             \
    "ldr q1, [%[a], #16]\n"                                                                                            \
    "add %[a], %[a], #32\n"                                                                                            \
    "add %[b], %[b], #" #ahead " * 16\n"                                                                               \
    "subs %[fours], %[fours], #1\n"                                                                                    \
    "b.eq 3f\n"                                                                                                        \
    "2:\n" ORDERED_4(V, LOAD) "subs %[fours], %[fours], #1\n"                                                          \
                              "add %[a], %[a], #128\n"                                                                 \
                              "add %[b], %[b], #" #V " * 64\n"                                                         \
                              "b.gt 2b\n"                                                                              \
                              "3:\n" ORDERED_4(V, NO_LOAD) "add %[a], %[a], #96\n"                                     \
                                                           "add %[b], %[b], #" #V " * 64 - " #ahead " * 16\n"
#define ORDERED_LOOP_3(R) ORDERED_LOOP(3, 2)
#define ORDERED_LOOP_2(R) ORDERED_LOOP(2, 2)
#define ORDERED_LOOP_1(R) ORDERED_LOOP(1, 1)

TILES(ordered_8x3, 8, 3, ORDERED_LOOP_3)
TILES(ordered_8x2, 8, 2, ORDERED_LOOP_2)
TILES(ordered_8x1, 8, 1, ORDERED_LOOP_1)
TILES(tiles_8x3, 8, 3, LOOP_3)
TILES(tiles_8x2, 8, 2, LOOP_2)
TILES(tiles_8x1, 8, 1, LOOP_1)
TILES(tiles_4x3, 4, 3, LOOP_3)
TILES(tiles_4x2, 4, 2, LOOP_2)
TILES(tiles_4x1, 4, 1, LOOP_1)
TILES(tiles_2x3, 2, 3, LOOP_3)
TILES(tiles_2x2, 2, 2, LOOP_2)
TILES(tiles_2x1, 2, 1, LOOP_1)
TILES(tiles_1x3, 1, 3, LOOP_3)
TILES(tiles_1x2, 1, 2, LOOP_2)
TILES(tiles_1x1, 1, 1, LOOP_1)

#define SHORT_TILES                                                                                                    \
    {tiles_1x1, tiles_1x2, tiles_1x3}, {tiles_2x1, tiles_2x2, tiles_2x3}, { tiles_4x1, tiles_4x2, tiles_4x3 }
static const tiles_function all[][VECTORS] = {SHORT_TILES, {tiles_8x1, tiles_8x2, tiles_8x3}};
static const tiles_function ordered[][VECTORS] = {SHORT_TILES, {ordered_8x1, ordered_8x2, ordered_8x3}};

static void strip(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of(t, rows, width, all); }
static void strip_in_order(const ln_gemm_tile *t, int64_t rows, int64_t width) { strip_of(t, rows, width, ordered); }

/* One row and four panels: their 12 accumulators hide the latency of the products. Panel p is read through %[bp]. */
#define ROW_LOAD(p, registers) "ld1 {" registers "}, [%[b" #p "]], #64\n"
#define ROW_BODY                                                                                                       \
    LOAD_A1 ROW_LOAD(0, "v4.4s-v7.4s") ROW_LOAD(1, "v20.4s-v23.4s") ROW_LOAD(2, "v24.4s-v27.4s")                       \
        ROW_LOAD(3, "v28.4s-v31.4s") ROW_FIRST(8, 9, 10, 4, 5, 6, 7) ROW_LOAD(0, "v4.4s-v7.4s")                        \
            ROW_FIRST(11, 12, 13, 20, 21, 22, 23) ROW_LOAD(1, "v20.4s-v23.4s") ROW_FIRST(14, 15, 16, 24, 25, 26, 27)   \
                ROW_LOAD(2, "v24.4s-v27.4s") ROW_FIRST(17, 18, 19, 28, 29, 30, 31) ROW_LOAD(3, "v28.4s-v31.4s")        \
                    ROW_SECOND(8, 9, 10, 4, 5, 6, 7) ROW_LOAD(0, "v4.4s-v7.4s") ROW_SECOND(11, 12, 13, 20, 21, 22, 23) \
                        ROW_LOAD(1, "v20.4s-v23.4s") ROW_SECOND(14, 15, 16, 24, 25, 26, 27)                            \
                            ROW_LOAD(2, "v24.4s-v27.4s") ROW_SECOND(17, 18, 19, 28, 29, 30, 31)                        \
                                ROW_LOAD(3, "v28.4s-v31.4s") ROW_THIRD(8, 9, 10, 4, 5, 6, 7)                           \
                                    ROW_THIRD(11, 12, 13, 20, 21, 22, 23) ROW_THIRD(14, 15, 16, 24, 25, 26, 27)        \
                                        ROW_THIRD(17, 18, 19, 28, 29, 30, 31)
#define ROW_FIRST(c0, c1, c2, b0, b1, b2, b3) FMA(c0, b0, 0, 0) FMA(c1, b1, 0, 0) FMA(c2, b2, 0, 0) FMA(c0, b3, 0, 1)
#define ROW_SECOND(c0, c1, c2, b0, b1, b2, b3) FMA(c1, b0, 0, 1) FMA(c2, b1, 0, 1) FMA(c0, b2, 0, 2) FMA(c1, b3, 0, 2)
#define ROW_THIRD(c0, c1, c2, b0, b1, b2, b3) FMA(c2, b0, 0, 2) FMA(c0, b1, 0, 3) FMA(c1, b2, 0, 3) FMA(c2, b3, 0, 3)
#define ROW_STEP_OF(p, c0, c1, c2)                                                                                     \
    "ld1 {v4.4s-v6.4s}, [%[b" #p "]], #48\n" FMA(c0, 4, 0, 0) FMA(c1, 5, 0, 0) FMA(c2, 6, 0, 0)
#define ROW_STEP                                                                                                       \
    LOAD_A_STEP_1 ROW_STEP_OF(0, 8, 9, 10) ROW_STEP_OF(1, 11, 12, 13) ROW_STEP_OF(2, 14, 15, 16)                       \
        ROW_STEP_OF(3, 17, 18, 19)
#define ROW_LINES(op, at)                                                                                              \
    op " {v8.4s-v11.4s}, [" at "], #64\n" op " {v12.4s-v15.4s}, [" at "], #64\n" op " {v16.4s-v19.4s}, [" at "], "     \
       "#64\n"
enum { ROW_PANELS = 4 };
static void row(const ln_gemm_tile *t, int64_t panel_bytes) {
    const int64_t all = t->taps * t->kc, block = t->chained ? INT64_MAX : K_BLOCK;
    const char *b0 = t->b, *b1 = b0 + panel_bytes, *b2 = b1 + panel_bytes, *b3 = b2 + panel_bytes;
    const float *a = t->packed, *init = t->init != NULL ? t->init : t->c;
    float *c = t->c, blocks[ROW_PANELS * VECTORS * LANES];
    int64_t k = all, n, fours;
    if (k > block) memset(blocks, 0, sizeof blocks);
    __asm__ volatile(TILE(ROW_LINES("ld1", "%[init]"),
                          "2:\n" ROW_BODY "subs %[fours], %[fours], #1\n"
                          "b.gt 2b\n",
                          ROW_STEP, EACH_4_3, "", ROW_LINES("st1", "%[c]"))
                     : [a] "+&r"(a), [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2), [b3] "+&r"(b3), [c] "+&r"(c),
                       [init] "+&r"(init), [k] "+&r"(k), [n] "=&r"(n), [fours] "=&r"(fours)
                     : [block] "r"(block), [all] "r"(all), [blocks] "r"(blocks), [clamp] "r"(clamp_of(t)),
                       [low] "r"(&t->low), [high] "r"(&t->high)
                     : "cc", "memory", VECTOR_REGISTERS);
}

/* These functions return columns 0 and 2, or 1 and 3, of the transpose of four rows. */
static inline float32x4_t low_halves(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

static inline float32x4_t high_halves(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

static inline void transpose(float32x4_t v[4]) {
    const float32x4_t a = vtrn1q_f32(v[0], v[1]), b = vtrn2q_f32(v[0], v[1]);
    const float32x4_t c = vtrn1q_f32(v[2], v[3]), d = vtrn2q_f32(v[2], v[3]);
    v[0] = low_halves(a, c), v[1] = low_halves(b, d), v[2] = high_halves(a, c), v[3] = high_halves(b, d);
}

static inline __attribute__((always_inline)) float *pack_tap(const int rows, const void *const *a, int64_t kc,
                                                             float *out) {
    const float *row[ROWS];
    LN_UNROLL
    for (int i = 0; i < rows; i++) row[i] = a[i];
    for (; kc >= 4; kc -= 4, out += 4 * rows) {
        float32x4_t v[ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++, row[i - 1] += 4) v[i] = vld1q_f32(row[i]);
        transpose(v);
        if (rows == 8) {
            transpose(v + 4);
            const float32x4x4_t first = {{v[0], v[4], v[1], v[5]}}, second = {{v[2], v[6], v[3], v[7]}};
            vst1q_f32_x4(out, first);
            vst1q_f32_x4(out + 16, second);
        } else {
            const float32x4x4_t block = {{v[0], v[1], v[2], v[3]}};
            vst1q_f32_x4(out, block);
        }
    }
    for (; kc > 0; kc--) LN_UNROLL
    for (int i = 0; i < rows; i++) *out++ = *row[i]++;
    return out;
}

static void pack_rows(const void *const *a, int64_t taps, int64_t rows, int64_t kc, void *packed) {
    float *out = packed;
    for (; taps > 0; taps--, a += rows) {
        if (rows == 8) {
            out = pack_tap(8, a, kc, out);
        } else if (rows == 4) {
            out = pack_tap(4, a, kc, out);
        } else if (rows == 2) {
            const float *first = a[0], *second = a[1];
            for (int64_t k = 0; k < kc; k++) *out++ = first[k], *out++ = second[k];
        } else {
            memcpy(out, a[0], (size_t)kc * sizeof *out);
            out += kc;
        }
    }
}

static void convert_packed(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    ln_gemm_f32__neon.convert(dst, src, stride, n, src_dtype);
}

#define PACKED_SET(STRIP, IN_ORDER)                                                                                    \
    {.a_dtype = LINNET_F32,                                                                                            \
     .b_dtype = LINNET_F32,                                                                                            \
     .c_dtype = LINNET_F32,                                                                                            \
     .halves = true,                                                                                                   \
     .rows = ROWS,                                                                                                     \
     .width = VECTORS * LANES,                                                                                         \
     .unit = LANES,                                                                                                    \
     .depth = 1,                                                                                                       \
     .takes = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,                                                 \
     .takes_b = 1u << LINNET_F32 | 1u << LINNET_F16 | 1u << LINNET_BF16,                                               \
     .pack_rows = pack_rows,                                                                                           \
     .strip = STRIP,                                                                                                   \
     .row = row,                                                                                                       \
     .row_panels = ROW_PANELS,                                                                                         \
     .in_place = &ln_gemm_f32__neon,                                                                                   \
     .convert = convert_packed,                                                                                        \
     .in_order = IN_ORDER}
static const ln_gemm_set in_order_set = PACKED_SET(strip_in_order, NULL);
const ln_gemm_set ln_gemm_f32_packed__neon = PACKED_SET(strip, &in_order_set);
static const ln_gemm_set *const sets[] = {&ln_gemm_f32_packed__neon};

LN_GEMM_KERNELS(f32__neon, sets)
