/* depthwise_int8.inc.c - depthwise convolution of 8-bit and 16-bit integers with NEON, 8 channels at a time: 16-bit
 * differences from the zero point times 16-bit weights, summed in 32 bits and requantized in registers. The zero point
 * of 16-bit integers is 0. Included by depthwise.inc.c. */
#ifdef LN_SIMD_NEON

#define DW8_SEGMENT 56 /* output pixels before the next channels: so few that input lines stay in L1 */
#define DW8_PIXELS 4

/* One output row. Rows of the input have their padding in place and hold i8 or i16. Distances are in bytes. */
typedef struct dw8_span {
    const ln_depthwise *d;
    const ln_depthwise_weights *parts;
    const int8_t *rows[LN_DEPTHWISE_ROWS];
    int64_t x_pixel, y_pixel;
    char *out;
} dw8_span;

/* ---- input rows ---- */

static int64_t dw8_width(const ln_window *w) {
    return (w->out[2] - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1;
}

/* Copies n bytes; u8 becomes i8. */
static void dw8_copy(bool u8, const int8_t *from, int64_t n, int8_t *to) {
    if (!u8) {
        memcpy(to, from, (size_t)n);
        return;
    }
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vst1q_s8(to + i, veorq_s8(vld1q_s8(from + i), vdupq_n_s8(INT8_MIN)));
    for (; i < n; i++) to[i] = (int8_t)(from[i] ^ INT8_MIN);
}

/* Returns row (n, z, y) of x with its padding; see dw_input_row. Slot kernel[0] * kernel[1] is a row of padding. */
static const int8_t *dw8_input_row(const ln_depthwise *d, const int8_t *x, const int64_t *position, int64_t tap,
                                   dw_cache *cache) {
    const ln_window *w = &d->window;
    const int64_t kz = tap / w->kernel[1], ky = tap % w->kernel[1], n = position[0];
    const int64_t z = position[1] * w->stride[0] - w->pad_begin[0] + kz * w->dilation[0],
                  y = position[2] * w->stride[1] - w->pad_begin[1] + ky * w->dilation[1];
    const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
    const int64_t at = n * d->x.n + z * d->x.s[0] + y * d->x.s[1], id = inside ? (n * w->in[0] + z) * w->in[1] + y : 0;
    const int64_t size = d->narrow.size;
    if (d->narrow.in_place) return x + at * size;
    int64_t slot =
        (w->dilation[0] == 1 ? z % w->kernel[0] : kz) * w->kernel[1] + (w->dilation[1] == 1 ? y % w->kernel[1] : ky);
    if (!inside) slot = w->kernel[0] * w->kernel[1];
    const int64_t width = dw8_width(w), before = ln_min(w->pad_begin[2], width),
                  middle = ln_min(w->in[2], width - before), c = d->channels * size; /* bytes of a pixel */
    int8_t *row = (int8_t *)cache->rows + slot * width * c;
    if (cache->held[slot] == id) return row;
    cache->held[slot] = id;
    if (!inside) {
        memset(row, d->narrow.padding, (size_t)(width * c));
        return row;
    }
    memset(row, d->narrow.padding, (size_t)(before * c));
    if (d->x.s[2] * size == c)
        dw8_copy(d->quantized.x_u8, x + at * size, middle * c, row + before * c);
    else
        for (int64_t i = 0; i < middle; i++)
            dw8_copy(d->quantized.x_u8, x + (at + i * d->x.s[2]) * size, c, row + (before + i) * c);
    memset(row + (before + middle) * c, d->narrow.padding, (size_t)((width - before - middle) * c));
    return row;
}

#ifdef LN_SIMD_NEON64
#include "fast/tail/depthwise_int8_a64.inc.c"
#else
#include "fast/tail/depthwise_int8_a32.inc.c"
#endif

typedef void dw8_slider(const dw8_span *s, int64_t c, int64_t begin, int64_t count);

/* Returns the function that computes a convolution by 3 x 3 with all weights in registers; NULL: there is none. */
static dw8_slider *dw8_slider_of(const ln_depthwise *d) {
    const ln_window *w = &d->window;
    if (w->dilation[2] != 1 || w->stride[2] > 2 || w->kernel[0] != 1 || w->kernel[1] != 3 || w->kernel[2] != 3)
        return NULL;
#ifdef LN_SIMD_NEON64
    if (d->narrow.size == 2) return d->narrow.sum != NULL ? dw16_slide : NULL;
    return d->narrow.stores != LN_NARROW_SUMS ? dw8_slide : NULL;
#else
    return d->narrow.size == 1 && d->narrow.stores == LN_NARROW_FLOAT ? dw8_slide : NULL;
#endif
}

/* ---- other kernels and outputs: blocks of pixels ---- */

/* Returns the bytes of a stored result. */
static int64_t dw8_stored(const ln_depthwise *d) {
    return d->narrow.stores == LN_NARROW_SUMS ? 4 : d->narrow.stores == LN_NARROW_WORDS ? 2 : 1;
}

/* The numbers by which sums become i16, for 8 channels. They are copies, so the compiler knows that no store changes
 * them. */
typedef struct dw8_words {
    vf scale[2], least, most;
    vi zero;
    int16x8_t sum_zero;   /* the zero point if `divided` */
    ln_quantized_sum sum; /* valid if `divided` */
    bool divided;
} dw8_words;

static LN_ALWAYS_INLINE dw8_words dw8_words_of(const ln_depthwise *d, int64_t c) {
    const ln_requant *r = &d->quantized.requant;
    dw8_words w = {.divided = d->narrow.sum != NULL, .zero = vi_set1(r->y_zero)};
    w.scale[0] = vf_load(r->scale + c), w.scale[1] = vf_load(r->scale + c + 4);
    if (!w.divided) return w;
    w.sum = *d->narrow.sum;
    w.least = vf_set1(w.sum.low), w.most = vf_set1(w.sum.high);
    w.sum_zero = vdupq_n_s16((int16_t)w.sum.y_zero);
    return w;
}

static LN_ALWAYS_INLINE vi dw8_word(const dw8_words *w, int half, vi sum) {
    const vf v = vf_mul(vf_from_vi(sum), w->scale[half]);
    if (!w->divided) return vqaddq_s32(vcvtnq_s32_f32(v), w->zero);
    return vcvtnq_s32_f32(requant_quotient(&w->sum, vminq_f32(vmaxq_f32(v, w->least), w->most))); /* v is not NaN */
}

/* Stores 8 channels of a pixel as i16. */
static LN_ALWAYS_INLINE void dw8_store_words(const dw8_words *w, vi low, vi high, char *at) {
    const vi q0 = dw8_word(w, 0, low), q1 = dw8_word(w, 1, high);
    const int16x8_t v =
        w->divided ? /* the limits keep the result in range, so that its lowest bits are enough */
            vaddq_s16(vuzpq_s16(vreinterpretq_s16_s32(q0), vreinterpretq_s16_s32(q1)).val[0], w->sum_zero)
                   : vqmovn_high_s32(vqmovn_s32(q0), q1);
    vst1q_s16((int16_t *)(void *)at, v);
}

/* The numbers by which sums become bytes, for 8 channels; copies as those of dw8_words. */
typedef struct dw8_bytes {
    int stores; /* ln_narrow_stores */
    bool right; /* LN_NARROW_FIXED: all channels are shifted to the right */
    vf scale[2];
    vi fixed[2], shift[2];
    int16x8_t zero;
    uint8x8_t turn; /* u8 results are i8 results with the highest bit flipped */
} dw8_bytes;

static LN_ALWAYS_INLINE dw8_bytes dw8_bytes_of(const ln_depthwise *d, int64_t c) {
    const ln_requant *r = &d->quantized.requant;
    const int turn = r->output_dtype == LINNET_U8 ? 128 : 0;
    dw8_bytes b = {.stores = d->narrow.stores};
    if (b.stores == LN_NARROW_SUMS) return b;
    b.zero = vdupq_n_s16((int16_t)(r->y_zero - turn)), b.turn = vdup_n_u8((uint8_t)turn);
    if (b.stores == LN_NARROW_FLOAT) {
        b.scale[0] = vf_load(r->scale + c), b.scale[1] = vf_load(r->scale + c + 4);
    } else {
        b.fixed[0] = vi_load(r->fixed + c), b.fixed[1] = vi_load(r->fixed + c + 4);
        b.shift[0] = vi_load(r->shift + c), b.shift[1] = vi_load(r->shift + c + 4);
        b.right = vmaxvq_s32(vmaxq_s32(b.shift[0], b.shift[1])) < 0;
    }
    return b;
}

/* vi_fixed_multiply with a shift to the right; see `scaled` of gemm_store__neon.c. */
static LN_ALWAYS_INLINE vi dw8_right(vi x, vi fixed, vi shift) {
    x = vqrdmulhq_s32(x, fixed);
    return vrshlq_s32(vsraq_n_s32(x, x, 31), shift);
}

/* Stores 8 channels of `pixels` pixels. The bounds of the output are those of its type, to which narrowing saturates.
 */
static LN_ALWAYS_INLINE void dw8_store(const dw8_bytes b, const int pixels, int32x4_t *low, int32x4_t *high, char *at,
                                       int64_t y_pixel) {
    if (b.stores == LN_NARROW_SUMS) {
        LN_UNROLL
        for (int p = 0; p < pixels; p++, at += y_pixel)
            vst1q_s32((int32_t *)(void *)at, low[p]), vst1q_s32((int32_t *)(void *)at + 4, high[p]);
        return;
    }
    LN_UNROLL
    for (int p = 0; p < pixels; p++) {
        if (b.stores == LN_NARROW_FLOAT) {
            low[p] = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(low[p]), b.scale[0]));
            high[p] = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(high[p]), b.scale[1]));
        } else if (b.right) {
            low[p] = dw8_right(low[p], b.fixed[0], b.shift[0]), high[p] = dw8_right(high[p], b.fixed[1], b.shift[1]);
        } else {
            low[p] = vi_fixed_multiply(low[p], b.fixed[0], b.shift[0]);
            high[p] = vi_fixed_multiply(high[p], b.fixed[1], b.shift[1]);
        }
    }
    LN_UNROLL
    for (int p = 0; p < pixels; p++, at += y_pixel) {
        const int16x8_t q = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(low[p]), high[p]), b.zero);
        vst1_u8((uint8_t *)at, veor_u8(vreinterpret_u8_s8(vqmovn_s16(q)), b.turn));
    }
}

/* Loads 8 elements of `size` bytes, minus the zero point. */
static LN_ALWAYS_INLINE int16x8_t dw8_load(const int size, const int8_t *in, int8x8_t zero) {
    return size == 2 ? vld1q_s16((const int16_t *)(const void *)in) : vsubl_s8(vld1_s8(in), zero);
}

/* How the pixels of a block find the columns of the input: each pixel by itself, or the columns are shared because the
 * stride is 1 (or 2) and the taps are adjacent. With DW8_ROLL there may be any number of taps. */
enum { DW8_APART = 0, DW8_SHARED = 1, DW8_SHARED_BY_2 = 2, DW8_ROLL = 3 };

/* Adds the products of one tap of `pixels` pixels. */
static LN_ALWAYS_INLINE void dw8_tap(vi *low, vi *high, int16x8_t v, int16x8_t factor) {
    *low = vmlal_s16(*low, vget_low_s16(v), vget_low_s16(factor));
    *high = vmlal_high_s16(*high, v, factor);
}

/* Adds the products of a line of the kernel to the sums of `pixels` pixels. `taps` is a compile-time constant if
 * columns are DW8_SHARED. */
static LN_ALWAYS_INLINE void dw8_line(const int size, const int pixels, const int columns, const int taps,
                                      const dw8_span *s, const int8_t *in, const int16_t *k, int8x8_t zero, vi *low,
                                      vi *high) {
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    const int64_t tap = w->dilation[2] * s->x_pixel, move = w->stride[2] * s->x_pixel;
    if (columns == DW8_ROLL) {
        int16x8_t column[DW8_PIXELS];
        LN_UNROLL
        for (int p = 0; p < DW8_PIXELS - 1; p++, in += s->x_pixel) column[p] = dw8_load(size, in, zero);
        for (int64_t j = 0; j < w->kernel[2]; j += DW8_PIXELS) {
            LN_UNROLL
            for (int i = 0; i < DW8_PIXELS; i++, in += s->x_pixel, k += d->padded) {
                if (i > 0 && j + i == w->kernel[2]) break;
                const int16x8_t factor = vld1q_s16(k);
                column[(i + DW8_PIXELS - 1) % DW8_PIXELS] = dw8_load(size, in, zero);
                LN_UNROLL
                for (int p = 0; p < DW8_PIXELS; p++) dw8_tap(&low[p], &high[p], column[(i + p) % DW8_PIXELS], factor);
            }
        }
    } else if (columns != DW8_APART) {
        int16x8_t column[2 * (DW8_PIXELS - 1) + 5];
        LN_UNROLL
        for (int i = 0; i < columns * (pixels - 1) + taps; i++, in += s->x_pixel) column[i] = dw8_load(size, in, zero);
        LN_UNROLL
        for (int j = 0; j < taps; j++, k += d->padded) {
            const int16x8_t factor = vld1q_s16(k);
            LN_UNROLL
            for (int p = 0; p < pixels; p++) dw8_tap(&low[p], &high[p], column[columns * p + j], factor);
        }
    } else {
        for (int64_t j = 0; j < w->kernel[2]; j++, in += tap, k += d->padded) {
            const int16x8_t factor = vld1q_s16(k);
            LN_UNROLL
            for (int p = 0; p < pixels; p++) dw8_tap(&low[p], &high[p], dw8_load(size, in + p * move, zero), factor);
        }
    }
}

/* Computes blocks of `pixels` pixels from `ox` on. The last block begins at pixel `last`. */
static LN_ALWAYS_INLINE void dw8_block(const int size, const int pixels, const int columns, const int taps,
                                       const dw8_span *s, int64_t c, int64_t ox, int64_t last) {
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    const int8x8_t zero = vdup_n_s8((int8_t)d->narrow.padding);
    const int32_t *bias = (const int32_t *)s->parts->bias + c;
    const int64_t lines = w->kernel[0] * w->kernel[1], line = w->kernel[2] * d->padded;
    const bool stores_words = size == 2 && d->narrow.stores == LN_NARROW_WORDS;
    dw8_words words = {.divided = false};
    dw8_bytes bytes = {.stores = LN_NARROW_SUMS};
    if (stores_words)
        words = dw8_words_of(d, c);
    else
        bytes = dw8_bytes_of(d, c);
    for (;; ox = ln_min(ox + pixels, last)) {
        const int16_t *k = (const int16_t *)s->parts->taps + c;
        vi low[DW8_PIXELS], high[DW8_PIXELS];
        LN_UNROLL
        for (int p = 0; p < pixels; p++) low[p] = vld1q_s32(bias), high[p] = vld1q_s32(bias + 4);
        for (int64_t r = 0; r < lines; r++, k += line)
            dw8_line(size, pixels, columns, taps, s, s->rows[r] + ox * w->stride[2] * s->x_pixel + c * size, k, zero,
                     low, high);
        char *out = s->out + ox * s->y_pixel + dw8_stored(d) * c;
        if (stores_words) {
            LN_UNROLL
            for (int p = 0; p < pixels; p++) dw8_store_words(&words, low[p], high[p], out + p * s->y_pixel);
        } else {
            dw8_store(bytes, pixels, low, high, out, s->y_pixel);
        }
        if (ox == last) return;
    }
}

#define DW8_BLOCK(name, size, pixels, columns, taps)                                                                   \
    static void name(const dw8_span *s, int64_t c, int64_t ox, int64_t last) {                                         \
        dw8_block(size, pixels, columns, taps, s, c, ox, last);                                                        \
    }
#define DW8_BLOCKS(SIZE, BITS)                                                                                         \
    DW8_BLOCK(dw##BITS##_one, SIZE, 1, DW8_APART, 0)                                                                   \
    DW8_BLOCK(dw##BITS##_any, SIZE, DW8_PIXELS, DW8_APART, 0)                                                          \
    DW8_BLOCK(dw##BITS##_roll, SIZE, DW8_PIXELS, DW8_ROLL, 0)                                                          \
    DW8_BLOCK(dw##BITS##_five, SIZE, DW8_PIXELS, DW8_SHARED, 5)                                                        \
    DW8_BLOCK(dw##BITS##_five_by_2, SIZE, DW8_PIXELS, DW8_SHARED_BY_2, 5)
DW8_BLOCKS(1, 8)
DW8_BLOCKS(2, 16)
#ifndef LN_SIMD_NEON64 /* else dw8_slide computes most of these */
DW8_BLOCK(dw8_three, 1, DW8_PIXELS, DW8_SHARED, 3)
DW8_BLOCK(dw8_three_by_2, 1, DW8_PIXELS, DW8_SHARED_BY_2, 3)
#endif
DW8_BLOCK(dw16_three, 2, DW8_PIXELS, DW8_SHARED, 3)
DW8_BLOCK(dw16_three_by_2, 2, DW8_PIXELS, DW8_SHARED_BY_2, 3)
#undef DW8_BLOCK
#undef DW8_BLOCKS

typedef void dw8_blocks(const dw8_span *s, int64_t c, int64_t ox, int64_t last);

static dw8_blocks *dw8_blocks_of(const ln_depthwise *d) {
    static dw8_blocks *const all[2][5] = {{dw8_one, dw8_any, dw8_five, dw8_five_by_2, dw8_roll},
                                          {dw16_one, dw16_any, dw16_five, dw16_five_by_2, dw16_roll}};
    const ln_window *w = &d->window;
    const bool plain = w->dilation[2] == 1 && w->stride[2] <= 2, words = d->narrow.size == 2;
    if (w->out[2] < DW8_PIXELS) return all[words][0];
    if (plain && w->kernel[2] == 5) return all[words][1 + w->stride[2]];
    if (plain && w->kernel[2] == 3 && words) return w->stride[2] == 1 ? dw16_three : dw16_three_by_2;
#ifndef LN_SIMD_NEON64
    if (plain && w->kernel[2] == 3) return w->stride[2] == 1 ? dw8_three : dw8_three_by_2;
#endif
    return all[words][plain && w->stride[2] == 1 && w->kernel[2] > 1 ? 4 : 1];
}

/* Computes one output row, to `out`, whose pixels are y_pixel bytes apart. */
static void dw8_row(const ln_depthwise *d, const ln_depthwise_weights *parts, const int8_t *x, const int64_t *position,
                    dw_cache *cache, char *out, int64_t y_pixel) {
    const ln_window *w = &d->window;
    const int64_t pixels = w->out[2];
    if (pixels == 0) return;
    dw8_span s = {.d = d,
                  .parts = parts,
                  .x_pixel = (d->narrow.in_place ? d->x.s[2] : d->channels) * d->narrow.size,
                  .y_pixel = y_pixel,
                  .out = out};
    for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++)
        s.rows[tap] = dw8_input_row(d, x, position, tap, cache);
    /* The last vector of channels and the last block of pixels begin early and compute some values again. */
    dw8_slider *const slide = dw8_slider_of(d);
    if (slide != NULL) {
        for (int64_t ox = 0; ox < pixels; ox += DW8_SEGMENT)
            for (int64_t c = 0; c < d->channels; c += 8)
                slide(&s, ln_min(c, d->channels - 8), ox, ln_min(DW8_SEGMENT, pixels - ox));
        return;
    }
    dw8_blocks *const block = dw8_blocks_of(d);
    const int64_t step = pixels < DW8_PIXELS ? 1 : DW8_PIXELS;
    for (int64_t ox = 0; ox < pixels; ox += DW8_SEGMENT) {
        const int64_t last = ln_min(ox + DW8_SEGMENT, pixels) - step;
        for (int64_t c = 0; c < d->channels; c += 8) block(&s, ln_min(c, d->channels - 8), ln_min(ox, last), last);
    }
}

#endif
