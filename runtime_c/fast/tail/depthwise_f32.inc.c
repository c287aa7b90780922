/* depthwise_f32.inc.c - depthwise convolution of f32 by 3 x 3 with NEON: the weights and three columns of the input
 * stay in registers, so that each input is loaded once for two output rows. Included by depthwise.inc.c. */
#ifdef LN_SIMD_NEON

#define DW4_SEGMENT 56 /* output pixels before the next channels: so few that input lines stay in L1 */

/* One or two output rows. Distances are in bytes. An input row that lies in the padding is one vector of zeros, which
 * is read at every pixel, because its step is 0. */
typedef struct dw4_span {
    const ln_depthwise *d;
    const ln_depthwise_weights *parts;
    const char *rows[4];
    int64_t steps[4];
    char *out[2];
    int64_t x_pixel, y_pixel;
} dw4_span;

/* Registers: three columns of four rows in v0 to v7 and v17 to v20, weights in v8 to v16, sums in v21 and v22, the bias
 * and the bounds in v23 to v25. Every sum adds its taps in the order of the generic loop. */
#define DW4_LOAD(v, row) "ld1 {v" #v ".4s}, [%[in" #row "]], %[step" #row "]\n"
#define DW4_TAP(sum, v, k) "fmla v" #sum ".4s, v" #v ".4s, v" #k ".4s\n"
#define DW4_STORE(sum, row)                                                                                            \
    "fmax v" #sum ".4s, v" #sum ".4s, v24.4s\n fmin v" #sum ".4s, v" #sum ".4s, v25.4s\n"                              \
    "st1 {v" #sum ".4s}, [%[out" #row "]], %[move]\n"
#define DW4_SETUP                                                                                                      \
    "ld1 {v8.4s}, [%[w]], %[tap]\n ld1 {v9.4s}, [%[w]], %[tap]\n ld1 {v10.4s}, [%[w]], %[tap]\n"                       \
    "ld1 {v11.4s}, [%[w]], %[tap]\n ld1 {v12.4s}, [%[w]], %[tap]\n ld1 {v13.4s}, [%[w]], %[tap]\n"                     \
    "ld1 {v14.4s}, [%[w]], %[tap]\n ld1 {v15.4s}, [%[w]], %[tap]\n ld1 {v16.4s}, [%[w]], %[tap]\n"                     \
    "ld1 {v23.4s}, [%[bias]]\n ld1r {v24.4s}, [%[low]]\n ld1r {v25.4s}, [%[high]]\n"
#define DW4_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define DW4_CLOBBERS                                                                                                   \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",       \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "cc", "memory"

/* For two output rows, a column of the input has four vectors: one in each of the registers a to d. */
#define DW4_COLUMN2(a, b, c, d) DW4_LOAD(a, 0) DW4_LOAD(b, 1) DW4_LOAD(c, 2) DW4_LOAD(d, 3)
#define DW4_ZERO2(a, b, c, d) "movi v" #a ".4s, #0\n movi v" #b ".4s, #0\n movi v" #c ".4s, #0\n movi v" #d ".4s, #0\n"
#define DW4_SUM2(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3)                                                       \
    "mov v21.16b, v23.16b\n mov v22.16b, v23.16b\n" DW4_TAP(21, a0, 8) DW4_TAP(22, a1, 8) DW4_TAP(21, b0, 9)           \
        DW4_TAP(22, b1, 9) DW4_TAP(21, c0, 10) DW4_TAP(22, c1, 10) DW4_TAP(21, a1, 11) DW4_TAP(22, a2, 11)             \
            DW4_TAP(21, b1, 12) DW4_TAP(22, b2, 12) DW4_TAP(21, c1, 13) DW4_TAP(22, c2, 13) DW4_TAP(21, a2, 14)        \
                DW4_TAP(22, a3, 14) DW4_TAP(21, b2, 15) DW4_TAP(22, b3, 15) DW4_TAP(21, c2, 16) DW4_TAP(22, c3, 16)    \
                    DW4_STORE(21, 0) DW4_STORE(22, 1)
/* Computes the last pixel of a line if there is padding after the line. Its third column is padding, so it is left out.
 */
#define DW4_LAST2(a0, a1, a2, a3, b0, b1, b2, b3)                                                                      \
    "cbz %[right], 5f\n mov v21.16b, v23.16b\n mov v22.16b, v23.16b\n" DW4_TAP(21, a0, 8) DW4_TAP(22, a1, 8)           \
        DW4_TAP(21, b0, 9) DW4_TAP(22, b1, 9) DW4_TAP(21, a1, 11) DW4_TAP(22, a2, 11) DW4_TAP(21, b1, 12)              \
            DW4_TAP(22, b2, 12) DW4_TAP(21, a2, 14) DW4_TAP(22, a3, 14) DW4_TAP(21, b2, 15) DW4_TAP(22, b3, 15)        \
                DW4_STORE(21, 0) DW4_STORE(22, 1) "b 5f\n"
#define DW4_PAIR                                                                                                       \
    DW4_SETUP DW4_ZERO2(0, 1, 2, 3) "cbnz %[left], 1f\n" DW4_COLUMN2(0, 1, 2, 3) "1:\n" DW4_COLUMN2(                   \
        4, 5, 6, 7) "2:\n" DW4_COLUMN2(17, 18, 19, 20) DW4_SUM2(0, 1, 2, 3, 4, 5, 6, 7, 17, 18, 19, 20)                \
        DW4_NEXT("b.eq 3f") DW4_COLUMN2(0, 1, 2, 3) DW4_SUM2(4, 5, 6, 7, 17, 18, 19, 20, 0, 1, 2, 3)                   \
            DW4_NEXT("b.eq 4f") DW4_COLUMN2(4, 5, 6, 7) DW4_SUM2(17, 18, 19, 20, 0, 1, 2, 3, 4, 5, 6, 7)               \
                DW4_NEXT("b.ne 2b") DW4_LAST2(0, 1, 2, 3, 4, 5, 6, 7) "3:\n" DW4_LAST2(                                \
                    4, 5, 6, 7, 17, 18, 19, 20) "4:\n" DW4_LAST2(17, 18, 19, 20, 0, 1, 2, 3) "5:\n"

/* For one output row, a column of the input has three vectors. */
#define DW4_COLUMN1(a, b, c) DW4_LOAD(a, 0) DW4_LOAD(b, 1) DW4_LOAD(c, 2)
#define DW4_ZERO1(a, b, c) "movi v" #a ".4s, #0\n movi v" #b ".4s, #0\n movi v" #c ".4s, #0\n"
#define DW4_SUM1(a0, a1, a2, b0, b1, b2, c0, c1, c2)                                                                   \
    "mov v21.16b, v23.16b\n" DW4_TAP(21, a0, 8) DW4_TAP(21, b0, 9) DW4_TAP(21, c0, 10) DW4_TAP(21, a1, 11)             \
        DW4_TAP(21, b1, 12) DW4_TAP(21, c1, 13) DW4_TAP(21, a2, 14) DW4_TAP(21, b2, 15) DW4_TAP(21, c2, 16)            \
            DW4_STORE(21, 0)
#define DW4_LAST1(a0, a1, a2, b0, b1, b2)                                                                              \
    "cbz %[right], 5f\n mov v21.16b, v23.16b\n" DW4_TAP(21, a0, 8) DW4_TAP(21, b0, 9) DW4_TAP(21, a1, 11)              \
        DW4_TAP(21, b1, 12) DW4_TAP(21, a2, 14) DW4_TAP(21, b2, 15) DW4_STORE(21, 0) "b 5f\n"
#define DW4_SINGLE                                                                                                     \
    DW4_SETUP DW4_ZERO1(0, 1, 2) "cbnz %[left], 1f\n" DW4_COLUMN1(0, 1, 2) "1:\n" DW4_COLUMN1(                         \
        3, 4, 5) "2:\n" DW4_COLUMN1(6, 7, 17) DW4_SUM1(0, 1, 2, 3, 4, 5, 6, 7, 17) DW4_NEXT("b.eq 3f")                 \
        DW4_COLUMN1(0, 1, 2) DW4_SUM1(3, 4, 5, 6, 7, 17, 0, 1, 2) DW4_NEXT("b.eq 4f") DW4_COLUMN1(3, 4, 5)             \
            DW4_SUM1(6, 7, 17, 0, 1, 2, 3, 4, 5) DW4_NEXT("b.ne 2b") DW4_LAST1(0, 1, 2, 3, 4, 5) "3:\n" DW4_LAST1(     \
                3, 4, 5, 6, 7, 17) "4:\n" DW4_LAST1(6, 7, 17, 0, 1, 2) "5:\n"
#define DW4_STRIDE_2                                                                                                   \
    DW4_SETUP DW4_ZERO1(0, 1, 2) "cbnz %[left], 2f\n" DW4_COLUMN1(0, 1, 2) "2:\n" DW4_COLUMN1(3, 4, 5)                 \
        DW4_COLUMN1(6, 7, 17) DW4_SUM1(0, 1, 2, 3, 4, 5, 6, 7, 17) DW4_NEXT("b.eq 3f") DW4_COLUMN1(3, 4, 5)            \
            DW4_COLUMN1(0, 1, 2) DW4_SUM1(6, 7, 17, 3, 4, 5, 0, 1, 2)                                                  \
                DW4_NEXT("b.ne 2b") "cbz %[right], 5f\n" DW4_COLUMN1(3, 4, 5)                                          \
                    DW4_LAST1(0, 1, 2, 3, 4, 5) "3:\n cbz %[right], 5f\n" DW4_COLUMN1(3, 4, 5)                         \
                        DW4_LAST1(6, 7, 17, 3, 4, 5) "5:\n"
#define DW4_ROWS(loop)                                                                                                 \
    __asm__ volatile(                                                                                                  \
        loop                                                                                                           \
        : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out0] "+r"(out0), [w] "+r"(w), [count] "+r"(count)       \
        : [step0] "r"(s->steps[0]), [step1] "r"(s->steps[1]), [step2] "r"(s->steps[2]), [move] "r"(s->y_pixel),        \
          [tap] "r"(tap), [bias] "r"(bias), [low] "r"(&d->floats.low), [high] "r"(&d->floats.high), [left] "r"(left),  \
          [right] "r"(right)                                                                                           \
        : DW4_CLOBBERS)

/* Computes `count` pixels of channels [c, c + 4) from pixel `begin` on. All their columns are inside the input, except
 * that the first pixel lacks its first column if `left` is 1. If `right` is 1, one more pixel follows, which lacks its
 * last column. */
static void dw4_slide(const dw4_span *s, int64_t c, int64_t begin, int64_t count, int64_t left, int64_t right) {
    const ln_depthwise *d = s->d;
    const int64_t stride = d->window.stride[2], tap = d->padded * 4,
                  ix = begin * stride - d->window.pad_begin[2] + left;
    /* Rows of zeros have only one vector. */
    const char *in0 = s->rows[0] + (s->steps[0] ? ix * s->x_pixel + c * 4 : 0),
               *in1 = s->rows[1] + (s->steps[1] ? ix * s->x_pixel + c * 4 : 0),
               *in2 = s->rows[2] + (s->steps[2] ? ix * s->x_pixel + c * 4 : 0);
    const char *w = (const char *)s->parts->taps + c * 4, *bias = (const char *)s->parts->bias + c * 4;
    char *out0 = s->out[0] + begin * s->y_pixel + c * 4;
    if (s->out[1] != NULL) {
        const char *in3 = s->rows[3] + (s->steps[3] ? ix * s->x_pixel + c * 4 : 0);
        char *out1 = s->out[1] + begin * s->y_pixel + c * 4;
        __asm__ volatile(DW4_PAIR
                         : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [in3] "+r"(in3), [out0] "+r"(out0),
                           [out1] "+r"(out1), [w] "+r"(w), [count] "+r"(count)
                         : [step0] "r"(s->steps[0]), [step1] "r"(s->steps[1]), [step2] "r"(s->steps[2]),
                           [step3] "r"(s->steps[3]), [move] "r"(s->y_pixel), [tap] "r"(tap), [bias] "r"(bias),
                           [low] "r"(&d->floats.low), [high] "r"(&d->floats.high), [left] "r"(left), [right] "r"(right)
                         : DW4_CLOBBERS);
    } else if (stride == 1) {
        DW4_ROWS(DW4_SINGLE);
    } else {
        DW4_ROWS(DW4_STRIDE_2);
    }
}

#undef DW4_LOAD
#undef DW4_TAP
#undef DW4_STORE
#undef DW4_SETUP
#undef DW4_NEXT
#undef DW4_CLOBBERS
#undef DW4_COLUMN2
#undef DW4_ZERO2
#undef DW4_SUM2
#undef DW4_LAST2
#undef DW4_PAIR
#undef DW4_COLUMN1
#undef DW4_ZERO1
#undef DW4_SUM1
#undef DW4_LAST1
#undef DW4_SINGLE
#undef DW4_STRIDE_2
#undef DW4_ROWS

/* Computes one output row, or two if `out[1]` is given, and returns whether it could. */
static bool dw4_rows(const ln_depthwise *d, const ln_depthwise_weights *parts, int dtype, const void *x,
                     const int64_t *position, dw_cache *cache, void *const *out, int64_t out_pixel) {
    static const float zeros[4] = {0};
    const ln_window *w = &d->window;
    const int64_t stride = w->stride[2], pad = w->pad_begin[2], pixels = w->out[2];
    const int64_t inside = w->in[2] - 3 + pad < 0 ? 0 : ln_min(pixels, (w->in[2] - 3 + pad) / stride + 1);
    if (w->kernel[0] != 1 || w->kernel[1] != 3 || w->kernel[2] != 3 || w->dilation[2] != 1 || stride > 2 || pad > 1 ||
        d->channels < 4 || parts->wide_bias[0] == 0 || inside < 1 || inside + 1 < pixels ||
        (pixels - 1) * stride - pad + 2 > w->in[2])
        return false;
    dw4_span s = {.d = d,
                  .parts = parts,
                  .x_pixel = (d->widen ? d->channels : d->x.s[2]) * 4,
                  .out = {out[0], out[1]},
                  .y_pixel = out_pixel * 4};
    for (int r = 0; r < (out[1] != NULL ? 4 : 3); r++) {
        const int64_t z = position[1] * w->stride[0] - w->pad_begin[0],
                      y = position[2] * w->stride[1] - w->pad_begin[1] + r * w->dilation[1];
        const bool in = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        s.rows[r] = in ? dw_input_row(d, dtype, x, position[0], z, y, r, cache) : (const void *)zeros;
        s.steps[r] = in ? s.x_pixel : 0;
    }
    for (int64_t ox = 0; ox < inside; ox += DW4_SEGMENT) {
        const int64_t count = ln_min(DW4_SEGMENT, inside - ox);
        for (int64_t c = 0; c < d->channels; c += 4)
            dw4_slide(&s, ln_min(c, d->channels - 4), ox, count, ox == 0 ? pad : 0,
                      ox + count == inside && inside < pixels);
    }
    return true;
}

#endif
