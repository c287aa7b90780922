/* gemm_s8__neon32.c - 8-bit matmul and conv for ARMv7 with NEON, tiles of up to 2 x 8, of which 2 x 4 are computed at a
 * time. A sum is a vector of four partial sums: vmull and vmlal multiply 16 k of a row by 16 k of a column and add them
 * to eight sums of 16 bits, and vpadal adds pairs of these. Two products of at most 128 x 127 fit in 16 bits, so
 * weights must be in [-127, 127]. The loop is written in assembly, because compilers spill some of the registers and
 * compute an address for each load. */
#define LN_SIMD_NEON
#include "simd/simd.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_driver_rows.h"
#include "fast/gemm/gemm_kernels.h"
#include "fast/tail/requant.inc.c"

enum { MAX_ROWS = 2, TILES = 32, WIDTH = 8, DEPTH = 8, COLUMNS = 4 };

/* 16 k of the rows are in q0 and q1, those of the columns in d4 to d7 and d8 to d11, products in q6 and q7. The sums of
 * a row are in q8 to q11, those of a second row in q12 to q15. Pointers to the rows are in r4 and r5. */
#define MUL(op, c, a, b) op ".s8 q" #c ", d" #a ", d" #b "\n"
#define ADD_PAIRS(add, c, from) add ".s16 q" #c ", q" #from "\n"
/* add: vpaddl for the first products of a sum, else vpadal. */
#define WIDE_1(add, b0, b1, c, d) MUL("vmull", 6, 0, b0) MUL("vmlal", 6, 1, b1) ADD_PAIRS(add, c, 6)
#define WIDE_2(add, b0, b1, c, d)                                                                                      \
    MUL("vmull", 6, 0, b0)                                                                                             \
    MUL("vmull", 7, 2, b0) MUL("vmlal", 6, 1, b1) MUL("vmlal", 7, 3, b1) ADD_PAIRS(add, c, 6) ADD_PAIRS(add, d, 7)
#define SHORT_1(b, c, d) MUL("vmull", 6, 0, b) ADD_PAIRS("vpadal", c, 6)
#define SHORT_2(b, c, d) MUL("vmull", 6, 0, b) MUL("vmull", 7, 2, b) ADD_PAIRS("vpadal", c, 6) ADD_PAIRS("vpadal", d, 7)
#define LOAD_WIDE_1 "vld1.8 {d0-d1}, [r4]!\n"
#define LOAD_WIDE_2 LOAD_WIDE_1 "vld1.8 {d2-d3}, [r5]!\n"
#define LOAD_SHORT_1 "vld1.8 {d0}, [r4]!\n"
#define LOAD_SHORT_2 LOAD_SHORT_1 "vld1.8 {d2}, [r5]!\n"
#define POINTERS_1 "ldr r4, [%[a]], #4\n"
#define POINTERS_2 "ldrd r4, r5, [%[a]], #8\n"
#define STEP_16(R, add)                                                                                                \
    LOAD_WIDE_##R                                                                                                      \
        "vld1.8 {d4-d7}, [%[b]], %[step]\n vld1.8 {d8-d11}, [%[b]], %[step]\n subs %[k], %[k], #16\n" WIDE_##R(        \
            add, 4, 8, 8, 12) WIDE_##R(add, 5, 9, 9, 13) WIDE_##R(add, 6, 10, 10, 14) WIDE_##R(add, 7, 11, 11, 15)
#define STEP_8(R)                                                                                                      \
    LOAD_SHORT_##R "vld1.8 {d4-d7}, [%[b]], %[step]\n" SHORT_##R(4, 8, 12) SHORT_##R(5, 9, 13) SHORT_##R(6, 10, 14)    \
        SHORT_##R(7, 11, 15)
#define ZERO(c) "vmov.i32 q" #c ", #0\n"
#define ZEROS_1 ZERO(8) ZERO(9) ZERO(10) ZERO(11)
#define ZEROS_2 ZEROS_1 ZERO(12) ZERO(13) ZERO(14) ZERO(15)
/* Adds the lanes of the four sums of a row; the result is in the first one. */
#define PAIRS(to, a, b) "vpadd.i32 d" #to ", d" #a ", d" #b "\n"
#define LANES_1                                                                                                        \
    PAIRS(16, 16, 17) PAIRS(17, 18, 19) PAIRS(18, 20, 21) PAIRS(19, 22, 23) PAIRS(16, 16, 17) PAIRS(17, 18, 19)
#define LANES_2                                                                                                        \
    LANES_1 PAIRS(24, 24, 25) PAIRS(25, 26, 27) PAIRS(26, 28, 29) PAIRS(27, 30, 31) PAIRS(24, 24, 25) PAIRS(25, 26, 27)
#define STORE_1 "vadd.i32 q8, q8, q0\n vst1.32 {d16-d17}, [%[c]], %[ldc]\n"
#define STORE_2 STORE_1 "vadd.i32 q12, q12, q0\n vst1.32 {d24-d25}, [%[c]], %[ldc]\n"

/* block_<rows> computes t->tiles tiles below each other, at least one, of four columns. b: the columns in the panel,
 * whose steps of DEPTH k are b_step bytes apart. ldc: bytes. */
#define BLOCK(R)                                                                                                       \
    static LN_NEVER_INLINE void block_##R(const ln_gemm_tile *t, const int8_t *b, int32_t b_step, const int32_t *init, \
                                          int32_t *c, int32_t ldc) {                                                   \
        const void *const *a = t->a;                                                                                   \
        const int32_t kc = (int32_t)t->kc;                                                                             \
        int32_t tiles = (int32_t)t->tiles;                                                                             \
        do {                                                                                                           \
            int32_t taps = (int32_t)t->taps, k;                                                                        \
            const int8_t *at = b;                                                                                      \
            __asm__ volatile(                                                                                          \
                POINTERS_##R                                                                                           \
                "subs %[k], %[kc], #16\n"                                                                              \
                "blt 6f\n" STEP_16(R, "vpaddl") "blt 3f\n"                                                             \
                                                "2: " STEP_16(R, "vpadal") "bge 2b\n"                                  \
                                                                           "3: tst %[k], #8\n"                         \
                                                                           "beq 4f\n" STEP_8(                          \
                                                                               R) "4: subs %[taps], %[taps], #1\n"     \
                                                                                  "beq 5f\n" POINTERS_##R              \
                "subs %[k], %[kc], #16\n"                                                                              \
                "bge 2b\n"                                                                                             \
                "b 3b\n"                                                                                               \
                "6: " ZEROS_##R "b 3b\n"                                                                               \
                                "5: " LANES_##R "vld1.32 {d0-d1}, [%[init]]\n" STORE_##R                               \
                : [a] "+&r"(a), [b] "+&r"(at), [taps] "+&r"(taps), [c] "+&r"(c), [k] "=&r"(k)                          \
                : [kc] "r"(kc), [step] "r"(b_step), [init] "r"(init), [ldc] "r"(ldc)                                   \
                : "cc", "memory", "r4", "r5", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10",       \
                  "q11", "q12", "q13", "q14", "q15");                                                                  \
        } while (--tiles > 0);                                                                                         \
    }
BLOCK(1)
BLOCK(2)

static void tile(const ln_gemm_tile *t, int32_t rows, int32_t width) {
    int32_t edge[MAX_ROWS * WIDTH];
    const bool whole = t->columns == width;
    int32_t *c = whole ? t->c : edge;
    const int32_t ldc = (whole ? (int32_t)t->ldc : width) * (int32_t)sizeof *c;
    const int32_t *init = t->init, all = rows * (int32_t)ln_max(t->tiles, 1);
    for (int32_t j = 0; j < width; j += COLUMNS)
        (rows == 2 ? block_2 : block_1)(t, (const int8_t *)t->b + j * DEPTH, width * DEPTH, init + j, c + j, ldc);
    for (int32_t i = 0; t->row_sum != NULL && i < all; i++)
        for (int32_t j = 0; j < width; j += COLUMNS) {
            int32_t *at = (int32_t *)(void *)((char *)c + i * ldc) + j;
            vst1q_s32(at, vaddq_s32(vld1q_s32(at), vdupq_n_s32(t->row_sum[i])));
        }
    if (!whole)
        ln_gemm_copy_rows(t->c, t->ldc * (int64_t)sizeof *c, edge, width * (int64_t)sizeof *c, rows,
                          t->columns * (int64_t)sizeof *c);
}

static void full_1(const ln_gemm_tile *t) { tile(t, 1, WIDTH); }
static void full_2(const ln_gemm_tile *t) { tile(t, 2, WIDTH); }
static void half_1(const ln_gemm_tile *t) { tile(t, 1, WIDTH / 2); }
static void half_2(const ln_gemm_tile *t) { tile(t, 2, WIDTH / 2); }
static const ln_gemm_ukernel full[MAX_ROWS + 1] = {NULL, full_1, full_2};
static const ln_gemm_ukernel half[MAX_ROWS + 1] = {NULL, half_1, half_2};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_I8);
}

static void row_sums(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    for (int64_t i = 0; i < rows; i++) {
        int32x4_t four = vdupq_n_s32(0);
        sums[i] = 0;
        for (int64_t t = 0; t < taps; t++) {
            const int8_t *v = a[t * rows + i];
            int64_t k = 0;
            for (; k + 16 <= kc; k += 16) four = vpadalq_s16(four, vpaddlq_s8(vld1q_s8(v + k)));
            for (; k < kc; k++) sums[i] += v[k];
        }
        sums[i] += vaddvq_s32(four);
    }
}

static void store(const ln_requant *r, int64_t channel, const void *sums, int64_t sums_stride, int64_t rows, int64_t n,
                  void *y, int64_t y_stride) {
    for (; rows > 0; rows--, sums = (const char *)sums + sums_stride, y = (char *)y + y_stride) {
        if (r->low_at == 0 && !r->wide)
            requant_row(r, channel, sums, NULL, n, y);
        else
            ln_gemm_store_row(r, channel, sums, n, y);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The constants of four channels. */
typedef struct factors {
    vf scale;
    vi fixed, shift;
} factors;

static LN_ALWAYS_INLINE factors factors_of(const ln_requant *r, const int mode, int64_t channel) {
    factors f = {0};
    if (mode == LN_REQUANT_FLOAT_RNE)
        f.scale = vf_load(r->scale + channel);
    else
        f.fixed = vi_load(r->fixed + channel), f.shift = vi_load(r->shift + channel);
    return f;
}

/* Returns the results of four sums, without the zero point, within the range of i16. Adding 1.5 * 2^23 rounds a float
 * half to even: the low bits of the total are an integer, from which the bits of the constant are subtracted. Where the
 * total is too large for that, the difference is beyond 16 bits, too. */
static LN_ALWAYS_INLINE int16x4_t scaled(vi sum, const factors *f, const int mode) {
    if (mode == LN_REQUANT_TFLITE) return vqmovn_s32(vi_fixed_multiply(sum, f->fixed, f->shift));
    if (mode == LN_REQUANT_TFLITE_SINGLE) return vqmovn_s32(vi_fixed_multiply_single(sum, f->fixed, f->shift));
    const vf constant = vf_set1(12582912.0f), total = vf_add(vf_mul(vf_from_vi(sum), f->scale), constant);
    return vqmovn_s32(vqsubq_s32(vf_as_vi(total), vf_as_vi(constant)));
}

/* Stores rows of 8 results as bytes. Every step saturates, which replaces the clamp because |zero| < 2^8. u8 results
 * are i8 results with the highest bit flipped. */
static LN_ALWAYS_INLINE void store_bytes(const int mode, const ln_requant *r, int64_t channel, const int32_t *sums,
                                         int32_t rows, uint8_t *y, int32_t stride) {
    const int turn = r->output_dtype == LINNET_I8 ? 0 : 128;
    const int16x8_t zero = vdupq_n_s16((int16_t)(r->y_zero - turn));
    const uint8x8_t highest = vdup_n_u8((uint8_t)turn);
    const factors low = factors_of(r, mode, channel), high = factors_of(r, mode, channel + 4);
    for (; rows > 0; rows--, sums += WIDTH, y += stride) {
        const int16x8_t v = vcombine_s16(scaled(vi_load(sums), &low, mode), scaled(vi_load(sums + 4), &high, mode));
        vst1_u8(y, veor_u8(vreinterpret_u8_s8(vqmovn_s16(vqaddq_s16(v, zero))), highest));
    }
}

static LN_NEVER_INLINE void store_bytes_of(const ln_requant *r, int64_t channel, const int32_t *sums, int32_t rows,
                                           uint8_t *y, int32_t stride) {
    if (r->mode == LN_REQUANT_FLOAT_RNE)
        store_bytes(LN_REQUANT_FLOAT_RNE, r, channel, sums, rows, y, stride);
    else if (r->mode == LN_REQUANT_TFLITE)
        store_bytes(LN_REQUANT_TFLITE, r, channel, sums, rows, y, stride);
    else
        store_bytes(LN_REQUANT_TFLITE_SINGLE, r, channel, sums, rows, y, stride);
}

static void store_tile(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t rows, int64_t width,
                       int64_t n, void *y, int64_t y_stride) {
    uint8_t row[WIDTH], *to = y;
    if ((r->output_dtype != LINNET_I8 && r->output_dtype != LINNET_U8) || width < WIDTH) {
        store(r, channel, sums, width * (int64_t)sizeof *sums, rows, n, y, y_stride);
        return;
    }
    if (n == WIDTH) {
        store_bytes_of(r, channel, sums, (int32_t)rows, to, (int32_t)y_stride);
        return;
    }
    for (; rows > 0; rows--, sums += WIDTH, to += y_stride) {
        store_bytes_of(r, channel, sums, 1, row, 0);
        memcpy(to, row, (size_t)n);
    }
}

/* ---- tiles with a residual --------------------------------------------------------------------------------------- */

/* Returns the quotients of four numbers, which are within 16 bits, as a division rounds them. */
static LN_NEVER_INLINE int16x4_t divided(vf v, float divisor) {
    return vmovn_s32(vi_from_vf(vf_div(v, vf_set1(divisor))));
}

/* Adds a residual to rows of 8 sums, which are `width` apart, and stores bytes. The limits keep the sum in range, so
 * that nothing saturates. A product with the inverse of the scale is at most 2^-12 from the quotient if that is at most
 * 512, so only numbers that are close to a half must be divided. */
static LN_ALWAYS_INLINE void sum_bytes(const bool floats, const float *scale, const ln_quantized_sum *all,
                                       const int32_t *sums, int32_t rows, int32_t width, const uint8_t *residual,
                                       uint8_t *y, int32_t stride) {
    const ln_quantized_sum s = *all; /* a copy, so that the compiler knows that no store changes it */
    const bool small = s.low * s.y_inverse >= -512 && s.high * s.y_inverse <= 512;
    const vf least = vf_set1(s.low), most = vf_set1(s.high), inverse = vf_set1(s.y_inverse);
    const vf round = vf_set1(12582912.0f), half = vf_set1(small ? 0.5f - 0x1p-12f : -1);
    const uint8x8_t turn = vdup_n_u8(s.dtype == LINNET_I8 ? 0 : 128); /* u8 to i8 */
    const int16x8_t zero = vdupq_n_s16((int16_t)(s.zero - (s.dtype == LINNET_I8 ? 0 : 128)));
    const int16x8_t y_zero = vdupq_n_s16((int16_t)s.y_zero);
    for (; rows > 0; rows--, sums += width, residual += stride * (floats ? 4 : 1), y += stride) {
        vf v[2], total[2];
        uint32x4_t close = vdupq_n_u32(0);
        int16x8_t bytes = zero;
        if (!floats) bytes = vsubq_s16(vmovl_s8(vreinterpret_s8_u8(veor_u8(vld1_u8(residual), turn))), zero);
        LN_UNROLL
        for (int i = 0; i < 2; i++) {
            const int16x4_t few = i == 0 ? vget_low_s16(bytes) : vget_high_s16(bytes);
            const vf added = floats ? vreinterpretq_f32_u8(vld1q_u8(residual + 16 * i))
                                    : vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(few)), s.scale);
            v[i] = vf_add(vf_mul(vf_from_vi(vi_load(sums + 4 * i)), vf_load(scale + 4 * i)), added);
            v[i] = vf_min(vf_max(v[i], least), most);
            const vf quotient = vf_mul(v[i], inverse);
            total[i] = vf_add(quotient, round);
            close = vorrq_u32(close, vcagtq_f32(vf_sub(quotient, vf_sub(total[i], round)), half));
        }
        int16x8_t q = vcombine_s16(vmovn_s32(vf_as_vi(total[0])), vmovn_s32(vf_as_vi(total[1])));
        if (!small || vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(close)), 0) != 0)
            q = vcombine_s16(divided(v[0], s.y_scale), divided(v[1], s.y_scale));
        vst1_u8(y, vreinterpret_u8_s8(vmovn_s16(vaddq_s16(q, y_zero))));
    }
}

static LN_NEVER_INLINE void sum_bytes_of(const float *scale, const ln_quantized_sum *all, const int32_t *sums,
                                         int32_t rows, int32_t width, const uint8_t *residual, uint8_t *y,
                                         int32_t stride) {
    if (all->dtype == LINNET_F32)
        sum_bytes(true, scale, all, sums, rows, width, residual, y, stride);
    else
        sum_bytes(false, scale, all, sums, rows, width, residual, y, stride);
}

static void store_sum(const ln_requant *r, const ln_quantized_sum *sum, int64_t channel, const int32_t *sums,
                      int64_t rows, int64_t width, int64_t n, const void *residual, void *y, int64_t y_stride) {
    const int32_t size = sum->dtype == LINNET_F32 ? 4 : 1, columns = (int32_t)width, stride = (int32_t)y_stride;
    const float *scale = r->scale + channel;
    const uint8_t *from = residual;
    uint8_t *to = y;
    if (n == WIDTH) {
        sum_bytes_of(scale, sum, sums, (int32_t)rows, columns, from, to, stride);
        return;
    }
    for (; rows > 0; rows--, sums += columns, from += stride * size, to += stride) {
        uint8_t few[4 * WIDTH] = {0}, result[WIDTH];
        int32_t last[WIDTH] = {0};
        memcpy(few, from, (size_t)n * (size_t)size);
        memcpy(last, sums, (size_t)n * sizeof *last);
        sum_bytes_of(scale, sum, last, 1, WIDTH, few, result, 0);
        memcpy(to, result, (size_t)n);
    }
}

const ln_gemm_set ln_gemm_s8__neon32 = {.a_dtype = LINNET_I8,
                                        .b_dtype = LINNET_I8,
                                        .c_dtype = LINNET_I32,
                                        .rows = MAX_ROWS,
                                        .tiles = TILES,
                                        .width = WIDTH,
                                        .depth = DEPTH,
                                        .whole = true,
                                        .symmetric = true,
                                        .takes = 1u << LINNET_I8,
                                        .takes_b = 1u << LINNET_I8,
                                        .full = full,
                                        .half = half,
                                        .convert = convert,
                                        .row_sums = row_sums,
                                        .store = store,
                                        .store_tile = store_tile,
                                        .store_sum = store_sum};
static const ln_gemm_set *const sets[] = {&ln_gemm_s8__neon32};

/* Tells whether the weights are known and none is -128. */
static bool symmetric(const ln_tensor *w) {
    if (w->dtype != LINNET_I8 || w->data == NULL || !ln_packable(w) || !ln_is_dense(w)) return false;
    const int8_t *v = w->data;
    int lowest = 0;
    for (int64_t i = 0, n = ln_count(w); i < n; i++) lowest = v[i] < lowest ? v[i] : lowest;
    return lowest > INT8_MIN;
}

LN_GEMM_KERNELS_IF(symmetric(&call->inputs[1]), s8__neon32, sets)
