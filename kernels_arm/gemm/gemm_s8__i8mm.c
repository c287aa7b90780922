/* gemm_s8__i8mm.c - 8-bit matmul and conv with products of matrices, tiles of up to 6 x 16: smmla multiplies 8 elements
 * of two rows by those of two columns, and usmmla does so for u8 activations. u8 weights are turned into i8 by
 * subtracting 128; the driver removes the difference with the help of the row sums. */
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"

#include <arm_neon.h>

/* v0 to v23 hold the sums: 8 registers to a pair of rows, of 2 x 2 sums each. v24 to v26 hold 8 elements of each row of
 * A, two rows to a register, v27 to v29 the next 8; v30 and v31 pass B, two columns to a register. A last row that has
 * no partner leaves half of its register 0. */
#define MAX_ROWS 6
#define WIDTH 16

#define MMLA(op, c, a, b) op " v" #c ".4s, v" #a ".16b, v" #b ".16b\n\t"
/* Computes eight steps of K for 4 columns. c0 and c1 are the sums of the first pair of rows, c2 and c3 of the second,
 * c4 and c5 of the third. */
#define FOUR_1(op, c0, c1, c2, c3, c4, c5, a0, a1, a2)                                                                 \
    "ld1 {v30.16b, v31.16b}, [%[b]], #32\n\t" MMLA(op, c0, a0, 30) MMLA(op, c1, a0, 31)
#define FOUR_2(op, c0, c1, c2, c3, c4, c5, a0, a1, a2)                                                                 \
    FOUR_1(op, c0, c1, c2, c3, c4, c5, a0, a1, a2) MMLA(op, c2, a1, 30) MMLA(op, c3, a1, 31)
#define FOUR_3(op, c0, c1, c2, c3, c4, c5, a0, a1, a2)                                                                 \
    FOUR_2(op, c0, c1, c2, c3, c4, c5, a0, a1, a2) MMLA(op, c4, a2, 30) MMLA(op, c5, a2, 31)
#define STEP_half(pairs, op, a0, a1, a2)                                                                               \
    FOUR_##pairs(op, 0, 1, 8, 9, 16, 17, a0, a1, a2) FOUR_##pairs(op, 2, 3, 10, 11, 18, 19, a0, a1, a2)
#define STEP_full(pairs, op, a0, a1, a2)                                                                               \
    STEP_half(pairs, op, a0, a1, a2) FOUR_##pairs(op, 4, 5, 12, 13, 20, 21, a0, a1, a2)                                \
        FOUR_##pairs(op, 6, 7, 14, 15, 22, 23, a0, a1, a2)

/* Loads 8 elements of each row. */
#define ROW_LOW(to, p) "ldr d" #to ", [%[" #p "]], #8\n\t"
#define ROW_HIGH(to, p) "ld1 {v" #to ".d}[1], [%[" #p "]], #8\n\t"
#define A_1(a0, a1, a2) ROW_LOW(a0, p0)
#define A_2(a0, a1, a2) A_1(a0, a1, a2) ROW_HIGH(a0, p1)
#define A_3(a0, a1, a2) A_2(a0, a1, a2) ROW_LOW(a1, p2)
#define A_4(a0, a1, a2) A_3(a0, a1, a2) ROW_HIGH(a1, p3)
#define A_5(a0, a1, a2) A_4(a0, a1, a2) ROW_LOW(a2, p4)
#define A_6(a0, a1, a2) A_5(a0, a1, a2) ROW_HIGH(a2, p5)

/* Loads the start values of the sums. Both rows of a pair begin with the same values. */
#define BOTH(c) "ld1r {v" #c ".2d}, [%[init]], #8\n\t"
#define SAME(c, from) "mov v" #c ".16b, v" #from ".16b\n\t"
#define SAME_half(c0, c1, c2, c3, c4, c5, c6, c7) SAME(c0, 0) SAME(c1, 1) SAME(c2, 2) SAME(c3, 3)
#define SAME_full(c0, c1, c2, c3, c4, c5, c6, c7)                                                                      \
    SAME_half(c0, c1, c2, c3, c4, c5, c6, c7) SAME(c4, 4) SAME(c5, 5) SAME(c6, 6) SAME(c7, 7)
#define BEGIN_half BOTH(0) BOTH(1) BOTH(2) BOTH(3)
#define BEGIN_full BEGIN_half BOTH(4) BOTH(5) BOTH(6) BOTH(7)
#define BEGIN_1(size) BEGIN_##size
#define BEGIN_2(size) BEGIN_##size SAME_##size(8, 9, 10, 11, 12, 13, 14, 15)
#define BEGIN_3(size) BEGIN_2(size) SAME_##size(16, 17, 18, 19, 20, 21, 22, 23)

/* Collects 8 or 16 sums of the first (zip1) or the second row of a pair, adds the sum of the row of A and stores them.
 */
#define ZIP(op, to, c0, c1) op " v" #to ".2d, v" #c0 ".2d, v" #c1 ".2d\n\t"
#define ADD_27(c) "add v" #c ".4s, v" #c ".4s, v27.4s\n\t"
#define ROW_half(op, c0, c1, c2, c3, c4, c5, c6, c7)                                                                   \
    ZIP(op, 28, c0, c1)                                                                                                \
    ZIP(op, 29, c2, c3)                                                                                                \
    "cbz %[sums], 9f\n\t"                                                                                              \
    "ld1r {v27.4s}, [%[sums]], #4\n\t" ADD_27(28) ADD_27(29) "9:\n\t"                                                  \
                                                             "st1 {v28.4s, v29.4s}, [%[c]], %[ldc]\n\t"
#define ROW_full(op, c0, c1, c2, c3, c4, c5, c6, c7)                                                                   \
    ZIP(op, 28, c0, c1)                                                                                                \
    ZIP(op, 29, c2, c3)                                                                                                \
    ZIP(op, 30, c4, c5)                                                                                                \
    ZIP(op, 31, c6, c7)                                                                                                \
    "cbz %[sums], 9f\n\t"                                                                                              \
    "ld1r {v27.4s}, [%[sums]], #4\n\t" ADD_27(28) ADD_27(29) ADD_27(30)                                                \
        ADD_27(31) "9:\n\t"                                                                                            \
                   "st1 {v28.4s, v29.4s, v30.4s, v31.4s}, [%[c]], %[ldc]\n\t"
#define END_1(row) row("zip1", 0, 1, 2, 3, 4, 5, 6, 7)
#define END_2(row) END_1(row) row("zip2", 0, 1, 2, 3, 4, 5, 6, 7)
#define END_3(row) END_2(row) row("zip1", 8, 9, 10, 11, 12, 13, 14, 15)
#define END_4(row) END_3(row) row("zip2", 8, 9, 10, 11, 12, 13, 14, 15)
#define END_5(row) END_4(row) row("zip1", 16, 17, 18, 19, 20, 21, 22, 23)
#define END_6(row) END_5(row) row("zip2", 16, 17, 18, 19, 20, 21, 22, 23)

#include "kernels_arm/gemm/gemm_tile.inc"

#define GEMM_TILE(r, pairs, size, op, name)                                                                            \
    static void name(const ln_gemm_tile *t) {                                                                          \
        TILE_BEGIN(size)                                                                                               \
        const void *init = first;                                                                                      \
        __asm__ volatile(                                                                                              \
            BEGIN_##pairs(size) "1:\n\t" POINTERS_##r                                                                  \
            "subs %[k], %[kc], #16\n\t"                                                                                \
            "b.lt 3f\n"                                                                                                \
            "2:\n\t" A_##r(24, 25, 26) A_##r(27, 28, 29) "subs %[k], %[k], #16\n\t" STEP_##size(pairs, op, 24, 25, 26) \
                STEP_##size(pairs, op, 27, 28, 29) "b.ge 2b\n"                                                         \
                                                   "3:\n\t"                                                            \
                                                   "tbz %[k], #3, 4f\n\t" A_##r(24, 25, 26) STEP_##size(               \
                                                       pairs, op, 24, 25, 26) "4:\n\t"                                 \
                                                                              "subs %[taps], %[taps], #1\n\t"          \
                                                                              "b.ne 1b\n\t" END_##r(ROW_##size)        \
                                                                                  TILE_OPERANDS_INIT);                 \
        TILE_FINISH(r)                                                                                                 \
    }
#define GEMM_TILES(r, pairs)                                                                                           \
    GEMM_TILE(r, pairs, full, "smmla", full_s_##r)                                                                     \
    GEMM_TILE(r, pairs, half, "smmla", half_s_##r)                                                                     \
    GEMM_TILE(r, pairs, full, "usmmla", full_u_##r)                                                                    \
    GEMM_TILE(r, pairs, half, "usmmla", half_u_##r)
GEMM_TILES(1, 1)
GEMM_TILES(2, 1)
GEMM_TILES(4, 2)
GEMM_TILES(6, 3)
/* Tiles of 3 and 5 rows would take as many products as those of 4 and 6, and 10 kB. */
#define TABLE(name) {NULL, name##_1, name##_2, NULL, name##_4, NULL, name##_6}
static const ln_gemm_ukernel full_s[MAX_ROWS + 1] = TABLE(full_s);
static const ln_gemm_ukernel half_s[MAX_ROWS + 1] = TABLE(half_s);
static const ln_gemm_ukernel full_u[MAX_ROWS + 1] = TABLE(full_u);
static const ln_gemm_ukernel half_u[MAX_ROWS + 1] = TABLE(half_u);

/* Computes one row with dot products: each register of a panel has 8 k of two columns, so a sum has two parts, which
 * are added at the end. */
#define ROW_FOUR(dot, c0, c1, c2, c3)                                                                                  \
    "ld1 {v28.16b, v29.16b, v30.16b, v31.16b}, [%[b]], #64\n\t" dot(c0, 28) dot(c1, 29) dot(c2, 30) dot(c3, 31)
#define ROW_EIGHT(dot, eight)                                                                                          \
    __asm__(ROW_FOUR(dot, 0, 1, 2, 3) ROW_FOUR(dot, 4, 5, 6, 7)                                                        \
            : [b] "+r"(b), [c0] "+w"(s0), [c1] "+w"(s1), [c2] "+w"(s2), [c3] "+w"(s3), [c4] "+w"(s4), [c5] "+w"(s5),   \
              [c6] "+w"(s6), [c7] "+w"(s7)                                                                             \
            : [x] "w"(eight)                                                                                           \
            : "memory", "v28", "v29", "v30", "v31");
#define DOT_S(c, b) "sdot %[c" #c "].4s, v" #b ".16b, %[x].16b\n\t"
#define DOT_U(c, b) "usdot %[c" #c "].4s, %[x].16b, v" #b ".16b\n\t"
#define ROW_STORE(i, first, second)                                                                                    \
    vst1q_s32(c + (i), vaddq_s32(vaddq_s32(vpaddq_s32(first, second), more), vld1q_s32(init + (i))));
#define GEMM_ROW(byte, dot, name)                                                                                      \
    static void name(const ln_gemm_tile *t, int64_t panel_bytes) {                                                     \
        const int8_t *panel = t->b;                                                                                    \
        const int32x4_t more = vdupq_n_s32(t->row_sum == NULL ? 0 : *t->row_sum);                                      \
        for (int64_t at = 0; at < t->columns; at += WIDTH, panel += panel_bytes) {                                     \
            const int32_t *init = (const int32_t *)t->init + at;                                                       \
            int32_t *c = (int32_t *)t->c + at;                                                                         \
            const int8_t *b = panel;                                                                                   \
            int32x4_t s0 = vdupq_n_s32(0), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;              \
            for (int64_t tap = 0; tap < t->taps; tap++) {                                                              \
                const byte *a = t->a[tap];                                                                             \
                int64_t k = t->kc;                                                                                     \
                for (; k >= 16; k -= 16, a += 16) {                                                                    \
                    const int64x2_t both = vreinterpretq_s64_s8(vld1q_s8((const void *)a));                            \
                    ROW_EIGHT(dot, vdupq_laneq_s64(both, 0))                                                           \
                    ROW_EIGHT(dot, vdupq_laneq_s64(both, 1))                                                           \
                }                                                                                                      \
                if (k > 0) {                                                                                           \
                    const int64x2_t both = vld1q_dup_s64((const void *)a);                                             \
                    ROW_EIGHT(dot, both)                                                                               \
                }                                                                                                      \
            }                                                                                                          \
            ROW_STORE(0, s0, s1) ROW_STORE(4, s2, s3) ROW_STORE(8, s4, s5) ROW_STORE(12, s6, s7)                       \
        }                                                                                                              \
    }
GEMM_ROW(int8_t, DOT_S, row_s)
GEMM_ROW(uint8_t, DOT_U, row_u)

#define GEMM_SET(DTYPE, sums_of, s)                                                                                    \
    {.a_dtype = DTYPE,                                                                                                 \
     .b_dtype = LINNET_I8,                                                                                             \
     .c_dtype = LINNET_I32,                                                                                            \
     .rows = MAX_ROWS,                                                                                                 \
     .tiles = 8,                                                                                                       \
     .width = WIDTH,                                                                                                   \
     .depth = 8,                                                                                                       \
     .whole = true,                                                                                                    \
     .takes = 1u << DTYPE,                                                                                             \
     .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,                                                                     \
     .full = full_##s,                                                                                                 \
     .half = half_##s,                                                                                                 \
     .row = row_##s,                                                                                                   \
     .convert = ln_gemm_convert_bytes_neon,                                                                            \
     .row_sums = sums_of,                                                                                              \
     .store = ln_gemm_store_neon,                                                                                      \
     .store_tile = ln_gemm_store_tile_neon,                                                                            \
     .store_sum = ln_gemm_store_sum_neon}
const ln_gemm_set ln_gemm_i8__i8mm = GEMM_SET(LINNET_I8, ln_gemm_row_sums_i8_neon, s);
const ln_gemm_set ln_gemm_u8__i8mm = GEMM_SET(LINNET_U8, ln_gemm_row_sums_u8_neon, u);
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__i8mm, &ln_gemm_u8__i8mm};

LN_GEMM_KERNELS(int8__i8mm, sets)
