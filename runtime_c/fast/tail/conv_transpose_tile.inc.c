/* conv_transpose_tile.inc.c - P pixels times V vectors of output channels, for f32 or i32. conv_transpose.inc.c defines
 * NUMBER, VECTOR, SET1, LOAD, STORE, STORE_PARTIAL, MULTIPLY_ADD(x, w, sum), NAMED(name). */

/* Computes `columns` channels of P neighbouring pixels of one phase. The pixels have the same taps, and inputs that are
 * `pixel` elements apart. */
static LN_ALWAYS_INLINE void NAMED(tile)(const int P, const int V, const transpose_span *s, int64_t shift,
                                         int64_t column, NUMBER *out) {
    VECTOR sum[LN_TRANSPOSE_PIXELS * 2];
    const NUMBER *bias = (const NUMBER *)s->bias + column;
    LN_UNROLL
    for (int p = 0; p < P; p++) {
        sum[p * 2] = LOAD(bias);
        if (V > 1) sum[p * 2 + 1] = LOAD(bias + VF_WIDTH);
    }
    for (int64_t t = 0; t < s->n_taps; t++) {
        const NUMBER *x = (const NUMBER *)s->x + s->taps[t].x + shift;
        const NUMBER *w = (const NUMBER *)s->w + s->taps[t].w + column;
        for (int64_t i = 0; i < s->in; i++, w += s->padded) {
            VECTOR w0 = LOAD(w), w1 = V > 1 ? LOAD(w + VF_WIDTH) : w0;
            LN_UNROLL
            for (int p = 0; p < P; p++) {
                VECTOR v = SET1(x[p * s->pixel + i]);
                sum[p * 2] = MULTIPLY_ADD(v, w0, sum[p * 2]);
                if (V > 1) sum[p * 2 + 1] = MULTIPLY_ADD(v, w1, sum[p * 2 + 1]);
            }
        }
    }
    int64_t left = s->out - column;
    for (int p = 0; p < P; p++, out += s->out_pixel)
        for (int v = 0; v < V; v++) {
            int64_t n = left - v * VF_WIDTH;
            if (n >= VF_WIDTH)
                STORE(out + column + v * VF_WIDTH, sum[p * 2 + v]);
            else if (n > 0)
                STORE_PARTIAL(out + column + v * VF_WIDTH, (int)n, sum[p * 2 + v]);
        }
}

/* Computes all output channels of the group for P pixels. */
static LN_ALWAYS_INLINE void NAMED(pixels)(const int P, const transpose_span *s, int64_t shift, NUMBER *out) {
    int64_t c = 0;
    for (; c + VF_WIDTH < s->out; c += 2 * VF_WIDTH) NAMED(tile)(P, 2, s, shift, c, out);
    if (c < s->out) NAMED(tile)(P, 1, s, shift, c, out);
}

/* Computes `count` pixels of a phase that all have the same taps. */
static void NAMED(run)(const transpose_span *s, int64_t count, void *out) {
    NUMBER *to = out;
    int64_t i = 0;
    for (; i + LN_TRANSPOSE_PIXELS <= count; i += LN_TRANSPOSE_PIXELS)
        NAMED(pixels)(LN_TRANSPOSE_PIXELS, s, i * s->pixel, to + i * s->out_pixel);
    for (; i < count; i++) NAMED(pixels)(1, s, i * s->pixel, to + i * s->out_pixel);
}

#undef NUMBER
#undef VECTOR
#undef SET1
#undef LOAD
#undef STORE
#undef STORE_PARTIAL
#undef MULTIPLY_ADD
#undef NAMED
