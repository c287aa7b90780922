/* depthwise__dotprod.c - depthwise convolution of 8-bit integers by 3 x 3 and 5 x 5 with sdot. Four rows of the input
 * are interleaved, so that one sdot sums four taps of a column, for four channels. */
#include "fast/tail/depthwise.h"
#include "fast/tail/depthwise_plan.h"

#include <arm_neon.h>
#include <string.h>

enum {
    SEGMENT = 64, /* output pixels that are computed at a time, so that interleaved rows stay in the caches */
    GROUPS = 2,   /* the largest number of groups of four rows */
    PIXELS = 4    /* pixels of a block of the 5 x 5 kernel */
};

/* ---- planning ---- */

static int64_t groups_of(const ln_window *w) { return (w->kernel[1] + 3) / 4; }

/* Returns the number of output rows that read the same groups of input rows. */
static int64_t rows_of(const ln_window *w) { return (4 * groups_of(w) - w->kernel[1]) / w->stride[1] + 1; }

/* Returns the bytes of the packed weights and the bias of 8 channels. */
static int64_t block_bytes(const ln_window *w) { return (rows_of(w) * groups_of(w) * w->kernel[2] + 1) * 32; }

static int64_t blocks_of(const ln_depthwise *d) { return ln_ceil_div(d->channels, 8); }

static int64_t segment_of(const ln_window *w) { return ln_min(SEGMENT, w->out[2]); }

/* Returns the bytes of a group of interleaved rows of a segment. */
static int64_t group_bytes(const ln_depthwise *d) {
    const ln_window *w = &d->window;
    return ((segment_of(w) - 1) * w->stride[2] + w->kernel[2]) * d->channels * 4;
}

/* Tells whether the dtypes of x and y can store their zero points, the zero points of weights are 0, and all shifts
 * after the fixed-point multiplication are to the right. */
static bool quants_fit(const ln_call *call, int mode, int64_t channels) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    const int x_least = x->dtype == LINNET_U8 ? 0 : INT8_MIN, y_least = y->dtype == LINNET_U8 ? 0 : INT8_MIN;
    const int x_zero = x->quant->zero == NULL ? 0 : x->quant->zero[0],
              y_zero = y->quant->zero == NULL ? 0 : y->quant->zero[0];
    if (x_zero < x_least || x_zero > x_least + 255 || y_zero < y_least || y_zero > y_least + 255) return false;
    for (int64_t c = 0; c < channels; c++) {
        const int64_t i = w->quant->count > 1 ? c : 0;
        if ((w->quant->zero == NULL ? 0 : w->quant->zero[i]) != 0) return false;
        const double scale = (double)x->quant->scale[0] * (double)w->quant->scale[i] / (double)y->quant->scale[0];
        if (mode == LN_REQUANT_TFLITE && scale > 0.999) return false;
    }
    return true;
}

LN_PLANNING static bool can(const ln_call *call) {
    const ln_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    const int mode = (int)((const ln_conv_attributes *)call->attributes)->requant;
    const bool bias = call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE;
    ln_window g;
    return call->epilogue == NULL && mode != LN_REQUANT_TFLITE_SINGLE && ln_packable(w) &&
           (!bias || ln_packable(&call->inputs[2])) && ln_depthwise_can_integer(call) &&
           ln_window_conv(call->attributes, x, w, &g, NULL) == LINNET_OK && g.out_channels >= 8 &&
           g.out_channels == g.in_channels && g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 &&
           (g.kernel[1] == 3 || g.kernel[1] == 5) && g.kernel[1] == g.kernel[2] && g.stride[1] == g.stride[2] &&
           g.stride[1] <= 2 && g.dilation[1] == 1 && g.dilation[2] == 1 && quants_fit(call, mode, g.out_channels);
}

LN_PLANNING static linnet_status configure(ln_call *call) {
    const linnet_status status = ln_depthwise_configure_narrow(call);
    if (status != LINNET_OK) return status;
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    if (d->narrow.stores <= LN_NARROW_SUMS || !d->constant || d->swapped) return LINNET_UNSUPPORTED;
    call->packed_bytes = (size_t)(blocks_of(d) * block_bytes(w));
    call->scratch_thread = (size_t)(groups_of(w) * group_bytes(d));
    call->work[0] = w->batch * ln_ceil_div(w->out[1], rows_of(w));
    return LINNET_OK;
}

/* Packs the weights in blocks of 8 channels, in the order [row of the output][group][column][channel][row of the
 * group]. The bias follows as i32, minus the products of the weights and the zero point of x. */
static void pack(const ln_call *call, void *packed) {
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    const ln_tensor *weights = &call->inputs[1], *bias = &call->inputs[2];
    const ln_window_strides s = ln_window_strides_of(weights, 1);
    const int64_t columns = w->kernel[2], depth = 4 * groups_of(w);
    memset(packed, 0, call->packed_bytes);
    for (int64_t block = 0; block < blocks_of(d); block++)
        for (int64_t i = 0; i < 8; i++) {
            const int64_t c = ln_min(block * 8, d->channels - 8) + i;
            int8_t *to = (int8_t *)packed + block * block_bytes(w);
            uint32_t sum = 0;
            for (int64_t ky = 0; ky < w->kernel[1]; ky++)
                for (int64_t kx = 0; kx < columns; kx++) {
                    const int64_t v = ln_load_i64(weights->data, weights->dtype, c * s.n + ky * s.s[1] + kx * s.s[2]) -
                                      ln_requant_w_zero(&d->quantized.requant, c);
                    sum += (uint32_t)(v * d->narrow.padding);
                    for (int64_t row = 0, y = ky; row < rows_of(w); row++, y += w->stride[1])
                        to[(((row * depth / 4 + y / 4) * columns + kx) * 8 + i) * 4 + y % 4] = (int8_t)v;
                }
            int64_t v = 0;
            if (call->n_inputs > 2 && bias->dtype != LINNET_NONE)
                v = ln_load_i64(bias->data, bias->dtype, c * bias->strides[0]);
            const uint32_t value = (uint32_t)v - sum;
            memcpy(to + block_bytes(w) - 32 + i * 4, &value, 4);
        }
}

/* ---- interleaving ---- */

/* Interleaves n bytes of four rows. A row outside the picture is 16 bytes that are read repeatedly, with a step of 0.
 */
static void interleave(const int8_t *const *rows, const int64_t *steps, int64_t n, int flip, int8_t *to) {
    const int8_t *p0 = rows[0], *p1 = rows[1], *p2 = rows[2], *p3 = rows[3];
    const int64_t s0 = steps[0], s1 = steps[1], s2 = steps[2], s3 = steps[3];
    int64_t left = n;
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            for (int r = 0; r < 4; r++) to[i * 4 + r] = (int8_t)(rows[r][steps[r] == 0 ? 0 : i] ^ flip);
        return;
    }
    while (left > 0) {
        int64_t count = left / 16;
        if (count == 0) { /* the last vector begins early */
            const int64_t back = 16 - left;
            p0 -= s0 == 0 ? 0 : back, p1 -= s1 == 0 ? 0 : back, p2 -= s2 == 0 ? 0 : back, p3 -= s3 == 0 ? 0 : back;
            to -= back * 4;
            count = 1, left = 16;
        }
        left -= count * 16;
#define LINES(change)                                                                                                  \
    __asm__ volatile(                                                                                                  \
        "dup v4.16b, %w[flip]\n"                                                                                       \
        "1: ld1 {v0.16b}, [%[p0]], %[s0]\n ld1 {v1.16b}, [%[p1]], %[s1]\n"                                             \
        "ld1 {v2.16b}, [%[p2]], %[s2]\n ld1 {v3.16b}, [%[p3]], %[s3]\n subs %[count], %[count], #1\n" change           \
        "st4 {v0.16b, v1.16b, v2.16b, v3.16b}, [%[to]], #64\n b.ne 1b\n"                                               \
        : [p0] "+r"(p0), [p1] "+r"(p1), [p2] "+r"(p2), [p3] "+r"(p3), [to] "+r"(to), [count] "+r"(count)               \
        : [s0] "r"(s0), [s1] "r"(s1), [s2] "r"(s2), [s3] "r"(s3), [flip] "r"(flip)                                     \
        : "v0", "v1", "v2", "v3", "v4", "cc", "memory")
        if (flip)
            LINES("eor v0.16b, v0.16b, v4.16b\n eor v1.16b, v1.16b, v4.16b\n"
                  "eor v2.16b, v2.16b, v4.16b\n eor v3.16b, v3.16b, v4.16b\n");
        else
            LINES("");
#undef LINES
    }
}

/* Writes the interleaved rows of a group for columns [from, from + width) of the picture with its padding. */
static void fill_group(const ln_depthwise *d, const int8_t *x, int64_t y, int64_t from, int64_t width, int8_t *to) {
    const ln_window *w = &d->window;
    const int64_t before = ln_min(ln_max(0, -from), width), pixel = d->channels * 4;
    const int64_t middle = ln_max(0, ln_min(w->in[2] - (from + before), width - before));
    const int flip = d->quantized.x_u8 ? INT8_MIN : 0;
    int8_t padding[16];
    const int8_t *rows[4];
    int64_t steps[4];
    memset(padding, d->narrow.padding ^ flip, sizeof padding);
    memset(to, d->narrow.padding, (size_t)(before * pixel));
    const bool whole = d->x.s[2] == d->channels;
    for (int64_t i = 0; i < (whole ? ln_min(1, middle) : middle); i++) {
        for (int64_t r = 0; r < 4; r++) {
            const bool inside = y + r >= 0 && y + r < w->in[1];
            rows[r] = inside ? x + (y + r) * d->x.s[1] + (from + before + i) * d->x.s[2] : padding;
            steps[r] = inside ? 16 : 0;
        }
        interleave(rows, steps, (whole ? middle : 1) * d->channels, flip, to + (before + i) * pixel);
    }
    memset(to + (before + middle) * pixel, d->narrow.padding, (size_t)((width - before - middle) * pixel));
}

/* ---- 3 x 3: weights and three columns of the input stay in registers ---- */

/* The operands of the loops that compute one or two rows of a segment, for 8 channels. Distances are in bytes. */
typedef struct dot_span {
    const ln_depthwise *d;
    const int8_t *in, *w, *bias;
    char *out[2];
    int64_t channel, count;
} dot_span;

/* Registers: columns in v0 to v5, weights for the first row in v6 to v11 and for the second in v12 to v17, sums in v18
 * to v21, bias in v22 and v23, multipliers in v24 and v25, shifts in v26 and v27, the zero point in v28, the sign bit
 * of u8 in v29. */
#define COLUMN(a, b) "ld1 {v" #a ".16b, v" #b ".16b}, [%[in]], %[step]\n"
#define TAP(s, t, a, b, k, l) "sdot v" #s ".4s, v" #a ".16b, v" #k ".16b\n sdot v" #t ".4s, v" #b ".16b, v" #l ".16b\n"
#define SUM_1(a, b, c, d, e, f)                                                                                        \
    "mov v18.16b, v22.16b\n mov v19.16b, v23.16b\n" TAP(18, 19, a, b, 6, 7) TAP(18, 19, c, d, 8, 9)                    \
        TAP(18, 19, e, f, 10, 11)
#define SUM_2(a, b, c, d, e, f)                                                                                        \
    "mov v18.16b, v22.16b\n mov v19.16b, v23.16b\n mov v20.16b, v22.16b\n mov v21.16b, v23.16b\n" TAP(                 \
        18, 19, a, b, 6, 7) TAP(20, 21, a, b, 12, 13) TAP(18, 19, c, d, 8, 9) TAP(20, 21, c, d, 14, 15)                \
        TAP(18, 19, e, f, 10, 11) TAP(20, 21, e, f, 16, 17)
#define FLOAT(s, t)                                                                                                    \
    "scvtf v" #s ".4s, v" #s ".4s\n scvtf v" #t ".4s, v" #t ".4s\n fmul v" #s ".4s, v" #s ".4s, v24.4s\n"              \
    "fmul v" #t ".4s, v" #t ".4s, v25.4s\n fcvtns v" #s ".4s, v" #s ".4s\n fcvtns v" #t ".4s, v" #t ".4s\n"
#define FIXED(s, t)                                                                                                    \
    "sqrdmulh v" #s ".4s, v" #s ".4s, v24.4s\n sqrdmulh v" #t ".4s, v" #t ".4s, v25.4s\n"                              \
    "and v30.16b, v" #s ".16b, v26.16b\n and v31.16b, v" #t ".16b, v27.16b\n"                                          \
    "ssra v" #s ".4s, v30.4s, #31\n ssra v" #t ".4s, v31.4s, #31\n"                                                    \
    "srshl v" #s ".4s, v" #s ".4s, v26.4s\n srshl v" #t ".4s, v" #t ".4s, v27.4s\n"
#define NARROW(s, t)                                                                                                   \
    "sqxtn v" #s ".4h, v" #s ".4s\n sqxtn2 v" #s ".8h, v" #t ".4s\n sqadd v" #s ".8h, v" #s ".8h, v28.8h\n"
#define STORE_1(finish)                                                                                                \
    finish(18, 19)                                                                                                     \
        NARROW(18, 19) "sqxtn v18.8b, v18.8h\n eor v18.8b, v18.8b, v29.8b\n st1 {v18.8b}, [%[out]], %[move]\n"
#define STORE_2(finish)                                                                                                \
    finish(18, 19) finish(20, 21) NARROW(18, 19) NARROW(                                                               \
        20,                                                                                                            \
        21) "sqxtn v18.8b, v18.8h\n sqxtn2 v18.16b, v20.8h\n"                                                          \
            "eor v18.16b, v18.16b, v29.16b\n st1 {v18.8b}, [%[out]], %[move]\n st1 {v18.d}[1], [%[next]], %[move]\n"
#define NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define SETUP                                                                                                          \
    "ld1 {v6.16b, v7.16b, v8.16b, v9.16b}, [%[w]], #64\n ld1 {v10.16b, v11.16b}, [%[w]], #32\n"                        \
    "ld1 {v22.4s, v23.4s}, [%[bias]]\n ld1 {v24.4s, v25.4s}, [%[factor]]\n ld1 {v26.4s, v27.4s}, [%[shift]]\n"         \
    "dup v28.8h, %w[y_zero]\n dup v29.16b, %w[flip]\n"
#define SETUP_2 SETUP "ld1 {v12.16b, v13.16b, v14.16b, v15.16b}, [%[w]], #64\n ld1 {v16.16b, v17.16b}, [%[w]], #32\n"
/* The loop for stride 1. */
#define SLIDE(setup, sum, store, finish)                                                                               \
    setup COLUMN(0, 1) COLUMN(2, 3) "1:\n" COLUMN(4, 5) sum(0, 1, 2, 3, 4, 5) store(finish) NEXT("b.eq 2f")            \
        COLUMN(0, 1) sum(2, 3, 4, 5, 0, 1) store(finish) NEXT("b.eq 2f") COLUMN(2, 3) sum(4, 5, 0, 1, 2, 3)            \
            store(finish) NEXT("b.ne 1b") "2:\n"
#define STRIDE_2(finish)                                                                                               \
    SETUP COLUMN(0, 1) "1:\n" COLUMN(2, 3) COLUMN(4, 5) SUM_1(0, 1, 2, 3, 4, 5) STORE_1(finish) NEXT("b.eq 2f")        \
        COLUMN(2, 3) COLUMN(0, 1) SUM_1(4, 5, 2, 3, 0, 1) STORE_1(finish) NEXT("b.ne 1b") "2:\n"
#define RUN(code)                                                                                                      \
    __asm__ volatile(code                                                                                              \
                     : [in] "+r"(in), [w] "+r"(w), [out] "+r"(out), [next] "+r"(next), [count] "+r"(count)             \
                     : [step] "r"(step), [move] "r"(move), [bias] "r"(s->bias), [factor] "r"(factor),                  \
                       [shift] "r"(shift), [y_zero] "r"(y_zero), [flip] "r"(flip)                                      \
                     : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",  \
                       "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",      \
                       "v28", "v29", "v30", "v31", "cc", "memory")

static void three(const dot_span *s) {
    const ln_depthwise *d = s->d;
    const ln_requant *r = &d->quantized.requant;
    const bool fixed = d->narrow.stores == LN_NARROW_FIXED;
    const void *factor = fixed ? (const void *)(r->fixed + s->channel) : r->scale + s->channel,
               *shift = fixed ? (const void *)(r->shift + s->channel) : factor;
    const int flip = r->output_dtype == LINNET_U8 ? 128 : 0, y_zero = r->y_zero - flip;
    const int64_t step = d->channels * 4, move = d->y.s[2];
    const int8_t *in = s->in, *w = s->w;
    char *out = s->out[0], *next = s->out[1];
    int64_t count = s->count;
    if (next != NULL) {
        if (fixed)
            RUN(SLIDE(SETUP_2, SUM_2, STORE_2, FIXED));
        else
            RUN(SLIDE(SETUP_2, SUM_2, STORE_2, FLOAT));
    } else if (d->window.stride[2] == 1) {
        if (fixed)
            RUN(SLIDE(SETUP, SUM_1, STORE_1, FIXED));
        else
            RUN(SLIDE(SETUP, SUM_1, STORE_1, FLOAT));
    } else {
        if (fixed)
            RUN(STRIDE_2(FIXED));
        else
            RUN(STRIDE_2(FLOAT));
    }
}

/* ---- 5 x 5: blocks of pixels ---- */

static inline int32x4_t five_requant(const ln_depthwise *d, int64_t c, int32x4_t v) {
    const ln_requant *r = &d->quantized.requant;
    if (d->narrow.stores == LN_NARROW_FLOAT)
        return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(v), vld1q_f32(r->scale + c)));
    const int32x4_t shift = vld1q_s32(r->shift + c);
    v = vqrdmulhq_s32(v, vld1q_s32(r->fixed + c));
    return vrshlq_s32(vsraq_n_s32(v, vandq_s32(v, shift), 31), shift);
}

/* Computes `pixels` pixels. Callers pass constants for the number of pixels and the stride. */
static inline __attribute__((always_inline)) void five_block(const int pixels, const int stride, const dot_span *s,
                                                             const int8_t *in, char *out) {
    enum { TAPS = 5, COLUMNS = 2 * (PIXELS - 1) + TAPS };
    const ln_depthwise *d = s->d;
    const ln_requant *r = &d->quantized.requant;
    const int64_t step = d->channels * 4, group = group_bytes(d);
    const int8_t *w = s->w;
    int32x4_t low[PIXELS], high[PIXELS];
#pragma GCC unroll 16
    for (int p = 0; p < pixels; p++)
        low[p] = vreinterpretq_s32_s8(vld1q_s8(s->bias)), high[p] = vreinterpretq_s32_s8(vld1q_s8(s->bias + 16));
    for (int g = 0; g < GROUPS; g++) {
        const int8_t *from = in + g * group;
        int8x16x2_t column[COLUMNS];
#pragma GCC unroll 16
        for (int i = 0; i < stride * (pixels - 1) + TAPS; i++, from += step) column[i] = vld1q_s8_x2(from);
#pragma GCC unroll 16
        for (int k = 0; k < TAPS; k++, w += 32) {
            const int8x16x2_t factor = vld1q_s8_x2(w);
#pragma GCC unroll 16
            for (int p = 0; p < pixels; p++) {
                low[p] = vdotq_s32(low[p], column[stride * p + k].val[0], factor.val[0]);
                high[p] = vdotq_s32(high[p], column[stride * p + k].val[1], factor.val[1]);
            }
        }
    }
#pragma GCC unroll 16
    for (int p = 0; p < pixels; p++, out += d->y.s[2]) {
        int16x8_t q =
            vqmovn_high_s32(vqmovn_s32(five_requant(d, s->channel, low[p])), five_requant(d, s->channel + 4, high[p]));
        q = vqaddq_s16(q, vdupq_n_s16((int16_t)r->y_zero));
        if (r->output_dtype == LINNET_U8)
            vst1_u8((uint8_t *)out, vqmovun_s16(q));
        else
            vst1_s8((int8_t *)out, vqmovn_s16(q));
    }
}

static void five(const dot_span *s) {
    const ln_window *w = &s->d->window;
    const int64_t pixels = s->count < PIXELS ? 1 : PIXELS, step = s->d->channels * 4 * w->stride[2];
    for (int64_t ox = 0; ox < s->count; ox += pixels) {
        const int64_t at = ln_min(ox, s->count - pixels); /* the last block begins early */
        const int8_t *in = s->in + at * step;
        char *out = s->out[0] + at * s->d->y.s[2];
        if (pixels == 1)
            five_block(1, 1, s, in, out);
        else if (w->stride[2] == 1)
            five_block(PIXELS, 1, s, in, out);
        else
            five_block(PIXELS, 2, s, in, out);
    }
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    const int64_t n_rows = rows_of(w), parts = ln_ceil_div(w->out[1], n_rows), columns = segment_of(w);
    int8_t *lines = (int8_t *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    (void)phase;
    for (int64_t item = begin; item < end; item++) {
        const int64_t oy = item % parts * n_rows, rows = ln_min(n_rows, w->out[1] - oy);
        const int8_t *x = (const int8_t *)b->inputs[0] + item / parts * d->x.n;
        char *y = (char *)b->outputs[0] + item / parts * d->y.n + oy * d->y.s[1];
        for (int64_t ox = 0; ox < w->out[2]; ox += columns) {
            dot_span s = {.d = d, .count = ln_min(columns, w->out[2] - ox)};
            const int64_t width = (s.count - 1) * w->stride[2] + w->kernel[2];
            for (int64_t g = 0; g < groups_of(w); g++)
                fill_group(d, x, oy * w->stride[1] - w->pad_begin[1] + g * 4, ox * w->stride[2] - w->pad_begin[2],
                           width, lines + g * group_bytes(d));
            for (int64_t block = 0; block < blocks_of(d); block++) {
                const int8_t *packed = (const int8_t *)b->packed + block * block_bytes(w);
                s.channel = ln_min(block * 8, d->channels - 8);
                s.in = lines + s.channel * 4;
                s.bias = packed + block_bytes(w) - 32;
                for (int64_t r = 0; r < rows; r++) {
                    s.w = packed + r * groups_of(w) * w->kernel[2] * 32;
                    s.out[0] = y + r * d->y.s[1] + ox * d->y.s[2] + s.channel;
                    s.out[1] = NULL;
                    if (w->kernel[1] == 5) {
                        five(&s);
                        continue;
                    }
                    if (r + 1 < rows) s.out[1] = s.out[0] + d->y.s[1], r++;
                    three(&s);
                }
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_depthwise_dot__dotprod = {
    .can = can, .cost = ln_depthwise_cost, .configure = configure, .pack = pack, .run = run};
