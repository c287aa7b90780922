/* pool_tile.inc.c - one window of channels, for one element type; pool.inc.c defines the type.
 * ELEMENT (in memory), VECTOR, NUMBER (of a lane), WIDEN(p), WIDEN_PARTIAL(p, n), NARROW(p, v), NARROW_PARTIAL(p, n, v),
 * ADD, MAXIMUM(x, best), SET1, LEAST, AVERAGE(sum, count), NAMED(name). */

/* Reduces the taps of one output position for the channels [0, channels). */
static void NAMED(window)(const pool_span *s, bool average, int64_t channels, ELEMENT *out) {
    const ELEMENT *x = s->x;
    int64_t c = 0;
    for (; c + 4 * VF_WIDTH <= channels; c += 4 * VF_WIDTH) { /* four vectors at once: long runs of memory per tap */
        VECTOR v[4];
        LN_UNROLL
        for (int i = 0; i < 4; i++)
            v[i] = SET1(average ? s->start : LEAST);
        for (int64_t kz = 0; kz < s->nz; kz++)
            for (int64_t ky = 0; ky < s->ny; ky++)
                for (int64_t kx = 0; kx < s->nx; kx++) {
                    const ELEMENT *in = x + kz * s->xz + ky * s->xy + kx * s->xx + c;
                    LN_UNROLL
                    for (int i = 0; i < 4; i++) {
                        VECTOR tap = WIDEN(in + i * VF_WIDTH);
                        v[i] = average ? ADD(v[i], tap) : MAXIMUM(tap, v[i]);
                    }
                }
        LN_UNROLL
        for (int i = 0; i < 4; i++)
            NARROW(out + c + i * VF_WIDTH, average ? AVERAGE(v[i], s->count) : v[i]);
    }
    for (; c < channels; c += VF_WIDTH) {
        int n = (int)ln_min(VF_WIDTH, channels - c);
        VECTOR v = SET1(average ? s->start : LEAST);
        for (int64_t kz = 0; kz < s->nz; kz++)
            for (int64_t ky = 0; ky < s->ny; ky++)
                for (int64_t kx = 0; kx < s->nx; kx++) {
                    const ELEMENT *in = x + kz * s->xz + ky * s->xy + kx * s->xx + c;
                    VECTOR tap = n == VF_WIDTH ? WIDEN(in) : WIDEN_PARTIAL(in, n);
                    v = average ? ADD(v, tap) : MAXIMUM(tap, v);
                }
        v = average ? AVERAGE(v, s->count) : v;
        if (n == VF_WIDTH)
            NARROW(out + c, v);
        else
            NARROW_PARTIAL(out + c, n, v);
    }
}

#undef ELEMENT
#undef WIDEN
#undef WIDEN_PARTIAL
#undef NARROW
#undef NARROW_PARTIAL
#undef NAMED
#undef LEAST
