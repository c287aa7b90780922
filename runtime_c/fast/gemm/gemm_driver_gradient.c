/* gemm_driver_gradient.c - the weight gradient of a convolution, as a product of two matrices that have one row per
 * output position. One is g, the gradient of the convolution's output, which is read in place. The other has the inputs
 * under the window and is packed panel by panel. */
#include "fast/gemm/gemm_driver_gradient.h"

#include "fast/gemm/gemm_driver_conv.h"
#include "kernel/step.h"
#include "ops/conv_gradient.h"

#include <string.h>

enum {
    K_BLOCK = 128,         /* positions per micro-kernel call, so few that the panel stays in L1 */
    PART_BLOCKS = 2,       /* the smallest number of blocks in a part of the sum */
    MOST_PARTS = 8,        /* the largest number of parts of the sum; each part has its own result */
    PARTS_BYTES = 1 << 18, /* the largest total size of the results of all parts */
    ITEMS = 8,
    THREAD_MACS = 400000,
    WIDEST = 32
};

/* Columns of the result are (tap, channel) with taps outermost, in panels of set->width columns. */
typedef struct gradient {
    const ln_gemm_set *set;
    ln_window window;
    ln_window_strides x;
    bool merged;          /* the taps of a line of the kernel are contiguous in memory */
    int64_t g_row, x_row; /* elements from one position to the next in g and x; x_row 0: x must be packed */
    int64_t m, per_group, columns, panels, k;
    int64_t parts, part, chunks, chunk; /* parts of k, of `part` positions each; chunks of `chunk` panels */
} gradient;

static LN_PLANNING bool describe(const ln_call *call, gradient *p) {
    const ln_tensor *x = &call->inputs[0], *g = &call->inputs[1];
    if (ln_window_conv_gradient(call->attributes, x, g, &p->window, NULL) != LINNET_OK) return false;
    const ln_window *w = &p->window;
    const ln_window_strides gs = ln_window_strides_of(g, w->channel_axis);
    p->x = ln_window_strides_of(x, w->channel_axis);
    bool still = ln_window_taps(w) == 1;
    for (int i = 0; i < LN_SPATIAL; i++)
        still = still && w->stride[i] == 1 && w->pad_begin[i] == 0 && w->out[i] == w->in[i];
    p->merged = w->group == 1 && w->dilation[2] == 1 && p->x.s[2] == w->in_channels;
    if (!still || !ln_gemm_linear(&p->x, w->batch, w->in, w->in_channels, &p->x_row)) p->x_row = 0;
    return (gs.c == 1 || w->out_channels == 1) && (p->x.c == 1 || w->in_channels == 1) &&
           ln_gemm_linear(&gs, w->batch, w->out, w->out_channels, &p->g_row);
}

bool ln_gemm_gradient_can(const ln_call *call) {
    gradient p;
    return ln_count(&call->inputs[0]) > 0 && ln_count(&call->inputs[1]) > 0 && describe(call, &p);
}

linnet_status ln_gemm_gradient_configure(ln_call *call, const ln_gemm_set *set) {
    gradient *p = call->state = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    if (!describe(call, p)) return LINNET_UNSUPPORTED;
    const ln_window *w = &p->window;
    p->set = set;
    p->m = w->out_channels / w->group, p->per_group = w->in_channels / w->group;
    p->columns = p->per_group * ln_window_taps(w);
    p->panels = ln_ceil_div(p->columns, set->width);
    p->k = w->batch * ln_window_positions(w);
    const int64_t result = w->group * p->panels * p->m * set->width, blocks = ln_ceil_div(p->k, K_BLOCK);
    p->parts = ln_min(ln_min(PARTS_BYTES / 4 / result, blocks / PART_BLOCKS), MOST_PARTS);
    p->parts = ln_max(p->parts, 1);
    p->part = ln_ceil_div(blocks, p->parts) * K_BLOCK;
    p->parts = ln_ceil_div(p->k, p->part);
    p->chunk = ln_ceil_div(p->panels, ln_ceil_div(ITEMS, w->group * p->parts));
    p->chunks = ln_ceil_div(p->panels, p->chunk);
    call->scratch_bytes = (size_t)(p->parts * result) * sizeof(float);
    call->scratch_thread = (size_t)(K_BLOCK * set->width) * sizeof(float);
    call->phases = 2;
    call->work[0] = w->group * p->parts * p->chunks;
    call->work[1] = w->out_channels;
    call->grain = ln_max(1, THREAD_MACS / ln_max(p->part * p->chunk * set->width * p->m, 1));
    call->flops = 2 * (uint64_t)(p->k * w->out_channels) * (uint64_t)p->columns;
    return LINNET_OK;
}

static inline void copy_floats(float *to, const float *from, int64_t n) {
    if (n < 4) {
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
        return;
    }
    for (int64_t i = 0; i + 4 <= n; i += 4) memcpy(to + i, from + i, 16);
    memcpy(to + n - 4, from + n - 4, 16);
}

/* Packs `n` columns from `column` on, of positions [first, first + count), into rows of `width` floats. The columns are
 * contiguous in x at every position: channels of one tap or, with `merged`, of adjacent taps. */
static void pack_run(const gradient *p, const float *x, int64_t first, int64_t count, int64_t column, int64_t n,
                     int64_t width, float *out) {
    const ln_window *w = &p->window;
    const int64_t tap = column / p->per_group, c = column % p->per_group;
    const int64_t k[LN_SPATIAL] = {tap / w->kernel[2] / w->kernel[1], tap / w->kernel[2] % w->kernel[1],
                                   tap % w->kernel[2]};
    int64_t ox = first % w->out[2], line = first / w->out[2], shift[LN_SPATIAL];
    for (int i = 0; i < LN_SPATIAL; i++) shift[i] = k[i] * w->dilation[i] - w->pad_begin[i];
    /* Offsets along a line of x, in elements: the start of the run at position 0, the distance between positions,
       and the end of the line. */
    const int64_t unit = p->x.s[2], begin = shift[2] * unit + c, step = w->stride[2] * unit;
    const int64_t stop = p->merged ? w->in[2] * unit : (w->in[2] - 1) * unit + c + n, start = p->merged ? 0 : c;
    /* The positions whose run is inside the line. */
    const int64_t low = ln_max(0, ln_ceil_div(start - begin, step)), last = stop - n - begin;
    const int64_t high = last < 0 ? 0 : last / step + 1;
    for (; count > 0; line++, ox = 0) {
        const int64_t side = ln_min(count, w->out[2] - ox), end = ox + side;
        const int64_t z = line / w->out[1] % w->out[0] * w->stride[0] + shift[0],
                      y = line % w->out[1] * w->stride[1] + shift[1];
        const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        const float *of_line = x;
        if (inside) of_line += line / w->out[1] / w->out[0] * p->x.n + z * p->x.s[0] + y * p->x.s[1];
        count -= side;
        for (; ox < end; ox++, out += width) {
            if (inside && ox >= low && ox < high) {
                const float *from = of_line + begin + ox * step;
                int64_t whole = ln_min(high, end) - ox;
                ox += whole - 1;
                if (n == 1)
                    for (; whole > 1; whole--, out += width, from += step) *out = *from;
                for (; whole > 1; whole--, out += width, from += step) copy_floats(out, from, n);
                copy_floats(out, from, n);
                continue;
            }
            memset(out, 0, (size_t)n * sizeof *out);
            if (!inside || !p->merged) continue;
            const int64_t at = begin + ox * step, from = ln_max(0, -at), to = ln_min(n, stop - at);
            if (from < to) copy_floats(out + from, of_line + at + from, to - from);
        }
    }
}

static void pack(const gradient *p, const float *x, int64_t first, int64_t count, int64_t column, int64_t columns,
                 int64_t width, float *out) {
    const int64_t line = p->merged ? p->per_group * p->window.kernel[2] : p->per_group;
    if (columns < width) memset(out, 0, (size_t)(count * width) * sizeof *out);
    for (int64_t done = 0, n; done < columns; done += n) {
        n = ln_min(columns - done, line - (column + done) % line);
        pack_run(p, x, first, count, column + done, n, width, out + done);
    }
}

/* Adds one block of positions to one panel of the result. */
static void add_block(const gradient *p, const float *x, const float *g, int64_t first, int64_t count, int64_t panel,
                      bool begin, float *result, float *packed) {
    static const _Alignas(64) float zeros[WIDEST] = {0};
    const ln_gemm_set *set = p->set;
    const int64_t column = panel * set->width, columns = ln_min(set->width, p->columns - column);
    const bool narrow = columns <= set->width / 2;
    const int64_t width = narrow ? set->width / 2 : set->width;
    const void *rows[LN_GEMM_MAX_ROWS];
    ln_gemm_tile tile = {.a = rows,
                         .taps = 1,
                         .kc = count,
                         .a_step = p->g_row,
                         .b = packed,
                         .b_step = width * (int64_t)sizeof *packed,
                         .ldc = set->width,
                         .columns = width, /* the columns after the last one are zeros */
                         .chained = true,  /* K_BLOCK products are a short sum, which need not be divided further */
                         .init = begin ? zeros : NULL,
                         .low = -INFINITY,
                         .high = INFINITY};
    /* x is read in place if only few rows use it. Rows that are a multiple of 2 KiB apart are packed, because they
       would evict each other from L1. */
    if (p->x_row != 0 && columns == width && p->m <= 4 * set->rows && p->x_row % 512 != 0) {
        tile.b = x + first * p->x_row + column;
        tile.b_step = p->x_row * (int64_t)sizeof *x;
    } else {
        pack(p, x, first, count, column, columns, width, packed);
    }
    for (int64_t i = 0, n; i < p->m; i += n) {
        n = ln_gemm_tile_rows(set, p->m - i);
        for (int64_t r = 0; r < n; r++) rows[r] = g + first * p->g_row + i + r;
        tile.c = result + i * set->width;
        (narrow ? set->half : set->full)[n](&tile);
    }
}

/* Sums the parts of one output channel in order, and stores them in the layout of w. */
static void finish(const gradient *p, const float *results, int64_t channel, float *w) {
    const int64_t width = p->set->width, taps = ln_window_taps(&p->window), size = p->panels * p->m * width;
    const float *of_group = results + channel / p->m * p->parts * size + channel % p->m * width;
    w += channel * p->columns;
    for (int64_t j = 0; j < p->columns; j++) {
        const float *at = of_group + j / width * p->m * width + j % width;
        float sum = at[0];
        for (int64_t part = 1; part < p->parts; part++) sum += at[part * size];
        w[j % p->per_group * taps + j / p->per_group] = sum;
    }
}

linnet_status ln_gemm_gradient_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                   int thread) {
    const gradient *p = call->state;
    float *results = b->scratch, *packed = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const int64_t tile = p->m * p->set->width;
    for (int64_t item = begin; item < end; item++) {
        if (phase == 1) {
            finish(p, results, item, b->outputs[0]);
            continue;
        }
        const int64_t chunk = item % p->chunks, part = item / p->chunks % p->parts, group = item / p->chunks / p->parts;
        const float *x = (const float *)b->inputs[0] + group * p->per_group,
                    *g = (const float *)b->inputs[1] + group * p->m;
        float *result = results + (group * p->parts + part) * p->panels * tile;
        const int64_t stop = ln_min(p->k, (part + 1) * p->part), last = ln_min(p->panels, (chunk + 1) * p->chunk);
        for (int64_t first = part * p->part; first < stop; first += K_BLOCK)
            for (int64_t panel = chunk * p->chunk; panel < last; panel++)
                add_block(p, x, g, first, ln_min(K_BLOCK, stop - first), panel, first == part * p->part,
                          result + panel * tile, packed);
    }
    return LINNET_OK;
}
