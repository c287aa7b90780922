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
        if (++p->o[i] < w->out[i])
            return;
        p->o[i] = 0;
    }
    p->n++;
}

/* Input coordinate of tap k on an axis; -1 when it lies in the padding. */
static int64_t coordinate(const ln_window *w, int axis, int64_t o, int64_t k) {
    int64_t i = o * w->stride[axis] - w->pad_begin[axis] + k * w->dilation[axis];
    return i >= 0 && i < w->in[axis] ? i : -1;
}

/* Pointers of one output position to out[0], out[step], ..., one per tap. */
static void window_pointers(const ln_gemm *g, const char *base, const position *p, const void **out, int64_t step) {
    const ln_window *w = &g->window;
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
            int64_t z = coordinate(w, 0, p->o[0], kz), y = coordinate(w, 1, p->o[1], ky);
            const char *line = base + (p->n * g->x.n + z * g->x.s[0] + y * g->x.s[1]) * g->a_size;
            for (int64_t kx = 0; kx < w->kernel[2]; kx++, out += step) {
                int64_t x = coordinate(w, 2, p->o[2], kx);
                *out = z < 0 || y < 0 || x < 0 ? g->padding : line + x * g->x.s[2] * g->a_size;
            }
        }
}

void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, const void **rows) {
    if (g->plain) {
        const char *at = (const char *)base + first * g->a_row * g->a_size;
        for (int64_t i = 0; i < count; i++, at += g->a_row * g->a_size)
            rows[i] = at;
        return;
    }
    position p = position_of(&g->window, first);
    for (int64_t tile = 0, done = 0; done < count; tile++) {
        int64_t n = ln_gemm_tile_rows(count, g->set->rows, tile);
        for (int64_t i = 0; i < n; i++, advance(&g->window, &p))
            window_pointers(g, base, &p, rows + done * g->taps + i, n);
        done += n;
    }
}

/* memcpy without the call, for the few bytes of a tap: the last chunk overlaps the one before. */
static inline void copy_short(char *to, const char *from, int64_t bytes) {
    if (bytes >= 16) {
        for (int64_t i = 0; i + 16 <= bytes; i += 16)
            memcpy(to + i, from + i, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (int64_t i = 0; i < bytes; i++)
            to[i] = from[i];
    }
}

static void gather_elements(const ln_gemm *g, char *out, const char *from, int64_t n) {
    bool same = g->set->a_dtype == g->a_dtype;
    if (same && g->a_k == 1)
        copy_short(out, from, n * g->a_size);
    else if (same && g->a_dtype == LINNET_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)out)[i] = ((const float *)(const void *)from)[i * g->a_k];
    else
        g->set->convert(out, from, g->a_k, n, g->a_dtype);
}

/* One line of taps (kernel[2] pixels from `line`, which is NULL in the padding) for `count` positions of an output line,
 * the first of which is at `o`. */
static void gather_line(const ln_gemm *g, const char *line, int64_t o, int64_t count, char *out) {
    const ln_window *w = &g->window;
    int64_t kw = w->kernel[2], pixel = g->x.s[2] * g->a_size, tap_bytes = g->kc * g->copy_size;
    int64_t x0 = o * w->stride[2] - w->pad_begin[2];
    /* The taps are one run of memory when pixels lie side by side and none of them is padding. */
    bool run = line != NULL && g->a_k == 1 && w->dilation[2] == 1 && g->x.s[2] == g->kc;
    for (int64_t i = 0; i < count; i++, out += g->copy_stride, x0 += w->stride[2]) {
        if (run && x0 >= 0 && x0 + kw <= w->in[2]) {
            gather_elements(g, out, line + x0 * pixel, kw * g->kc);
            continue;
        }
        for (int64_t kx = 0; kx < kw; kx++) {
            int64_t x = x0 + kx * w->dilation[2];
            if (line == NULL || x < 0 || x >= w->in[2])
                memcpy(out + kx * tap_bytes, g->padding, (size_t)tap_bytes);
            else
                gather_elements(g, out + kx * tap_bytes, line + x * pixel, g->kc);
        }
    }
}

static void gather_window(const ln_gemm *g, const char *base, int64_t first, int64_t count, char *out) {
    const ln_window *w = &g->window;
    position p = position_of(w, first);
    while (count > 0) {
        int64_t n = ln_min(count, w->out[2] - p.o[2]);
        char *to = out;
        for (int64_t kz = 0; kz < w->kernel[0]; kz++)
            for (int64_t ky = 0; ky < w->kernel[1]; ky++, to += w->kernel[2] * g->kc * g->copy_size) {
                int64_t z = coordinate(w, 0, p.o[0], kz), y = coordinate(w, 1, p.o[1], ky);
                const char *line = base + (p.n * g->x.n + z * g->x.s[0] + y * g->x.s[1]) * g->a_size;
                gather_line(g, z < 0 || y < 0 ? NULL : line, p.o[2], n, to);
            }
        out += n * g->copy_stride, count -= n;
        p.o[2] += n - 1;
        advance(w, &p);
    }
}

void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, void *out) {
    int64_t k = g->taps * g->kc;
    char *to = out;
    if (g->plain)
        for (int64_t i = 0; i < count; i++)
            gather_elements(g, to + i * g->copy_stride, (const char *)base + (first + i) * g->a_row * g->a_size, k);
    else
        gather_window(g, base, first, count, to);
    for (int64_t i = 0; i < count && k < g->padded; i++)
        memset(to + i * g->copy_stride + k * g->copy_size, 0, (size_t)((g->padded - k) * g->copy_size));
}
