/* depthwise_tile.inc.c - the loops of depthwise convolution for f32 or i32. depthwise.inc.c defines NUMBER, VECTOR,
 * MULTIPLY_ADD(x, w, sum), LOAD(p), STORE(p, v), LOAD_PARTIAL(p, n), STORE_PARTIAL(p, n, v), FINISH(v), NAMED(name). */

/* Computes P pixels and all channels. Every loaded weight vector serves P pixels; sums stay in registers. */
static LN_ALWAYS_INLINE void NAMED(tile)(const int P, const dw_span *s, int64_t shift, int64_t channels, NUMBER *out,
                                         int64_t out_pixel) {
    const vf low = vf_set1(s->low), high = vf_set1(s->high);
    const ptrdiff_t pixel = s->pixel, x_tap = s->x_tap, w_tap = s->w_tap; /* in one register each on 32 bits */
    (void)low, (void)high;
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        if (c + VF_WIDTH > channels)
            c = channels - VF_WIDTH; /* the last vector overlaps the previous one and computes the same values again */
        VECTOR sum[LN_DW_PIXELS];
        LN_UNROLL
        for (int p = 0; p < P; p++) sum[p] = LOAD((const NUMBER *)s->bias + c);
        for (int r = 0; r < s->n_rows; r++) {
            const NUMBER *in = (const NUMBER *)s->rows[r] + shift + c,
                         *w = (const NUMBER *)s->weights[r] + s->w_shift + c;
            for (ptrdiff_t kx = s->nx; kx > 0; kx--) {
                VECTOR factor = LOAD(w);
                LN_UNROLL
                for (int p = 0; p < P; p++) sum[p] = MULTIPLY_ADD(LOAD(in + p * pixel), factor, sum[p]);
                in += x_tap, w += w_tap;
            }
        }
        LN_UNROLL
        for (int p = 0; p < P; p++) STORE(out + p * out_pixel + c, FINISH(sum[p]));
    }
}

/* Computes one pixel that has fewer channels than a vector has lanes. */
static void NAMED(narrow)(const dw_span *s, int64_t shift, int n, NUMBER *out) {
    const vf low = vf_set1(s->low), high = vf_set1(s->high);
    (void)low, (void)high;
    VECTOR sum = LOAD_PARTIAL((const NUMBER *)s->bias, n);
    for (int r = 0; r < s->n_rows; r++)
        for (int64_t kx = 0; kx < s->nx; kx++)
            sum = MULTIPLY_ADD(LOAD_PARTIAL((const NUMBER *)s->rows[r] + shift + kx * s->x_tap, n),
                               LOAD_PARTIAL((const NUMBER *)s->weights[r] + s->w_shift + kx * s->w_tap, n), sum);
    STORE_PARTIAL(out, n, FINISH(sum));
}

#ifdef LN_DW_TAPS
/* Computes up to LN_DW_PIXELS pixels at the borders of a line, which do not have the same taps: bit p of taps[kx] says
 * whether pixel p has tap kx. They are computed together, because each addition for a single pixel would wait for the
 * one before. */
static void NAMED(border)(const dw_span *s, int count, int64_t shift, const uint8_t *taps, int64_t channels,
                          NUMBER *out, int64_t out_pixel) {
    const vf low = vf_set1(s->low), high = vf_set1(s->high);
    (void)low, (void)high;
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        if (c + VF_WIDTH > channels) c = channels - VF_WIDTH;
        VECTOR sum[LN_DW_PIXELS];
        LN_UNROLL
        for (int p = 0; p < LN_DW_PIXELS; p++) sum[p] = LOAD((const NUMBER *)s->bias + c);
        for (int r = 0; r < s->n_rows; r++) {
            const NUMBER *in = s->rows[r], *w = (const NUMBER *)s->weights[r] + c;
            int64_t at = shift + c; /* may be outside the line if no pixel has the tap */
            for (int64_t kx = 0; kx < s->nx; kx++, at += s->x_tap, w += s->w_tap) {
                const unsigned has = taps[kx];
                const VECTOR factor = LOAD(w);
                LN_UNROLL
                for (int p = 0; p < LN_DW_PIXELS; p++)
                    if (has >> p & 1) sum[p] = MULTIPLY_ADD(LOAD(in + (at + p * s->pixel)), factor, sum[p]);
            }
        }
        LN_UNROLL
        for (int p = 0; p < LN_DW_PIXELS; p++)
            if (p < count) STORE(out + p * out_pixel + c, FINISH(sum[p]));
    }
}
#endif

/* Computes `count` pixels that all have the same taps. The first one is at element `shift` of its rows. */
static void NAMED(pixels)(const dw_span *s, int64_t count, int64_t shift, int64_t channels, NUMBER *out,
                          int64_t out_pixel) {
    for (int64_t i = 0; i < count;) {
        NUMBER *to = out + i * out_pixel;
        int64_t left = count - i, from = shift + i * s->pixel;
        if (channels < VF_WIDTH) {
            NAMED(narrow)(s, from, (int)channels, to);
            i += 1;
        } else if (left >= LN_DW_PIXELS) {
            NAMED(tile)(LN_DW_PIXELS, s, from, channels, to, out_pixel);
            i += LN_DW_PIXELS;
        } else if (LN_DW_PIXELS > 4 && left >= 4) {
            NAMED(tile)(4, s, from, channels, to, out_pixel);
            i += 4;
        } else if (left >= 2) {
            NAMED(tile)(2, s, from, channels, to, out_pixel);
            i += 2;
        } else {
            NAMED(tile)(1, s, from, channels, to, out_pixel);
            i += 1;
        }
    }
}

#undef NUMBER
#undef VECTOR
#undef LOAD
#undef STORE
#undef LOAD_PARTIAL
#undef STORE_PARTIAL
#undef MULTIPLY_ADD
#undef FINISH
#undef NAMED
