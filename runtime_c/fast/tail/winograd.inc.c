/* winograd.inc.c - 3 x 3 convolutions by Winograd's minimal filtering: tiles of inputs are transformed, multiplied by
 * transformed weights as side^2 matrix products, and transformed back. Compiled per ISA by longtail__<isa>.c. */
#include "fast/tail/winograd.h"

#include "fast/gemm/epilogue.h"
#include "fast/tail/winograd_pack.h"
#include "fast/tail/winograd_plan.h"

#if defined(LN_SIMD_NEON)
#define LN_WINOGRAD_SET LN_SIMD_NAME(ln_gemm_f32_packed)
#define WG_CLAMP(v) vminq_f32(high, vmaxq_f32(low, v))
#else
#define LN_WINOGRAD_SET LN_SIMD_NAME(ln_gemm_f32)
#define WG_CLAMP(v) vf_min(high, vf_max(low, v)) /* keeps NaN */
#endif

#define WG_VECTOR vf
#define WG_LANES VF_WIDTH
#define WG_ADD vf_add
#define WG_SUB vf_sub
#define WG_MUL(a, factor) vf_mul(a, vf_set1(factor))
#define WG_FMA(a, factor, c) vf_fma(a, vf_set1(factor), c)
#define WG_READ(halves, x, at) ((void)(halves), vf_load((const float *)(x) + (at)))
#define WG_LOAD(from, c) vf_load((from) + (c))
#define WG_STORE(to, c, v) vf_store((to) + (c), v)
#define WG_F32 vf
#define WG_F32_ALL vf_set1
#define WG_F32_LOAD vf_load
#define WG_WRITE(halves, y, at, v, add, low, high)                                                                     \
    (void)(halves), vf_store((float *)(y) + (at), WG_CLAMP(vf_add(v, add)))
#include "fast/tail/winograd_tile.inc.c"

/* Where a tile is. */
typedef struct wg_place {
    int64_t image, y, x; /* the image that the tile is in, and the position of its first output */
} wg_place;

static wg_place wg_place_of(const ln_winograd *p, int64_t t) {
    const int64_t image = t / (p->down * p->across), rest = t % (p->down * p->across);
    return (wg_place){image, rest / p->across * p->tile, rest % p->across * p->tile};
}

/* Bytes of an element of a picture, of an input, and of a result. */
#ifdef LN_SIMD_NEON64
#define WG_BYTES(p) ((p)->size)
#define WG_X_SIZE(p) ((p)->x_halves ? 2 : 4)
#define WG_Y_SIZE(p) ((p)->y_halves ? 2 : 4)
#else
#define WG_BYTES(p) 4
#define WG_X_SIZE(p) 4
#define WG_Y_SIZE(p) 4
#endif

/* A picture, channels-last; distances in elements of `size` bytes. */
typedef struct wg_picture {
    int64_t height, width, line, pixel, channels, size;
} wg_picture;

/* Where the pixels of a tile are read. */
typedef struct wg_source {
    const void *x;
    int64_t line, pixel;
} wg_source;

/* Finds the tile of side x side pixels whose first pixel is at (y, x). A tile that reaches beyond the picture is copied
 * to `edge`, with zeros around the picture. */
static wg_source wg_source_of(const wg_picture *p, const char *image, int64_t y, int64_t x, int64_t side, float *edge) {
    const int64_t channels = p->channels, size = WG_BYTES(p);
    if (y >= 0 && x >= 0 && y + side <= p->height && x + side <= p->width)
        return (wg_source){image + (y * p->line + x * p->pixel) * size, p->line, p->pixel};
    char *to = (char *)edge;
    for (int64_t i = y; i < y + side; i++)
        for (int64_t j = x; j < x + side; j++, to += channels * size)
            if (i >= 0 && j >= 0 && i < p->height && j < p->width)
                memcpy(to, image + (i * p->line + j * p->pixel) * size, (size_t)(channels * size));
            else
                memset(to, 0, (size_t)(channels * size));
    return (wg_source){edge, side * channels, channels};
}

/* Transforms the inputs of tiles [first, first + count) of a group. A tile that reaches into the padding is copied
 * first. */
static LN_ALWAYS_INLINE void wg_inputs(const ln_winograd *p, const char *x, int64_t first, int64_t count, float *in,
                                       float *edge) {
    const ln_window *w = &p->window;
    const int64_t channels = p->in, line = p->x.s[1], pixel = p->x.s[2], side = p->tile + 2;
    const wg_picture picture = {w->in[1], w->in[2], line, pixel, channels, WG_X_SIZE(p)};
    for (int64_t t = 0; t < count; t++, in += channels) {
        const wg_place at = wg_place_of(p, first + t);
        const wg_source from = wg_source_of(&picture, x + at.image * p->x.n * WG_X_SIZE(p), at.y - w->pad_begin[1],
                                            at.x - w->pad_begin[2], side, edge);
        (p->f16 != NULL ? p->f16->in_tile[p->x_halves] : wg_in_tile)(p, from.x, from.line, from.pixel, in);
    }
}

/* Computes the side^2 matrix products of `count` tiles with `columns` output channels of their group, from channel
 * `first` on. */
static void wg_products(const ln_winograd *p, const char *weights, const float *in, int64_t count, int64_t first,
                        int64_t columns, float *packed, float *out) {
    static const float zeros[64];
    const ln_gemm_set *set = p->set;
    const int64_t channels = p->in;
    const void *rows[LN_GEMM_MAX_ROWS];
    ln_gemm_tile tile = {
        .taps = 1, .kc = channels, .a_step = 1, .ldc = columns, .init = zeros, .low = -INFINITY, .high = INFINITY};
    /* Distance from the last panel of a product to the first panel of the next product. */
    const int64_t to_next = p->matrix_bytes - (ln_ceil_div(columns, set->width) - 1) * p->panel_bytes;
    for (int64_t i = 0; i < p->products; i++, weights += p->matrix_bytes, in += p->in_step, out += p->out_step) {
        for (int64_t done = 0, n; done < count && set->strip != NULL; done += n) {
            n = ln_gemm_tile_rows(set, count - done);
            for (int64_t r = 0; r < n; r++) rows[r] = in + (done + r) * channels;
            set->pack_rows(rows, 1, n, channels, packed + done * channels);
        }
        tile.packed = packed;
        for (int64_t at = first; at < first + columns; at += set->width) {
            const int64_t width = ln_gemm_width(set, p->out - at);
            tile.columns = ln_min(width, first + columns - at);
            tile.b = weights + at / set->width * p->panel_bytes;
            tile.b_step = width * (int64_t)sizeof(float);
            tile.c = (char *)out + (at - first) * (p->f16 != NULL ? 2 : 4);
            if (set->strip != NULL) {
                set->strip(&tile, count, width);
                continue;
            }
            const ln_gemm_ukernel *kernels = width == set->width ? set->full : set->half;
            for (int64_t done = 0, n; done < count; done += n) {
                n = ln_gemm_tile_rows(set, count - done);
                for (int64_t r = 0; r < n; r++) rows[r] = in + (done + r) * channels;
                tile.a = rows;
                tile.ahead = done > 0 ? 0 : at + set->width < first + columns ? p->panel_bytes : to_next;
                tile.c = out + done * columns + at - first;
                kernels[n](&tile);
            }
        }
    }
}

/* Stores the results of a tile, which are in `from`, as far as they are inside the output. */
static void wg_store_inside(const ln_winograd *p, wg_place at, const char *from, int64_t columns, char *y) {
    const ln_window *w = &p->window;
    const int64_t down = ln_min(p->tile, w->out[1] - at.y), across = ln_min(p->tile, w->out[2] - at.x);
    for (int64_t i = 0; i < down; i++)
        for (int64_t j = 0; j < across; j++)
            memcpy(y + (i * p->y.s[1] + j * p->y.s[2]) * WG_Y_SIZE(p),
                   from + (i * p->tile + j) * columns * WG_Y_SIZE(p), (size_t)(columns * WG_Y_SIZE(p)));
}

/* Transforms the products of tiles [first, first + count) back, and stores `columns` channels from number `column` on,
 * counted over all groups. */
static LN_ALWAYS_INLINE void wg_outputs(const ln_call *call, const ln_buffers *b, int64_t first, int64_t count,
                                        int64_t column, int64_t columns, const float *out, float *lines) {
    const ln_winograd *p = call->state;
    ln_winograd_out_tile *out_tile = p->f16 != NULL ? p->f16->out_tile[p->y_halves] : wg_out_tile;
    const ln_window *w = &p->window;
    const char *packed = p->packs ? b->scratch : b->packed;
    const float *bias = (const float *)(const void *)(packed + p->bias) + column;
    for (int64_t t = 0, n; t < count; t += n) {
        const wg_place at = wg_place_of(p, first + t);
        n = 1;
        if (p->direct) {
            char *y = (char *)b->outputs[0] +
                      (at.image * p->y.n + at.y * p->y.s[1] + at.x * p->y.s[2] + column) * WG_Y_SIZE(p);
            if (at.y + p->tile <= w->out[1] && at.x + p->tile <= w->out[2]) {
                out_tile(p, out + t * columns, bias, columns, y, p->y.s[1], p->y.s[2]);
            } else {
                out_tile(p, out + t * columns, bias, columns, lines, p->tile * columns, columns);
                wg_store_inside(p, at, (const char *)lines, columns, y);
            }
            continue;
        }
        /* The epilogue takes whole lines of pixels, which extend over several adjacent tiles. */
        n = ln_min(count - t, (w->out[2] - at.x + p->tile - 1) / p->tile);
        const int64_t pixels = ln_min(n * p->tile, w->out[2] - at.x), line = n * p->tile * columns;
        for (int64_t i = 0; i < n; i++)
            out_tile(p, out + (t + i) * columns, bias, columns, lines + i * p->tile * columns, line, columns);
        for (int64_t i = 0; i < ln_min(p->tile, w->out[1] - at.y); i++)
            ln_epilogue_apply(call, b, (at.image * w->out[1] + at.y + i) * w->out[2] + at.x, pixels, column, columns,
                              lines + i * line, columns);
    }
}

/* ---- weights that change from run to run --------------------------------------------------------------------------
 */

/* Transforms three taps: G times the taps, for the points of wg_in. */
static LN_ALWAYS_INLINE void wg_taps(const int tile, vf a, vf b, vf c, vf r[]) {
    if (tile == 2) {
        const vf half = vf_set1(0.5f), outer = vf_add(a, c);
        r[0] = a, r[1] = vf_mul(vf_add(outer, b), half), r[2] = vf_mul(vf_sub(outer, b), half), r[3] = c;
        return;
    }
    const vf sixth = vf_set1(1.0f / 6), third = vf_set1(1.0f / 3);
    const vf outer = vf_mul(vf_add(a, vf_add(c, c)), sixth), outer_q = vf_mul(vf_add(c, vf_add(a, a)), third);
    const vf inner = vf_mul(b, vf_set1(0.23570226f)), inner_q = vf_add(inner, inner); /* sqrt(2) / 6 */
    r[0] = a, r[1] = vf_add(outer, inner), r[2] = vf_sub(outer, inner);
    r[3] = vf_sub(vf_set1(0), vf_add(outer_q, inner_q)), r[4] = vf_sub(inner_q, outer_q), r[5] = c;
}

static LN_ALWAYS_INLINE void wg_filters(const int tile, const float taps[9][64], int64_t width, int64_t step,
                                        float *out) {
    const int side = tile + 2;
    for (int64_t n = 0; n < width; n += VF_WIDTH) {
        vf columns[3][WG_SIDE], to[WG_SIDE];
        for (int x = 0; x < 3; x++)
            wg_taps(tile, vf_load(taps[x] + n), vf_load(taps[3 + x] + n), vf_load(taps[6 + x] + n), columns[x]);
        float *y = out + n;
        for (int i = 0; i < side; i++) {
            wg_taps(tile, columns[0][i], columns[1][i], columns[2][i], to);
            LN_UNROLL
            for (int j = 0; j < side; j++, y += step) vf_store(y, to[j]);
        }
    }
}

/* Transforms the weights of a panel. */
static void wg_pack_panel(const ln_winograd *p, const ln_buffers *b, int64_t group, int64_t panel) {
    const int64_t first = panel * p->set->width, width = ln_gemm_width(p->set, p->out - first);
    const int64_t columns = ln_min(width, p->out - first), step = p->matrix_bytes / (int64_t)sizeof(float);
    const float *w = (const float *)b->inputs[1] + p->w_first + group * p->w_group + first * p->w_out;
    float *out = (float *)(void *)((char *)b->scratch + ln_winograd_panel(p, group, panel));
    _Alignas(64) float taps[9][64];
    memset(taps, 0, sizeof taps);
    for (int64_t k = 0; k < p->in; k++, w += p->w_in, out += width) {
        for (int64_t n = 0; n < columns; n++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 3; j++) taps[3 * i + j][n] = w[n * p->w_out + i * p->w_line + j * p->w_tap];
        if (p->tile == 2)
            wg_filters(2, taps, width, step, out);
        else
            wg_filters(4, taps, width, step, out);
    }
}

static linnet_status wg_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                            int thread) {
    const ln_winograd *p = call->state;
    if (p->packs && phase == 0) {
        for (int64_t item = begin; item < end; item++) wg_pack_panel(p, b, item / p->panels, item % p->panels);
        if (begin == 0)
            ln_winograd_pack_bias(
                call, call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE ? b->inputs[2] : NULL, b->scratch);
        return LINNET_OK;
    }
    const char *packed = p->packs ? b->scratch : b->packed;
    const int64_t all = p->window.batch * p->down * p->across;
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    float *in = (float *)(void *)(scratch + p->scratch.in), *out = (float *)(void *)(scratch + p->scratch.out);
    int64_t held = -1; /* the group of tiles whose transformed inputs are in `in` */
    for (int64_t item = begin; item < end; item++) {
        const int64_t tiles = item / p->parts, part = item % p->parts, group = tiles / p->groups;
        const int64_t first = tiles % p->groups * p->group, count = ln_min(p->group, all - first);
        const int64_t column = part * p->columns, columns = part == p->parts - 1 ? p->out - column : p->columns;
        const char *x = (const char *)b->inputs[0] + group * p->in * WG_X_SIZE(p);
        if (tiles != held) wg_inputs(p, x, first, count, in, (float *)(void *)(scratch + p->scratch.edge));
        held = tiles;
        wg_products(p, packed + ln_winograd_panel(p, group, 0), in, count, column, columns,
                    (float *)(void *)(scratch + p->scratch.packed), out);
        wg_outputs(call, b, first, count, group * p->out + column, columns, out,
                   (float *)(void *)(scratch + p->scratch.lines));
    }
    return LINNET_OK;
}

static linnet_status wg_configure(ln_call *call) { return ln_winograd_configure(call, &LN_WINOGRAD_SET); }

const ln_kernel_code LN_SIMD_NAME(ln_winograd) = {.can = ln_winograd_can,
                                                  .cost = ln_winograd_cost,
                                                  .configure = wg_configure,
                                                  .pack = ln_winograd_pack,
                                                  .run = wg_run};
