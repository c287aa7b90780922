/* gemm_s16__neon.c - integer matmul and conv for every ARMv8, tiles of up to 6 x 16, 16-bit products by lane (smlal).
 * 8-bit activations are widened when they are gathered, weights when they are packed. With 16-bit activations, sums of
 * 32 bits are added to 64-bit sums before they can overflow, unless the weights prove that they never do. */
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_kernels.h"
#include "kernels_arm/gemm/gemm_store__neon.h"
#include "kernels_arm/gemm/gemm_words__neon.h"

#include <arm_neon.h>
#include <string.h>

/* v8 to v31 hold the sums of 6 x 16, four to a row; v0 to v5 hold 8 elements of each row of A, because only the first
 * 16 registers can be multiplied by lane; v6 and v7 pass one step of B. */
#define MAX_ROWS 6
#define WIDTH 16

#define LANE(op, c, half, b, a, lane) op " v" #c ".4s, v" #b half ", v" #a ".h[" #lane "]\n\t"
#define ROW_full(c0, c1, c2, c3, a, lane)                                                                              \
    LANE("smlal", c0, ".4h", 6, a, lane)                                                                               \
    LANE("smlal2", c1, ".8h", 6, a, lane) LANE("smlal", c2, ".4h", 7, a, lane) LANE("smlal2", c3, ".8h", 7, a, lane)
#define ROW_half(c0, c1, c2, c3, a, lane) LANE("smlal", c0, ".4h", 6, a, lane) LANE("smlal2", c1, ".8h", 6, a, lane)
#define ROWS_1(row, lane) row(8, 9, 10, 11, 0, lane)
#define ROWS_2(row, lane) ROWS_1(row, lane) row(12, 13, 14, 15, 1, lane)
#define ROWS_3(row, lane) ROWS_2(row, lane) row(16, 17, 18, 19, 2, lane)
#define ROWS_4(row, lane) ROWS_3(row, lane) row(20, 21, 22, 23, 3, lane)
#define ROWS_5(row, lane) ROWS_4(row, lane) row(24, 25, 26, 27, 4, lane)
#define ROWS_6(row, lane) ROWS_5(row, lane) row(28, 29, 30, 31, 5, lane)
#define NEXT_B_full "ldp q6, q7, [%[b]], #32\n\t"
#define NEXT_B_half "ldr q6, [%[b]], #16\n\t"
#define STEP(r, size, lane) NEXT_B_##size ROWS_##r(ROW_##size, lane)
#define STEPS_2(r, size, lane0, lane1) STEP(r, size, lane0) STEP(r, size, lane1)
#define STEPS_8(r, size) STEPS_2(r, size, 0, 1) STEPS_2(r, size, 2, 3) STEPS_2(r, size, 4, 5) STEPS_2(r, size, 6, 7)

#define A_0 "0"
#define A_1 "1"
#define A_2 "2"
#define A_3 "3"
#define A_4 "4"
#define A_5 "5"
#define SUMS_LAST
#include "kernels_arm/gemm/gemm_tile.inc"

/* clang-format off */
#define GEMM_TILE(r, size, name)                                                                                       \
    static void name(const ln_gemm_tile *t) {                                                                          \
        TILE_BEGIN(size)                                                                                               \
        __asm__ volatile(                                                                                              \
            EACH_##r(INIT_##size)                                                                                      \
            "1:\n\t" POINTERS_##r "subs %[k], %[kc], #8\n\t"                                                           \
            "b.lt 3f\n"                                                                                                \
            "2:\n\t" LOAD_##r("q", "16") "subs %[k], %[k], #8\n\t" STEPS_8(r, size) "b.ge 2b\n"                        \
            "3:\n\t"                                                                                                   \
            "tbz %[k], #2, 4f\n\t" LOAD_##r("d", "8") STEPS_2(r, size, 0, 1) STEPS_2(r, size, 2, 3)                    \
            "4:\n\t"                                                                                                   \
            "tbz %[k], #1, 5f\n\t" LOAD_##r("s", "4") STEPS_2(r, size, 0, 1)                                           \
            "5:\n\t"                                                                                                   \
            "tbz %[k], #0, 6f\n\t" LOAD_##r("h", "2") STEP(r, size, 0)                                                 \
            "6:\n\t"                                                                                                   \
            "subs %[taps], %[taps], #1\n\t"                                                                            \
            "b.ne 1b\n\t" TILE_END_##size(r) TILE_OPERANDS);                                                           \
        TILE_FINISH(r)                                                                                                 \
    }
/* clang-format on */
#define GEMM_TILES(r)                                                                                                  \
    GEMM_TILE(r, full, full_##r)                                                                                       \
    GEMM_TILE(r, half, half_##r)
GEMM_TILES(1)
GEMM_TILES(2)
GEMM_TILES(3)
GEMM_TILES(4)
GEMM_TILES(6)
/* A tile of 5 rows is rare, and would take as many products as tiles of 4 and 1. */
#define TABLE(name) {NULL, name##_1, name##_2, name##_3, name##_4, NULL, name##_6}
static const ln_gemm_ukernel full[MAX_ROWS + 1] = TABLE(full);
static const ln_gemm_ukernel half[MAX_ROWS + 1] = TABLE(half);

/* ---- 64-bit sums ------------------------------------------------------------------------------------------------- */

/* Adds n sums of 32 bits, a multiple of 8. */
static void widen_sums(int64_t *sum, const int32_t *part, int64_t n) {
    for (; n > 0; n -= 8, sum += 8, part += 8) {
        const int32x4x2_t v = vld1q_s32_x2(part);
        int64x2x4_t s = vld1q_s64_x4(sum);
        s.val[0] = vaddw_s32(s.val[0], vget_low_s32(v.val[0])), s.val[1] = vaddw_high_s32(s.val[1], v.val[0]);
        s.val[2] = vaddw_s32(s.val[2], vget_low_s32(v.val[1])), s.val[3] = vaddw_high_s32(s.val[3], v.val[1]);
        vst1q_s64_x4(sum, s);
    }
}

/* Computes a tile in pieces of K, whose sums fit in 32 bits. */
static void wide_tile(const ln_gemm_tile *t, int64_t rows, int64_t width, ln_gemm_ukernel kernel) {
    static const int32_t none[WIDTH];
    int32_t part[MAX_ROWS * WIDTH];
    int64_t sum[MAX_ROWS * WIDTH];
    const int64_t blocks = ln_ceil_div(t->kc, LN_GEMM_BOUNDED), most = t->bounded * LN_GEMM_BOUNDED;
    const int64_t taps = ln_max(1, blocks == 0 ? t->taps : t->bounded / blocks); /* taps of a piece */
    const char *b = t->b;
    for (int64_t i = 0; i < rows; i++) memcpy(sum + i * width, t->init, (size_t)width * sizeof *sum);
    for (int64_t tap = 0, n; tap < t->taps; tap += n) {
        n = ln_min(taps, t->taps - tap);
        const void *rest[MAX_ROWS];
        ln_gemm_tile piece = {
            .a = t->a + tap * rows, .taps = n, .c = part, .ldc = width, .columns = width, .init = none};
        for (int64_t k = 0; k == 0 || k < t->kc; k += piece.kc) {
            piece.b = b;
            piece.kc = blocks <= t->bounded ? t->kc : ln_min(most, t->kc - k);
            kernel(&piece);
            widen_sums(sum, part, rows * width);
            b += n * piece.kc * width * (int64_t)sizeof(int16_t);
            if (piece.kc == t->kc) break;
            for (int64_t i = 0; i < rows; i++) rest[i] = (const int16_t *)t->a[tap * rows + i] + k + piece.kc;
            piece.a = rest;
        }
    }
    ln_gemm_store_wide_neon(t, sum, rows, width);
}

/* Computes t->tiles tiles below each other. */
static void wide_tiles(const ln_gemm_tile *t, int64_t rows, int64_t width, ln_gemm_ukernel kernel) {
    ln_gemm_tile one = *t;
    for (int64_t left = ln_max(1, t->tiles); left > 0; left--) {
        wide_tile(&one, rows, width, kernel);
        one.a += rows * t->taps;
        one.c = (char *)one.c + rows * t->ldc * (int64_t)(t->rounded ? sizeof(float) : sizeof(int64_t));
    }
}

#define WIDE_TILE(r)                                                                                                   \
    static void wide_full_##r(const ln_gemm_tile *t) { wide_tiles(t, r, WIDTH, full_##r); }                            \
    static void wide_half_##r(const ln_gemm_tile *t) { wide_tiles(t, r, WIDTH / 2, half_##r); }
WIDE_TILE(1)
WIDE_TILE(2)
WIDE_TILE(3)
WIDE_TILE(4)
WIDE_TILE(6)
static const ln_gemm_ukernel wide_full[MAX_ROWS + 1] = TABLE(wide_full);
static const ln_gemm_ukernel wide_half[MAX_ROWS + 1] = TABLE(wide_half);

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    int16_t *y = dst;
    if (stride == 1 && src_dtype == LINNET_I8)
        for (int64_t i = 0; i < n; i++) y[i] = ((const int8_t *)src)[i];
    else if (stride == 1 && src_dtype == LINNET_U8)
        for (int64_t i = 0; i < n; i++) y[i] = ((const uint8_t *)src)[i];
    else if (stride == 1)
        memcpy(dst, src, (size_t)n * sizeof *y);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_I16);
}

/* The set for 8-bit activations, and for 16-bit activations whose sums fit in 32 bits. */
const ln_gemm_set ln_gemm_i8__neon = {.a_dtype = LINNET_I16,
                                      .b_dtype = LINNET_I16,
                                      .c_dtype = LINNET_I32,
                                      .rows = MAX_ROWS,
                                      .tiles = 8,
                                      .width = WIDTH,
                                      .depth = 1,
                                      .takes = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                      .full = full,
                                      .half = half,
                                      .convert = convert,
                                      .row_sums = ln_gemm_row_sums_i16,
                                      .store = ln_gemm_store_neon,
                                      .store_tile = ln_gemm_store_tile_neon,
                                      .store_sum = ln_gemm_store_sum_neon,
                                      .words = true};
const ln_gemm_set ln_gemm_i16__neon = {.a_dtype = LINNET_I16,
                                       .b_dtype = LINNET_I16,
                                       .c_dtype = LINNET_I64,
                                       .rows = MAX_ROWS,
                                       .tiles = 8,
                                       .width = WIDTH,
                                       .depth = 1,
                                       .takes = 1u << LINNET_I16,
                                       .narrow = &ln_gemm_i8__neon,
                                       .takes_b = 1u << LINNET_I8 | 1u << LINNET_I16,
                                       .full = wide_full,
                                       .half = wide_half,
                                       .convert = convert,
                                       .row_sums = ln_gemm_row_sums_i16,
                                       .store = ln_gemm_store_neon,
                                       .store_tile = ln_gemm_store_tile_neon,
                                       .store_sum = ln_gemm_store_sum_neon,
                                       .words = true};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__neon, &ln_gemm_i16__neon};

LN_GEMM_KERNELS(int__neon, sets)
