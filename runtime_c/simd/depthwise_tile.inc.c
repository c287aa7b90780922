/* depthwise_tile.inc.c - the loops of depthwise convolution for one element type; depthwise.inc.c defines the type.
 * ELEMENT (in memory), VECTOR, NUMBER (of weights and sums), WIDEN(p), WIDEN_PARTIAL(p, n), MULTIPLY_ADD(x, w, sum),
 * LOAD(p), STORE(p, v), LOAD_PARTIAL(p, n), STORE_PARTIAL(p, n, v), FINISH(v), NAMED(name). */

/* P pixels, all channels. Every weight vector that is loaded serves P pixels; sums stay in registers. */
static LN_ALWAYS_INLINE void NAMED(tile)(const int P, const dw_span *s, int64_t pixel, int64_t channels, NUMBER *out,
                                         int64_t out_pixel) {
    const ELEMENT *x = s->x;
    const NUMBER *weights = s->w, *init = s->init;
    const vf low = vf_set1(s->low), high = vf_set1(s->high);
    const VECTOR zero = SET1(s->zero);
    (void)low, (void)high, (void)zero;
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        if (c + VF_WIDTH > channels)
            c = channels - VF_WIDTH; /* the last vector overlaps the one before: same values once more */
        VECTOR sum[LN_DW_PIXELS];
        LN_UNROLL
        for (int p = 0; p < P; p++)
            sum[p] = LOAD(init + c);
        for (int64_t kz = 0; kz < s->nz; kz++)
            for (int64_t ky = 0; ky < s->ny; ky++) {
                const ELEMENT *in = x + kz * s->xz + ky * s->xy + c;
                const NUMBER *w = weights + kz * s->wz + ky * s->wy + c;
                for (int64_t kx = 0; kx < s->nx; kx++) {
                    VECTOR factor = LOAD(w);
                    LN_UNROLL
                    for (int p = 0; p < P; p++)
                        sum[p] = MULTIPLY_ADD(WIDEN(in + p * pixel), factor, sum[p]);
                    in += s->xx, w += s->wx;
                }
            }
        LN_UNROLL
        for (int p = 0; p < P; p++)
            STORE(out + p * out_pixel + c, FINISH(sum[p]));
    }
}

/* One pixel of fewer channels than a vector has. */
static void NAMED(narrow)(const dw_span *s, int n, NUMBER *out) {
    const ELEMENT *x = s->x;
    const NUMBER *weights = s->w, *init = s->init;
    const vf low = vf_set1(s->low), high = vf_set1(s->high);
    const VECTOR zero = SET1(s->zero);
    (void)low, (void)high, (void)zero;
    VECTOR sum = LOAD_PARTIAL(init, n);
    for (int64_t kz = 0; kz < s->nz; kz++)
        for (int64_t ky = 0; ky < s->ny; ky++)
            for (int64_t kx = 0; kx < s->nx; kx++)
                sum = MULTIPLY_ADD(WIDEN_PARTIAL(x + kz * s->xz + ky * s->xy + kx * s->xx, n),
                                   LOAD_PARTIAL(weights + kz * s->wz + ky * s->wy + kx * s->wx, n), sum);
    STORE_PARTIAL(out, n, FINISH(sum));
}

/* `count` pixels that all see the same taps. */
static void NAMED(pixels)(dw_span s, int64_t count, int64_t pixel, int64_t channels, NUMBER *out, int64_t out_pixel) {
    const ELEMENT *x = s.x;
    if (channels < VF_WIDTH) {
        for (int64_t i = 0; i < count; i++) {
            s.x = x + i * pixel;
            NAMED(narrow)(&s, (int)channels, out + i * out_pixel);
        }
        return;
    }
    for (int64_t i = 0; i < count;) {
        s.x = x + i * pixel;
        NUMBER *to = out + i * out_pixel;
        int64_t left = count - i;
        if (left >= LN_DW_PIXELS) {
            NAMED(tile)(LN_DW_PIXELS, &s, pixel, channels, to, out_pixel);
            i += LN_DW_PIXELS;
        } else if (left >= 4) {
            NAMED(tile)(4, &s, pixel, channels, to, out_pixel);
            i += 4;
        } else {
            NAMED(tile)(1, &s, pixel, channels, to, out_pixel);
            i += 1;
        }
    }
}

#undef ELEMENT
#undef WIDEN
#undef WIDEN_PARTIAL
#undef NAMED
