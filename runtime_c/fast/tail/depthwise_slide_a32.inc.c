/* depthwise_slide_a32.inc.c - dw4_slide of depthwise_f32.inc.c with the 16 registers of 32-bit ARM. The weights stay in
 * registers. A column of the input is added to the sums of the up to three pixels that read it, so that each input is
 * loaded once for an output row. Included by depthwise_f32.inc.c. */

/* What the assembly reads at its offsets, and does not change. */
typedef struct dw4_ends {
    float bias[4];   /* 0 */
    const float *w;  /* 16 */
    int32_t tap;     /* 20: bytes from one weight to the next */
    float low, high; /* 24, 28 */
    int32_t count;   /* 32 */
    int32_t left;    /* 36: the first pixel lacks its first column */
    int32_t right;   /* 40: one more pixel follows, which lacks its last column */
} dw4_ends;

/* Registers: sums in q0 to q2, two inputs of a column in q3 and q4, limits in q5 and q6, weights in q7 to q15. */
#define DW_LOAD(v, row) "vld1.32 {" v "}, [%[in" #row "]], %[step" #row "]\n"
#define DW_TAP(sum, v, k) "vmla.f32 q" #sum ", q" #v ", q" #k "\n"
#define DW_BIAS(sum) "vldmia %[e], {" sum "}\n"
#define DW_WEIGHT(v) "vld1.32 {" v "}, [r12], %[count]\n"
#define DW_SETUP                                                                                                       \
    "ldr r12, [%[e], #16]\n ldr %[count], [%[e], #20]\n" DW_WEIGHT("d14-d15") DW_WEIGHT("d16-d17")                     \
        DW_WEIGHT("d18-d19") DW_WEIGHT("d20-d21") DW_WEIGHT("d22-d23") DW_WEIGHT("d24-d25") DW_WEIGHT("d26-d27")       \
            DW_WEIGHT("d28-d29") DW_WEIGHT(                                                                            \
                "d30-d31") "add r12, %[e], #24\n vld1.32 {d10[], d11[]}, [r12]!\n vld1.32 {d12[], d13[]}, [r12]\n"     \
                           "ldr %[count], [%[e], #32]\n ldr r12, [%[e], #36]\n cmp r12, #0\n"
/* clang-format off */
/* Add a column to pixel a, whose first or middle one it is. */
#define DW_FIRST(a)                                                                                                    \
    DW_LOAD("d6-d7", 0) DW_LOAD("d8-d9", 1) DW_TAP(a, 3, 7) DW_LOAD("d6-d7", 2) DW_TAP(a, 4, 10) DW_TAP(a, 3, 13)
#define DW_MIDDLE(a)                                                                                                   \
    DW_LOAD("d6-d7", 0) DW_LOAD("d8-d9", 1) DW_TAP(a, 3, 8) DW_LOAD("d6-d7", 2) DW_TAP(a, 4, 11) DW_TAP(a, 3, 14)
/* Adds the column that is the middle one of pixel a and the first one of pixel b. */
#define DW_SECOND(a, b, b_as_d)                                                                                        \
    DW_LOAD("d6-d7", 0) DW_LOAD("d8-d9", 1) DW_BIAS(b_as_d) DW_TAP(a, 3, 8) DW_TAP(b, 3, 7)                            \
    DW_LOAD("d6-d7", 2) DW_TAP(a, 4, 11) DW_TAP(b, 4, 10) DW_TAP(a, 3, 14) DW_TAP(b, 3, 13)
/* Adds the column that is the last one of pixel a, the middle one of b, and the first one of c. */
#define DW_THIRD(a, b, c, c_as_d)                                                                                      \
    DW_LOAD("d6-d7", 0) DW_LOAD("d8-d9", 1) DW_BIAS(c_as_d) DW_TAP(a, 3, 9) DW_TAP(b, 3, 8) DW_TAP(c, 3, 7)            \
    DW_LOAD("d6-d7", 2) DW_TAP(a, 4, 12) DW_TAP(b, 4, 11) DW_TAP(c, 4, 10)                                             \
    DW_TAP(a, 3, 15) DW_TAP(b, 3, 14) DW_TAP(c, 3, 13)
/* Adds the column that is the last one of pixel a and the first one of b. */
#define DW_LAST_FIRST(a, b, b_as_d)                                                                                    \
    DW_LOAD("d6-d7", 0) DW_LOAD("d8-d9", 1) DW_BIAS(b_as_d) DW_TAP(a, 3, 9) DW_TAP(b, 3, 7)                            \
    DW_LOAD("d6-d7", 2) DW_TAP(a, 4, 12) DW_TAP(b, 4, 10) DW_TAP(a, 3, 15) DW_TAP(b, 3, 13)
/* clang-format on */
#define DW_STORE(a, a_as_d)                                                                                            \
    "vmax.f32 q" #a ", q" #a ", q5\n vmin.f32 q" #a ", q" #a ", q6\n vst1.32 {" a_as_d "}, [%[out]], %[move]\n"
#define DW_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define DW_RIGHT "ldr r12, [%[e], #40]\n cmp r12, #0\n beq 5f\n"
#define DW_STRIDE_1                                                                                                    \
    DW_SETUP DW_BIAS("d0-d1") "bne 1f\n" DW_FIRST(0) "1:\n" DW_SECOND(0, 1, "d2-d3") "2:\n" DW_THIRD(0, 1, 2, "d4-d5") \
        DW_STORE(0, "d0-d1") DW_NEXT("beq 3f") DW_THIRD(1, 2, 0, "d0-d1") DW_STORE(1, "d2-d3") DW_NEXT("beq 4f")       \
            DW_THIRD(2, 0, 1, "d2-d3") DW_STORE(2, "d4-d5") DW_NEXT("bne 2b")                                          \
                DW_RIGHT DW_STORE(0, "d0-d1") "b 5f\n3:\n" DW_RIGHT DW_STORE(                                          \
                    1, "d2-d3") "b 5f\n4:\n" DW_RIGHT DW_STORE(2, "d4-d5") "5:\n"
#define DW_STRIDE_2                                                                                                    \
    DW_SETUP DW_BIAS("d0-d1") "bne 2f\n" DW_FIRST(0) "2:\n" DW_MIDDLE(0) DW_LAST_FIRST(0, 1, "d2-d3")                  \
        DW_STORE(0, "d0-d1") DW_NEXT("beq 3f") DW_MIDDLE(1) DW_LAST_FIRST(1, 0, "d0-d1") DW_STORE(1, "d2-d3")          \
            DW_NEXT("bne 2b") DW_RIGHT DW_MIDDLE(0) DW_STORE(0, "d0-d1") "b 5f\n3:\n" DW_RIGHT DW_MIDDLE(1)            \
                DW_STORE(1, "d2-d3") "5:\n"
#define DW_ROWS(loop)                                                                                                  \
    __asm__ volatile(loop                                                                                              \
                     : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out] "+r"(out), [count] "=&r"(count)        \
                     : [step0] "r"(step0), [step1] "r"(step1), [step2] "r"(step2), [move] "r"(move), [e] "r"(&e)       \
                     : "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13",  \
                       "q14", "q15", "cc", "memory")

/* Does what the function of depthwise_slide.inc.c does, for one output row. */
static void dw4_slide(const ln_depthwise_span *s, int64_t channel, int64_t begin, int64_t pixels, int64_t left,
                      int64_t right) {
    const ln_depthwise *d = s->d;
    const int32_t c = (int32_t)channel * 4, stride = (int32_t)d->window.stride[2], pixel = (int32_t)s->x_pixel;
    const int32_t from = ((int32_t)begin * stride - (int32_t)d->window.pad_begin[2] + (int32_t)left) * pixel + c;
    const int32_t step0 = (int32_t)s->steps[0], step1 = (int32_t)s->steps[1], step2 = (int32_t)s->steps[2];
    const int32_t move = (int32_t)s->y_pixel;
    dw4_ends e = {.w = (const float *)s->parts->taps + channel,
                  .tap = (int32_t)d->padded * 4,
                  .low = d->floats.low,
                  .high = d->floats.high,
                  .count = (int32_t)pixels,
                  .left = (int32_t)left,
                  .right = (int32_t)right};
    vf_store(e.bias, vf_load((const float *)s->parts->bias + channel));
    /* Rows of zeros have only one vector. */
    const char *in0 = s->rows[0] + (step0 != 0 ? from : 0), *in1 = s->rows[1] + (step1 != 0 ? from : 0),
               *in2 = s->rows[2] + (step2 != 0 ? from : 0);
    char *out = s->out[0] + (int32_t)begin * move + c;
    int32_t count;
    if (stride == 1)
        DW_ROWS(DW_STRIDE_1);
    else
        DW_ROWS(DW_STRIDE_2);
}

#undef DW_LOAD
#undef DW_TAP
#undef DW_BIAS
#undef DW_WEIGHT
#undef DW_SETUP
#undef DW_FIRST
#undef DW_MIDDLE
#undef DW_SECOND
#undef DW_THIRD
#undef DW_LAST_FIRST
#undef DW_STORE
#undef DW_NEXT
#undef DW_RIGHT
#undef DW_STRIDE_1
#undef DW_STRIDE_2
#undef DW_ROWS
