/* gemm_s8__dotprod.c - 8-bit matmul and conv with sdot and udot, tiles of up to 6 x 16, four products per lane. Both
 * factors must be signed or both unsigned. Therefore 128 is added to i8 weights for u8 activations, and subtracted from
 * u8 weights for i8 activations. The driver removes the difference with the help of the row sums. */
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"

#include <arm_neon.h>

/* 24 registers hold the sums of 6 x 16, v0 to v23, four to a row; v24 to v29 hold 16 elements of each row of A, and v30
 * and v31 pass 2 vectors of B. This is written in assembly because compilers spill some of these 32 registers. */
#define MAX_ROWS 6
#define WIDTH 16

/* Adds four products for each of 8 columns of a row to the sums c0 and c1. `lane` of register a has the elements of
 * A. */
#define DOT(op, c0, c1, a, lane)                                                                                       \
    op " v" #c0 ".4s, v30.16b, v" #a ".4b[" #lane "]\n\t" op " v" #c1 ".4s, v31.16b, v" #a ".4b[" #lane "]\n\t"
#define LEFT_1(op, lane) DOT(op, 0, 1, 24, lane)
#define LEFT_2(op, lane) LEFT_1(op, lane) DOT(op, 4, 5, 25, lane)
#define LEFT_3(op, lane) LEFT_2(op, lane) DOT(op, 8, 9, 26, lane)
#define LEFT_4(op, lane) LEFT_3(op, lane) DOT(op, 12, 13, 27, lane)
#define LEFT_5(op, lane) LEFT_4(op, lane) DOT(op, 16, 17, 28, lane)
#define LEFT_6(op, lane) LEFT_5(op, lane) DOT(op, 20, 21, 29, lane)
#define RIGHT_1(op, lane) DOT(op, 2, 3, 24, lane)
#define RIGHT_2(op, lane) RIGHT_1(op, lane) DOT(op, 6, 7, 25, lane)
#define RIGHT_3(op, lane) RIGHT_2(op, lane) DOT(op, 10, 11, 26, lane)
#define RIGHT_4(op, lane) RIGHT_3(op, lane) DOT(op, 14, 15, 27, lane)
#define RIGHT_5(op, lane) RIGHT_4(op, lane) DOT(op, 18, 19, 28, lane)
#define RIGHT_6(op, lane) RIGHT_5(op, lane) DOT(op, 22, 23, 29, lane)
#define NEXT_B "ld1 {v30.16b, v31.16b}, [%[b]], #32\n\t"
#define STEP_full(r, op, lane) NEXT_B LEFT_##r(op, lane) NEXT_B RIGHT_##r(op, lane)
#define STEP_half(r, op, lane) NEXT_B LEFT_##r(op, lane)

#define A_0 "24"
#define A_1 "25"
#define A_2 "26"
#define A_3 "27"
#define A_4 "28"
#define A_5 "29"
#include "kernels_arm/gemm/gemm_tile.inc"

#define GEMM_TILE(r, size, op, name)                                                                                   \
    static void name(const ln_gemm_tile *t) {                                                                          \
        TILE_BEGIN(size)                                                                                               \
        __asm__ volatile(                                                                                              \
            EACH_##r(INIT_##size) "1:\n\t" POINTERS_##r                                                                \
            "subs %[k], %[kc], #16\n\t"                                                                                \
            "b.lt 3f\n"                                                                                                \
            "2:\n\t" LOAD_##r("q", "16") "subs %[k], %[k], #16\n\t" STEP_##size(r, op, 0) STEP_##size(r, op, 1)        \
                STEP_##size(r, op, 2)                                                                                  \
                    STEP_##size(r, op, 3) "b.ge 2b\n"                                                                  \
                                          "3:\n\t"                                                                     \
                                          "tbz %[k], #3, 4f\n\t" LOAD_##r("d", "8") STEP_##size(r, op, 0) STEP_##size( \
                                              r, op, 1) "4:\n\t"                                                       \
                                                        "tbz %[k], #2, 5f\n\t" LOAD_##r("s", "4")                      \
                                                            STEP_##size(r, op, 0) "5:\n\t"                             \
                                                                                  "subs %[taps], %[taps], #1\n\t"      \
                                                                                  "b.ne 1b\n\t" TILE_END_##size(r)     \
                                                                                      TILE_OPERANDS);                  \
        TILE_FINISH(r)                                                                                                 \
    }
#define GEMM_TILES(r)                                                                                                  \
    GEMM_TILE(r, full, "sdot", full_s_##r)                                                                             \
    GEMM_TILE(r, half, "sdot", half_s_##r)                                                                             \
    GEMM_TILE(r, full, "udot", full_u_##r)                                                                             \
    GEMM_TILE(r, half, "udot", half_u_##r)
GEMM_TILES(1)
GEMM_TILES(2)
GEMM_TILES(3)
GEMM_TILES(4)
GEMM_TILES(6)
/* A tile of 5 rows is rare, and would take as many products as tiles of 4 and 1. */
#define TABLE(name) {NULL, name##_1, name##_2, name##_3, name##_4, NULL, name##_6}
static const ln_gemm_ukernel full_s[MAX_ROWS + 1] = TABLE(full_s);
static const ln_gemm_ukernel half_s[MAX_ROWS + 1] = TABLE(half_s);
static const ln_gemm_ukernel full_u[MAX_ROWS + 1] = TABLE(full_u);
static const ln_gemm_ukernel half_u[MAX_ROWS + 1] = TABLE(half_u);

/* Computes one row. Its four sums per panel are enough to hide the latency of the dot product. */
#define ROW_STEP(signs, lane)                                                                                          \
    four = vld1q_##signs##8_x4(b), b += 64;                                                                            \
    s0 = vdotq_laneq_##signs##32(s0, four.val[0], x, lane), s1 = vdotq_laneq_##signs##32(s1, four.val[1], x, lane);    \
    s2 = vdotq_laneq_##signs##32(s2, four.val[2], x, lane), s3 = vdotq_laneq_##signs##32(s3, four.val[3], x, lane);
#define GEMM_ROW(signs, byte, word, v16, v16x4, v4, name)                                                              \
    static void name(const ln_gemm_tile *t, int64_t panel_bytes) {                                                     \
        const byte *panel = t->b;                                                                                      \
        const v4 more = vdupq_n_##signs##32(t->row_sum == NULL ? 0 : (word) * t->row_sum);                             \
        for (int64_t at = 0; at < t->columns; at += WIDTH, panel += panel_bytes) {                                     \
            const word *init = (const word *)t->init + at;                                                             \
            word *c = (word *)t->c + at;                                                                               \
            const byte *b = panel;                                                                                     \
            v4 s0 = vaddq_##signs##32(vld1q_##signs##32(init), more),                                                  \
               s1 = vaddq_##signs##32(vld1q_##signs##32(init + 4), more);                                              \
            v4 s2 = vaddq_##signs##32(vld1q_##signs##32(init + 8), more),                                              \
               s3 = vaddq_##signs##32(vld1q_##signs##32(init + 12), more);                                             \
            for (int64_t tap = 0; tap < t->taps; tap++) {                                                              \
                const byte *a = t->a[tap];                                                                             \
                int64_t k = t->kc;                                                                                     \
                v16x4 four;                                                                                            \
                for (; k >= 16; k -= 16, a += 16) {                                                                    \
                    const v16 x = vld1q_##signs##8(a);                                                                 \
                    ROW_STEP(signs, 0) ROW_STEP(signs, 1) ROW_STEP(signs, 2) ROW_STEP(signs, 3)                        \
                }                                                                                                      \
                for (; k > 0; k -= 4, a += 4) {                                                                        \
                    const v16 x = vreinterpretq_##signs##8_##signs##32(vld1q_dup_##signs##32((const void *)a));        \
                    ROW_STEP(signs, 0)                                                                                 \
                }                                                                                                      \
            }                                                                                                          \
            vst1q_##signs##32(c, s0), vst1q_##signs##32(c + 4, s1), vst1q_##signs##32(c + 8, s2),                      \
                vst1q_##signs##32(c + 12, s3);                                                                         \
        }                                                                                                              \
    }
GEMM_ROW(s, int8_t, int32_t, int8x16_t, int8x16x4_t, int32x4_t, row_s)
GEMM_ROW(u, uint8_t, uint32_t, uint8x16_t, uint8x16x4_t, uint32x4_t, row_u)

const ln_gemm_set ln_gemm_i8__dotprod = {.a_dtype = LINNET_I8,
                                         .b_dtype = LINNET_I8,
                                         .c_dtype = LINNET_I32,
                                         .rows = MAX_ROWS,
                                         .tiles = 8,
                                         .width = WIDTH,
                                         .depth = 4,
                                         .whole = true,
                                         .takes = 1u << LINNET_I8,
                                         .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                         .full = full_s,
                                         .half = half_s,
                                         .row = row_s,
                                         .convert = ln_gemm_convert_bytes_neon,
                                         .row_sums = ln_gemm_row_sums_i8_neon,
                                         .store = ln_gemm_store_neon,
                                         .store_tile = ln_gemm_store_tile_neon,
                                         .store_sum = ln_gemm_store_sum_neon};
const ln_gemm_set ln_gemm_u8__dotprod = {.a_dtype = LINNET_U8,
                                         .b_dtype = LINNET_U8,
                                         .c_dtype = LINNET_I32,
                                         .rows = MAX_ROWS,
                                         .tiles = 8,
                                         .width = WIDTH,
                                         .depth = 4,
                                         .whole = true,
                                         .takes = 1u << LINNET_U8,
                                         .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                         .full = full_u,
                                         .half = half_u,
                                         .row = row_u,
                                         .convert = ln_gemm_convert_bytes_neon,
                                         .row_sums = ln_gemm_row_sums_u8_neon,
                                         .store = ln_gemm_store_neon,
                                         .store_tile = ln_gemm_store_tile_neon,
                                         .store_sum = ln_gemm_store_sum_neon};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__dotprod, &ln_gemm_u8__dotprod};

LN_GEMM_KERNELS(int8__dotprod, sets)
