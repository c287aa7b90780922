/* gemm_s8__avx512vnni.c - 8-bit matmul and conv with vpdpbusd, tiles of up to 14 x 32, four products per lane. The
 * instruction multiplies unsigned by signed numbers. Therefore 128 is added to i8 weights for i8 activations, and
 * subtracted from u8 weights for u8 activations. The driver removes the difference with the help of the row sums. */
#include "fast/gemm/gemm_driver_pack.h"
#include "fast/gemm/gemm_kernels.h"
#include "kernels_x86/gemm/gemm_store__avx512vnni.h"
#include "kernels_x86/gemm/gemm_tile__avx512vnni.h"

#include <immintrin.h>
#include <string.h>

#define MAX_ROWS 14
#define GEMM_ROWS LN_GEMM_ROWS_14
#define LANES 16

static inline int32_t load_four(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) void gemm_s8(const int rows, const int vectors, const bool a_signed,
                                                          const ln_gemm_tile *t) {
    const int64_t width = vectors * LANES;
    const int8_t *b = t->b;
    const void *const *a = t->a;
    __m512i sum[MAX_ROWS][2];
    LN_UNROLL
    for (int i = 0; i < rows; i++) LN_UNROLL
    for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_load_si512((const int32_t *)t->init + j * LANES);
    for (int64_t taps = t->taps; taps > 0; taps--, a += rows) {
        const uint8_t *row[MAX_ROWS];
        LN_UNROLL
        for (int i = 0; i < rows; i++) row[i] = a[i];
        const int64_t kc = t->kc;
        int64_t k = 0;
        for (; k + 4 <= kc; k += 4, b += 4 * width) {
            __m512i column[2];
            LN_UNROLL
            for (int j = 0; j < vectors; j++) column[j] = _mm512_load_si512(b + j * 4 * LANES);
            LN_UNROLL
            for (int i = 0; i < rows; i++) {
                __m512i value = _mm512_set1_epi32(load_four(row[i] + k));
                LN_UNROLL
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = a_signed ? _mm512_dpbusd_epi32(sum[i][j], column[j], value)
                                         : _mm512_dpbusd_epi32(sum[i][j], value, column[j]);
            }
        }
        if (k < kc) { /* the last 1 to 3 steps; the panel has zeros after them */
            const __mmask16 mask = (__mmask16)((1u << (kc - k)) - 1);
            LN_UNROLL
            for (int i = 0; i < rows; i++) {
                __m512i value = _mm512_broadcastd_epi32(_mm_maskz_loadu_epi8(mask, row[i] + k));
                LN_UNROLL
                for (int j = 0; j < vectors; j++) {
                    __m512i column = _mm512_load_si512(b + j * 4 * LANES);
                    sum[i][j] = a_signed ? _mm512_dpbusd_epi32(sum[i][j], column, value)
                                         : _mm512_dpbusd_epi32(sum[i][j], value, column);
                }
            }
            b += 4 * width;
        }
    }
    int64_t last = t->columns - (vectors - 1) * LANES; /* number of columns in the last vector */
    const __mmask16 last_mask = last >= LANES ? 0xFFFF : last <= 0 ? 0 : (__mmask16)((1u << last) - 1);
    const __mmask16 first_mask = t->columns >= LANES ? 0xFFFF : (__mmask16)((1u << t->columns) - 1);
    static const int32_t none[MAX_ROWS];
    const int32_t *row_sum = t->row_sum != NULL ? t->row_sum : none;
    int32_t *c = t->c;
    LN_UNROLL
    for (int i = 0; i < rows; i++, c += t->ldc) LN_UNROLL
    for (int j = 0; j < vectors; j++)
        _mm512_mask_storeu_epi32(c + j * LANES, j == vectors - 1 ? last_mask : first_mask,
                                 _mm512_add_epi32(sum[i][j], _mm512_set1_epi32(row_sum[i])));
}

#define GEMM_INSTANCE(r)                                                                                               \
    static void full_s_##r(const ln_gemm_tile *t) { gemm_s8(r, 2, true, t); }                                          \
    static void half_s_##r(const ln_gemm_tile *t) { gemm_s8(r, 1, true, t); }                                          \
    static void full_u_##r(const ln_gemm_tile *t) { gemm_s8(r, 2, false, t); }                                         \
    static void half_u_##r(const ln_gemm_tile *t) { gemm_s8(r, 1, false, t); }
GEMM_ROWS(GEMM_INSTANCE)
#define GEMM_FULL_S(r) [r] = full_s_##r,
#define GEMM_HALF_S(r) [r] = half_s_##r,
#define GEMM_FULL_U(r) [r] = full_u_##r,
#define GEMM_HALF_U(r) [r] = half_u_##r,
static const ln_gemm_ukernel full_s[MAX_ROWS + 1] = {GEMM_ROWS(GEMM_FULL_S)};
static const ln_gemm_ukernel half_s[MAX_ROWS + 1] = {GEMM_ROWS(GEMM_HALF_S)};
static const ln_gemm_ukernel full_u[MAX_ROWS + 1] = {GEMM_ROWS(GEMM_FULL_U)};
static const ln_gemm_ukernel half_u[MAX_ROWS + 1] = {GEMM_ROWS(GEMM_HALF_U)};

static void convert(void *dst, const void *src, int64_t stride, int64_t n, int src_dtype) {
    if (stride == 1)
        memcpy(dst, src, (size_t)n);
    else
        ln_gemm_convert_any(dst, src, stride, n, src_dtype, LINNET_U8);
}

/* Computes the sums of rows of bytes, four rows at a time, as products of 64 bytes with ones. */
static inline __attribute__((always_inline)) void row_sums(const void *const *a, int64_t taps, int64_t rows, int64_t kc,
                                                           const bool a_signed, int32_t *sums) {
    __m512i ones = _mm512_set1_epi8(1);
    for (int64_t i = 0; i < rows; i += 4) {
        __m512i sum[4];
        LN_UNROLL
        for (int j = 0; j < 4; j++) {
            sum[j] = _mm512_setzero_si512();
            for (int64_t t = 0; t < taps && i + j < rows; t++) {
                const uint8_t *row = a[t * rows + i + j];
                for (int64_t k = 0; k < kc; k += 64) {
                    __mmask64 mask = kc - k >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (kc - k)) - 1;
                    __m512i v = _mm512_maskz_loadu_epi8(mask, row + k);
                    sum[j] = a_signed ? _mm512_dpbusd_epi32(sum[j], ones, v) : _mm512_dpbusd_epi32(sum[j], v, ones);
                }
            }
        }
        __m512i pair0 = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]), _mm512_unpackhi_epi32(sum[0], sum[1]));
        __m512i pair1 = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[2], sum[3]), _mm512_unpackhi_epi32(sum[2], sum[3]));
        __m512i four = _mm512_add_epi32(_mm512_unpacklo_epi64(pair0, pair1), _mm512_unpackhi_epi64(pair0, pair1));
        __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
        __m128i v = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        int64_t left = rows - i;
        _mm_mask_storeu_epi32(sums + i, (__mmask8)(left >= 4 ? 15 : (1 << left) - 1), v);
    }
}
static void row_sums_s(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    row_sums(a, taps, rows, kc, true, sums);
}
static void row_sums_u(const void *const *a, int64_t taps, int64_t rows, int64_t kc, int32_t *sums) {
    row_sums(a, taps, rows, kc, false, sums);
}

const ln_gemm_set ln_gemm_i8__avx512vnni = {.a_dtype = LINNET_I8,
                                            .b_dtype = LINNET_U8,
                                            .c_dtype = LINNET_I32,
                                            .rows = MAX_ROWS,
                                            .width = 2 * LANES,
                                            .depth = 4,
                                            .takes = 1u << LINNET_I8,
                                            .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                            .full = full_s,
                                            .half = half_s,
                                            .convert = convert,
                                            .row_sums = row_sums_s,
                                            .store = ln_gemm_store__avx512vnni,
                                            .store_tile = ln_gemm_store_tile__avx512vnni,
                                            .store_sum = ln_gemm_store_sum__avx512vnni};
const ln_gemm_set ln_gemm_u8__avx512vnni = {.a_dtype = LINNET_U8,
                                            .b_dtype = LINNET_I8,
                                            .c_dtype = LINNET_I32,
                                            .rows = MAX_ROWS,
                                            .width = 2 * LANES,
                                            .depth = 4,
                                            .takes = 1u << LINNET_U8,
                                            .takes_b = 1u << LINNET_I8 | 1u << LINNET_U8,
                                            .full = full_u,
                                            .half = half_u,
                                            .convert = convert,
                                            .row_sums = row_sums_u,
                                            .store = ln_gemm_store__avx512vnni,
                                            .store_tile = ln_gemm_store_tile__avx512vnni,
                                            .store_sum = ln_gemm_store_sum__avx512vnni};
static const ln_gemm_set *const sets[] = {&ln_gemm_i8__avx512vnni, &ln_gemm_u8__avx512vnni};

LN_GEMM_KERNELS(int8__avx512vnni, sets)
