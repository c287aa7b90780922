/* depthwise_int8_a64.inc.c - depthwise convolution of integers by 3 x 3 on 64-bit ARM: nine vectors of weights and
 * three three columns of the input stay in registers. Included by depthwise_int8.inc.c. */

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
#define DW8_WEIGHTS                                                                                                    \
    "ld1 {v8.8h}, [%[w]], %[tap]\n ld1 {v9.8h}, [%[w]], %[tap]\n ld1 {v10.8h}, [%[w]], %[tap]\n"                       \
    "ld1 {v11.8h}, [%[w]], %[tap]\n ld1 {v12.8h}, [%[w]], %[tap]\n ld1 {v13.8h}, [%[w]], %[tap]\n"                     \
    "ld1 {v14.8h}, [%[w]], %[tap]\n ld1 {v15.8h}, [%[w]], %[tap]\n ld1 {v16.8h}, [%[w]], %[tap]\n"                     \
    "ld1 {v20.4s, v21.4s}, [%[bias]]\n ld1 {v22.4s, v23.4s}, [%[factor]]\n"
#define DW8_SETUP                                                                                                      \
    DW8_WEIGHTS "ld1 {v24.4s, v25.4s}, [%[shift]]\n"                                                                   \
                "dup v26.8b, %w[x_zero]\n dup v27.8h, %w[y_zero]\n dup v28.8b, %w[flip]\n"
#define DW8_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
/* Loops for strides of 1 and 2. `column` loads a column of the input, and `finish` stores the sums. */
#define DW8_LOOP_1(column, finish)                                                                                     \
    column(0, 1, 2) column(3, 4, 5) "1:\n" column(6, 7, 17) DW8_SUM(0, 1, 2, 3, 4, 5, 6, 7, 17)                        \
        finish DW8_NEXT("b.eq 2f") column(0, 1, 2) DW8_SUM(3, 4, 5, 6, 7, 17, 0, 1, 2) finish DW8_NEXT("b.eq 2f")      \
            column(3, 4, 5) DW8_SUM(6, 7, 17, 0, 1, 2, 3, 4, 5) finish DW8_NEXT("b.ne 1b") "2:\n"
#define DW8_LOOP_2(column, finish)                                                                                     \
    column(0, 1, 2) "1:\n" column(3, 4, 5) column(6, 7, 17) DW8_SUM(0, 1, 2, 3, 4, 5, 6, 7, 17)                        \
        finish DW8_NEXT("b.eq 2f") column(3, 4, 5) column(0, 1, 2) DW8_SUM(6, 7, 17, 3, 4, 5, 0, 1, 2)                 \
            finish DW8_NEXT("b.ne 1b") "2:\n"
#define DW8_SLIDE(loop)                                                                                                \
    __asm__ volatile(                                                                                                  \
        DW8_SETUP loop                                                                                                 \
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
            DW8_SLIDE(DW8_LOOP_1(DW8_COLUMN, DW8_FIXED DW8_STORE));
        else
            DW8_SLIDE(DW8_LOOP_1(DW8_COLUMN, DW8_FLOAT DW8_STORE));
    } else {
        if (fixed)
            DW8_SLIDE(DW8_LOOP_2(DW8_COLUMN, DW8_FIXED DW8_STORE));
        else
            DW8_SLIDE(DW8_LOOP_2(DW8_COLUMN, DW8_FLOAT DW8_STORE));
    }
}

/* 16 bits: v24 and v25 have the limits of the result as a float, v26 and v27 the inverse of its scale and the scale,
 * and v28 the zero point. As ln_gemm_quantized of kernels_arm, this equals a division. */
#define DW16_COLUMN(a, b, c)                                                                                           \
    "ld1 {v" #a ".8h}, [%[in0]], %[step]\n ld1 {v" #b ".8h}, [%[in1]], %[step]\n"                                      \
    "ld1 {v" #c ".8h}, [%[in2]], %[step]\n"
#define DW16_STORE                                                                                                     \
    "scvtf v18.4s, v18.4s\n scvtf v19.4s, v19.4s\n fmul v18.4s, v18.4s, v22.4s\n fmul v19.4s, v19.4s, v23.4s\n"        \
    "fmax v18.4s, v18.4s, v24.4s\n fmax v19.4s, v19.4s, v24.4s\n"                                                      \
    "fmin v18.4s, v18.4s, v25.4s\n fmin v19.4s, v19.4s, v25.4s\n"                                                      \
    "fmul v29.4s, v18.4s, v26.4s\n fmul v30.4s, v19.4s, v26.4s\n"                                                      \
    "fmls v18.4s, v29.4s, v27.4s\n fmls v19.4s, v30.4s, v27.4s\n"                                                      \
    "fmla v29.4s, v18.4s, v26.4s\n fmla v30.4s, v19.4s, v26.4s\n"                                                      \
    "fcvtns v29.4s, v29.4s\n fcvtns v30.4s, v30.4s\n uzp1 v29.8h, v29.8h, v30.8h\n"                                    \
    "add v29.8h, v29.8h, v28.8h\n st1 {v29.8h}, [%[out]], %[move]\n"
#define DW16_SLIDE(loop)                                                                                               \
    __asm__ volatile(                                                                                                  \
        DW8_WEIGHTS "ld4r {v24.4s, v25.4s, v26.4s, v27.4s}, [%[four]]\n dup v28.8h, %w[zero]\n" loop                   \
        : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out] "+r"(out), [w] "+r"(w), [count] "+r"(count)         \
        : [step] "r"(s->x_pixel), [move] "r"(s->y_pixel), [tap] "r"(d->padded * 2), [bias] "r"(bias),                  \
          [factor] "r"(d->quantized.requant.scale + c), [four] "r"(four), [zero] "r"(sum->y_zero)                      \
        : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
          "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "cc",      \
          "memory")

/* The same for 16 bits and results that have their own scale. */
static void dw16_slide(const dw8_span *s, int64_t c, int64_t begin, int64_t count) {
    const ln_depthwise *d = s->d;
    const ln_quantized_sum *sum = d->narrow.sum;
    const int64_t from = begin * d->window.stride[2] * s->x_pixel + c * 2;
    const int8_t *in0 = s->rows[0] + from, *in1 = s->rows[1] + from, *in2 = s->rows[2] + from;
    const int16_t *w = (const int16_t *)s->parts->taps + c;
    const int32_t *bias = (const int32_t *)s->parts->bias + c;
    const float four[] = {sum->low, sum->high, sum->y_inverse, sum->y_scale};
    char *out = s->out + begin * s->y_pixel + c * 2;
    if (d->window.stride[2] == 1)
        DW16_SLIDE(DW8_LOOP_1(DW16_COLUMN, DW16_STORE));
    else
        DW16_SLIDE(DW8_LOOP_2(DW16_COLUMN, DW16_STORE));
}

#undef DW8_COLUMN
#undef DW8_TAP
#undef DW8_SUM
#undef DW8_FLOAT
#undef DW8_FIXED
#undef DW8_STORE
#undef DW8_WEIGHTS
#undef DW8_SETUP
#undef DW8_NEXT
#undef DW8_LOOP_1
#undef DW8_LOOP_2
#undef DW8_SLIDE
#undef DW16_COLUMN
#undef DW16_STORE
#undef DW16_SLIDE
