/* gemm_driver_rows.c - where the rows of A are: pointers into the input (indirection), or a contiguous copy of them.
 * Padding is a pointer to a short run of zero points, so that micro-kernels know nothing of it. */
#include "ops/gemm_driver.h"

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

/* A coordinate before division by the lattice to one of the input; -1 when it lies in the padding. */
static int64_t settle(const ln_gemm *g, int axis, int64_t i) {
    int64_t lattice = g->lattice[axis];
    if (lattice != 1) {
        if (i % lattice != 0) return -1;
        i /= lattice;
    }
    return i >= 0 && i < g->window.in[axis] ? i : -1;
}

/* Input coordinate of tap k on an axis for output position o; -1 in the padding. */
static int64_t coordinate(const ln_gemm *g, int axis, int64_t o, int64_t k) {
    const ln_window *w = &g->window;
    return settle(g, axis, o * w->stride[axis] - w->pad_begin[axis] + k * w->dilation[axis]);
}

/* The taps of `part` that lie in line number `line` of the kernel. */
static ln_gemm_range in_line(const ln_window *w, ln_gemm_range part, int64_t line) {
    int64_t first = line * w->kernel[2];
    return (ln_gemm_range){ln_max(part.begin - first, 0), ln_min(part.end - first, w->kernel[2])};
}

/* Where line number `line` of the kernel begins in the input, at x = 0; NULL when it lies in the padding. */
static const char *line_of(const ln_gemm *g, const char *base, const position *p, int64_t line) {
    const ln_window *w = &g->window;
    int64_t z = coordinate(g, 0, p->o[0], line / w->kernel[1]), y = coordinate(g, 1, p->o[1], line % w->kernel[1]);
    return z < 0 || y < 0 ? NULL : base + (p->n * g->x.n + z * g->x.s[0] + y * g->x.s[1]) * g->a_size;
}

/* Pointers of `count` output positions side by side to out[0], out[1], ...; those of the next tap `step` further on. */
static void window_pointers(const ln_gemm *g, const char *base, const position *p, int64_t count, ln_gemm_range part,
                            const void **out, int64_t step) {
    const ln_window *w = &g->window;
    for (int64_t l = part.begin / w->kernel[2]; l * w->kernel[2] < part.end; l++) {
        const char *line = line_of(g, base, p, l);
        ln_gemm_range taps = in_line(w, part, l);
        for (int64_t kx = taps.begin; kx < taps.end; kx++, out += step)
            for (int64_t i = 0; i < count; i++) {
                int64_t x = coordinate(g, 2, p->o[2] + i, kx);
                out[i] = line == NULL || x < 0 ? g->padding : line + x * g->x.s[2] * g->a_size;
            }
    }
}

static void gather_line(const ln_gemm *g, const char *line, int64_t o, int64_t count, ln_gemm_range taps, char *out);

/* The same where a line of the kernel is one run. */
static void line_pointers(const ln_gemm *g, const char *base, const position *p, int64_t count, char *copy,
                          const void **out, int64_t step) {
    const ln_window *w = &g->window;
    for (int64_t l = 0; l < g->segments; l++, out += step, copy += g->length * g->a_size) {
        const char *line = line_of(g, base, p, l);
        const int64_t x = p->o[2] * w->stride[2] - w->pad_begin[2], pixel = g->x.s[2] * g->a_size;
        if (line == NULL) {
            for (int64_t i = 0; i < count; i++) out[i] = g->padding;
            continue;
        }
        /* Positions that see padding have their line put together. */
        const int64_t low = x >= 0 ? 0 : ln_min(count, ln_ceil_div(-x, w->stride[2])),
                      room = w->in[2] - w->kernel[2] - x;
        const int64_t high = room < 0 ? low : ln_max(low, ln_min(count, room / w->stride[2] + 1));
        const char *at = line + (x + low * w->stride[2]) * pixel;
        for (int64_t i = low; i < high; i++, at += w->stride[2] * pixel) out[i] = at;
        for (int64_t i = 0; i < count; i++) {
            if (i == low && (i = high) == count) break;
            char *put_together = copy + i * g->copy_stride;
            gather_line(g, line, p->o[2] + i, 1, (ln_gemm_range){0, w->kernel[2]}, put_together);
            out[i] = put_together;
        }
    }
}

void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, char *copy,
                  const void **rows) {
    if (g->plain) {
        const char *at = (const char *)base + (first * g->a_row + part.begin) * g->a_size;
        for (int64_t i = 0; i < count; i++, at += g->a_row * g->a_size) rows[i] = at;
        return;
    }
    position p = position_of(&g->window, first);
    for (int64_t done = 0; done < count;) {
        int64_t n = ln_gemm_tile_rows(g->set, count - done);
        for (int64_t i = 0; i < n;) {
            int64_t side = ln_min(n - i, g->window.out[2] - p.o[2]);
            if (g->run > 1)
                line_pointers(g, base, &p, side, copy + (done + i) * g->copy_stride, rows + done * g->segments + i, n);
            else
                window_pointers(g, base, &p, side, part, rows + done * (part.end - part.begin) + i, n);
            i += side;
            p.o[2] += side - 1;
            advance(&g->window, &p);
        }
        done += n;
    }
}

/* memcpy without the call, for the few bytes of a tap: the last chunk overlaps the one before. */
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

static void gather_elements(const ln_gemm *g, char *out, const char *from, int64_t n) {
    bool same = g->set->a_dtype == g->a_dtype;
    if (same && g->a_k == 1)
        copy_short(out, from, n * g->a_size);
    else if (same && g->a_dtype == LINNET_F32)
        for (int64_t i = 0; i < n; i++) ((float *)(void *)out)[i] = ((const float *)(const void *)from)[i * g->a_k];
    else
        g->set->convert(out, from, g->a_k, n, g->a_dtype);
}

/* Taps [taps.begin, taps.end) of one line of the kernel (NULL in the padding) for `count` positions of an output line,
 * the first of which is at `o`. */
static void gather_line(const ln_gemm *g, const char *line, int64_t o, int64_t count, ln_gemm_range taps, char *out) {
    const ln_window *w = &g->window;
    int64_t kw = taps.end - taps.begin, pixel = g->x.s[2] * g->a_size, tap_bytes = g->kc * g->copy_size;
    int64_t x0 = o * w->stride[2] - w->pad_begin[2] + taps.begin * w->dilation[2];
    /* The taps are one run of memory when pixels lie side by side and none of them is padding. */
    bool run = line != NULL && g->a_k == 1 && w->dilation[2] == 1 && g->lattice[2] == 1 && g->x.s[2] == g->kc;
    for (int64_t i = 0; i < count; i++, out += g->copy_stride, x0 += w->stride[2]) {
        if (run && x0 >= 0 && x0 + kw <= w->in[2]) {
            gather_elements(g, out, line + x0 * pixel, kw * g->kc);
            continue;
        }
        int64_t kx = 0;
        if (run) { /* what lies inside is a run still */
            const int64_t from = ln_min(kw, ln_max(0, -x0)), to = ln_max(from, ln_min(kw, w->in[2] - x0));
            for (; kx < from; kx++) memcpy(out + kx * tap_bytes, g->padding, (size_t)tap_bytes);
            if (from < to) gather_elements(g, out + from * tap_bytes, line + (x0 + from) * pixel, (to - from) * g->kc);
            for (kx = to; kx < kw; kx++) memcpy(out + kx * tap_bytes, g->padding, (size_t)tap_bytes);
        }
        for (; kx < kw; kx++) {
            int64_t x = settle(g, 2, x0 + kx * w->dilation[2]);
            if (line == NULL || x < 0)
                memcpy(out + kx * tap_bytes, g->padding, (size_t)tap_bytes);
            else
                gather_elements(g, out + kx * tap_bytes, line + x * pixel, g->kc);
        }
    }
}

static void gather_window(const ln_gemm *g, const char *base, int64_t first, int64_t count, ln_gemm_range part,
                          char *out) {
    const ln_window *w = &g->window;
    position p = position_of(w, first);
    while (count > 0) {
        int64_t n = ln_min(count, w->out[2] - p.o[2]);
        char *to = out;
        for (int64_t l = part.begin / w->kernel[2]; l * w->kernel[2] < part.end; l++) {
            ln_gemm_range taps = in_line(w, part, l);
            gather_line(g, line_of(g, base, &p, l), p.o[2], n, taps, to);
            to += (taps.end - taps.begin) * g->kc * g->copy_size;
        }
        out += n * g->copy_stride, count -= n;
        p.o[2] += n - 1;
        advance(w, &p);
    }
}

/* Rows that lie side by side in memory: whole cache lines are read, and handed out to as many rows. */
static void gather_transposed(const ln_gemm *g, const float *base, int64_t count, int64_t k, char *out) {
    enum { SIDE = 16 };
    for (int64_t row = 0; row < count; row += SIDE, out += SIDE * g->copy_stride) {
        const int64_t side = ln_min(SIDE, count - row);
        for (int64_t j = 0; j < k; j++) {
            const float *from = base + row + j * g->a_k;
            char *to = out + j * (int64_t)sizeof *from;
            for (int64_t i = 0; i < side; i++) memcpy(to + i * g->copy_stride, from + i, sizeof *from);
        }
    }
}

void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, ln_gemm_range part, void *out) {
    int64_t k = (part.end - part.begin) * (g->plain ? 1 : g->kc);
    char *to = out;
    if (g->plain && g->a_row == 1 && g->a_k != 1 && g->a_dtype == LINNET_F32)
        gather_transposed(g, (const float *)base + first + part.begin * g->a_k, count, k, to);
    else if (g->plain)
        for (int64_t i = 0; i < count; i++)
            gather_elements(g, to + i * g->copy_stride,
                            (const char *)base + ((first + i) * g->a_row + part.begin * g->a_k) * g->a_size, k);
    else
        gather_window(g, base, first, count, part, to);
    for (int64_t i = 0; i < count && k < g->padded && g->chunks == 1; i++)
        memset(to + i * g->copy_stride + k * g->copy_size, 0, (size_t)((g->padded - k) * g->copy_size));
}
