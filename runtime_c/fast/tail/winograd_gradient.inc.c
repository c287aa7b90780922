/* winograd_gradient.inc.c - weight gradients of 3 x 3 convolutions: tiles of x and of g are transformed, multiplied as
 * 36 matrix products that sum over the tiles, and transformed back. Follows winograd.inc.c in longtail__<isa>.c. */
#include "fast/tail/winograd_gradient.h"

/* Transforms four gradients: G times d, at the points of wg_in. */
static LN_ALWAYS_INLINE void wg_four(const vf d[], vf r[]) {
    const vf root = vf_set1(1.41421356f), sixth = vf_set1(1.0f / 6), third = vf_set1(-1.0f / 3);
    const vf even = vf_mul(vf_add(d[0], vf_add(d[2], d[2])), sixth);
    const vf odd = vf_mul(vf_mul(vf_add(d[1], vf_add(d[3], d[3])), root), sixth);
    const vf even_q = vf_mul(vf_add(vf_add(d[0], d[0]), d[2]), third);
    const vf odd_q = vf_mul(vf_mul(WG_FMA(d[3], 0.5f, d[1]), root), third);
    r[0] = d[0];
    r[1] = vf_add(even, odd), r[2] = vf_sub(even, odd);
    r[3] = vf_add(even_q, odd_q), r[4] = vf_sub(even_q, odd_q);
    r[5] = d[3];
}

/* Transforms sums back to three taps: A^T times m. */
static LN_ALWAYS_INLINE void wg_three(const vf m[], vf r[]) {
    const float p = 1.41421356f, q = 0.70710678f;
    const vf even_p = vf_add(m[1], m[2]), even_q = vf_add(m[3], m[4]);
    r[0] = vf_add(m[0], vf_add(even_p, even_q));
    r[1] = WG_FMA(vf_sub(m[3], m[4]), q, vf_mul(vf_sub(m[1], m[2]), vf_set1(p)));
    r[2] = vf_add(WG_FMA(even_q, 0.5f, vf_add(even_p, even_p)), m[5]);
}

/* Transforms one tile of gradients to out[product * step]. */
static __attribute__((noinline)) void wg_gradient_tile(const float *g, int64_t line, int64_t pixel, int64_t channels,
                                                       float *out, int64_t step) {
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        if (c + VF_WIDTH > channels) c = channels - VF_WIDTH;
        vf lines[WG_SIDE][4], from[4], to[WG_SIDE];
        for (int j = 0; j < 4; j++) {
            LN_UNROLL
            for (int i = 0; i < 4; i++) from[i] = vf_load(g + i * line + j * pixel + c);
            wg_four(from, to);
            LN_UNROLL
            for (int i = 0; i < WG_SIDE; i++) lines[i][j] = to[i];
        }
        float *y = out + c;
        for (int i = 0; i < WG_SIDE; i++) {
            wg_four(lines[i], to);
            LN_UNROLL
            for (int j = 0; j < WG_SIDE; j++, y += step) vf_store(y, to[j]);
        }
    }
}

/* Transforms `channels` channels of `count` tiles from `first` on, of x (side 6) or of g (side 4). */
static void wg_gradient_tiles(const ln_winograd_gradient *p, bool of_x, const float *from, int64_t first, int64_t count,
                              int64_t channels, float *to, float *edge) {
    const ln_window *w = &p->window;
    const ln_window_strides *s = of_x ? &p->x : &p->g;
    const wg_picture picture = {.size = 4,
                                .height = of_x ? w->in[1] : w->out[1],
                                .width = of_x ? w->in[2] : w->out[2],
                                .line = s->s[1],
                                .pixel = s->s[2],
                                .channels = channels};
    const int64_t per_image = p->down * p->across, row = of_x ? p->most_columns : p->most_rows;
    for (int64_t t = first; t < first + count; t++, to += row) {
        const int64_t rest = t % per_image;
        const int64_t y = rest / p->across * 4 - (of_x ? w->pad_begin[1] : 0);
        const int64_t x = rest % p->across * 4 - (of_x ? w->pad_begin[2] : 0);
        const wg_source at =
            wg_source_of(&picture, (const char *)(from + t / per_image * s->n), y, x, of_x ? WG_SIDE : 4, edge);
        if (of_x)
            wg_in_tile_of(4, false, at.x, at.line, at.pixel, channels, to, p->x_step);
        else
            wg_gradient_tile(at.x, at.line, at.pixel, channels, to, p->g_step);
    }
}

/* Adds the products of `count` tiles to the sums. */
static void wg_gradient_products(const ln_winograd_gradient *p, const float *x, const float *g, int64_t count,
                                 int64_t rows, int64_t columns, bool begin, float *sums) {
    static const float zeros[64];
    const ln_gemm_set *set = p->set;
    const void *a[LN_GEMM_MAX_ROWS];
    ln_gemm_tile tile = {.a = a,
                         .taps = 1,
                         .kc = count,
                         .a_step = p->most_rows,
                         .b_step = p->most_columns * (int64_t)sizeof *x,
                         .ldc = p->most_columns,
                         .init = begin ? zeros : NULL,
                         .chained = true, /* a chunk is a short sum, which need not be divided */
                         .low = -INFINITY,
                         .high = INFINITY};
    for (int i = 0; i < WG_SIDE * WG_SIDE; i++, x += p->x_step, g += p->g_step, sums += p->sum_step)
        for (int64_t at = 0; at < columns; at += set->width) {
            const ln_gemm_ukernel *kernels = ln_gemm_width(set, columns - at) == set->width ? set->full : set->half;
            tile.columns = ln_min(set->width, columns - at);
            tile.b = x + at;
            for (int64_t done = 0, n; done < rows; done += n) {
                n = ln_gemm_tile_rows(set, rows - done);
                for (int64_t r = 0; r < n; r++) a[r] = g + done + r;
                tile.c = sums + done * p->most_columns + at;
                kernels[n](&tile);
            }
        }
}

/* Transforms the sums of one output channel back, and stores the taps of `columns` input channels. */
static void wg_gradient_store(const ln_winograd_gradient *p, const float *sums, int64_t columns, float *w) {
    for (int64_t c = 0; c < columns; c += VF_WIDTH) {
        if (c + VF_WIDTH > columns) c = columns - VF_WIDTH;
        vf lines[3][WG_SIDE], from[WG_SIDE], to[3];
        for (int j = 0; j < WG_SIDE; j++) {
            LN_UNROLL
            for (int i = 0; i < WG_SIDE; i++) from[i] = vf_load(sums + (i * WG_SIDE + j) * p->sum_step + c);
            wg_three(from, to);
            LN_UNROLL
            for (int i = 0; i < 3; i++) lines[i][j] = to[i];
        }
        float taps[9][VF_WIDTH];
        for (int i = 0; i < 3; i++) {
            wg_three(lines[i], to);
            LN_UNROLL
            for (int j = 0; j < 3; j++) vf_store(taps[3 * i + j], to[j]);
        }
        for (int k = 0; k < VF_WIDTH; k++)
            for (int i = 0; i < 9; i++) w[(c + k) * 9 + i] = taps[i][k];
    }
}

static linnet_status wg_gradient_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                     int thread) {
    const ln_winograd_gradient *p = call->state;
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    float *x = (float *)(void *)(scratch + p->scratch.x), *g = (float *)(void *)(scratch + p->scratch.g);
    float *sums = (float *)(void *)(scratch + p->scratch.sum), *edge = (float *)(void *)(scratch + p->scratch.edge);
    (void)phase;
    for (int64_t item = begin; item < end; item++) {
        const int64_t across = item % p->column_items, rest = item / p->column_items;
        const int64_t column = across * p->columns, row = rest % p->row_items * p->rows, group = rest / p->row_items;
        const int64_t columns = across == p->column_items - 1 ? p->in - column : p->columns;
        const int64_t rows = row / p->rows == p->row_items - 1 ? p->out - row : p->rows;
        const float *of_x = (const float *)b->inputs[0] + group * p->in + column;
        const float *of_g = (const float *)b->inputs[1] + group * p->out + row;
        for (int64_t first = 0; first < p->tiles; first += p->chunk) {
            const int64_t count = ln_min(p->chunk, p->tiles - first);
            wg_gradient_tiles(p, true, of_x, first, count, columns, x, edge);
            wg_gradient_tiles(p, false, of_g, first, count, rows, g, edge);
            wg_gradient_products(p, x, g, count, rows, columns, first == 0, sums);
        }
        float *w = (float *)b->outputs[0] + ((group * p->out + row) * p->in + column) * 9;
        for (int64_t r = 0; r < rows; r++) wg_gradient_store(p, sums + r * p->most_columns, columns, w + r * p->in * 9);
    }
    return LINNET_OK;
}

static linnet_status wg_gradient_configure(ln_call *call) {
    return ln_winograd_gradient_configure(call, &LN_WINOGRAD_SET);
}

const ln_kernel_code LN_SIMD_NAME(ln_winograd_gradient) = {.can = ln_winograd_gradient_can,
                                                           .cost = ln_winograd_gradient_cost,
                                                           .configure = wg_gradient_configure,
                                                           .run = wg_gradient_run};
