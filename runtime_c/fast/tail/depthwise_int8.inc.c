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

/* ---- 3 x 3: nine vectors of weights and three columns of the input stay in registers ---- */

/* Registers: three columns of three rows in v0 to v7 and v17, weights v8 to v16, sums v18 and v19, bias v20 and v21,
 * multipliers v22 and v23, shifts v24 and v25, zero points v26 and v27, v28 for the sign bit of u8. */
#define DW8_COLUMN(a, b, c)                                                                                            \
    "ld1 {v" #a ".8b}, [%[in0]], %[step]\n ld1 {v" #b ".8b}, [%[in1]], %[step]\n"                                      \
    "ld1 {v" #c ".8b}, [%[in2]], %[step]\n ssubl v" #a ".8h, v" #a ".8b, v26.8b\n"                                     \
    "ssubl v" #b ".8h, v" #b ".8b, v26.8b\n ssubl v" #c ".8h, v" #c ".8b, v26.8b\n"
#define DW8_TAP(a, k)                                                                                                  \
    "smlal v18.4s, v" #a ".4h, v" #k ".4h\n"                                                                           \
    "smlal2 v19.4s, v" #a ".8h, v" #k ".8h\n"
#define DW8_SUM(a, b, c, d, e, f, g, h, i)                                                                             \
    "mov v18.16b, v20.16b\n mov v19.16b, v21.16b\n" DW8_TAP(a, 8) DW8_TAP(d, 9) DW8_TAP(g, 10) DW8_TAP(b, 11)          \
        DW8_TAP(e, 12) DW8_TAP(h, 13) DW8_TAP(c, 14) DW8_TAP(f, 15) DW8_TAP(i, 16)
#define DW8_FLOAT                                                                                                      \
    "scvtf v18.4s, v18.4s\n scvtf v19.4s, v19.4s\n fmul v18.4s, v18.4s, v22.4s\n fmul v19.4s, v19.4s, v23.4s\n"        \
    "fcvtns v18.4s, v18.4s\n fcvtns v19.4s, v19.4s\n"
#define DW8_FIXED                                                                                                      \
    "sqrdmulh v18.4s, v18.4s, v22.4s\n sqrdmulh v19.4s, v19.4s, v23.4s\n"                                              \
    "and v29.16b, v18.16b, v24.16b\n and v30.16b, v19.16b, v25.16b\n"                                                  \
    "ssra v18.4s, v29.4s, #31\n ssra v19.4s, v30.4s, #31\n"                                                            \
    "srshl v18.4s, v18.4s, v24.4s\n srshl v19.4s, v19.4s, v25.4s\n"
#define DW8_STORE                                                                                                      \
    "sqxtn v18.4h, v18.4s\n sqxtn2 v18.8h, v19.4s\n sqadd v18.8h, v18.8h, v27.8h\n"                                    \
    "sqxtn v18.8b, v18.8h\n eor v18.8b, v18.8b, v28.8b\n st1 {v18.8b}, [%[out]], %[move]\n"
#define DW8_SETUP                                                                                                      \
    "ld1 {v8.8h}, [%[w]], %[tap]\n ld1 {v9.8h}, [%[w]], %[tap]\n ld1 {v10.8h}, [%[w]], %[tap]\n"                       \
    "ld1 {v11.8h}, [%[w]], %[tap]\n ld1 {v12.8h}, [%[w]], %[tap]\n ld1 {v13.8h}, [%[w]], %[tap]\n"                     \
    "ld1 {v14.8h}, [%[w]], %[tap]\n ld1 {v15.8h}, [%[w]], %[tap]\n ld1 {v16.8h}, [%[w]], %[tap]\n"                     \
    "ld1 {v20.4s, v21.4s}, [%[bias]]\n ld1 {v22.4s, v23.4s}, [%[factor]]\n ld1 {v24.4s, v25.4s}, [%[shift]]\n"         \
    "dup v26.8b, %w[x_zero]\n dup v27.8h, %w[y_zero]\n dup v28.8b, %w[flip]\n"
#define DW8_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define DW8_LOOP_1(finish)                                                                                             \
    DW8_SETUP DW8_COLUMN(0, 1, 2) DW8_COLUMN(3, 4, 5) "1:\n" DW8_COLUMN(6, 7, 17) DW8_SUM(0, 1, 2, 3, 4, 5, 6, 7, 17)  \
        finish DW8_STORE DW8_NEXT("b.eq 2f") DW8_COLUMN(0, 1, 2) DW8_SUM(3, 4, 5, 6, 7, 17, 0, 1, 2)                   \
            finish DW8_STORE DW8_NEXT("b.eq 2f") DW8_COLUMN(3, 4, 5) DW8_SUM(6, 7, 17, 0, 1, 2, 3, 4, 5)               \
                finish DW8_STORE DW8_NEXT("b.ne 1b") "2:\n"
#define DW8_LOOP_2(finish)                                                                                             \
    DW8_SETUP DW8_COLUMN(0, 1, 2) "1:\n" DW8_COLUMN(3, 4, 5) DW8_COLUMN(6, 7, 17) DW8_SUM(0, 1, 2, 3, 4, 5, 6, 7, 17)  \
        finish DW8_STORE DW8_NEXT("b.eq 2f") DW8_COLUMN(3, 4, 5) DW8_COLUMN(0, 1, 2)                                   \
            DW8_SUM(6, 7, 17, 3, 4, 5, 0, 1, 2) finish DW8_STORE DW8_NEXT("b.ne 1b") "2:\n"
#define DW8_SLIDE(loop)                                                                                                \
    __asm__ volatile(                                                                                                  \
        loop                                                                                                           \
        : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out] "+r"(out), [w] "+r"(w), [count] "+r"(count)         \
        : [step] "r"(s->x_pixel), [move] "r"(s->y_pixel), [tap] "r"(d->padded * 2), [bias] "r"(bias),                  \
          [factor] "r"(factor), [shift] "r"(shift), [x_zero] "r"((int)d->narrow.padding), [y_zero] "r"(y_zero),        \
          [flip] "r"(flip)                                                                                             \
        : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
          "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "cc",      \
          "memory")

/* Computes output pixels [begin, begin + count) of channels [c, c + 8). */
static void dw8_slide(const dw8_span *s, int64_t c, int64_t begin, int64_t count) {
    const ln_depthwise *d = s->d;
    const ln_requant *r = &d->quantized.requant;
    const bool fixed = d->narrow.stores == LN_NARROW_FIXED;
    const int64_t from = begin * d->window.stride[2] * s->x_pixel + c;
    const int8_t *in0 = s->rows[0] + from, *in1 = s->rows[1] + from, *in2 = s->rows[2] + from;
    const int16_t *w = (const int16_t *)s->parts->taps + c;
    const int32_t *bias = (const int32_t *)s->parts->bias + c;
    const void *factor = fixed ? (const void *)(r->fixed + c) : r->scale + c,
               *shift = fixed ? (const void *)(r->shift + c) : factor;
    const int flip = r->output_dtype == LINNET_U8 ? 128 : 0, y_zero = r->y_zero - flip;
    char *out = s->out + begin * s->y_pixel + c;
    if (d->window.stride[2] == 1) {
        if (fixed)
            DW8_SLIDE(DW8_LOOP_1(DW8_FIXED));
        else
            DW8_SLIDE(DW8_LOOP_1(DW8_FLOAT));
    } else {
        if (fixed)
            DW8_SLIDE(DW8_LOOP_2(DW8_FIXED));
        else
            DW8_SLIDE(DW8_LOOP_2(DW8_FLOAT));
    }
}

#undef DW8_COLUMN
#undef DW8_TAP
#undef DW8_SUM
#undef DW8_FLOAT
#undef DW8_FIXED
#undef DW8_STORE
#undef DW8_SETUP
#undef DW8_NEXT
#undef DW8_LOOP_1
#undef DW8_LOOP_2
#undef DW8_SLIDE

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
    ln_quantized_sum sum; /* valid if `divided` */
    bool divided;
} dw8_words;

static LN_ALWAYS_INLINE dw8_words dw8_words_of(const ln_depthwise *d, int64_t c) {
    const ln_requant *r = &d->quantized.requant;
    dw8_words w = {.divided = d->narrow.sum != NULL, .zero = vi_set1(r->y_zero)};
    w.scale[0] = vf_load(r->scale + c), w.scale[1] = vf_load(r->scale + c + 4);
    if (!w.divided) return w;
    w.sum = *d->narrow.sum;
    w.least = vf_set1(w.sum.low), w.most = vf_set1(w.sum.high), w.zero = vi_set1(w.sum.y_zero);
    return w;
}

static LN_ALWAYS_INLINE vi dw8_word(const dw8_words *w, int half, vi sum) {
    vf v = vf_mul(vf_from_vi(sum), w->scale[half]);
    if (w->divided) v = requant_quotient(&w->sum, vminq_f32(vmaxq_f32(v, w->least), w->most)); /* v is not NaN */
    return vqaddq_s32(vcvtnq_s32_f32(v), w->zero);
}

/* Stores 8 channels of a pixel as i16. */
static LN_ALWAYS_INLINE void dw8_store_words(const dw8_words *w, vi low, vi high, char *at) {
    const vi q0 = dw8_word(w, 0, low), q1 = dw8_word(w, 1, high);
    vst1q_s16((int16_t *)(void *)at, vqmovn_high_s32(vqmovn_s32(q0), q1));
}

/* Stores 8 channels of a pixel. The bounds of the output are those of its type, to which narrowing saturates. */
static LN_ALWAYS_INLINE void dw8_store(const ln_depthwise *d, int64_t c, int32x4_t low, int32x4_t high, char *at) {
    const ln_requant *r = &d->quantized.requant;
    if (d->narrow.stores == LN_NARROW_SUMS) {
        vst1q_s32((int32_t *)(void *)at, low);
        vst1q_s32((int32_t *)(void *)at + 4, high);
        return;
    }
    if (d->narrow.stores == LN_NARROW_FLOAT) {
        low = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(low), vld1q_f32(r->scale + c)));
        high = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(high), vld1q_f32(r->scale + c + 4)));
    } else {
        low = vi_fixed_multiply(low, vld1q_s32(r->fixed + c), vld1q_s32(r->shift + c));
        high = vi_fixed_multiply(high, vld1q_s32(r->fixed + c + 4), vld1q_s32(r->shift + c + 4));
    }
    int16x8_t q = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(low), high), vdupq_n_s16((int16_t)r->y_zero));
    if (r->output_dtype == LINNET_U8)
        vst1_u8((uint8_t *)at, vqmovun_s16(q));
    else
        vst1_s8((int8_t *)at, vqmovn_s16(q));
}

/* Loads 8 elements of `size` bytes, minus the zero point. */
static LN_ALWAYS_INLINE int16x8_t dw8_load(const int size, const int8_t *in, int8x8_t zero) {
    return size == 2 ? vld1q_s16((const int16_t *)(const void *)in) : vsubl_s8(vld1_s8(in), zero);
}

/* Computes `pixels` pixels from `ox` on. If the windows of pixels share columns, `stride` and `taps` are compile-time
 * constants, and each column is loaded once. Otherwise `stride` is 0. */
static LN_ALWAYS_INLINE void dw8_block(const int size, const int pixels, const int stride, const int taps,
                                       const dw8_span *s, int64_t c, int64_t ox) {
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    const int8x8_t zero = vdup_n_s8((int8_t)d->narrow.padding);
    const int64_t tap = w->dilation[2] * s->x_pixel, move = w->stride[2] * s->x_pixel;
    const int16_t *k = (const int16_t *)s->parts->taps + c;
    const int32_t *bias = (const int32_t *)s->parts->bias + c;
    int32x4_t low[DW8_PIXELS], high[DW8_PIXELS];
    LN_UNROLL
    for (int p = 0; p < pixels; p++) low[p] = vld1q_s32(bias), high[p] = vld1q_s32(bias + 4);
    for (int64_t r = 0; r < w->kernel[0] * w->kernel[1]; r++) {
        const int8_t *in = s->rows[r] + ox * move + c * size;
        if (stride > 0) {
            int16x8_t column[2 * (DW8_PIXELS - 1) + 5];
            LN_UNROLL
            for (int i = 0; i < stride * (pixels - 1) + taps; i++, in += s->x_pixel)
                column[i] = dw8_load(size, in, zero);
            LN_UNROLL
            for (int j = 0; j < taps; j++, k += d->padded) {
                int16x8_t factor = vld1q_s16(k);
                LN_UNROLL
                for (int p = 0; p < pixels; p++) {
                    low[p] = vmlal_s16(low[p], vget_low_s16(column[stride * p + j]), vget_low_s16(factor));
                    high[p] = vmlal_high_s16(high[p], column[stride * p + j], factor);
                }
            }
            continue;
        }
        for (int64_t j = 0; j < w->kernel[2]; j++, in += tap, k += d->padded) {
            int16x8_t factor = vld1q_s16(k);
            LN_UNROLL
            for (int p = 0; p < pixels; p++) {
                int16x8_t v = dw8_load(size, in + p * move, zero);
                low[p] = vmlal_s16(low[p], vget_low_s16(v), vget_low_s16(factor));
                high[p] = vmlal_high_s16(high[p], v, factor);
            }
        }
    }
    char *out = s->out + ox * s->y_pixel + dw8_stored(d) * c;
    if (size == 2 && d->narrow.stores == LN_NARROW_WORDS) {
        const dw8_words words = dw8_words_of(d, c);
        LN_UNROLL
        for (int p = 0; p < pixels; p++) dw8_store_words(&words, low[p], high[p], out + p * s->y_pixel);
        return;
    }
    LN_UNROLL
    for (int p = 0; p < pixels; p++) dw8_store(d, c, low[p], high[p], out + p * s->y_pixel);
}

#define DW8_BLOCKS(SIZE, BITS)                                                                                         \
    static void dw##BITS##_one(const dw8_span *s, int64_t c, int64_t ox) { dw8_block(SIZE, 1, 0, 0, s, c, ox); }       \
    static void dw##BITS##_any(const dw8_span *s, int64_t c, int64_t ox) {                                             \
        dw8_block(SIZE, DW8_PIXELS, 0, 0, s, c, ox);                                                                   \
    }                                                                                                                  \
    static void dw##BITS##_five(const dw8_span *s, int64_t c, int64_t ox) {                                            \
        dw8_block(SIZE, DW8_PIXELS, 1, 5, s, c, ox);                                                                   \
    }                                                                                                                  \
    static void dw##BITS##_five_by_2(const dw8_span *s, int64_t c, int64_t ox) {                                       \
        dw8_block(SIZE, DW8_PIXELS, 2, 5, s, c, ox);                                                                   \
    }
DW8_BLOCKS(1, 8)
DW8_BLOCKS(2, 16)
static void dw16_three(const dw8_span *s, int64_t c, int64_t ox) { dw8_block(2, DW8_PIXELS, 1, 3, s, c, ox); }
static void dw16_three_by_2(const dw8_span *s, int64_t c, int64_t ox) { dw8_block(2, DW8_PIXELS, 2, 3, s, c, ox); }

typedef void dw8_blocks(const dw8_span *s, int64_t c, int64_t ox);

static dw8_blocks *dw8_blocks_of(const ln_depthwise *d) {
    static dw8_blocks *const all[2][4] = {{dw8_one, dw8_any, dw8_five, dw8_five_by_2},
                                          {dw16_one, dw16_any, dw16_five, dw16_five_by_2}};
    const ln_window *w = &d->window;
    const bool plain = w->dilation[2] == 1 && w->stride[2] <= 2, words = d->narrow.size == 2;
    if (w->out[2] < DW8_PIXELS) return all[words][0];
    if (plain && w->kernel[2] == 5) return all[words][1 + w->stride[2]];
    if (plain && w->kernel[2] == 3 && words) return w->stride[2] == 1 ? dw16_three : dw16_three_by_2;
    return all[words][1];
}

/* Computes one output row, to `out`, whose pixels are y_pixel bytes apart. */
static void dw8_row(const ln_depthwise *d, const ln_depthwise_weights *parts, const int8_t *x, const int64_t *position,
                    dw_cache *cache, char *out, int64_t y_pixel) {
    const ln_window *w = &d->window;
    const int64_t pixels = w->out[2];
    if (pixels == 0) return;
    const bool plain = w->dilation[2] == 1 && w->stride[2] <= 2 && d->narrow.size == 1;
    dw8_span s = {.d = d,
                  .parts = parts,
                  .x_pixel = (d->narrow.in_place ? d->x.s[2] : d->channels) * d->narrow.size,
                  .y_pixel = y_pixel,
                  .out = out};
    for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++)
        s.rows[tap] = dw8_input_row(d, x, position, tap, cache);
    /* The last vector of channels and the last block of pixels begin early and compute some values again. */
    if (plain && w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && d->narrow.stores != LN_NARROW_SUMS) {
        for (int64_t ox = 0; ox < pixels; ox += DW8_SEGMENT)
            for (int64_t c = 0; c < d->channels; c += 8)
                dw8_slide(&s, ln_min(c, d->channels - 8), ox, ln_min(DW8_SEGMENT, pixels - ox));
        return;
    }
    dw8_blocks *const block = dw8_blocks_of(d);
    const int64_t step = pixels < DW8_PIXELS ? 1 : DW8_PIXELS;
    for (int64_t ox = 0; ox < pixels; ox += step)
        for (int64_t c = 0; c < d->channels; c += 8) block(&s, ln_min(c, d->channels - 8), ln_min(ox, pixels - step));
}

#endif
