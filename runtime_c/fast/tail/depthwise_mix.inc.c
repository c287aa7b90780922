/* depthwise_mix.inc.c - mixes rows of the input: a lane of 32 bits gets the elements of two or four rows at the same
 * column and channel. Included by depthwise_lanes.inc.c. */

static LN_ALWAYS_INLINE __m128i dwl_load(const char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }

static LN_ALWAYS_INLINE void dwl_store(int32_t *p, __m128i v) { _mm_storeu_si128((__m128i *)(void *)p, v); }

#if DWL_GROUP == 4
/* Mixes 16 elements of four rows of bytes. `flip` makes i8 unsigned. */
static LN_ALWAYS_INLINE void dwl_mix_some(const int size, const char *const *p, int64_t at, __m128i flip, int32_t *to) {
    (void)size;
    const __m128i a = _mm_xor_si128(dwl_load(p[0] + at), flip), b = _mm_xor_si128(dwl_load(p[1] + at), flip);
    const __m128i c = _mm_xor_si128(dwl_load(p[2] + at), flip), d = _mm_xor_si128(dwl_load(p[3] + at), flip);
    const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    const __m128i ef = _mm_unpackhi_epi8(a, b), gh = _mm_unpackhi_epi8(c, d);
    dwl_store(to, _mm_unpacklo_epi16(ab, cd));
    dwl_store(to + 4, _mm_unpackhi_epi16(ab, cd));
    dwl_store(to + 8, _mm_unpacklo_epi16(ef, gh));
    dwl_store(to + 12, _mm_unpackhi_epi16(ef, gh));
}

#else
/* Mixes 16 elements of two rows of bytes, which become 16 bits. `flip` makes i8 unsigned. */
static LN_ALWAYS_INLINE void dwl_mix_bytes(const char *const *p, int64_t at, __m128i flip, int32_t *to) {
    const __m128i a = _mm_xor_si128(dwl_load(p[0] + at), flip), b = _mm_xor_si128(dwl_load(p[1] + at), flip);
    const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
#ifdef LN_SIMD_SSE2
    const __m128i zero = _mm_setzero_si128();
    dwl_store(to, _mm_unpacklo_epi8(low, zero));
    dwl_store(to + 4, _mm_unpackhi_epi8(low, zero));
    dwl_store(to + 8, _mm_unpacklo_epi8(high, zero));
    dwl_store(to + 12, _mm_unpackhi_epi8(high, zero));
#else
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_cvtepu8_epi16(low));
    _mm256_storeu_si256((__m256i *)(void *)(to + 8), _mm256_cvtepu8_epi16(high));
#endif
}

/* Mixes 16 elements of two rows of i16. */
static LN_ALWAYS_INLINE void dwl_mix_words(const char *const *p, int64_t at, int32_t *to) {
    const __m128i a = dwl_load(p[0] + at), b = dwl_load(p[1] + at);
    const __m128i c = dwl_load(p[0] + at + 16), d = dwl_load(p[1] + at + 16);
    dwl_store(to, _mm_unpacklo_epi16(a, b));
    dwl_store(to + 4, _mm_unpackhi_epi16(a, b));
    dwl_store(to + 8, _mm_unpacklo_epi16(c, d));
    dwl_store(to + 12, _mm_unpackhi_epi16(c, d));
}

static LN_ALWAYS_INLINE void dwl_mix_some(const int size, const char *const *p, int64_t at, __m128i flip, int32_t *to) {
    if (size == 1)
        dwl_mix_bytes(p, at, flip, to);
    else
        dwl_mix_words(p, at, to);
}
#endif

/* Writes the elements that output channels [c, c + DWL_MIX) read from one pixel. Channels after the last one get the
 * element of the last one. Returns `to`. */
static const char *dwl_repeat(const ln_depthwise *d, int size, const char *pixel, int64_t c, char *to) {
    const int64_t last = d->window.in_channels - 1;
    int64_t in = ln_min(c / d->multiplier, last), turn = c % d->multiplier;
    for (int i = 0; i < DWL_MIX; i++) {
        memcpy(to + i * size, pixel + in * size, (size_t)size);
        if (++turn < d->multiplier) continue;
        turn = 0;
        if (in < last) ++in;
    }
    return to;
}

/* Mixes `columns` columns from input column `first` on of all groups of rows, channels [c, c + n). Columns and rows
 * outside the picture are padding. The lanes after the last channel may hold any elements of the same row. */
static LN_ALWAYS_INLINE void dwl_mix(const dwl_span *s, const int size, int64_t first, int64_t columns, int64_t c,
                                     int64_t n) {
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    const __m128i flip = _mm_set1_epi8(d->quantized.x_u8 ? 0 : INT8_MIN);
    const int64_t end = ((w->in[2] - 1) * d->x.s[2] + w->in_channels - c) * size; /* end of a row of x */
    int32_t *to = s->lanes;
    for (int64_t g = 0; g < w->kernel[0] * d->taps.rows_per_plane; g++) {
        const char *rows[DWL_GROUP];
        int64_t steps[DWL_GROUP];
        const int64_t z = s->z * w->stride[0] - w->pad_begin[0] + g / d->taps.rows_per_plane * w->dilation[0];
        for (int r = 0; r < DWL_GROUP; r++) {
            const int64_t j = g % d->taps.rows_per_plane * DWL_GROUP + r,
                          y = s->y * w->stride[1] - w->pad_begin[1] + j * w->dilation[1];
            const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1] && j < d->lanes.taps_high;
            rows[r] = inside ? s->x + (z * d->x.s[0] + y * d->x.s[1] + (d->multiplier > 1 ? 0 : c)) * size : s->line;
            steps[r] = inside ? d->x.s[2] * size : 0;
        }
        /* Before column `fast`, whole vectors can be read from a pixel without reading after the end of a row. */
        const int64_t bytes = n * size, read = ln_ceil_div(n, DWL_MIX) * DWL_MIX * size, pixel = d->x.s[2] * size;
        const bool whole = d->multiplier == 1 && pixel > 0 && end >= read;
        const int64_t fast = whole ? ln_min(w->in[2], (end - read) / pixel + 1) : 0;
        for (int64_t ix = first; ix < first + columns; ix++, to += d->lanes.block) {
            if (ix < 0 || ix >= w->in[2]) {
                for (int64_t i = 0; i < n; i += VF_WIDTH) vi_store(to + i, vi_set1(d->lanes.padding));
                continue;
            }
            const char *p[DWL_GROUP];
            LN_UNROLL
            for (int r = 0; r < DWL_GROUP; r++) p[r] = rows[r] + ix * steps[r];
            if (ix < fast) {
                for (const int64_t stop = ln_min(first + columns, fast); ix < stop; ix++, to += d->lanes.block) {
                    for (int64_t at = 0; at < bytes; at += DWL_MIX * size)
                        dwl_mix_some(size, p, at, flip, to + at / size);
                    LN_UNROLL
                    for (int r = 0; r < DWL_GROUP; r++) p[r] += steps[r];
                }
                ix--, to -= d->lanes.block;
                continue;
            }
            const int64_t left = end - ix * pixel;
            char last[DWL_GROUP][DWL_MIX * 2];
            for (int64_t at = 0; at < bytes; at += DWL_MIX * size) {
                const char *copies[DWL_GROUP];
                for (int r = 0; r < DWL_GROUP; r++)
                    if (d->multiplier > 1)
                        copies[r] = steps[r] ? dwl_repeat(d, size, p[r], c + at / size, last[r]) : s->line;
                    else /* memory after the row must not be read */
                        copies[r] = memcpy(last[r], p[r] + at, (size_t)ln_min(left - at, DWL_MIX * size));
                dwl_mix_some(size, copies, 0, flip, to + at / size);
            }
        }
    }
}

static void dwl_bytes(const dwl_span *s, int64_t first, int64_t columns, int64_t c, int64_t n) {
    dwl_mix(s, 1, first, columns, c, n);
}
#if DWL_GROUP == 2
static void dwl_words(const dwl_span *s, int64_t first, int64_t columns, int64_t c, int64_t n) {
    dwl_mix(s, 2, first, columns, c, n);
}
#endif
