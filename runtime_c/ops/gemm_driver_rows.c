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
    int64_t size = (int64_t)ln_dtype_size(g->a_dtype);
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
            int64_t z = coordinate(w, 0, p->o[0], kz), y = coordinate(w, 1, p->o[1], ky);
            const char *line = base + (p->n * g->x.n + z * g->x.s[0] + y * g->x.s[1]) * size;
            for (int64_t kx = 0; kx < w->kernel[2]; kx++, out += step) {
                int64_t x = coordinate(w, 2, p->o[2], kx);
                *out = z < 0 || y < 0 || x < 0 ? g->padding : line + x * g->x.s[2] * size;
            }
        }
}

void ln_gemm_rows(const ln_gemm *g, const void *base, int64_t first, int64_t count, const void **rows) {
    if (g->plain) {
        const char *at = (const char *)base + first * g->a_row * (int64_t)ln_dtype_size(g->a_dtype);
        for (int64_t i = 0; i < count; i++, at += g->a_row * (int64_t)ln_dtype_size(g->a_dtype))
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

static void gather_elements(const ln_gemm *g, char *out, const char *from, int64_t n) {
    if (g->set->a_dtype == g->a_dtype && g->a_k == 1 && g->a_dtype == LINNET_F32 && n < 64)
        for (int64_t i = 0; i < n; i++) /* a call of memcpy costs more than this */
            ((float *)(void *)out)[i] = ((const float *)(const void *)from)[i];
    else if (g->set->a_dtype == g->a_dtype && g->a_dtype == LINNET_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)out)[i] = ((const float *)(const void *)from)[i * g->a_k];
    else
        g->set->convert(out, from, g->a_k, n, g->a_dtype);
}

static void gather_window(const ln_gemm *g, const char *base, const position *p, char *out) {
    const ln_window *w = &g->window;
    int64_t size = (int64_t)ln_dtype_size(g->a_dtype), tap_bytes = g->kc * (int64_t)ln_dtype_size(g->set->a_dtype);
    int64_t kw = w->kernel[2], x0 = p->o[2] * w->stride[2] - w->pad_begin[2];
    /* A line of taps is one run of memory when pixels lie side by side and none of it is padding. */
    bool run = g->a_k == 1 && w->dilation[2] == 1 && g->x.s[2] == g->kc && x0 >= 0 && x0 + kw <= w->in[2];
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
            int64_t z = coordinate(w, 0, p->o[0], kz), y = coordinate(w, 1, p->o[1], ky);
            const char *line = base + (p->n * g->x.n + z * g->x.s[0] + y * g->x.s[1]) * size;
            if (run && z >= 0 && y >= 0) {
                gather_elements(g, out, line + x0 * g->x.s[2] * size, kw * g->kc);
                out += kw * tap_bytes;
                continue;
            }
            for (int64_t kx = 0; kx < kw; kx++, out += tap_bytes) {
                int64_t x = coordinate(w, 2, p->o[2], kx);
                if (z < 0 || y < 0 || x < 0)
                    memcpy(out, g->padding, (size_t)tap_bytes);
                else
                    gather_elements(g, out, line + x * g->x.s[2] * size, g->kc);
            }
        }
}

void ln_gemm_gather(const ln_gemm *g, const void *base, int64_t first, int64_t count, void *out) {
    int64_t size = (int64_t)ln_dtype_size(g->set->a_dtype), k = g->taps * g->kc;
    position p = {0, {0, 0, 0}};
    if (!g->plain)
        p = position_of(&g->window, first);
    char *to = out;
    for (int64_t i = 0; i < count; i++, to += g->copy_stride) {
        if (g->plain) {
            gather_elements(g, to, (const char *)base + (first + i) * g->a_row * (int64_t)ln_dtype_size(g->a_dtype), k);
        } else {
            gather_window(g, base, &p, to);
            advance(&g->window, &p);
        }
        memset(to + k * size, 0, (size_t)((g->padded - k) * size));
    }
}
