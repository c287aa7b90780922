/* depthwise_int8_a32.inc.c - dw8_slide of depthwise_int8.inc.c with the 16 registers of 32-bit ARM, for bytes by
 * float_rne. The weights stay in registers. A column of the input is added to the sums of the up to three pixels that
 * read it, so that each input is loaded once for an output row. Included by depthwise_int8.inc.c. */

/* What the assembly reads at its offsets, and does not change. */
typedef struct dw8_ends {
    int32_t bias[8];  /* 0: reduced by the products of the zero point, which is not subtracted from the inputs */
    float scale[8];   /* 32 */
    float round[4];   /* 64: 1.5 * 2^23, to which floats are added to round them half to even */
    int16_t zero[4];  /* 80: the zero point of the output */
    uint8_t flip[8];  /* 88: the sign bit of u8 */
    const int16_t *w; /* 96 */
    int32_t tap;      /* 100: bytes from one weight to the next */
    int32_t count;    /* 104 */
} dw8_ends;

/* Registers: an input in q0, the sums of three pixels in q1 to q6, weights in q7 to q15. */
#define DW8_LOAD(row) "vld1.8 {d0}, [%[in" #row "]], %[step]\n vmovl.s8 q0, d0\n"
#define DW8_TAP(l, h, wl, wh) "vmlal.s16 q" #l ", d0, d" #wl "\n vmlal.s16 q" #h ", d1, d" #wh "\n"
/* DW8_K<column>_<row>: the weight of a column of a row. */
#define DW8_K0_0(l, h) DW8_TAP(l, h, 14, 15)
#define DW8_K1_0(l, h) DW8_TAP(l, h, 16, 17)
#define DW8_K2_0(l, h) DW8_TAP(l, h, 18, 19)
#define DW8_K0_1(l, h) DW8_TAP(l, h, 20, 21)
#define DW8_K1_1(l, h) DW8_TAP(l, h, 22, 23)
#define DW8_K2_1(l, h) DW8_TAP(l, h, 24, 25)
#define DW8_K0_2(l, h) DW8_TAP(l, h, 26, 27)
#define DW8_K1_2(l, h) DW8_TAP(l, h, 28, 29)
#define DW8_K2_2(l, h) DW8_TAP(l, h, 30, 31)
#define DW8_BIAS(sums) "vldmia %[e], {" sums "}\n"
#define DW8_0 "d2-d5"
#define DW8_1 "d6-d9"
#define DW8_2 "d10-d13"
#define DW8_WEIGHT(v) "vld1.16 {" v "}, [r12], %[count]\n"
#define DW8_SETUP                                                                                                      \
    "ldr r12, [%[e], #96]\n ldr %[count], [%[e], #100]\n" DW8_WEIGHT("d14-d15") DW8_WEIGHT("d16-d17")                  \
        DW8_WEIGHT("d18-d19") DW8_WEIGHT("d20-d21") DW8_WEIGHT("d22-d23") DW8_WEIGHT("d24-d25") DW8_WEIGHT("d26-d27")  \
            DW8_WEIGHT("d28-d29") DW8_WEIGHT("d30-d31") "ldr %[count], [%[e], #104]\n"
/* clang-format off */
/* Add a column to pixels, each with the sums l and h: the first or the middle column of pixel a; the middle one of a and
 * the first one of b; the last one of a and the first one of b; the last one of a, the middle one of b, and the first
 * one of c. */
#define DW8_FIRST(al, ah) DW8_LOAD(0) DW8_K0_0(al, ah) DW8_LOAD(1) DW8_K0_1(al, ah) DW8_LOAD(2) DW8_K0_2(al, ah)
#define DW8_MIDDLE(al, ah) DW8_LOAD(0) DW8_K1_0(al, ah) DW8_LOAD(1) DW8_K1_1(al, ah) DW8_LOAD(2) DW8_K1_2(al, ah)
#define DW8_SECOND(al, ah, bl, bh)                                                                                     \
    DW8_LOAD(0) DW8_K1_0(al, ah) DW8_K0_0(bl, bh) DW8_LOAD(1) DW8_K1_1(al, ah) DW8_K0_1(bl, bh)                        \
    DW8_LOAD(2) DW8_K1_2(al, ah) DW8_K0_2(bl, bh)
#define DW8_LAST_FIRST(al, ah, bl, bh)                                                                                 \
    DW8_LOAD(0) DW8_K2_0(al, ah) DW8_K0_0(bl, bh) DW8_LOAD(1) DW8_K2_1(al, ah) DW8_K0_1(bl, bh)                        \
    DW8_LOAD(2) DW8_K2_2(al, ah) DW8_K0_2(bl, bh)
#define DW8_THIRD(al, ah, bl, bh, cl, ch)                                                                              \
    DW8_LOAD(0) DW8_K2_0(al, ah) DW8_K1_0(bl, bh) DW8_K0_0(cl, ch)                                                     \
    DW8_LOAD(1) DW8_K2_1(al, ah) DW8_K1_1(bl, bh) DW8_K0_1(cl, ch)                                                     \
    DW8_LOAD(2) DW8_K2_2(al, ah) DW8_K1_2(bl, bh) DW8_K0_2(cl, ch)
/* Requantizes the sums l and h as `scaled` of gemm_s8__neon32.c does. n0 and n1 are the halves of register l. */
#define DW8_BOTH(op, l, h) op " q" #l ", q" #l ", q0\n " op " q" #h ", q" #h ", q0\n"
#define DW8_CONSTANT "vld1.32 {d0-d1}, [r12]!\n"
#define DW8_STORE(l, h, n0, n1)                                                                                        \
    "add r12, %[e], #32\n vcvt.f32.s32 q" #l ", q" #l "\n vcvt.f32.s32 q" #h ", q" #h "\n" DW8_CONSTANT                \
    "vmul.f32 q" #l ", q" #l ", q0\n" DW8_CONSTANT "vmul.f32 q" #h ", q" #h ", q0\n" DW8_CONSTANT                      \
    DW8_BOTH("vadd.f32", l, h) DW8_BOTH("vqsub.s32", l, h) DW8_CONSTANT                                                \
    "vqmovn.s32 d" #n0 ", q" #l "\n vqmovn.s32 d" #n1 ", q" #h "\n"                                                    \
    "vqadd.s16 d" #n0 ", d" #n0 ", d0\n vqadd.s16 d" #n1 ", d" #n1 ", d0\n"                                            \
    "vqmovn.s16 d" #n0 ", q" #l "\n veor d" #n0 ", d" #n0 ", d1\n vst1.8 {d" #n0 "}, [%[out]], %[move]\n"
/* clang-format on */
#define DW8_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define DW8_STRIDE_1                                                                                                   \
    DW8_SETUP DW8_BIAS(DW8_0) DW8_FIRST(1, 2) DW8_BIAS(DW8_1) DW8_SECOND(1, 2, 3, 4) "1:\n" DW8_BIAS(DW8_2)            \
        DW8_THIRD(1, 2, 3, 4, 5, 6) DW8_STORE(1, 2, 2, 3) DW8_NEXT("beq 2f") DW8_BIAS(DW8_0)                           \
            DW8_THIRD(3, 4, 5, 6, 1, 2) DW8_STORE(3, 4, 6, 7) DW8_NEXT("beq 2f") DW8_BIAS(DW8_1)                       \
                DW8_THIRD(5, 6, 1, 2, 3, 4) DW8_STORE(5, 6, 10, 11) DW8_NEXT("bne 1b") "2:\n"
#define DW8_STRIDE_2                                                                                                   \
    DW8_SETUP DW8_BIAS(DW8_0) DW8_FIRST(1, 2) "1:\n" DW8_MIDDLE(1, 2) DW8_BIAS(DW8_1) DW8_LAST_FIRST(1, 2, 3, 4)       \
        DW8_STORE(1, 2, 2, 3) DW8_NEXT("beq 2f") DW8_MIDDLE(3, 4) DW8_BIAS(DW8_0) DW8_LAST_FIRST(3, 4, 1, 2)           \
            DW8_STORE(3, 4, 6, 7) DW8_NEXT("bne 1b") "2:\n"
#define DW8_SLIDE(loop)                                                                                                \
    __asm__ volatile(loop                                                                                              \
                     : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out] "+r"(out), [count] "=&r"(left)         \
                     : [step] "r"(step), [move] "r"(move), [e] "r"(&e)                                                 \
                     : "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13",  \
                       "q14", "q15", "cc", "memory")

/* Computes output pixels [begin, begin + count) of channels [channel, channel + 8). */
static void dw8_slide(const dw8_span *s, int64_t channel, int64_t begin, int64_t count) {
    const ln_depthwise *d = s->d;
    const ln_requant *r = &d->quantized.requant;
    const int32_t c = (int32_t)channel, step = (int32_t)s->x_pixel, move = (int32_t)s->y_pixel;
    const int32_t stride = (int32_t)d->window.stride[2], from = (int32_t)begin * stride * step + c;
    const int flip = r->output_dtype == LINNET_U8 ? 128 : 0;
    dw8_ends e = {.w = (const int16_t *)s->parts->taps + c, .tap = (int32_t)d->padded * 2, .count = (int32_t)count};
    const int32_t *bias = (const int32_t *)s->parts->bias + c;
    const int16_t *w = e.w;
    vi low = vi_load(bias), high = vi_load(bias + 4);
    for (int i = 0; i < 9; i++, w += d->padded) {
        const int16x8_t v = vld1q_s16(w);
        low = vmlsl_n_s16(low, vget_low_s16(v), d->narrow.padding);
        high = vmlsl_n_s16(high, vget_high_s16(v), d->narrow.padding);
    }
    vi_store(e.bias, low), vi_store(e.bias + 4, high);
    vf_store(e.scale, vf_load(r->scale + c)), vf_store(e.scale + 4, vf_load(r->scale + c + 4));
    vf_store(e.round, vf_set1(12582912.0f));
    vst1_s16(e.zero, vdup_n_s16((int16_t)(r->y_zero - flip)));
    vst1_u8(e.flip, vdup_n_u8((uint8_t)flip));
    const int8_t *in0 = s->rows[0] + from, *in1 = s->rows[1] + from, *in2 = s->rows[2] + from;
    char *out = s->out + (int32_t)begin * move + c;
    int32_t left;
    if (stride == 1)
        DW8_SLIDE(DW8_STRIDE_1);
    else
        DW8_SLIDE(DW8_STRIDE_2);
}

#undef DW8_LOAD
#undef DW8_TAP
#undef DW8_K0_0
#undef DW8_K1_0
#undef DW8_K2_0
#undef DW8_K0_1
#undef DW8_K1_1
#undef DW8_K2_1
#undef DW8_K0_2
#undef DW8_K1_2
#undef DW8_K2_2
#undef DW8_BIAS
#undef DW8_0
#undef DW8_1
#undef DW8_2
#undef DW8_WEIGHT
#undef DW8_SETUP
#undef DW8_FIRST
#undef DW8_MIDDLE
#undef DW8_SECOND
#undef DW8_LAST_FIRST
#undef DW8_THIRD
#undef DW8_BOTH
#undef DW8_CONSTANT
#undef DW8_STORE
#undef DW8_NEXT
#undef DW8_STRIDE_1
#undef DW8_STRIDE_2
#undef DW8_SLIDE
