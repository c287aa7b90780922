/* depthwise_lanes.inc.c - depthwise convolution of integers on x86. Rows of the input are first mixed: a lane of 32
 * bits gets the elements of two rows (with VNNI, of four rows) at the same column and channel, so that one instruction
 * multiplies and adds two (or four) taps. Compiled per ISA by longtail__<isa>.c, and by depthwise__avx512vnni.c. Its
 * plan is in fast/tail/depthwise_plan.c. */
#include "fast/gemm/epilogue.h"
#include "fast/tail/depthwise.h"
#include "fast/tail/depthwise_plan.h"
#include "fast/tail/requant.inc.c"

/* DWL_GROUP is the number of rows in a lane. DWL_DOT adds the products of two lanes, element by element, to a sum.
 * DWL_BYTES names an intrinsic of the ISAs that store four pixels as bytes at once. */
#ifdef __AVX512VNNI__
#define DWL_GROUP 4
#define DWL_DOT(sum, x, w) _mm512_dpbusd_epi32(sum, x, w)
#define DWL_BYTES(name) _mm512_##name
#else
#define DWL_GROUP 2
#define DWL_DOT(sum, x, w) vi_add_pairs(sum, x, w)
#ifdef LN_SIMD_AVX2
#define DWL_BYTES(name) _mm256_##name
#endif
#endif
enum {
    DWL_PIXELS = 4, /* pixels whose sums for two rows fit in the registers of every ISA, together with the weights */
    DWL_MIX = 16    /* channels that are mixed at once */
};

/* The `rows` output rows that a thread computes together. */
typedef struct dwl_span {
    const ln_depthwise *d;
    const char *x;    /* the image */
    const char *line; /* padding: zero points of x, as many as a block has channels */
    int64_t z, y;     /* of the first output row */
    int32_t *lanes;   /* [group][column][block] */
    int32_t *sums;    /* [row][part][pixel][channel], the last part first; see lanes.row of ln_depthwise */
    int rows;
} dwl_span;

#include "fast/tail/depthwise_mix.inc.c"

/* ---- products ---- */

/* Where a tile reads and writes. Distances are in elements, those of `out` in bytes. */
typedef struct dwl_tile {
    const int32_t *in, *taps, *bias;
    int64_t groups, group, nx, tap, pixel; /* numbers of groups and of taps per row (nx); distances in `in`: from one
                                              group, tap and pixel to the next */
    int64_t padded, second;                /* distances in `taps`: from one tap to the next, and from the taps of the
                                              first row to those of the second, if the tile computes two rows */
    const float *scale;                    /* not NULL: the weights have one part, and results are f32: sums times this
                                              scale. dwl_block stores them without dwl_finish */
    const ln_requant *requant;             /* if `scale` is NULL: how sums become results; NULL: the sums are stored */
    const ln_quantized_sum *sum;           /* with `requant`: its f32 results are then limited and quantized by this;
                                              NULL: they are not */
    bool bytes;                            /* the weights have one part, and results are 8-bit integers without `sum` */
    int64_t channel;
    const int32_t *high; /* if this tile has the low bytes of 16-bit weights: the sums over the high bytes; NULL:
                            otherwise */
    int64_t high_pixel, high_row;
    char *out;
    int64_t out_pixel, out_row;
} dwl_tile;

/* Stores a tile of sums, which are first converted to results if there is a `requant`. */
static void dwl_finish(const dwl_tile *t, const int32_t *sums, int rows, int pixels, int64_t from) {
    const ln_requant *r = t->requant;
    char *const out = t->out + from * t->out_pixel;
    const int32_t *high = t->high == NULL ? NULL : t->high + from * t->high_pixel;
    if (r == NULL) {
        for (int row = 0; row < rows; row++)
            for (int p = 0; p < pixels; p++, sums += VF_WIDTH)
                vi_store((int32_t *)(void *)(out + row * t->out_row + p * t->out_pixel), vi_load(sums));
        return;
    }
    const vf scale = vf_load(r->scale + t->channel);
    const ln_quantized_sum *s = t->sum;
    const vf least = vf_set1(s != NULL ? s->low : (float)(r->low - r->y_zero));
    const vf most = vf_set1(s != NULL ? s->high : (float)(r->high - r->y_zero));
    const vi zero = vi_set1(s != NULL ? s->y_zero : r->y_zero);
    for (int row = 0; row < rows; row++)
        for (int p = 0; p < pixels; p++, sums += VF_WIDTH) {
            char *to = out + row * t->out_row + p * t->out_pixel;
            vf v = high == NULL ? vf_from_vi(vi_load(sums))
                                : vf_from_parts(vi_load(high + row * t->high_row + p * t->high_pixel), vi_load(sums));
            v = vf_mul(v, scale);
            if (s != NULL)
                requant_store_as(s->y_dtype,
                                 vi_add(vi_from_vf(requant_quotient(s, vf_min(vf_max(v, least), most))), zero), to, 0);
            else if (r->output_dtype == LINNET_F32)
                vf_store((float *)(void *)to, v);
            else
                requant_store(r, vi_add(vi_from_vf(vf_min(vf_max(v, least), most)), zero), to, 0);
        }
}

#ifdef DWL_BYTES
/* Stores four pixels as bytes. Only the upper limit must be applied to the floats. A float outside the range of i32
 * becomes the least i32, which is right below the range, and the later steps saturate. */
static LN_ALWAYS_INLINE void dwl_store_bytes(const vi *sum, vf scale, vf most, vi zero, vi sign, char *out,
                                             int64_t pixel) {
    vi q[DWL_PIXELS];
    LN_UNROLL
    for (int p = 0; p < DWL_PIXELS; p++) q[p] = vi_from_vf(vf_min(vf_mul(vf_from_vi(sum[p]), scale), most));
    const vi low = DWL_BYTES(adds_epi16)(DWL_BYTES(packs_epi32)(q[0], q[1]), zero);
    const vi high = DWL_BYTES(adds_epi16)(DWL_BYTES(packs_epi32)(q[2], q[3]), zero);
    const vi mixed = vi_xor(DWL_BYTES(packs_epi16)(low, high), sign);
#ifdef LN_SIMD_AVX2
    const vi v = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    for (int i = 0; i < 2; i++, out += 2 * pixel) {
        const __m128i two = i ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v);
        _mm_storel_epi64((__m128i *)(void *)out, two);
        _mm_storel_epi64((__m128i *)(void *)(out + pixel), _mm_unpackhi_epi64(two, two));
    }
#else
    const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vi v = _mm512_permutexvar_epi32(order, mixed);
    dwl_store((int32_t *)(void *)out, _mm512_castsi512_si128(v));
    dwl_store((int32_t *)(void *)(out + pixel), _mm512_extracti32x4_epi32(v, 1));
    dwl_store((int32_t *)(void *)(out + 2 * pixel), _mm512_extracti32x4_epi32(v, 2));
    dwl_store((int32_t *)(void *)(out + 3 * pixel), _mm512_extracti32x4_epi32(v, 3));
#endif
}
#endif

/* Computes P pixels of R rows from pixel `from` on, for the channels of a vector. */
static LN_ALWAYS_INLINE void dwl_block(const int P, const int R, const dwl_tile *t, int64_t from) {
    vi sum[2][DWL_PIXELS];
    const int32_t *w = t->taps;
    char *const out = t->out + from * t->out_pixel;
    LN_UNROLL
    for (int p = 0; p < P; p++) sum[0][p] = sum[1][p] = vi_load(t->bias);
    for (int64_t g = 0; g < t->groups; g++) {
        const int32_t *in = t->in + g * t->group + from * t->pixel;
        for (int64_t kx = 0; kx < t->nx; kx++, in += t->tap, w += t->padded) {
            const vi first = vi_load(w), second = R == 2 ? vi_load(w + t->second) : first;
            LN_UNROLL
            for (int p = 0; p < P; p++) {
                const vi v = vi_load(in + p * t->pixel);
                sum[0][p] = DWL_DOT(sum[0][p], v, first);
                if (R == 2) sum[1][p] = DWL_DOT(sum[1][p], v, second);
            }
        }
    }
    if (t->scale != NULL) {
        const vf scale = vf_load(t->scale);
        LN_UNROLL
        for (int p = 0; p < P; p++) {
            float *to = (float *)(void *)(out + p * t->out_pixel);
            vf_store(to, vf_mul(vf_from_vi(sum[0][p]), scale));
            if (R == 2) vf_store(to + t->out_row / 4, vf_mul(vf_from_vi(sum[1][p]), scale));
        }
        return;
    }
#ifdef DWL_BYTES
    if (P == DWL_PIXELS && t->bytes) {
        const ln_requant *r = t->requant;
        const int turn = r->output_dtype == LINNET_U8 ? 128 : 0; /* u8 is i8 with another sign bit */
        const vf scale = vf_load(r->scale + t->channel), most = vf_set1((float)(r->high - r->y_zero));
        const vi zero = DWL_BYTES(set1_epi16)((int16_t)(r->y_zero - turn)), sign = DWL_BYTES(set1_epi8)((char)turn);
        dwl_store_bytes(sum[0], scale, most, zero, sign, out, t->out_pixel);
        if (R == 2) dwl_store_bytes(sum[1], scale, most, zero, sign, out + t->out_row, t->out_pixel);
        return;
    }
#endif
    int32_t sums[2 * DWL_PIXELS * VF_WIDTH];
    LN_UNROLL
    for (int p = 0; p < P; p++) {
        vi_store(sums + p * VF_WIDTH, sum[0][p]);
        if (R == 2) vi_store(sums + (P + p) * VF_WIDTH, sum[1][p]);
    }
    dwl_finish(t, sums, R, P, from);
}

/* The last block of pixels overlaps the one before it. */
#define DWL_TILE(name, P, R)                                                                                           \
    static void name(const dwl_tile *t, int64_t pixels) {                                                              \
        for (int64_t p = 0; p < pixels; p += P) dwl_block(P, R, t, ln_min(p, pixels - P));                             \
    }
DWL_TILE(dwl_single, 1, 1)
DWL_TILE(dwl_single_pair, 1, 2)
DWL_TILE(dwl_pixels, DWL_PIXELS, 1)
DWL_TILE(dwl_pixels_pair, DWL_PIXELS, 2)

/* Computes output pixels [ox, ox + pixels) of channels [c, c + n) from mixed rows. */
static void dwl_products(const dwl_span *s, const ln_depthwise_weights *weights, int64_t ox, int64_t pixels, int64_t c,
                         int64_t n, int64_t columns) {
    static void (*const tiles[])(const dwl_tile *, int64_t) = {dwl_single, dwl_single_pair, dwl_pixels,
                                                               dwl_pixels_pair};
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    const int64_t groups = w->kernel[0] * d->taps.rows_per_plane, width = d->lanes.block,
                  row_taps = groups * w->kernel[2] * d->padded;
    void (*const tile)(const dwl_tile *, int64_t) = tiles[2 * (pixels >= DWL_PIXELS) + s->rows - 1];
    for (int part = 0; part < d->quantized.parts; part++) {
        const bool finished = d->lanes.finished && part == d->quantized.parts - 1;
        const int64_t size = finished ? (int64_t)ln_dtype_size(d->lanes.stored) : 4;
        for (int64_t i = 0; i < n; i += VF_WIDTH) {
            /* The last vector overlaps the one before it. If there is only one, it may be longer than a pixel. The next
             * pixel then overwrites the excess. */
            const int64_t at = ln_max(0, ln_min(i, n - VF_WIDTH)), channel = c + at;
            tile(&(dwl_tile){.in = s->lanes + at,
                             .taps = (const int32_t *)weights->taps + part * d->lanes.rows * row_taps + channel,
                             .bias = (const int32_t *)weights->bias + part * d->padded + channel,
                             .groups = groups,
                             .group = columns * width,
                             .nx = w->kernel[2],
                             .tap = w->dilation[2] * width,
                             .pixel = w->stride[2] * width,
                             .padded = d->padded,
                             .second = row_taps,
                             .scale = finished && part == 0 && d->lanes.stored == LINNET_F32
                                          ? d->quantized.requant.scale + channel
                                          : NULL,
                             .requant = finished ? &d->quantized.requant : NULL,
                             .sum = d->lanes.sum,
                             .bytes = finished && part == 0 && size == 1 && d->lanes.sum == NULL,
                             .channel = channel,
                             .high = part == 0 ? NULL : s->sums + d->lanes.row + ox * d->channels + channel,
                             .high_pixel = d->channels,
                             .high_row = d->quantized.parts * d->lanes.row,
                             .out = (char *)(s->sums + (d->quantized.parts - 1 - part) * d->lanes.row) +
                                    (ox * d->channels + channel) * size,
                             .out_pixel = d->channels * size,
                             .out_row = d->quantized.parts * d->lanes.row * 4},
                 pixels);
        }
    }
}

/* ---- the kernel ---- */

static void dwl_rows(const dwl_span *s, const ln_depthwise_weights *weights) {
    const ln_depthwise *d = s->d;
    const ln_window *w = &d->window;
    for (int64_t c = 0; c < d->channels; c += d->lanes.block)
        for (int64_t ox = 0; ox < w->out[2]; ox += d->lanes.span) {
            /* A last block that does not fill a vector begins early. */
            const int64_t from = ln_max(0, ln_min(c, d->channels - VF_WIDTH));
            const int64_t n = ln_min(d->lanes.block, d->channels - from),
                          pixels = ln_min(d->lanes.span, w->out[2] - ox);
            const int64_t columns = (pixels - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1;
            const int64_t first = ox * w->stride[2] - w->pad_begin[2];
#if DWL_GROUP == 2
            if (d->lanes.wide)
                dwl_words(s, first, columns, from, n);
            else
#endif
                dwl_bytes(s, first, columns, from, n);
            dwl_products(s, weights, ox, pixels, from, n, columns);
        }
}

/* Copies a row of results that tiles have converted. */
static void dwl_copy(const ln_depthwise *d, const char *row, char *y) {
    const int64_t size = (int64_t)ln_dtype_size(d->lanes.stored), bytes = d->channels * size;
    const int64_t pixels = d->y.s[2] == d->channels ? d->window.out[2] : 1;
    for (int64_t ox = 0; ox < d->window.out[2]; ox += pixels)
        memcpy(y + ox * d->y.s[2] * size, row + ox * bytes, (size_t)(pixels * bytes));
}

#if DWL_GROUP == 2
/* Adds biases that may exceed 32 bits to the sums of a pixel. This is done in f64, which is exact, and the total is
 * rounded once to f32. */
static void dwl_exact(const ln_requant *r, const double *bias, const int32_t *sums, const int32_t *low, float *y) {
    int64_t c = 0;
    for (; c + VF_WIDTH <= r->channels; c += VF_WIDTH) {
        const vi sum = vi_load(sums + c);
        const vf v =
            low == NULL ? vf_from_wide(vi_zero(), sum, bias + c) : vf_from_wide(sum, vi_load(low + c), bias + c);
        vf_store(y + c, vf_mul(v, vf_load(r->scale + c)));
    }
    for (; c < r->channels; c++) {
        const double sum = low == NULL ? sums[c] : sums[c] * 256.0 + low[c];
        y[c] = (float)(sum + bias[c]) * r->scale[c];
    }
}

/* Converts the sums of a row, if tiles did not do so: to output values or, for the epilogue, to f32 in place. */
static void dwl_requant(const ln_call *call, const ln_depthwise *d, const ln_depthwise_weights *weights, int32_t *row,
                        char *y) {
    const ln_requant *r = &d->quantized.requant;
    const int32_t *sums = d->quantized.parts == 1 ? row : row + d->lanes.row,
                  *low = d->quantized.parts == 1 ? NULL : row;
    const int64_t pixels = d->window.out[2], size = (int64_t)ln_dtype_size(r->output_dtype);
    const int64_t pixel = call->epilogue != NULL ? d->channels * 4 : d->y.s[2] * size;
    char *to = call->epilogue != NULL ? (char *)row : y;
    if (d->quantized.sums_fit)
        requant_pixels(r, sums, low, pixels, to, pixel);
    else if (!d->lanes.exact)
        requant_wide(r, sums, low, weights->wide_bias, pixels, to, pixel);
    for (int64_t ox = 0; ox < pixels && d->lanes.exact; ox++, to += pixel)
        dwl_exact(r, (const double *)weights->wide_bias, sums + ox * d->channels,
                  low == NULL ? NULL : low + ox * d->channels, (float *)(void *)to);
}
#endif

static linnet_status dwl_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                             int thread) {
    const ln_depthwise *d = call->state;
    const ln_window *w = &d->window;
    if (phase == 0 && !d->constant) {
        ln_depthwise_pack_run(call, b);
        return LINNET_OK;
    }
    const ln_depthwise_weights weights = ln_depthwise_weights_of(call, b);
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    const int64_t y_size = (int64_t)ln_dtype_size(call->outputs[0].dtype), x_size = d->lanes.wide ? 2 : 1;
    char line[2 * LN_DEPTHWISE_BLOCK];
    memset(line, d->lanes.wide ? 0 : d->lanes.x_zero_byte, sizeof line);
    dwl_span s = {
        .d = d, .line = line, .sums = (int32_t *)(void *)scratch, .lanes = (int32_t *)(void *)(scratch + d->row_bytes)};
    for (int64_t item = begin; item < end; item += s.rows) {
        const int64_t n = item / w->out[1] / w->out[0];
        s.z = item / w->out[1] % w->out[0], s.y = item % w->out[1];
        s.x = (const char *)b->inputs[0] + n * d->x.n * x_size;
        s.rows = (int)ln_min(d->lanes.rows, ln_min(end - item, w->out[1] - s.y));
        dwl_rows(&s, &weights);
        for (int64_t r = 0; r < s.rows; r++) {
            int32_t *sums = s.sums + r * d->quantized.parts * d->lanes.row;
            char *y = (char *)b->outputs[0] + (n * d->y.n + s.z * d->y.s[0] + (s.y + r) * d->y.s[1]) * y_size;
            if (d->lanes.finished && !d->apply) dwl_copy(d, (const char *)sums, y);
#if DWL_GROUP == 2
            if (!d->lanes.finished) dwl_requant(call, d, &weights, sums, y);
#endif
            if (d->apply)
                ln_epilogue_apply(call, b, (item + r) * w->out[2], w->out[2], 0, d->channels, (float *)(void *)sums,
                                  d->channels);
        }
    }
    return LINNET_OK;
}

#if DWL_GROUP == 4
const ln_kernel_code LN_SIMD_NAME(ln_depthwise_dot) = {.can = ln_depthwise_can_quads,
                                                       .cost = ln_depthwise_cost_lanes,
                                                       .configure = ln_depthwise_configure_quads,
                                                       .pack = ln_depthwise_pack,
                                                       .run = dwl_run};
#else
const ln_kernel_code LN_SIMD_NAME(ln_depthwise_integer) = {.can = ln_depthwise_can_integer,
                                                           .cost = ln_depthwise_cost_lanes,
                                                           .configure = ln_depthwise_configure_pairs,
                                                           .pack = ln_depthwise_pack,
                                                           .run = dwl_run};
#endif
