/* depthwise_slide.inc.c - a function that computes pixels of a 3 x 3 depthwise convolution on ARM: the weights and
 * three columns of the input stay in registers, so that each input is loaded once for two output rows. Included by
 * the files for f32 and f16, which define its name DW_SLIDE, and:
 *     DW_LOAD(v, row): loads the next vector of an input row
 *     DW_TAP(sum, v, k): adds the products of registers v and k
 *     DW_STORE(sum, row): limits and stores a vector of results
 *     DW_SIZE: bytes of an input and of a result. Weights, bias and limits are f32
 *     DW_SETUP: loads nine taps to v8 to v16, the bias to v23, and the limits to v24 and v25
 * Registers: three columns of four rows in v0 to v7 and v17 to v20, sums in v21 and v22; v26 and v27 are free for the
 * macros above. Every sum adds its taps in the order of the generic loop, beginning with the bias. */
#include "fast/tail/depthwise.h"

#define DW_NEXT(exit) "subs %[count], %[count], #1\n " exit "\n"
#define DW_CLOBBERS                                                                                                    \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",       \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "cc", "memory"

/* For two output rows, a column of the input has four vectors: one in each of the registers a to d. */
#define DW_COLUMN2(a, b, c, d) DW_LOAD(a, 0) DW_LOAD(b, 1) DW_LOAD(c, 2) DW_LOAD(d, 3)
#define DW_ZERO2(a, b, c, d) "movi v" #a ".4s, #0\n movi v" #b ".4s, #0\n movi v" #c ".4s, #0\n movi v" #d ".4s, #0\n"
#define DW_SUM2(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3)                                                        \
    "mov v21.16b, v23.16b\n mov v22.16b, v23.16b\n" DW_TAP(21, a0, 8) DW_TAP(22, a1, 8) DW_TAP(21, b0, 9)              \
        DW_TAP(22, b1, 9) DW_TAP(21, c0, 10) DW_TAP(22, c1, 10) DW_TAP(21, a1, 11) DW_TAP(22, a2, 11)                  \
            DW_TAP(21, b1, 12) DW_TAP(22, b2, 12) DW_TAP(21, c1, 13) DW_TAP(22, c2, 13) DW_TAP(21, a2, 14)             \
                DW_TAP(22, a3, 14) DW_TAP(21, b2, 15) DW_TAP(22, b3, 15) DW_TAP(21, c2, 16) DW_TAP(22, c3, 16)         \
                    DW_STORE(21, 0) DW_STORE(22, 1)
/* Computes the last pixel of a line if there is padding after the line. Its third column is padding, so it is left out.
 */
#define DW_LAST2(a0, a1, a2, a3, b0, b1, b2, b3)                                                                       \
    "cbz %[right], 5f\n mov v21.16b, v23.16b\n mov v22.16b, v23.16b\n" DW_TAP(21, a0, 8) DW_TAP(22, a1, 8)             \
        DW_TAP(21, b0, 9) DW_TAP(22, b1, 9) DW_TAP(21, a1, 11) DW_TAP(22, a2, 11) DW_TAP(21, b1, 12)                   \
            DW_TAP(22, b2, 12) DW_TAP(21, a2, 14) DW_TAP(22, a3, 14) DW_TAP(21, b2, 15) DW_TAP(22, b3, 15)             \
                DW_STORE(21, 0) DW_STORE(22, 1) "b 5f\n"
#define DW_PAIR                                                                                                        \
    DW_SETUP DW_ZERO2(0, 1, 2, 3) "cbnz %[left], 1f\n" DW_COLUMN2(0, 1, 2, 3) "1:\n" DW_COLUMN2(                       \
        4, 5, 6, 7) "2:\n" DW_COLUMN2(17, 18, 19, 20) DW_SUM2(0, 1, 2, 3, 4, 5, 6, 7, 17, 18, 19, 20)                  \
        DW_NEXT("b.eq 3f") DW_COLUMN2(0, 1, 2, 3) DW_SUM2(4, 5, 6, 7, 17, 18, 19, 20, 0, 1, 2, 3) DW_NEXT("b.eq 4f")   \
            DW_COLUMN2(4, 5, 6, 7) DW_SUM2(17, 18, 19, 20, 0, 1, 2, 3, 4, 5, 6, 7) DW_NEXT("b.ne 2b")                  \
                DW_LAST2(0, 1, 2, 3, 4, 5, 6, 7) "3:\n" DW_LAST2(4, 5, 6, 7, 17, 18, 19, 20) "4:\n" DW_LAST2(          \
                    17, 18, 19, 20, 0, 1, 2, 3) "5:\n"

/* For one output row, a column of the input has three vectors. */
#define DW_COLUMN1(a, b, c) DW_LOAD(a, 0) DW_LOAD(b, 1) DW_LOAD(c, 2)
#define DW_ZERO1(a, b, c) "movi v" #a ".4s, #0\n movi v" #b ".4s, #0\n movi v" #c ".4s, #0\n"
#define DW_SUM1(a0, a1, a2, b0, b1, b2, c0, c1, c2)                                                                    \
    "mov v21.16b, v23.16b\n" DW_TAP(21, a0, 8) DW_TAP(21, b0, 9) DW_TAP(21, c0, 10) DW_TAP(21, a1, 11)                 \
        DW_TAP(21, b1, 12) DW_TAP(21, c1, 13) DW_TAP(21, a2, 14) DW_TAP(21, b2, 15) DW_TAP(21, c2, 16) DW_STORE(21, 0)
#define DW_LAST1(a0, a1, a2, b0, b1, b2)                                                                               \
    "cbz %[right], 5f\n mov v21.16b, v23.16b\n" DW_TAP(21, a0, 8) DW_TAP(21, b0, 9) DW_TAP(21, a1, 11)                 \
        DW_TAP(21, b1, 12) DW_TAP(21, a2, 14) DW_TAP(21, b2, 15) DW_STORE(21, 0) "b 5f\n"
#define DW_SINGLE                                                                                                      \
    DW_SETUP DW_ZERO1(0, 1, 2) "cbnz %[left], 1f\n" DW_COLUMN1(0, 1, 2) "1:\n" DW_COLUMN1(3, 4, 5) "2:\n" DW_COLUMN1(  \
        6, 7, 17) DW_SUM1(0, 1, 2, 3, 4, 5, 6, 7, 17) DW_NEXT("b.eq 3f") DW_COLUMN1(0, 1, 2)                           \
        DW_SUM1(3, 4, 5, 6, 7, 17, 0, 1, 2) DW_NEXT("b.eq 4f") DW_COLUMN1(3, 4, 5) DW_SUM1(6, 7, 17, 0, 1, 2, 3, 4,    \
                                                                                           5) DW_NEXT("b.ne 2b")       \
            DW_LAST1(0, 1, 2, 3, 4, 5) "3:\n" DW_LAST1(3, 4, 5, 6, 7, 17) "4:\n" DW_LAST1(6, 7, 17, 0, 1, 2) "5:\n"
#define DW_STRIDE_2                                                                                                    \
    DW_SETUP DW_ZERO1(0, 1, 2) "cbnz %[left], 2f\n" DW_COLUMN1(0, 1, 2) "2:\n" DW_COLUMN1(3, 4, 5)                     \
        DW_COLUMN1(6, 7, 17) DW_SUM1(0, 1, 2, 3, 4, 5, 6, 7, 17) DW_NEXT("b.eq 3f") DW_COLUMN1(3, 4, 5)                \
            DW_COLUMN1(0, 1, 2) DW_SUM1(6, 7, 17, 3, 4, 5, 0, 1, 2)                                                    \
                DW_NEXT("b.ne 2b") "cbz %[right], 5f\n" DW_COLUMN1(3, 4, 5)                                            \
                    DW_LAST1(0, 1, 2, 3, 4, 5) "3:\n cbz %[right], 5f\n" DW_COLUMN1(3, 4, 5)                           \
                        DW_LAST1(6, 7, 17, 3, 4, 5) "5:\n"
#define DW_ROWS(loop)                                                                                                  \
    __asm__ volatile(                                                                                                  \
        loop                                                                                                           \
        : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [out0] "+r"(out0), [w] "+r"(w), [count] "+r"(count)       \
        : [step0] "r"(s->steps[0]), [step1] "r"(s->steps[1]), [step2] "r"(s->steps[2]), [move] "r"(s->y_pixel),        \
          [tap] "r"(tap), [bias] "r"(bias), [low] "r"(&d->floats.low), [high] "r"(&d->floats.high), [left] "r"(left),  \
          [right] "r"(right)                                                                                           \
        : DW_CLOBBERS)

/* Computes `count` pixels of a vector of channels, from channel c on, from pixel `begin` on. All their columns are
 * inside the input, except that the first pixel lacks its first column if `left` is 1. If `right` is 1, one more pixel
 * follows, which lacks its last column. */
static void DW_SLIDE(const ln_depthwise_span *s, int64_t c, int64_t begin, int64_t count, int64_t left, int64_t right) {
    const ln_depthwise *d = s->d;
    const int64_t stride = d->window.stride[2], tap = d->padded * 4,
                  ix = begin * stride - d->window.pad_begin[2] + left;
    /* Rows of zeros have only one vector. */
    const char *in0 = s->rows[0] + (s->steps[0] ? ix * s->x_pixel + c * DW_SIZE : 0),
               *in1 = s->rows[1] + (s->steps[1] ? ix * s->x_pixel + c * DW_SIZE : 0),
               *in2 = s->rows[2] + (s->steps[2] ? ix * s->x_pixel + c * DW_SIZE : 0);
    const char *w = (const char *)s->parts->taps + c * 4, *bias = (const char *)s->parts->bias + c * 4;
    char *out0 = s->out[0] + begin * s->y_pixel + c * DW_SIZE;
    if (s->out[1] != NULL) {
        const char *in3 = s->rows[3] + (s->steps[3] ? ix * s->x_pixel + c * DW_SIZE : 0);
        char *out1 = s->out[1] + begin * s->y_pixel + c * DW_SIZE;
        __asm__ volatile(DW_PAIR
                         : [in0] "+r"(in0), [in1] "+r"(in1), [in2] "+r"(in2), [in3] "+r"(in3), [out0] "+r"(out0),
                           [out1] "+r"(out1), [w] "+r"(w), [count] "+r"(count)
                         : [step0] "r"(s->steps[0]), [step1] "r"(s->steps[1]), [step2] "r"(s->steps[2]),
                           [step3] "r"(s->steps[3]), [move] "r"(s->y_pixel), [tap] "r"(tap), [bias] "r"(bias),
                           [low] "r"(&d->floats.low), [high] "r"(&d->floats.high), [left] "r"(left), [right] "r"(right)
                         : DW_CLOBBERS);
    } else if (stride == 1) {
        DW_ROWS(DW_SINGLE);
    } else {
        DW_ROWS(DW_STRIDE_2);
    }
}

#undef DW_SLIDE
#undef DW_SIZE
#undef DW_LOAD
#undef DW_TAP
#undef DW_STORE
#undef DW_SETUP
#undef DW_CLOBBERS
#undef DW_COLUMN1
#undef DW_COLUMN2
#undef DW_LAST1
#undef DW_LAST2
#undef DW_NEXT
#undef DW_PAIR
#undef DW_ROWS
#undef DW_SINGLE
#undef DW_STRIDE_2
#undef DW_SUM1
#undef DW_SUM2
#undef DW_ZERO1
#undef DW_ZERO2
