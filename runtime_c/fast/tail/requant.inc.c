/* requant.inc.c - converts rows of 32-bit sums to stored integers or f32 with vectors, bit for bit as ln_requant_store.
 * Included by the kernels that accumulate integers. Needs simd/simd.h and kernel/common/requant.h. */
#ifndef LN_REQUANT_INC
#define LN_REQUANT_INC

#include "kernel/map.h"

/* Returns v divided by the scale of the stored integers, rounded as a division rounds (map/map_strip.inc.c). */
static LN_ALWAYS_INLINE vf requant_quotient(const ln_quantized_sum *s, vf v) {
#ifdef VF_FMA_DIVIDES
    const vf inverse = vf_set1(s->y_inverse), minus = vf_set1(-s->y_scale);
    const vf q = vf_mul(v, inverse);
    return vf_fma(vf_fma(q, minus, v), inverse, q);
#else
    return vf_div(v, vf_set1(s->y_scale));
#endif
}

static LN_ALWAYS_INLINE void requant_store_as(int dtype, vi q, void *y, int64_t i) {
    if (dtype == LINNET_I8)
        vi_store_i8((int8_t *)y + i, q);
    else if (dtype == LINNET_U8)
        vi_store_u8((uint8_t *)y + i, q);
    else
        vi_store_i16((int16_t *)y + i, q);
}

static LN_ALWAYS_INLINE void requant_store(const ln_requant *r, vi q, void *y, int64_t i) {
    requant_store_as(r->output_dtype, q, y, i);
}

#ifdef VI_FIXED_MULTIPLY
/* Converts the vector part of a row to integers with TensorFlow Lite's double rounding. Returns the number of
 * elements. */
static inline int64_t requant_fixed(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t n, void *y) {
    vi least = vi_set1(r->low - r->y_zero), most = vi_set1(r->high - r->y_zero), zero = vi_set1(r->y_zero);
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) {
        vi q = vi_fixed_multiply(vi_load(sums + i), vi_load(r->fixed + channel + i), vi_load(r->shift + channel + i));
        requant_store(r, vi_add(vi_min(vi_max(q, least), most), zero), y, i);
    }
    return i;
}
#endif

#ifdef VI_FIXED_MULTIPLY_SINGLE
/* Converts the vector part of a row to integers with one rounding. Returns the number of elements. */
static inline int64_t requant_single(const ln_requant *r, int64_t channel, const int32_t *sums, int64_t n, void *y) {
    vi least = vi_set1(r->low - r->y_zero), most = vi_set1(r->high - r->y_zero), zero = vi_set1(r->y_zero);
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) {
        vi q = vi_fixed_multiply_single(vi_load(sums + i), vi_load(r->fixed + channel + i),
                                        vi_load(r->shift + channel + i));
        requant_store(r, vi_add(vi_min(vi_max(q, least), most), zero), y, i);
    }
    return i;
}
#endif

/* Loads sums as f32. low: sums over the low bytes of 16-bit weights; NULL: sums are whole. */
static LN_ALWAYS_INLINE vf requant_load(const int32_t *sums, const int32_t *low, int64_t i) {
    return low == NULL ? vf_from_vi(vi_load(sums + i)) : vf_from_parts(vi_load(sums + i), vi_load(low + i));
}

/* Converts the vector part of a row to integers by float_rne. Returns the number of elements converted. */
static inline int64_t requant_vectors(const ln_requant *r, int64_t channel, const int32_t *sums, const int32_t *low,
                                      int64_t n, void *y) {
    vf least = vf_set1((float)(r->low - r->y_zero)), most = vf_set1((float)(r->high - r->y_zero));
    vi zero = vi_set1(r->y_zero);
    int64_t i = 0;
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) {
        vf v = vf_mul(requant_load(sums, low, i), vf_load(r->scale + channel + i));
        vi q = vi_add(vi_from_vf(vf_min(vf_max(v, least), most)), zero);
        requant_store(r, q, y, i);
    }
    return i;
}

/* Converts the vector part of a row to stored integers. Returns the number of elements, 0 for other outputs. */
static LN_NEVER_INLINE int64_t requant_whole(const ln_requant *r, int64_t channel, const int32_t *sums,
                                             const int32_t *low, int64_t n, void *y) {
    if (r->output_dtype == LINNET_I32 || r->output_dtype == LINNET_I64) return 0;
    if (r->mode == LN_REQUANT_FLOAT_RNE) return requant_vectors(r, channel, sums, low, n, y);
#ifdef VI_FIXED_MULTIPLY
    if (r->mode == LN_REQUANT_TFLITE && !r->wide) return requant_fixed(r, channel, sums, n, y);
#endif
#ifdef VI_FIXED_MULTIPLY_SINGLE
    if (r->mode == LN_REQUANT_TFLITE_SINGLE && !r->wide) return requant_single(r, channel, sums, n, y);
#endif
    return 0;
}

/* Converts n sums of channels [channel, channel + n) and stores them from y on. For 4-byte outputs, y may be `sums`
 * itself. low: as in requant_load. Whole vectors can be loaded from the tables, which have padding after the last
 * channel. */
static inline void requant_row(const ln_requant *r, int64_t channel, const int32_t *sums, const int32_t *low, int64_t n,
                               void *y) {
    int64_t i = 0;
    if (r->output_dtype == LINNET_F32) {
        for (; i + VF_WIDTH <= n; i += VF_WIDTH)
            vf_store((float *)y + i, vf_mul(requant_load(sums, low, i), vf_load(r->scale + channel + i)));
        if (i < n && low == NULL) {
            const int left = (int)(n - i);
            const vf v = vf_from_vi(vi_load_partial(sums + i, left));
            vf_store_partial((float *)y + i, left, vf_mul(v, vf_load(r->scale + channel + i)));
            i = n;
        }
    } else {
        i = requant_whole(r, channel, sums, low, n, y);
        const size_t left = (size_t)(n - i), size = ln_dtype_size(r->output_dtype);
        if (n > i && n - i < VF_WIDTH) { /* the rest, by way of whole vectors */
            int32_t rest[2][VF_WIDTH] = {{0}, {0}};
            int16_t made[VF_WIDTH];
            memcpy(rest[0], sums + i, left * sizeof *sums);
            if (low != NULL) memcpy(rest[1], low + i, left * sizeof *low);
            if (requant_whole(r, channel + i, rest[0], low == NULL ? NULL : rest[1], VF_WIDTH, made) > 0) {
                memcpy((char *)y + (size_t)i * size, made, left * size);
                i = n;
            }
        }
    }
    for (; i < n; i++) ln_requant_store(r, channel + i, low == NULL ? sums[i] : ln_joined_parts(sums[i], low[i]), y, i);
}

/* Converts `pixels` pixels, whose sums are adjacent. y_pixel: bytes from pixel to pixel. */
static inline void requant_pixels(const ln_requant *r, const int32_t *sums, const int32_t *low, int64_t pixels, char *y,
                                  int64_t y_pixel) {
    const int64_t size = (int64_t)ln_dtype_size(r->output_dtype), sums_in_all = pixels * r->channels;
    /* A vector spans several pixels of few channels, whose factors repeat in the tables. */
    const bool together = r->channels <= LN_REQUANT_PADDING && y_pixel == r->channels * size;
    const int64_t step = together ? (LN_REQUANT_PADDING + 1) / r->channels * r->channels : r->channels;
    for (int64_t at = 0; at < sums_in_all; at += step, y += together ? step * size : y_pixel)
        requant_row(r, 0, sums + at, low == NULL ? NULL : low + at, ln_min(step, sums_in_all - at), y);
}

/* Converts `pixels` pixels whose sums get biases that exceed 32 bits. y may be the memory of the sums. */
static inline void requant_wide(const ln_requant *r, const int32_t *sums, const int32_t *low, const int64_t *bias,
                                int64_t pixels, char *y, int64_t y_pixel) {
    for (int64_t p = 0, at = 0; p < pixels; p++, y += y_pixel)
        for (int64_t c = 0; c < r->channels; c++, at++) {
            const int64_t sum = low == NULL ? sums[at] : ln_joined_parts(sums[at], low[at]);
            ln_requant_store(r, c, ln_wrapped_sum(sum, bias[c]), y, c);
        }
}

#endif
