/* gemm_s8__neon.c - 8-bit matmul and conv for every ARMv8, tiles of up to 4 x 16: smull and smlal add two products in
 * 16 bits, and sadalp adds pairs of these to sums of 32 bits. Two products of at most 128 x 127 fit in 16 bits, so
 * weights must be in [-127, 127]; gemm_s16__neon.c takes the others. */
#include "base/layout.h"
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"

#include <arm_neon.h>

/* v0 to v15 hold the sums of 4 x 16, four to a row; v16 to v19 hold 16 elements of each row of A. v20 to v23 pass 4
 * steps of B: pairs of k for 8 columns, so v20 and v21 are the first pair for columns 0 to 7 and 8 to 15, and v22 and
 * v23 are the second. v24 to v29 are the pairs of A, repeated for every column, and the products. */
#define MAX_ROWS 4
#define WIDTH 16

#define PRODUCTS(op, to, b, a) op " v" #to ".8h, v" #b ".8b, v" #a ".8b\n\t"
#define PRODUCTS_2(op, to, b, a) op "2 v" #to ".8h, v" #b ".16b, v" #a ".16b\n\t"
#define ADD_PAIRS(c, from) "sadalp v" #c ".4s, v" #from ".8h\n\t"
#define REPEAT(to, a, lane) "dup v" #to ".8h, v" #a ".h[" #lane "]\n\t"

/* Computes four steps of K for one row. l0 and l1 are the pairs of register a. */
#define ROW4_full(c0, c1, c2, c3, a, l0, l1)                                                                           \
    REPEAT(24, a, l0)                                                                                                  \
    REPEAT(25, a, l1)                                                                                                  \
    PRODUCTS("smull", 26, 20, 24)                                                                                      \
    PRODUCTS_2("smull", 27, 20, 24)                                                                                    \
    PRODUCTS("smull", 28, 21, 24)                                                                                      \
    PRODUCTS_2("smull", 29, 21, 24)                                                                                    \
    PRODUCTS("smlal", 26, 22, 25)                                                                                      \
    PRODUCTS_2("smlal", 27, 22, 25)                                                                                    \
    PRODUCTS("smlal", 28, 23, 25)                                                                                      \
    PRODUCTS_2("smlal", 29, 23, 25)                                                                                    \
    ADD_PAIRS(c0, 26) ADD_PAIRS(c1, 27) ADD_PAIRS(c2, 28) ADD_PAIRS(c3, 29)
#define ROW4_half(c0, c1, c2, c3, a, l0, l1)                                                                           \
    REPEAT(24, a, l0)                                                                                                  \
    REPEAT(25, a, l1)                                                                                                  \
    PRODUCTS("smull", 26, 20, 24)                                                                                      \
    PRODUCTS_2("smull", 27, 20, 24)                                                                                    \
    PRODUCTS("smlal", 26, 21, 25)                                                                                      \
    PRODUCTS_2("smlal", 27, 21, 25)                                                                                    \
    ADD_PAIRS(c0, 26) ADD_PAIRS(c1, 27)
/* Computes two steps of K for one row. */
#define ROW2_full(c0, c1, c2, c3, a, l0, l1)                                                                           \
    REPEAT(24, a, 0)                                                                                                   \
    PRODUCTS("smull", 26, 20, 24)                                                                                      \
    PRODUCTS_2("smull", 27, 20, 24)                                                                                    \
    PRODUCTS("smull", 28, 21, 24)                                                                                      \
    PRODUCTS_2("smull", 29, 21, 24)                                                                                    \
    ADD_PAIRS(c0, 26) ADD_PAIRS(c1, 27) ADD_PAIRS(c2, 28) ADD_PAIRS(c3, 29)
#define ROW2_half(c0, c1, c2, c3, a, l0, l1)                                                                           \
    REPEAT(24, a, 0)                                                                                                   \
    PRODUCTS("smull", 26, 20, 24)                                                                                      \
    PRODUCTS_2("smull", 27, 20, 24)                                                                                    \
    ADD_PAIRS(c0, 26) ADD_PAIRS(c1, 27)
#define ROWS_1(row, l0, l1) row(0, 1, 2, 3, 16, l0, l1)
#define ROWS_2(row, l0, l1) ROWS_1(row, l0, l1) row(4, 5, 6, 7, 17, l0, l1)
#define ROWS_3(row, l0, l1) ROWS_2(row, l0, l1) row(8, 9, 10, 11, 18, l0, l1)
#define ROWS_4(row, l0, l1) ROWS_3(row, l0, l1) row(12, 13, 14, 15, 19, l0, l1)
#define NEXT_B_full "ld1 {v20.16b, v21.16b, v22.16b, v23.16b}, [%[b]], #64\n\t"
#define NEXT_B_half "ld1 {v20.16b, v21.16b}, [%[b]], #32\n\t"
#define LAST_B_full "ld1 {v20.16b, v21.16b}, [%[b]], #32\n\t"
#define LAST_B_half "ld1 {v20.16b}, [%[b]], #16\n\t"
#define STEP(r, size, l0, l1) NEXT_B_##size ROWS_##r(ROW4_##size, l0, l1)

#define A_0 "16"
#define A_1 "17"
#define A_2 "18"
#define A_3 "19"
#include "kernels_arm/gemm/gemm_tile.inc"

#define GEMM_TILE(r, size, name)                                                                                       \
    static void name(const ln_gemm_tile *t) {                                                                          \
        TILE_BEGIN(size)                                                                                               \
        __asm__ volatile(                                                                                              \
            EACH_##r(INIT_##size) "1:\n\t" POINTERS_##r                                                                \
            "subs %[k], %[kc], #16\n\t"                                                                                \
            "b.lt 3f\n"                                                                                                \
            "2:\n\t" LOAD_##r("q", "16") "subs %[k], %[k], #16\n\t" STEP(r, size, 0, 1) STEP(r, size, 2,               \
                                                                                             3) STEP(r, size, 4, 5)    \
                STEP(r, size, 6, 7) "b.ge 2b\n"                                                                        \
                                    "3:\n\t"                                                                           \
                                    "tbz %[k], #3, 4f\n\t" LOAD_##r("d", "8") STEP(r, size, 0, 1)                      \
                                        STEP(r, size, 2, 3) "4:\n\t"                                                   \
                                                            "tbz %[k], #2, 5f\n\t" LOAD_##r("s", "4")                  \
                                                                STEP(r, size, 0,                                       \
                                                                     1) "5:\n\t"                                       \
                                                                        "tbz %[k], #1, 6f\n\t" LOAD_##r("h", "2")      \
                                                                            LAST_B_##size ROWS_##r(                    \
                                                                                ROW2_##size, 0,                        \
                                                                                0) "6:\n\t"                            \
                                                                                   "subs %[taps], %[taps], #1\n\t"     \
                                                                                   "b.ne 1b\n\t" TILE_END_##size(r)    \
                                                                                       TILE_OPERANDS);                 \
        TILE_FINISH(r)                                                                                                 \
    }
#define GEMM_TILES(r)                                                                                                  \
    GEMM_TILE(r, full, full_s8_##r)                                                                                    \
    GEMM_TILE(r, half, half_s8_##r)
GEMM_TILES(1)
GEMM_TILES(2)
GEMM_TILES(3)
GEMM_TILES(4)
static const ln_gemm_ukernel full_tiles[MAX_ROWS + 1] = {NULL, full_s8_1, full_s8_2, full_s8_3, full_s8_4};
static const ln_gemm_ukernel half_tiles[MAX_ROWS + 1] = {NULL, half_s8_1, half_s8_2, half_s8_3, half_s8_4};

/* Computes one row, with the same steps as the tiles. */
static void row_s8(const ln_gemm_tile *t, int64_t panel_bytes) {
    const int8_t *panel = t->b;
    const int32x4_t more = vdupq_n_s32(t->row_sum == NULL ? 0 : *t->row_sum);
    for (int64_t at = 0; at < t->columns; at += WIDTH, panel += panel_bytes) {
        const int32_t *init = (const int32_t *)t->init + at;
        int32_t *c = (int32_t *)t->c + at;
        const int8_t *b = panel;
        int32x4_t s0 = vaddq_s32(vld1q_s32(init), more), s1 = vaddq_s32(vld1q_s32(init + 4), more);
        int32x4_t s2 = vaddq_s32(vld1q_s32(init + 8), more), s3 = vaddq_s32(vld1q_s32(init + 12), more);
        for (int64_t tap = 0; tap < t->taps; tap++) {
            const int8_t *a = t->a[tap];
            int64_t k = t->kc;
            for (; k >= 4; k -= 4, a += 4, b += 64) {
                const int8x16x4_t four = vld1q_s8_x4(b);
                const int8x16_t x = vreinterpretq_s8_s16(vld1q_dup_s16((const void *)a));
                const int8x16_t y = vreinterpretq_s8_s16(vld1q_dup_s16((const void *)(a + 2)));
                int16x8_t p0 = vmull_s8(vget_low_s8(four.val[0]), vget_low_s8(x)), p1 = vmull_high_s8(four.val[0], x);
                int16x8_t p2 = vmull_s8(vget_low_s8(four.val[1]), vget_low_s8(x)), p3 = vmull_high_s8(four.val[1], x);
                p0 = vmlal_s8(p0, vget_low_s8(four.val[2]), vget_low_s8(y)), p1 = vmlal_high_s8(p1, four.val[2], y);
                p2 = vmlal_s8(p2, vget_low_s8(four.val[3]), vget_low_s8(y)), p3 = vmlal_high_s8(p3, four.val[3], y);
                s0 = vpadalq_s16(s0, p0), s1 = vpadalq_s16(s1, p1), s2 = vpadalq_s16(s2, p2), s3 = vpadalq_s16(s3, p3);
            }
            for (; k > 0; k -= 2, a += 2, b += 32) {
                const int8x16_t low = vld1q_s8(b), high = vld1q_s8(b + 16);
                const int8x16_t x = vreinterpretq_s8_s16(vld1q_dup_s16((const void *)a));
                s0 = vpadalq_s16(s0, vmull_s8(vget_low_s8(low), vget_low_s8(x)));
                s1 = vpadalq_s16(s1, vmull_high_s8(low, x));
                s2 = vpadalq_s16(s2, vmull_s8(vget_low_s8(high), vget_low_s8(x)));
                s3 = vpadalq_s16(s3, vmull_high_s8(high, x));
            }
        }
        vst1q_s32(c, s0), vst1q_s32(c + 4, s1), vst1q_s32(c + 8, s2), vst1q_s32(c + 12, s3);
    }
}

const ln_gemm_set ln_gemm_s8__neon = {.a_dtype = LINNET_I8,
                                      .b_dtype = LINNET_I8,
                                      .c_dtype = LINNET_I32,
                                      .rows = MAX_ROWS,
                                      .tiles = 12,
                                      .width = WIDTH,
                                      .depth = 2,
                                      .whole = true,
                                      .symmetric = true,
                                      .takes = 1u << LINNET_I8,
                                      .takes_b = 1u << LINNET_I8,
                                      .full = full_tiles,
                                      .half = half_tiles,
                                      .row = row_s8,
                                      .convert = ln_gemm_convert_bytes_neon,
                                      .row_sums = ln_gemm_row_sums_i8_neon,
                                      .store = ln_gemm_store_neon,
                                      .store_tile = ln_gemm_store_tile_neon,
                                      .store_sum = ln_gemm_store_sum_neon};
static const ln_gemm_set *const sets[] = {&ln_gemm_s8__neon};

/* Tells whether the weights are known and none is -128. */
static bool symmetric(const ln_tensor *w) {
    if (w->dtype != LINNET_I8 || w->data == NULL || !ln_packable(w) || !ln_is_dense(w)) return false;
    const int8_t *v = w->data;
    const int64_t n = ln_count(w);
    int64_t i = 0;
    int8x16_t least = vdupq_n_s8(0);
    for (; i + 64 <= n; i += 64) {
        least = vminq_s8(least, vminq_s8(vld1q_s8(v + i), vld1q_s8(v + i + 16)));
        least = vminq_s8(least, vminq_s8(vld1q_s8(v + i + 32), vld1q_s8(v + i + 48)));
    }
    int lowest = vminvq_s8(least);
    for (; i < n; i++) lowest = v[i] < lowest ? v[i] : lowest;
    return lowest > INT8_MIN;
}

LN_GEMM_KERNELS_IF(symmetric(&call->inputs[1]), s8__neon, sets)
