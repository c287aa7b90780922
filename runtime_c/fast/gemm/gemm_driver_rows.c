/* gemm_driver_rows.c - finds the rows of A: pointers into the input (indirection), or a contiguous copy of the rows.
 * Padding is a pointer to a short run of zero points, so that micro-kernels do not have to handle it. */
#include "fast/gemm/gemm_driver_rows.h"

#include "fast/gemm/gemm_state.h"

#include <string.h>

typedef struct position {
    int64_t n, o[LN_SPATIAL];
} position;

static position position_of(const ln_window *w, int64_t row) {
    position p;
    for (int i = LN_SPATIAL - 1; i >= 0; i--) {
        p.o[i] = row % w->out[i];
        row /= w->out[i];
    }
    p.n = row;
    return p;
}

static void advance(const ln_window *w, position *p) {
    for (int i = LN_SPATIAL - 1; i >= 0; i--) {
        if (++p->o[i] < w->out[i]) return;
        p->o[i] = 0;
    }
    p->n++;
}

/* Returns the input coordinate that coordinate i of the window stands for, which is i divided by the lattice. Returns
 * -1 if i is in the padding or, in a transposed convolution, between two input elements. */
static int64_t settle(const ln_gemm *g, int axis, int64_t i) {
    int64_t lattice = g->a.lattice[axis];
    if (lattice != 1) {
        if (i % lattice != 0) return -1;
        i /= lattice;
    }
    return i >= 0 && i < g->a.window.in[axis] ? i : -1;
}

/* Returns the input coordinate of tap k along an axis for output position o; -1 for the padding. */
static int64_t coordinate(const ln_gemm *g, int axis, int64_t o, int64_t k) {
    const ln_window *w = &g->a.window;
    return settle(g, axis, o * w->stride[axis] - w->pad_begin[axis] + k * w->dilation[axis]);
}

/* Returns the taps of `part` that are in line number `line` of the kernel. */
static ln_gemm_range in_line(const ln_window *w, ln_gemm_range part, int64_t line) {
    int64_t first = line * w->kernel[2];
    return (ln_gemm_range){ln_max(part.begin - first, 0), ln_min(part.end - first, w->kernel[2])};
}

/* Returns the address in the input, at x = 0, of the row that line `line` of the kernel reads; NULL if that row is
 * padding. */
static const char *line_of(const ln_gemm *g, const char *base, const position *p, int64_t line) {
    const ln_window *w = &g->a.window;
    int64_t z = coordinate(g, 0, p->o[0], line / w->kernel[1]), y = coordinate(g, 1, p->o[1], line % w->kernel[1]);
    return z < 0 || y < 0 ? NULL : base + (p->n * g->a.x.n + z * g->a.x.s[0] + y * g->a.x.s[1]) * g->a.size;
}

/* Copies the few bytes of a tap without a call of memcpy. The last chunk overlaps the previous one. */
static inline void copy_short(char *to, const char *from, int64_t bytes) {
    if (bytes >= 16) {
        for (int64_t i = 0; i + 16 <= bytes; i += 16) memcpy(to + i, from + i, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (int64_t i = 0; i < bytes; i++) to[i] = from[i];
    }
}

/* The lines of the input that the lines of the kernel read for one line of the output; see line_of. Only the first
 * MOST_LINES are kept, which are all of them in most kernels. */
enum { MOST_LINES = 16 };
typedef struct input_lines {
    const ln_gemm *g;
    const char *base;
    int64_t pixel, step; /* bytes from pixel to pixel of the input, and from row to row of A in a line of the output */
    int64_t last;        /* line_pointers: the last coordinate from which a whole segment is inside the input */
    const char *lines[MOST_LINES];
} input_lines;

static void find_lines(input_lines *found, const position *p, ln_gemm_range part) {
    const int64_t length = found->g->a.window.kernel[2];
    const int64_t end = ln_min(ln_ceil_div(part.end, length), MOST_LINES);
    for (int64_t l = part.begin / length; l < end; l++) found->lines[l] = line_of(found->g, found->base, p, l);
}

static inline const char *input_line(const input_lines *found, const position *p, int64_t line) {
    return line < MOST_LINES ? found->lines[line] : line_of(found->g, found->base, p, line);
}

/* Writes `count` pointers that are `step` bytes apart. Most tiles have 6 rows. */
static inline void write_pointers(const void **out, const char *at, int64_t step, int64_t count) {
    if (count == 6) {
        const char *middle = at + 2 * step, *end = at + 4 * step;
        out[0] = at, out[1] = at + step, out[2] = middle, out[3] = middle + step, out[4] = end, out[5] = end + step;
        return;
    }
    for (int64_t i = 0; i < count; i++, at += step) out[i] = at;
}

/* Writes pointers for `count` adjacent output positions to out[0], out[1], ... The pointers for the next tap begin at
 * out[step]. */
static void window_pointers(const input_lines *found, const position *p, int64_t count, ln_gemm_range part,
                            const void **out, int64_t step) {
    const ln_gemm *g = found->g;
    const ln_window *w = &g->a.window;
    const int64_t pixel = found->pixel, stride = w->stride[2], reach = (count - 1) * stride;
    for (int64_t l = part.begin / w->kernel[2]; l * w->kernel[2] < part.end; l++) {
        const char *line = input_line(found, p, l);
        ln_gemm_range taps = in_line(w, part, l);
        int64_t x0 = p->o[2] * stride - w->pad_begin[2] + taps.begin * w->dilation[2];
        for (int64_t kx = taps.begin; kx < taps.end; kx++, out += step, x0 += w->dilation[2]) {
            if (line != NULL && x0 >= 0 && x0 + reach < w->in[2] && g->a.lattice[2] == 1) { /* no padding */
                write_pointers(out, line + x0 * pixel, found->step, count);
                continue;
            }
            for (int64_t i = 0; i < count; i++) {
                int64_t x = coordinate(g, 2, p->o[2] + i, kx);
                out[i] = line == NULL || x < 0 ? g->a.padding : line + x * pixel;
            }
        }
    }
}

/* Copies the taps of a line of the kernel, the first of which is at coordinate x, where some of them are in the
 * padding. The taps must be contiguous in the input. */
static void put_together(const ln_gemm *g, const char *line, int64_t x, char *out) {
    const ln_window *w = &g->a.window;
    const int64_t taps = w->kernel[2], pixel = g->a.x.s[2] * g->a.size;
    const int64_t from = ln_min(taps, ln_max(0, -x)), to = ln_max(from, ln_min(taps, w->in[2] - x));
    copy_short(out, g->a.padding, from * pixel);
    copy_short(out + from * pixel, line + (x + from) * pixel, (to - from) * pixel);
    copy_short(out + to * pixel, g->a.padding, (taps - to) * pixel);
}

/* Like window_pointers, if the taps of a line of the kernel are contiguous in the input, so that each row has one
 * pointer per line. A line that is partly in the padding is put together in `copy`, which belongs to the first row. */
static void line_pointers(const input_lines *found, const position *p, int64_t count, char *copy, const void **out,
                          int64_t step) {
    const ln_gemm *g = found->g;
    const int64_t stride = g->a.window.stride[2], x = p->o[2] * stride - g->a.window.pad_begin[2];
    const bool inside = x >= 0 && x + (count - 1) * stride <= found->last;
    for (int64_t l = 0; l < g->k.segments; l++, out += step) {
        const char *line = input_line(found, p, l);
        if (inside && line != NULL) {
            write_pointers(out, line + x * found->pixel, found->step, count);
            continue;
        }
        for (int64_t i = 0, at = x; i < count; i++, at += stride) {
            out[i] = line == NULL ? g->a.padding : line + at * found->pixel;
            if (line == NULL || (at >= 0 && at <= found->last)) continue;
            char *made = copy + i * g->a.copy_stride + l * g->k.length * g->a.size;
            put_together(g, line, at, made);
            out[i] = made;
        }
    }
}

void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, char *copy,
                  const void **rows) {
    if (g->a.plain) {
        const char *at = (const char *)base + (first * g->a.row + part.begin) * g->a.size;
        for (int64_t i = 0; i < count; i++, at += g->a.row * g->a.size) rows[i] = at;
        return;
    }
    const ln_window *w = &g->a.window;
    const bool lines = g->k.run > 1;
    const int64_t segments = lines ? g->k.segments : part.end - part.begin, width = w->out[2];
    input_lines found = {.g = g, .base = base, .pixel = g->a.x.s[2] * g->a.size};
    found.step = w->stride[2] * found.pixel;
    found.last = w->in[2] - ln_ceil_div(g->k.length, g->k.kc); /* a segment may be longer than its taps */
    position p = position_of(w, first);
    find_lines(&found, &p, part);
    for (int64_t done = 0; done < count;) {
        const int64_t n = ln_gemm_tile_rows(g->set, count - done);
        const void **out = rows + done * segments;
        for (int64_t i = 0; i < n;) {
            const int64_t side = ln_min(n - i, width - p.o[2]);
            if (lines)
                line_pointers(&found, &p, side, copy + (done + i) * g->a.copy_stride, out + i, n);
            else
                window_pointers(&found, &p, side, part, out + i, n);
            i += side;
            p.o[2] += side;
            if (p.o[2] < width) continue;
            p.o[2]--;
            advance(w, &p);
            find_lines(&found, &p, part);
        }
        done += n;
    }
}

/* Copies `count` runs of `bytes` bytes each. Short runs, such as the lines of a kernel over few channels, take few
 * instructions. */
static void copy_runs(char *restrict to, int64_t to_step, const char *restrict from, int64_t from_step, int64_t bytes,
                      int64_t count) {
    const int64_t last8 = bytes - 8, last16 = bytes - 16;
    if (bytes >= 8 && bytes <= 16)
        for (; count > 0; count--, to += to_step, from += from_step) {
            memcpy(to, from, 8);
            memcpy(to + last8, from + last8, 8);
        }
    else if (bytes >= 16 && bytes <= 32)
        for (; count > 0; count--, to += to_step, from += from_step) {
            memcpy(to, from, 16);
            memcpy(to + last16, from + last16, 16);
        }
    else
        for (; count > 0; count--, to += to_step, from += from_step) copy_short(to, from, bytes);
}

void ln_gemm_copy_rows(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                       int64_t bytes) {
    copy_runs(to, to_stride, from, from_stride, bytes, rows);
}

static void gather_elements(const ln_gemm *g, char *out, const char *from, int64_t n) {
    bool same = g->set->a_dtype == g->a.dtype;
    if (same && g->a.step == 1)
        copy_short(out, from, n * g->a.size);
    else if (same && g->a.dtype == LINNET_F32)
        for (int64_t i = 0; i < n; i++) ((float *)(void *)out)[i] = ((const float *)(const void *)from)[i * g->a.step];
    else
        g->set->convert(out, from, g->a.step, n, g->a.dtype);
}

/* Copies taps [taps.begin, taps.end) of one line of the kernel (NULL in the padding) for `count` positions of an output
 * line, the first of which is `o`. */
static void gather_line(const ln_gemm *g, const char *line, int64_t o, int64_t count, ln_gemm_range taps, char *out) {
    const ln_window *w = &g->a.window;
    int64_t kw = taps.end - taps.begin, pixel = g->a.x.s[2] * g->a.size, tap_bytes = g->k.kc * g->a.copy_size;
    int64_t x0 = o * w->stride[2] - w->pad_begin[2] + taps.begin * w->dilation[2];
    /* The taps are contiguous if pixels are adjacent and none of them is padding. */
    bool run = line != NULL && g->a.step == 1 && w->dilation[2] == 1 && g->a.lattice[2] == 1 && g->a.x.s[2] == g->k.kc;
    /* The windows of positions [low, high) do not reach into the padding. */
    int64_t low = count, high = count;
    if (run && g->set->a_dtype == g->a.dtype) {
        const int64_t room = w->in[2] - kw - x0;
        low = x0 >= 0 ? 0 : ln_min(count, ln_ceil_div(-x0, w->stride[2]));
        high = room < 0 ? low : ln_max(low, ln_min(count, room / w->stride[2] + 1));
        copy_runs(out + low * g->a.copy_stride, g->a.copy_stride, line + (x0 + low * w->stride[2]) * pixel,
                  w->stride[2] * pixel, kw * pixel, high - low);
    }
    for (int64_t i = 0; i < count; i++, out += g->a.copy_stride, x0 += w->stride[2]) {
        if (i == low && high > low) {
            i += high - low - 1, out += (high - low - 1) * g->a.copy_stride, x0 += (high - low - 1) * w->stride[2];
            continue;
        }
        if (run && x0 >= 0 && x0 + kw <= w->in[2]) {
            gather_elements(g, out, line + x0 * pixel, kw * g->k.kc);
            continue;
        }
        int64_t kx = 0;
        if (run) { /* the taps inside the input are still contiguous */
            const int64_t from = ln_min(kw, ln_max(0, -x0)), to = ln_max(from, ln_min(kw, w->in[2] - x0));
            for (; kx < from; kx++) copy_short(out + kx * tap_bytes, g->a.padding, tap_bytes);
            if (from < to)
                gather_elements(g, out + from * tap_bytes, line + (x0 + from) * pixel, (to - from) * g->k.kc);
            for (kx = to; kx < kw; kx++) copy_short(out + kx * tap_bytes, g->a.padding, tap_bytes);
        }
        for (; kx < kw; kx++) {
            int64_t x = settle(g, 2, x0 + kx * w->dilation[2]);
            if (line == NULL || x < 0)
                memcpy(out + kx * tap_bytes, g->a.padding, (size_t)tap_bytes);
            else
                gather_elements(g, out + kx * tap_bytes, line + x * pixel, g->k.kc);
        }
    }
}

static void gather_window(const ln_gemm *g, const char *base, int64_t first, int64_t count, ln_gemm_range part,
                          char *out) {
    const ln_window *w = &g->a.window;
    position p = position_of(w, first);
    while (count > 0) {
        int64_t n = ln_min(count, w->out[2] - p.o[2]);
        char *to = out;
        for (int64_t l = part.begin / w->kernel[2]; l * w->kernel[2] < part.end; l++) {
            ln_gemm_range taps = in_line(w, part, l);
            gather_line(g, line_of(g, base, &p, l), p.o[2], n, taps, to);
            to += (taps.end - taps.begin) * g->k.kc * g->a.copy_size;
        }
        out += n * g->a.copy_stride, count -= n;
        p.o[2] += n - 1;
        advance(w, &p);
    }
}

/* Copies rows of a transposed A, in which the elements of all rows for one k are adjacent. Reads whole cache lines and
   distributes their elements to the rows. */
static void gather_transposed(const ln_gemm *g, const float *base, int64_t count, int64_t k, char *out) {
    enum { SIDE = 16 };
    for (int64_t row = 0; row < count; row += SIDE, out += SIDE * g->a.copy_stride) {
        const int64_t side = ln_min(SIDE, count - row);
        for (int64_t j = 0; j < k; j++) {
            const float *from = base + row + j * g->a.step;
            char *to = out + j * (int64_t)sizeof *from;
            for (int64_t i = 0; i < side; i++) memcpy(to + i * g->a.copy_stride, from + i, sizeof *from);
        }
    }
}

void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, void *out) {
    int64_t k = (part.end - part.begin) * (g->a.plain ? 1 : g->k.kc);
    char *to = out;
    /* The elements after k that a kernel reads must be 0. If they are at most 8 bytes, the last 8 bytes of each row are
     * set to 0 before the row is copied, which overwrites those that are not padding. */
    const int64_t end = g->k.padded * g->a.copy_size, zeros = g->k.chunks == 1 ? end - k * g->a.copy_size : 0;
    const bool before = zeros > 0 && zeros <= 8 && end >= 8;
    for (int64_t i = 0; i < count && before; i++) memset(to + i * g->a.copy_stride + end - 8, 0, 8);
    if (g->a.plain && g->a.row == 1 && g->a.step != 1 && g->a.dtype == LINNET_F32)
        gather_transposed(g, (const float *)base + first + part.begin * g->a.step, count, k, to);
    else if (g->a.plain)
        for (int64_t i = 0; i < count; i++)
            gather_elements(g, to + i * g->a.copy_stride,
                            (const char *)base + ((first + i) * g->a.row + part.begin * g->a.step) * g->a.size, k);
    else
        gather_window(g, base, first, count, part, to);
    for (int64_t i = 0; i < count && zeros > 0 && !before; i++)
        memset(to + i * g->a.copy_stride + end - zeros, 0, (size_t)zeros);
}
