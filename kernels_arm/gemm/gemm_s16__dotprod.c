/* gemm_s16__dotprod.c - matmul and conv of 16-bit activations and 8-bit weights with sdot, tiles of up to 6 x 8. An
 * activation x is 256 * high + low + 128, two signed bytes, which are multiplied by the same weights: eight products
 * per two instructions, where smlal has four in one. 128 times the sum of a column's weights is part of the start value
 * of its sums (ln_gemm_set.split). */
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"
#include "kernels_arm/gemm/gemm_words__neon.h"

#include <arm_neon.h>

/* Four of the registers v0 to v23 hold the sums of a row: two those over high bytes, and two those over low bytes. v24
 * to v29 hold 8 elements of each row of A, and v30 and v31 pass 4 elements of the columns of B. */
#define MAX_ROWS 6
#define WIDTH 8

#define DOT(c0, c1, c2, c3, a, high, low)                                                                              \
    "sdot v" #c0 ".4s, v30.16b, v" #a ".4b[" #high "]\n\tsdot v" #c1 ".4s, v31.16b, v" #a ".4b[" #high "]\n\t"         \
    "sdot v" #c2 ".4s, v30.16b, v" #a ".4b[" #low "]\n\tsdot v" #c3 ".4s, v31.16b, v" #a ".4b[" #low "]\n\t"
#define DOTS_1(high, low) DOT(0, 1, 2, 3, 24, high, low)
#define DOTS_2(high, low) DOTS_1(high, low) DOT(4, 5, 6, 7, 25, high, low)
#define DOTS_3(high, low) DOTS_2(high, low) DOT(8, 9, 10, 11, 26, high, low)
#define DOTS_4(high, low) DOTS_3(high, low) DOT(12, 13, 14, 15, 27, high, low)
#define DOTS_5(high, low) DOTS_4(high, low) DOT(16, 17, 18, 19, 28, high, low)
#define DOTS_6(high, low) DOTS_5(high, low) DOT(20, 21, 22, 23, 29, high, low)
#define STEP(r, high, low) "ldp q30, q31, [%[b]], #32\n\t" DOTS_##r(high, low)

#define A_0 "24"
#define A_1 "25"
#define A_2 "26"
#define A_3 "27"
#define A_4 "28"
#define A_5 "29"
#include "kernels_arm/gemm/gemm_tile.inc"

#define BEGIN(c0, c1, c2, c3)                                                                                          \
    "movi v" #c0 ".4s, #0\n\tmovi v" #c1 ".4s, #0\n\tld1 {v" #c2 ".4s, v" #c3 ".4s}, [%[init]]\n\t"
#define JOIN(c0, c1, c2, c3)                                                                                           \
    "mla v" #c2 ".4s, v" #c0 ".4s, v30.4s\n\tmla v" #c3 ".4s, v" #c1 ".4s, v30.4s\n\t"                                 \
    "st1 {v" #c2 ".4s, v" #c3 ".4s}, [%[c]], %[ldc]\n\t"

/* clang-format off */
/* With `wide`, a row of the result is the 8 sums over high bytes and the 8 sums over low bytes. */
#define GEMM_TILE(r)                                                                                                   \
    static void tile_##r(const ln_gemm_tile *t) {                                                                      \
        const int64_t parts = t->wide;                                                                                 \
        TILE_BEGIN(half)                                                                                               \
        __asm__ volatile(                                                                                              \
            EACH_##r(BEGIN)                                                                                            \
            "1:\n\t" POINTERS_##r "subs %[k], %[kc], #8\n\t"                                                           \
            "b.lt 3f\n"                                                                                                \
            "2:\n\t" LOAD_##r("q", "16") "subs %[k], %[k], #8\n\t" STEP(r, 0, 1) STEP(r, 2, 3) "b.ge 2b\n"             \
            "3:\n\t"                                                                                                   \
            "tbz %[k], #2, 4f\n\t" LOAD_##r("d", "8") STEP(r, 0, 1)                                                    \
            "4:\n\t"                                                                                                   \
            "subs %[taps], %[taps], #1\n\t"                                                                            \
            "b.ne 1b\n\t"                                                                                              \
            "cbnz %[parts], 5f\n\t"                                                                                    \
            "movi v30.4s, #1, lsl #8\n\t" EACH_##r(JOIN)                                                               \
            "b 6f\n"                                                                                                   \
            "5:\n\t" EACH_##r(STORE_full)                                                                              \
            "6:\n"                                                                                                     \
            : TILE_OUTPUTS : [kc] "r"(kc), [init] "r"(first), [ldc] "r"(ldc), [parts] "r"(parts) : TILE_CLOBBERS);     \
        TILE_FINISH(r)                                                                                                 \
    }
/* clang-format on */
GEMM_TILE(1)
GEMM_TILE(2)
GEMM_TILE(3)
GEMM_TILE(4)
GEMM_TILE(6)
/* A tile of 5 rows is rare, and would take as many products as tiles of 4 and 1. */
#define TABLE(name) {NULL, name##_1, name##_2, name##_3, name##_4, NULL, name##_6}
static const ln_gemm_ukernel tile[MAX_ROWS + 1] = TABLE(tile), none[MAX_ROWS + 1];

/* Computes t->tiles tiles of 64-bit sums below each other. 32 bits hold the sums of both parts: K would have to be
 * larger than 2^17. */
static LN_NEVER_INLINE void wide_tiles(const ln_gemm_tile *t, int64_t rows) {
    static const int32_t zeros[WIDTH];
    int32_t parts[MAX_ROWS * 2 * WIDTH];
    int64_t sum[MAX_ROWS * WIDTH];
    ln_gemm_tile one = *t, part = *t;
    part.c = parts, part.ldc = 2 * WIDTH, part.columns = WIDTH, part.init = zeros, part.tiles = 1;
    for (int64_t left = ln_max(1, t->tiles); left > 0; left--, part.a += rows * t->taps) {
        tile[rows](&part);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t n = 0; n < WIDTH; n++) {
                const int32_t *high = parts + i * 2 * WIDTH + n;
                sum[i * WIDTH + n] =
                    ln_wrapped_sum(((const int64_t *)t->init)[n], ln_joined_parts(high[0], high[WIDTH]));
            }
        ln_gemm_store_wide_neon(&one, sum, rows, WIDTH);
        one.c = (char *)one.c + rows * t->ldc * (int64_t)(t->rounded ? sizeof(float) : sizeof(int64_t));
    }
}
#define WIDE_TILE(r)                                                                                                   \
    static void wide_##r(const ln_gemm_tile *t) { wide_tiles(t, r); }
WIDE_TILE(1)
WIDE_TILE(2)
WIDE_TILE(3)
WIDE_TILE(4)
WIDE_TILE(6)
static const ln_gemm_ukernel wide[MAX_ROWS + 1] = TABLE(wide);

/* Splits n elements, a multiple of 4: the high bytes of four elements are followed by their low bytes, from which 128
 * is subtracted. dst may be src. With another stride than 1, elements are only copied. */
static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    static const uint8_t order[16] = {1, 3, 5, 7, 0, 2, 4, 6, 9, 11, 13, 15, 8, 10, 12, 14};
    const uint8x16_t to = vld1q_u8(order), turn = vreinterpretq_u8_u64(vdupq_n_u64(UINT64_C(0x8080808000000000)));
    const uint8_t *x = src;
    uint8_t *y = dst;
    if (stride != 1) {
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_I16);
        return;
    }
    for (; n >= 32; n -= 32, x += 64, y += 64) {
        uint8x16x4_t v = vld1q_u8_x4(x);
        v.val[0] = veorq_u8(vqtbl1q_u8(v.val[0], to), turn), v.val[1] = veorq_u8(vqtbl1q_u8(v.val[1], to), turn);
        v.val[2] = veorq_u8(vqtbl1q_u8(v.val[2], to), turn), v.val[3] = veorq_u8(vqtbl1q_u8(v.val[3], to), turn);
        vst1q_u8_x4(y, v);
    }
    for (; n > 0; n -= 4, x += 8, y += 8) vst1_u8(y, veor_u8(vtbl1_u8(vld1_u8(x), vget_low_u8(to)), vget_low_u8(turn)));
}

/* Sums of 32 bits, if the weights prove that they are enough. */
static const ln_gemm_set narrow = {.a_dtype = LINNET_I16,
                                   .b_dtype = LINNET_I8,
                                   .c_dtype = LINNET_I32,
                                   .rows = MAX_ROWS,
                                   .tiles = 8,
                                   .width = WIDTH,
                                   .unit = WIDTH,
                                   .depth = 4,
                                   .whole = true,
                                   .split = true,
                                   .takes = 1u << LINNET_I16,
                                   .takes_b = 1u << LINNET_I8,
                                   .full = tile,
                                   .half = none,
                                   .convert = convert,
                                   .store = ln_gemm_store_neon,
                                   .store_tile = ln_gemm_store_tile_neon,
                                   .store_sum = ln_gemm_store_sum_neon,
                                   .words = true};
const ln_gemm_set ln_gemm_i16__dotprod = {.a_dtype = LINNET_I16,
                                          .b_dtype = LINNET_I8,
                                          .c_dtype = LINNET_I64,
                                          .rows = MAX_ROWS,
                                          .tiles = 8,
                                          .width = WIDTH,
                                          .unit = WIDTH,
                                          .depth = 4,
                                          .whole = true,
                                          .split = true,
                                          .takes = 1u << LINNET_I16,
                                          .narrow = &narrow,
                                          .takes_b = 1u << LINNET_I8,
                                          .full = wide,
                                          .half = none,
                                          .convert = convert,
                                          .store = ln_gemm_store_neon,
                                          .store_tile = ln_gemm_store_tile_neon,
                                          .store_sum = ln_gemm_store_sum_neon,
                                          .words = true};
static const ln_gemm_set *const sets[] = {&ln_gemm_i16__dotprod};

LN_GEMM_KERNELS(int16__dotprod, sets)
